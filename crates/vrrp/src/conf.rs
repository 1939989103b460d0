//! Reads keepalived's configuration files, such as those of a replaced operator.
//!
//! A file is a tree of statements: words on a line, and for some of them a block of further statements. What
//! a statement means is known only for instances, as far as a take-over needs it.

use alloc::{borrow::ToOwned, string::String, vec::Vec};
use core::net::IpAddr;

use crate::plan::Version;

/// A line of words, with a block or without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Its words, without quotes. The first one is the keyword.
    pub words: Vec<String>,
    /// The statements between its braces.
    pub block: Vec<Self>,
}

/// Why a text is no configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A closing brace without an opening one.
    #[error("line {0}: nothing to close")]
    NothingToClose(usize),
    /// A block that is open at the end.
    #[error("a block is not closed at the end of the file")]
    NotClosed,
    /// Blocks within blocks, more deeply than any configuration needs.
    #[error("line {0}: blocks are nested too deeply")]
    TooDeep(usize),
    /// A quote that is open at the end of its line.
    #[error("line {0}: a quote is not closed")]
    OpenQuote(usize),
}

/// The deepest nesting that is read.
const DEEPEST: usize = 16;

/// An instance as a file defines it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundInstance {
    /// Its name.
    pub name: String,
    /// The virtual router id, if there is one from 1 to 255.
    pub router_id: Option<u8>,
    /// The version of the protocol, if it names one.
    pub version: Option<Version>,
    /// The time between two adverts, if it is set.
    pub advert_millis: Option<u32>,
    /// The addresses that are advertised: those of the first one's family.
    pub advertised: Vec<IpAddr>,
    /// The addresses that are held and not advertised.
    pub excluded: Vec<IpAddr>,
    /// Addresses that keepalived ignores, because they are of another family than the first one.
    pub ignored: Vec<IpAddr>,
    /// The nodes that adverts are sent to, if they are not multicast. keepalived ignores peers of another family
    /// than that of the adverts.
    pub peers: Vec<IpAddr>,
    /// The password.
    pub password: Option<String>,
}

/// Reads a file into statements.
pub fn parse(text: &str) -> Result<Vec<Statement>, ParseError> {
    // The last level is the innermost open block.
    let mut levels: Vec<Vec<Statement>> = alloc::vec![Vec::new()];
    for (line, number) in text.lines().zip(1..) {
        let mut words = Vec::new();
        for token in tokens(line).ok_or(ParseError::OpenQuote(number))? {
            match token {
                Token::Word(word) => words.push(word),
                Token::Open => {
                    end_statement(&mut levels, &mut words);
                    if levels.len() > DEEPEST {
                        return Err(ParseError::TooDeep(number));
                    }
                    levels.push(Vec::new());
                }
                Token::Close => {
                    end_statement(&mut levels, &mut words);
                    close(&mut levels).ok_or(ParseError::NothingToClose(number))?;
                }
            }
        }
        end_statement(&mut levels, &mut words);
    }
    let file = levels.pop().unwrap_or_default();
    if levels.is_empty() { Ok(file) } else { Err(ParseError::NotClosed) }
}

/// The instances of a file, in its order.
pub fn instances(file: &[Statement]) -> impl Iterator<Item = FoundInstance> {
    let named = file.iter().filter(|statement| statement.keyword() == "vrrp_instance");
    named.filter_map(|statement| {
        let first_of = |keyword: &str| -> Option<&str> {
            statement.block.iter().find(|inner| inner.keyword() == keyword)?.word(1)
        };
        let listed = addresses(statement, "virtual_ipaddress");
        let is_v4 = listed.first().is_some_and(IpAddr::is_ipv4);
        let (advertised, ignored): (Vec<_>, Vec<_>) =
            listed.into_iter().partition(|address| address.is_ipv4() == is_v4);
        let mut peers = addresses(statement, "unicast_peer");
        peers.retain(|peer| advertised.is_empty() || peer.is_ipv4() == is_v4);
        let authentication = statement.inner("authentication");
        let password = authentication.flat_map(|block| block.inner("auth_pass")).next();
        Some(FoundInstance {
            name: statement.word(1)?.to_owned(),
            router_id: first_of("virtual_router_id")
                .and_then(|id| id.parse().ok())
                .filter(|id| *id != 0),
            version: match first_of("version") {
                Some("2") => Some(Version::V2),
                Some("3") => Some(Version::V3),
                Some(_) | None => None,
            },
            advert_millis: first_of("advert_int").and_then(millis),
            advertised,
            excluded: addresses(statement, "virtual_ipaddress_excluded"),
            ignored,
            peers,
            password: password.and_then(|line| line.word(1)).map(ToOwned::to_owned),
        })
    })
}

impl Statement {
    /// The first word.
    pub fn keyword(&self) -> &str {
        self.word(0).unwrap_or_default()
    }

    /// A word by its place.
    pub fn word(&self, place: usize) -> Option<&str> {
        self.words.get(place).map(String::as_str)
    }

    fn inner<'a>(&'a self, keyword: &'static str) -> impl Iterator<Item = &'a Self> {
        self.block.iter().filter(move |statement| statement.keyword() == keyword)
    }
}

/// The addresses in the blocks of this keyword, without what follows them on their lines.
fn addresses(statement: &Statement, keyword: &'static str) -> Vec<IpAddr> {
    let lines = statement.inner(keyword).flat_map(|block| &block.block);
    lines.filter_map(|line| line.keyword().split('/').next()?.parse().ok()).collect()
}

/// A number of seconds with at most three decimals, in milliseconds.
fn millis(seconds: &str) -> Option<u32> {
    let (whole, decimals) = seconds.split_once('.').unwrap_or((seconds, ""));
    let padded = decimals.bytes().chain([b'0'; 3]).take(3.max(decimals.len()));
    let decimals: String = padded.map(char::from).collect();
    let decimals = decimals.get(..3).filter(|_| decimals.len() == 3)?;
    whole.parse::<u32>().ok()?.checked_mul(1000)?.checked_add(decimals.parse().ok()?)
}

enum Token {
    Word(String),
    Open,
    Close,
}

/// The tokens of a line up to its comment; `None` if a quote stays open.
fn tokens(line: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, after) = match first {
            '#' | '!' => break,
            '{' => (Token::Open, rest.get(1..)?),
            '}' => (Token::Close, rest.get(1..)?),
            '"' => {
                let (word, after) = rest.get(1..)?.split_once('"')?;
                (Token::Word(word.to_owned()), after)
            }
            _ => {
                let ends = |c: char| c.is_whitespace() || matches!(c, '{' | '}' | '"' | '#' | '!');
                let (word, after) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
                (Token::Word(word.to_owned()), after)
            }
        };
        tokens.push(token);
        rest = after.trim_start();
    }
    Some(tokens)
}

fn end_statement(levels: &mut [Vec<Statement>], words: &mut Vec<String>) {
    if let Some(level) = levels.last_mut().filter(|_| !words.is_empty()) {
        level.push(Statement { words: core::mem::take(words), block: Vec::new() });
    }
}

/// Gives the innermost block to the statement before it. A block without a statement is dropped.
fn close(levels: &mut Vec<Vec<Statement>>) -> Option<()> {
    let block = levels.pop()?;
    let outer = levels.last_mut()?;
    if let Some(statement) = outer.last_mut() {
        statement.block.extend(block);
    }
    Some(())
}

#[cfg(test)]
mod tests;
