//! Why two holders may not share an address.

use std::borrow::Cow;

use landfall_ipam::Clash;

use super::noun;
use crate::HolderKind::{self, Service};

/// The obstacle, as a clause in which "this" is the newcomer and "it" the holder.
pub fn clash(kind: HolderKind, clash: &Clash) -> Cow<'static, str> {
    let noun = noun(kind);
    match (clash, kind) {
        (Clash::NoKey, Service) => "this Service has no landfall.dev/sharing-key".into(),
        (Clash::NoKey, _) => format!("this {noun} has no sharing key").into(),
        (Clash::OtherHasNoKey, Service) => "it has no landfall.dev/sharing-key".into(),
        (Clash::OtherHasNoKey, _) => "it has no sharing key".into(),
        (Clash::OtherKey, Service) => "its landfall.dev/sharing-key is another".into(),
        (Clash::OtherKey, _) => "its sharing key is another".into(),
        (Clash::NotNamed(namespace), Service) => {
            format!("landfall.dev/sharing-with of this Service does not name {namespace}").into()
        }
        (Clash::NotNamed(namespace), _) => {
            format!("this {noun} does not agree to share with {namespace}").into()
        }
        (Clash::OtherDoesNotName(namespace), Service) => {
            format!("its landfall.dev/sharing-with does not name {namespace}").into()
        }
        (Clash::OtherDoesNotName(namespace), _) => {
            format!("it does not agree to share with {namespace}").into()
        }
        (Clash::Port(port), _) => format!("both use {port}").into(),
        (Clash::Policy, Service) => "their externalTrafficPolicy differs".into(),
        (Clash::Policy, _) => "only one of them keeps traffic on the node it arrives at".into(),
        (Clash::Pods, Service) => {
            "externalTrafficPolicy: Local needs both to select the same pods of one namespace"
                .into()
        }
        (Clash::Pods, _) => {
            "both keep traffic on the node it arrives at, but do not select the same pods".into()
        }
    }
}
