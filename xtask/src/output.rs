//! The only way to print: data to stdout, where scripts read it, and messages to stderr.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

/// A closed pipe is no reason to fail; hence no errors here.
#[derive(Debug)]
pub(crate) struct Output {
    stdout: io::Stdout,
    stderr: io::Stderr,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self { stdout: io::stdout(), stderr: io::stderr() }
    }

    /// A line that is the result.
    pub(crate) fn data(&self, line: impl Display) {
        drop(writeln!(&self.stdout, "{line}"));
    }

    /// A message for people.
    pub(crate) fn say(&self, line: impl Display) {
        drop(writeln!(&self.stderr, "{line}"));
    }

    /// The beginning of a step.
    pub(crate) fn heading(&self, title: impl Display) {
        self.say(format_args!("\n==> {title}"));
    }

    /// An error and its causes, outermost first.
    pub(crate) fn error(&self, error: &dyn Error) {
        self.say(format_args!("error: {error}"));
        let mut source = error.source();
        while let Some(cause) = source {
            self.say(format_args!("  because: {cause}"));
            source = cause.source();
        }
    }
}

/// Seconds with one digit, which is enough to compare.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
