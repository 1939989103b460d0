//! Follows guides as their readers do: runs every command and applies every block.

use crate::stage::{Arena, root};

/// A guide, or a part of one.
pub(crate) struct Guide {
    text: String,
}

impl Guide {
    pub(crate) fn read(file: &str) -> Self {
        Self::of(std::fs::read_to_string(root().join("docs/guides").join(file)).unwrap())
    }

    /// Any other document.
    pub(crate) fn of(text: String) -> Self {
        Self { text }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The text under one heading.
    pub(crate) fn section(&self, heading: &str) -> Self {
        let mut sections = self.text.split("\n## ");
        let found = sections.find(|section| section.lines().next() == Some(heading));
        Self { text: found.unwrap_or_else(|| panic!("no section {heading:?}")).to_owned() }
    }

    /// The commands, in order.
    pub(crate) fn commands(&self) -> Vec<&str> {
        self.blocks("sh").flat_map(str::lines).collect()
    }

    pub(crate) fn blocks<'a>(&'a self, language: &str) -> impl Iterator<Item = &'a str> {
        let fence = format!("```{language}\n");
        let blocks: Vec<_> = self.text.split(&*fence).skip(1).collect();
        blocks.into_iter().filter_map(|rest| rest.split("```").next())
    }
}

/// Runs a line of a guide as a reader would, from the top of the repository.
pub(crate) async fn walk(arena: &Arena, line: &str) -> String {
    let mut words = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    let here = |word: &String| match word.strip_prefix("deploy/") {
        Some(_) => root().join(word).to_string_lossy().into_owned(),
        None => word.clone(),
    };
    // `-o jsonpath='…'` is one word to a shell.
    let mut args: Vec<String> = Vec::new();
    for word in words.iter().skip(1).map(here) {
        match args.last_mut() {
            Some(last) if last.ends_with("jsonpath=") => last.push_str(&word),
            _ => args.push(word),
        }
    }
    arena.kubectl(&args.iter().map(String::as_str).collect::<Vec<_>>()).await
}
