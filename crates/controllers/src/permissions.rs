//! The types of RBAC rules that parts of Landfall declare beside the code that needs them.
//!
//! `xtask` renders roles from these rules, so a role can neither lack a permission that the code needs
//! nor keep one that it no longer uses.

/// One rule of a `Role` or `ClusterRole`; the list that contains it decides which.
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

impl Rule {
    /// To watch the definitions of these kinds, which may not be installed.
    pub(crate) const fn of_definitions(names: &'static [&'static str]) -> Self {
        Self {
            groups: &["apiextensions.k8s.io"],
            resources: &["customresourcedefinitions"],
            verbs: &["list", "watch"],
            names,
        }
    }
}

/// Rules that are granted as a whole. Each role states its purpose, for the manifests and for the check
/// whether an operator has the permissions it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    /// Its value in the label [`landfall_api::keys::LABEL_ROLE`].
    pub label: &'static str,
    /// When an operator needs it, and why.
    pub purpose: &'static str,
    /// The rules it grants.
    pub rules: &'static [Rule],
}
