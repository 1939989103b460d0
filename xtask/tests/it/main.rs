//! What developers run, run as they do.

// The attribute tells clippy that the helpers in there are tests.
#[cfg(test)]
mod demo;
