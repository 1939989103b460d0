//! The lines that users may add to keepalived's configuration: a closed list of keywords, each with a check of
//! its value.
//!
//! A line is built from the keyword in the list and from the parts of the value that were understood, never
//! from the user's text: nothing else can get into a file, whatever the user writes.

mod keyword;
mod table;
#[cfg(test)]
mod tests;

use core::fmt;
use std::collections::BTreeMap;

pub use self::{
    keyword::{Keyword, Takes},
    table::{OF_GROUPS, OF_SERVICES},
};
use crate::{keys, problem::Problem};

/// More refused lines than this are only counted.
const MOST_PROBLEMS: usize = 8;

/// An accepted line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Line {
    /// Its keyword.
    pub keyword: &'static Keyword,
    /// Its value in the form that keepalived's manual gives; empty for a bare keyword.
    pub value: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.keyword.name)?;
        if self.value.is_empty() { Ok(()) } else { write!(f, " {}", self.value) }
    }
}

/// Accepted lines, one per keyword, in the order of the keywords.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Lines(BTreeMap<&'static str, Line>);

impl Lines {
    /// All lines, as a configuration that the original's pods read has them.
    pub fn iter(&self) -> impl Iterator<Item = &Line> {
        self.0.values()
    }

    /// The lines that a node agent renders: all but those without effect, which its keepalived may not know.
    pub fn of_agents(&self) -> impl Iterator<Item = &Line> {
        self.iter().filter(|line| !line.keyword.inert)
    }

    /// The value of a keyword, if there is such a line.
    pub fn get(&self, keyword: &str) -> Option<&str> {
        self.0.get(keyword).map(|line| line.value.as_str())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes off what makes sense only without `spec.vrrp`, and returns these keywords.
    pub fn fit_slots(&mut self) -> Vec<&'static str> {
        let unfit = |line: &Line| line.keyword.old_layout_only;
        self.0.extract_if(.., |_, line| unfit(line)).map(|(name, _)| name).collect()
    }
}

/// What was read of the lines that a user wrote.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ReadLines {
    /// The lines that are accepted.
    pub lines: Lines,
    /// The others, at most a few of them by name.
    pub refused: Vec<Problem>,
}

/// The lines for `global_defs` in `verbatimConfig` of a group.
pub fn of_group(config: &BTreeMap<String, String>) -> ReadLines {
    read("verbatimConfig", OF_GROUPS, config)
}

/// The lines for the instances of a Service in its annotation, a JSON object with texts as values.
///
/// What is no such object counts for nothing as a whole, as it did for the original.
pub fn of_service(annotation: &str) -> ReadLines {
    const FIELD: &str = keys::ANNOTATION_VERBATIM_CONFIG;
    // The original read a null as the empty text.
    type Object = Option<BTreeMap<String, Option<String>>>;
    let short = annotation.len() <= keys::LONGEST_VALUE;
    let object = short.then(|| serde_json::from_str::<Object>(annotation).ok()).flatten();
    if let Some(object) = object {
        let lines = object.unwrap_or_default().into_iter();
        let config = lines.map(|(key, value)| (key, value.unwrap_or_default())).collect();
        return read(FIELD, OF_SERVICES, &config);
    }
    let quoted = keys::excerpt(annotation);
    let fault = format!("{quoted:?} is not a JSON object with texts as values");
    let fix = r#"Write an object such as {"track_src_ip": ""}, or remove the annotation"#;
    ReadLines { refused: vec![Problem::new(FIELD, fault, fix)], ..ReadLines::default() }
}

fn read(
    field: &'static str,
    allowed: &'static [Keyword],
    config: &BTreeMap<String, String>,
) -> ReadLines {
    let mut read = ReadLines::default();
    let mut more: usize = 0;
    for (key, value) in config {
        match line(field, allowed, key, value) {
            Ok(line) => drop(read.lines.0.insert(line.keyword.name, line)),
            Err(problem) if read.refused.len() < MOST_PROBLEMS => read.refused.push(problem),
            Err(_) => more = more.saturating_add(1),
        }
    }
    if more > 0 {
        let fault = format!("{more} more lines are refused");
        read.refused.push(Problem { field, fault, fix: keep_to(allowed) });
    }
    read
}

fn line(
    field: &'static str,
    allowed: &'static [Keyword],
    key: &str,
    value: &str,
) -> Result<Line, Problem> {
    let Some(keyword) = allowed.iter().find(|keyword| keyword.name == key) else {
        let fault = format!("{:?} {}", keys::excerpt(key), why_not(key));
        return Err(Problem { field, fault, fix: keep_to(allowed) });
    };
    let read = keyword.takes.read(value);
    read.map(|value| Line { keyword, value }).ok_or_else(|| Problem {
        field,
        fault: format!("{key} takes {}, not {:?}", keyword.takes, keys::excerpt(value)),
        fix: "Write that there, or remove the line".to_owned(),
    })
}

/// What is against a keyword that is not in the list.
fn why_not(key: &str) -> &'static str {
    let says = |part| key.contains(part);
    if says("notify") || says("script") || says("smtp") || says("notification") {
        "would run a program or send mail on the nodes"
    } else if says("include") || says("file") || says("fifo") || says("dir") {
        "would read or write files of the nodes"
    } else if key.bytes().any(|letter| !matches!(letter, b'a'..=b'z' | b'0'..=b'9' | b'_')) {
        "is no keyword"
    } else {
        "is not one of the keywords that are accepted here"
    }
}

fn keep_to(allowed: &[Keyword]) -> String {
    if allowed.len() > 4 {
        return "Remove it; docs/reference/verbatim.md lists the keywords".to_owned();
    }
    let names: Vec<_> = allowed.iter().map(|keyword| keyword.name).collect();
    format!("Remove it; there may be {}", names.join(" and "))
}
