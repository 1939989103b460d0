//! Checks a whole settled cluster for the properties that must always hold.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    string::String,
    vec::Vec,
};
use core::net::IpAddr;

use crate::{Party, Terms, clash};

/// One claim: an address and its holders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimFact {
    /// The address, from the claim's name.
    pub addr: IpAddr,
    /// The holders it names, each by an identity that a deleted and re-created object does not keep.
    pub holders: Vec<String>,
    /// Whether it needs no holder, as a reservation.
    pub reserved: bool,
}

/// The addresses that one possible holder shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderFact {
    /// The same identity as in [`ClaimFact::holders`].
    pub id: String,
    /// The addresses that are published on it.
    pub shows: Vec<IpAddr>,
    /// Its namespace.
    pub namespace: String,
    /// On which terms it would share an address.
    pub terms: Option<Terms>,
}

impl HolderFact {
    fn party(&self) -> Party<'_> {
        (&self.namespace, self.terms.as_ref())
    }
}

/// Something that must never be true of a settled cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// Two claims on one address.
    ClaimedTwice(IpAddr),
    /// An address shown by a holder that its claim does not name, or that has no claim.
    ShownWithoutClaim(IpAddr, String),
    /// A claim on a holder that does not exist.
    HolderGone(IpAddr, String),
    /// A claim on a holder that does not show the address: it leaks.
    NeverShown(IpAddr, String),
    /// A claim that names no holder and reserves nothing.
    HeldByNobody(IpAddr),
    /// A holder shows one address twice.
    ShownTwice(IpAddr, String),
    /// Two holders show one address, though they do not agree to share it.
    SharedWithoutConsent(IpAddr, String, String),
}

/// Compares ledger and holders in both directions. An empty result means that all is well.
///
/// It judges a settled cluster: while work is under way a claim may, by design, exist before its holder shows
/// the address.
pub fn check(claims: &[ClaimFact], holders: &[HolderFact]) -> BTreeSet<Violation> {
    let mut violations = BTreeSet::new();
    let mut ledger: BTreeMap<IpAddr, BTreeSet<&str>> = BTreeMap::new();
    let shown: BTreeMap<&str, &[IpAddr]> =
        holders.iter().map(|holder| (holder.id.as_str(), holder.shows.as_slice())).collect();
    for claim in claims {
        let ids = claim.holders.iter().map(String::as_str).collect();
        if ledger.insert(claim.addr, ids).is_some() {
            violations.insert(Violation::ClaimedTwice(claim.addr));
        }
        if claim.holders.is_empty() && !claim.reserved {
            violations.insert(Violation::HeldByNobody(claim.addr));
        }
        for id in &claim.holders {
            match shown.get(id.as_str()) {
                None => violations.insert(Violation::HolderGone(claim.addr, id.clone())),
                Some(shows) if !shows.contains(&claim.addr) => {
                    violations.insert(Violation::NeverShown(claim.addr, id.clone()))
                }
                Some(_) => false,
            };
        }
    }
    let mut showing: BTreeMap<IpAddr, Vec<&HolderFact>> = BTreeMap::new();
    for holder in holders {
        for addr in holder.shows.iter().collect::<BTreeSet<_>>() {
            showing.entry(*addr).or_default().push(holder);
        }
    }
    for (addr, parties) in showing {
        for (index, one) in parties.iter().enumerate() {
            for other in parties.iter().skip(index.saturating_add(1)) {
                if clash(one.party(), other.party()).is_some() {
                    let (one, other) = (one.id.clone(), other.id.clone());
                    violations.insert(Violation::SharedWithoutConsent(addr, one, other));
                }
            }
        }
    }
    for holder in holders {
        let mut seen = BTreeSet::new();
        for addr in &holder.shows {
            if !seen.insert(addr) {
                violations.insert(Violation::ShownTwice(*addr, holder.id.clone()));
            }
            if !ledger.get(addr).is_some_and(|ids| ids.contains(holder.id.as_str())) {
                violations.insert(Violation::ShownWithoutClaim(*addr, holder.id.clone()));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use alloc::{string::ToString, vec};

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn claim(addr: &str, holders: &[&str]) -> ClaimFact {
        ClaimFact {
            addr: ip(addr),
            holders: holders.iter().map(ToString::to_string).collect(),
            reserved: false,
        }
    }

    fn holder(id: &str, shows: &[&str]) -> HolderFact {
        HolderFact {
            id: id.to_string(),
            shows: shows.iter().map(|addr| ip(addr)).collect(),
            namespace: "shop".to_string(),
            terms: None,
        }
    }

    fn sharing(id: &str, port: &str) -> HolderFact {
        let (key, ports) = (Some("k".to_string()), vec![port.to_string()]);
        let terms = Some(Terms { key, ports, ..Terms::default() });
        HolderFact { terms, ..holder(id, &["10.0.0.1"]) }
    }

    #[test]
    fn every_kind_of_damage_is_found() {
        let (a, web, db) = (ip("10.0.0.1"), "web".to_string(), "db".to_string());
        for (case, claims, holders, expected) in [
            (
                "all well",
                vec![claim("10.0.0.1", &["web"])],
                vec![holder("web", &["10.0.0.1"])],
                vec![],
            ),
            ("nothing at all", vec![], vec![], vec![]),
            (
                "shared by consent",
                vec![claim("10.0.0.1", &["web", "db"])],
                vec![sharing("web", "TCP/80"), sharing("db", "TCP/443")],
                vec![],
            ),
            (
                "shared without consent",
                vec![claim("10.0.0.1", &["web", "db"])],
                vec![sharing("web", "TCP/80"), sharing("db", "TCP/80")],
                vec![Violation::SharedWithoutConsent(a, web.clone(), db.clone())],
            ),
            (
                "doubled",
                vec![claim("10.0.0.1", &["web"])],
                vec![holder("web", &["10.0.0.1"]), holder("db", &["10.0.0.1"])],
                vec![
                    Violation::ShownWithoutClaim(a, db.clone()),
                    Violation::SharedWithoutConsent(a, web.clone(), db),
                ],
            ),
            (
                "leaked by a deleted holder",
                vec![claim("10.0.0.1", &["web"])],
                vec![],
                vec![Violation::HolderGone(a, web.clone())],
            ),
            (
                "leaked by a living holder",
                vec![claim("10.0.0.1", &["web"])],
                vec![holder("web", &[])],
                vec![Violation::NeverShown(a, web.clone())],
            ),
            (
                "held by no object",
                vec![claim("10.0.0.1", &[])],
                vec![],
                vec![Violation::HeldByNobody(a)],
            ),
            (
                "shown twice by one",
                vec![claim("10.0.0.1", &["web"])],
                vec![holder("web", &["10.0.0.1", "10.0.0.1"])],
                vec![Violation::ShownTwice(a, web)],
            ),
        ] {
            let got: Vec<_> = check(&claims, &holders).into_iter().collect();
            assert_eq!(got, expected, "{case}");
        }
    }
}
