//! The texts for people about a "no" of the allocator and about damage to the ledger.
//!
//! `landfall_ipam` states facts and knows no kinds of holders. Each text here is for one
//! [`HolderKind`]: one about a Service names fields and annotations of Services and their pools, and
//! one about another kind speaks of that kind only.

mod reason;
mod refusal;
mod sharing;
#[cfg(test)]
mod tests;
mod violation;

pub use self::{
    reason::{cause, fix},
    refusal::{never, refusal, verdict},
    sharing::clash,
    violation::violation,
};

use crate::HolderKind;

/// A holder of the kind, as a noun that follows an article.
const fn noun(kind: HolderKind) -> &'static str {
    match kind {
        HolderKind::Service | HolderKind::VirtualIp | HolderKind::Namespace | HolderKind::Node => {
            kind.as_str()
        }
        // The texts speak of pools that give addresses as well.
        HolderKind::Pool => "holding pool",
    }
}
