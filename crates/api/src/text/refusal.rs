//! Why a holder gets no address: the facts of the case, pool by pool, and the nearest fix.

use std::borrow::Cow;

use landfall_ipam::{Family, Never, PoolName, Refusal, Verdict};

use super::{clash, fix, noun};
use crate::HolderKind::{self, Namespace, Service, VirtualIp};

/// How many pools a text names; a condition's message is bounded.
const POOLS_NAMED: usize = 8;

/// A refusal with its fix, in two sentences.
pub fn refusal(kind: HolderKind, refusal: &Refusal) -> String {
    format!("{}. {}", facts(kind, refusal), fix(kind, refusal.reason()))
}

fn facts(kind: HolderKind, refusal: &Refusal) -> String {
    let noun = noun(kind);
    match refusal {
        Refusal::Unparseable { field, input, expected } => {
            format!("{field} {input:?} is not {expected}")
        }
        Refusal::TwoOfOneFamily(one, other) => {
            let limit = if kind == Service { "a Service has" } else { "there can be" };
            format!("{one} and {other} are both asked for, but {limit} one per family")
        }
        Refusal::OutsideEveryPool(addr) => format!("{addr} lies in no pool"),
        Refusal::Excluded(addr, pool) => format!("{addr} is excluded by {pool}"),
        Refusal::NeverGiven(addr, why) => format!("{addr} is {} and never given", never(*why)),
        Refusal::HeldBack(addr, pool) => {
            let by = if kind == Service { "by avoidEnds of" } else { "at the ends of" };
            format!("{addr} is held back {by} {pool}")
        }
        Refusal::TakenBy(addr, holder) => format!("{addr} is taken by {holder}"),
        Refusal::Reserved(addr, holder) => format!("{addr} is kept by {holder}"),
        Refusal::SharingRefused(addr, holder, why) => {
            format!("{addr} cannot be shared with {holder}: {}", clash(kind, why))
        }
        Refusal::WrongFamily(addr) => {
            format!("{addr} is {}, which the {noun} does not have", Family::of(*addr))
        }
        Refusal::LedgerRefused(message) => format!("the claim cannot be written: {message}"),
        Refusal::HolderRefused(message) => format!("the {noun} cannot be written: {message}"),
        Refusal::NotServed(addr, verdicts) => {
            format!("{addr} cannot be given: {}", by_pool(kind, verdicts))
        }
        Refusal::NoneGives(family, verdicts) if verdicts.is_empty() => {
            format!("no {family} address: there is no pool")
        }
        Refusal::NoneGives(family, verdicts) => {
            format!("no {family} address: {}", by_pool(kind, verdicts))
        }
    }
}

fn by_pool(kind: HolderKind, verdicts: &[(PoolName, Verdict)]) -> String {
    let named = verdicts.iter().take(POOLS_NAMED);
    let named = named.map(|(pool, answer)| format!("{pool}: {}", verdict(kind, *answer)));
    let more = match verdicts.len().saturating_sub(POOLS_NAMED) {
        0 => None,
        more => Some(format!("and {more} more")),
    };
    named.chain(more).collect::<Vec<_>>().join("; ")
}

/// The answer of one pool, as a clause that follows the name of the pool.
pub fn verdict(kind: HolderKind, verdict: Verdict) -> Cow<'static, str> {
    let noun = noun(kind);
    match (verdict, kind) {
        (Verdict::NotAsked, _) => format!("the {noun} asks for other pools").into(),
        (Verdict::Missing, _) => "there is no such pool".into(),
        (Verdict::OtherClass, Service) => "it serves another loadBalancerClass".into(),
        (Verdict::OtherClass, _) => "it serves another class".into(),
        (Verdict::OfOtherNamespaces, Service | VirtualIp | Namespace) => {
            "it is for other namespaces".into()
        }
        (Verdict::OfOtherNamespaces, _) => format!("it is not for the {noun}").into(),
        (Verdict::OtherNamespaces, Service) => "its namespaceSelector does not match".into(),
        (Verdict::OtherHolders, Service) => "its serviceSelector does not match".into(),
        (Verdict::OtherNamespaces | Verdict::OtherHolders, _) => {
            format!("it does not select the {noun}").into()
        }
        (Verdict::Ignored, Service) => "the Service tells kube-vip to ignore it".into(),
        (Verdict::Ignored, _) => format!("the {noun} opts out of it").into(),
        (Verdict::OnRequestOnly, _) => "it serves only requests for its addresses".into(),
        (Verdict::NoFamily(family), _) => format!("it has no {family} address").into(),
        (Verdict::Invalid, _) => "it is invalid".into(),
        (Verdict::Draining, _) => "it is draining".into(),
        (Verdict::OverQuota(limit), Service | VirtualIp | Namespace) => {
            format!("namespace quota reached ({limit} of {limit})").into()
        }
        (Verdict::OverQuota(limit), _) => format!("quota reached ({limit} of {limit})").into(),
        (Verdict::Full(family), _) => format!("all its {family} addresses are taken").into(),
    }
}

/// The sort of an address that no holder can have.
pub const fn never(why: Never) -> &'static str {
    match why {
        Never::Unspecified => "the unspecified address",
        Never::Loopback => "a loopback address",
        Never::Multicast => "a multicast address",
        Never::Broadcast => "the broadcast address",
        Never::Mapped => "an IPv4 address written as an IPv6 one",
        Never::ClusterIps => "an address that the cluster gives as ClusterIP",
    }
}
