//! Compares the ledger with holders in both directions, for repair.

use std::{collections::BTreeMap, net::IpAddr};

use landfall_api::Use;
use landfall_ipam::{ClaimFact, HolderFact, Terms, Violation, check};

use super::{
    Ledger,
    claim::{Claim, HolderEntry, HolderRef, Tenure},
};
use crate::object::ObjectKey;

/// A possible holder, and the addresses that it shows by the rules of its kind.
#[derive(Clone, Debug)]
pub(crate) struct Showing {
    pub holder: HolderRef,
    pub shows: Vec<IpAddr>,
    /// On which terms it would share an address.
    pub terms: Option<Terms>,
}

/// An inconsistency, and the holders that it concerns.
#[derive(Clone, Debug)]
pub(crate) struct Mismatch {
    pub violation: Violation,
    pub addr: IpAddr,
    pub keys: Vec<ObjectKey>,
}

impl Ledger {
    /// Compares claims with all holders of a kind.
    ///
    /// Only claims that are `of_kind` count. A claim may name a holder as it was before it was made again:
    /// `is_former` says so of an entry.
    pub(crate) fn compare(
        &self,
        holders: impl Iterator<Item = Showing>,
        of_kind: impl Fn(&Claim) -> bool,
        is_former: impl Fn(&HolderEntry) -> bool,
    ) -> Vec<Mismatch> {
        let mut names = BTreeMap::new();
        let claims = self.claims().filter(|claim| of_kind(claim));
        let claims: Vec<_> =
            claims.filter_map(|claim| claim_fact(claim, &is_former, &mut names)).collect();
        let holders: Vec<_> = holders.map(|showing| holder_fact(showing, &mut names)).collect();
        let violations = check(&claims, &holders);
        // A holder that shows an address together with others has no claim on it: that is one finding.
        let doubled = violations.iter().filter_map(|violation| match violation {
            Violation::SharedWithoutConsent(addr, ..) => Some(*addr),
            Violation::ClaimedTwice(_)
            | Violation::ShownWithoutClaim(..)
            | Violation::HolderGone(..)
            | Violation::NeverShown(..)
            | Violation::HeldByNobody(_)
            | Violation::ShownTwice(..) => None,
        });
        let doubled: Vec<_> = doubled.collect();
        let said_otherwise = |violation: &Violation| matches!(violation, Violation::ShownWithoutClaim(addr, _) if doubled.contains(addr));
        let violations = violations.into_iter().filter(|violation| !said_otherwise(violation));
        let mismatches = violations.map(|violation| {
            let (addr, ids) = parts(&violation);
            let keys = ids.into_iter().filter_map(|id| names.get(id).cloned()).collect();
            Mismatch { violation, addr, keys }
        });
        mismatches.collect()
    }
}

/// The address of a violation, and the identities of its holders.
fn parts(violation: &Violation) -> (IpAddr, Vec<&str>) {
    match violation {
        Violation::ClaimedTwice(addr) | Violation::HeldByNobody(addr) => (*addr, Vec::new()),
        Violation::ShownWithoutClaim(addr, id)
        | Violation::HolderGone(addr, id)
        | Violation::NeverShown(addr, id)
        | Violation::ShownTwice(addr, id) => (*addr, vec![id]),
        Violation::SharedWithoutConsent(addr, one, other) => (*addr, vec![one, other]),
    }
}

type Names = BTreeMap<String, ObjectKey>;

fn holder_fact(showing: Showing, names: &mut Names) -> HolderFact {
    let Showing { holder, shows, terms } = showing;
    let id = holder.to_string();
    let namespace = holder.key.namespace().to_owned();
    names.insert(id.clone(), holder.key);
    HolderFact { id, shows, namespace, terms }
}

fn claim_fact(
    claim: &Claim,
    is_former: impl Fn(&HolderEntry) -> bool,
    names: &mut Names,
) -> Option<ClaimFact> {
    let addr = claim.addr;
    match &claim.tenure {
        Tenure::Other(_) => None,
        Tenure::WithoutHolder(_) => Some(ClaimFact { addr, holders: Vec::new(), reserved: false }),
        Tenure::Held(holders) => {
            let ids = holders.iter().map(|entry| {
                let holder = entry.holder();
                let id = if is_former(entry) {
                    format!("a former {holder}")
                } else {
                    holder.to_string()
                };
                names.insert(id.clone(), holder.key);
                id
            });
            // An administrator may reserve it for no holder at all.
            let reserved = claim.reserved.is_some() || claim.purpose == Some(Use::Reserved);
            Some(ClaimFact { addr, holders: ids.collect(), reserved })
        }
    }
}
