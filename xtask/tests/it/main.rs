//! What developers run, run as they do.

// The attribute tells clippy that the helpers in there are tests, too.
#[cfg(test)]
mod demo;
