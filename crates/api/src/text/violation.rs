//! How ledger and holders disagree.

use landfall_ipam::Violation;

use crate::HolderKind;

/// A violation, as a sentence without a full stop.
pub fn violation(kind: HolderKind, violation: &Violation) -> String {
    let Verb { shows, show, shown } = verb(kind);
    match violation {
        Violation::ClaimedTwice(addr) => format!("{addr} has two claims"),
        Violation::ShownWithoutClaim(addr, id) => {
            format!("{id} {shows} {addr}, but no claim names it as a holder")
        }
        Violation::HolderGone(addr, id) => {
            format!("the claim on {addr} names {id}, which is gone")
        }
        Violation::NeverShown(addr, id) => {
            format!("the claim on {addr} names {id}, which does not {show} it")
        }
        Violation::HeldByNobody(addr) => format!("the claim on {addr} names no holder"),
        Violation::ShownTwice(addr, id) => format!("{id} {shows} {addr} twice"),
        Violation::SharedWithoutConsent(addr, one, other) => {
            format!("{addr} is {shown} by {one} and {other}, which do not agree to share it")
        }
    }
}

/// What a holder does with an address that it has, in three forms.
struct Verb {
    shows: &'static str,
    show: &'static str,
    shown: &'static str,
}

const fn verb(kind: HolderKind) -> Verb {
    match kind {
        HolderKind::Service | HolderKind::VirtualIp => {
            Verb { shows: "shows", show: "show", shown: "shown" }
        }
        HolderKind::Namespace => Verb { shows: "uses", show: "use", shown: "used" },
        HolderKind::Node => Verb { shows: "carries", show: "carry", shown: "carried" },
        HolderKind::Pool => Verb { shows: "lists", show: "list", shown: "listed" },
    }
}
