//! A keyword and the values that it takes.

use core::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A longer value is none of those that any keyword takes.
const LONGEST_VALUE: usize = 256;
/// Longest name of a table, a chain or a user.
const LONGEST_NAME: usize = 31;

/// A keyword of keepalived's configuration that a user may set.
#[derive(Debug, Eq, PartialEq)]
pub struct Keyword {
    /// The keyword itself.
    pub name: &'static str,
    /// Its values.
    pub takes: Takes,
    /// What it does, in a sentence.
    pub meaning: &'static str,
    /// Whether it has no effect on anything that Landfall renders.
    pub inert: bool,
    /// Whether it makes sense only in groups without `spec.vrrp`.
    pub old_layout_only: bool,
}

/// The values that a keyword takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Takes {
    /// None: a bare keyword.
    Nothing,
    /// None, or a word for yes or no.
    Switch,
    /// A whole number between these two.
    Whole(i64, i64),
    /// None, or a whole number between these two.
    MaybeWhole(i64, i64),
    /// None or the word `all`, and a whole number between these two.
    AllAndWhole(i64, i64),
    /// Seconds with up to six decimals; the bounds are microseconds.
    Seconds(u64, u64),
    /// One of these words.
    Word(&'static [&'static str]),
    /// None, or this word.
    MaybeWord(&'static str),
    /// At least and at most so many names.
    Names(usize, usize),
    /// An IPv4 multicast address.
    Multicast4,
    /// A link-local IPv6 multicast address.
    Multicast6,
}

impl Takes {
    /// The value as it is written in a file, or `None` if it is not one of those.
    pub fn read(self, value: &str) -> Option<String> {
        if value.len() > LONGEST_VALUE {
            return None;
        }
        let parts: Vec<&str> = value.split([' ', '\t']).filter(|part| !part.is_empty()).collect();
        match (self, parts.as_slice()) {
            (Self::Nothing | Self::Switch | Self::MaybeWhole(..) | Self::MaybeWord(_), []) => {
                Some(String::new())
            }
            (Self::Switch, [word]) => one_of(word, &["true", "false", "on", "off", "yes", "no"]),
            (
                Self::Whole(least, most)
                | Self::MaybeWhole(least, most)
                | Self::AllAndWhole(least, most),
                [number],
            ) => whole(number, least, most),
            (Self::AllAndWhole(least, most), ["all", number]) => {
                whole(number, least, most).map(|number| format!("all {number}"))
            }
            (Self::Seconds(least, most), [text]) => seconds(text, least, most),
            (Self::Word(words), [word]) => one_of(word, words),
            (Self::MaybeWord(known), [word]) => one_of(word, &[known]),
            (Self::Names(least, most), names) => {
                let fit = (least..=most).contains(&names.len());
                (fit && names.iter().all(|name| is_name(name))).then(|| names.join(" "))
            }
            (Self::Multicast4, [text]) => {
                let address = text.parse().ok().filter(Ipv4Addr::is_multicast);
                address.map(|address| address.to_string())
            }
            (Self::Multicast6, [text]) => {
                let [first, ..] = text.parse::<Ipv6Addr>().ok()?.segments();
                (first & 0xff0f == 0xff02).then(|| text.to_ascii_lowercase())
            }
            _ => None,
        }
    }
}

impl fmt::Display for Takes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("no value"),
            Self::Switch => f.write_str("no value, `true` or `false`"),
            Self::Whole(least, most) => write!(f, "a whole number from {least} to {most}"),
            Self::MaybeWhole(least, most) => {
                write!(f, "no value or a whole number from {least} to {most}")
            }
            Self::AllAndWhole(least, most) => {
                write!(f, "a whole number from {least} to {most}, with or without `all` before it")
            }
            Self::Seconds(least, most) => {
                write!(f, "seconds from {} to {}", decimal(*least), decimal(*most))
            }
            Self::Word(words) => write!(f, "`{}`", words.join("` or `")),
            Self::MaybeWord(word) => write!(f, "no value or `{word}`"),
            Self::Names(0, 1) => f.write_str("no value or a name"),
            Self::Names(0, most) => write!(f, "no value or up to {most} names"),
            Self::Names(least, most) => write!(f, "{least} to {most} names"),
            Self::Multicast4 => f.write_str("an IPv4 multicast address such as 224.0.0.19"),
            Self::Multicast6 => f.write_str("a link-local multicast address such as ff02::13"),
        }
    }
}

fn one_of(word: &str, words: &[&str]) -> Option<String> {
    words.contains(&word).then(|| word.to_owned())
}

fn whole(text: &str, least: i64, most: i64) -> Option<String> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let number: i64 = text.parse().ok().filter(|_| plain)?;
    (least..=most).contains(&number).then(|| number.to_string())
}

fn seconds(text: &str, least: u64, most: u64) -> Option<String> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str, most| {
        (1..=most).contains(&text.len()) && text.bytes().all(|digit| digit.is_ascii_digit())
    };
    if !digits(whole, 6) || !digits(part, 6) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let micros = whole.checked_mul(1_000_000)?.checked_add(format!("{part:0<6}").parse().ok()?)?;
    (least..=most).contains(&micros).then(|| decimal(micros))
}

/// Microseconds as seconds.
fn decimal(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn is_name(text: &str) -> bool {
    text.len() <= LONGEST_NAME
        && text.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_')
        && text.bytes().all(|letter| letter.is_ascii_alphanumeric() || b"._-".contains(&letter))
}
