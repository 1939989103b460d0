//! Formats errors for people.

use std::error::Error;

/// The error and its causes on one line, outermost first.
///
/// Some libraries repeat the cause in their own message; a cause that was just printed is left out.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut last = text.clone();
    let mut source = error.source();
    while let Some(cause) = source {
        let message = cause.to_string();
        if !last.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        last = message;
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Outer {
        #[error("reading the file")]
        Plain(#[source] io::Error),
        #[error("reading the file: {0}")]
        Repeating(#[source] io::Error),
    }

    #[test]
    fn every_cause_is_told_once() {
        for error in
            [Outer::Plain(io::Error::other("gone")), Outer::Repeating(io::Error::other("gone"))]
        {
            assert_eq!(chain(&error), "reading the file: gone");
        }
    }
}
