//! What a part of Landfall must be allowed to do, beside the code that does it.
//!
//! `xtask` renders roles from these rules, so a role can neither lack what the code needs nor keep
//! what it no longer uses.

/// One rule of a `Role` or `ClusterRole`; which of the two, the list that holds it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// API groups, `""` for the core one.
    pub groups: &'static [&'static str],
    /// Resources in plural, subresources as `services/status`.
    pub resources: &'static [&'static str],
    /// Verbs in lower case.
    pub verbs: &'static [&'static str],
    /// Objects it is restricted to; empty for all. `create` cannot be restricted, because the name
    /// is not known when the request is authorised.
    pub names: &'static [&'static str],
}

/// Rules that are granted as a whole. Each says what it is for, in the manifests and to whoever checks
/// whether an operator has what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    /// Its value in the label [`landfall_api::keys::LABEL_ROLE`].
    pub label: &'static str,
    /// When an operator needs it, and what it does with it.
    pub purpose: &'static str,
    /// What it allows.
    pub rules: &'static [Rule],
}
