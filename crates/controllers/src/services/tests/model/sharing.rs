//! Which Services may share an address.

use landfall_ipam::{Reason, Terms};

use super::{
    acts::Name,
    reference::{Claim, Model, split},
};

impl Model {
    /// Whether a Service may share an address with its holders.
    pub(super) fn may_join(&self, name: Name, claim: &Claim) -> Result<(), Reason> {
        if claim.holders.is_empty() || self.services[name].terms.is_none() {
            return Err(Reason::TakenBy);
        }
        if claim.reserved.as_ref().is_some_and(|reserved| !reserved.is_for(name)) {
            return Err(Reason::Reserved);
        }
        if self.clashes(name, claim) { Err(Reason::SharingRefused) } else { Ok(()) }
    }

    /// Whether a Service may not share an address with one of its other holders.
    pub(super) fn clashes(&self, name: Name, claim: &Claim) -> bool {
        let mine = (split(name).0, self.services[name].terms.as_ref());
        claim
            .holders
            .iter()
            .filter(|holder| holder.name != name)
            .any(|holder| !agree(mine, (split(holder.name).0, holder.terms.as_ref())))
    }
}

/// Whether two Services, each in its namespace and with its terms, may share an address.
fn agree(one: (&str, Option<&Terms>), other: (&str, Option<&Terms>)) -> bool {
    let ((here, Some(mine)), (there, Some(theirs))) = (one, other) else { return false };
    let consents = |terms: &Terms, to: &str| {
        here == there || terms.with.iter().any(|name| name == "*" || name == to)
    };
    let same_pods = here == there && mine.selector.is_some() && mine.selector == theirs.selector;
    mine.key == theirs.key
        && consents(mine, there)
        && consents(theirs, here)
        && mine.ports.iter().all(|port| !theirs.ports.contains(port))
        && mine.local == theirs.local
        && (same_pods || !mine.local)
}
