//! What is wrong with something that a user wrote, and the nearest fix.

/// A field that cannot be used as it is.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{field}: {fault}. {fix}.")]
pub struct Problem {
    /// The field or annotation, such as `vrrp.slots`.
    pub field: &'static str,
    /// What is wrong with it, without a full stop.
    pub fault: String,
    /// What to do about it, without a full stop.
    pub fix: String,
}

impl Problem {
    /// A problem with its nearest fix.
    pub fn new(field: &'static str, fault: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { field, fault: fault.into(), fix: fix.into() }
    }
}
