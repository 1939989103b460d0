//! A tenant in a namespace that no pool serves, who tries to get addresses of others.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use landfall_api::keys;

use super::world::{self, HOSTILE};
use crate::builders::{ServiceBuilder as _, load_balancer};
use crate::cluster::{Snapshot, key};
use crate::random::Random;

const SERVICES: usize = 6;

/// The tenant's next act: the name of a Service, and its new form, or `None` to delete it.
pub(super) fn any_deed(random: &mut Random) -> (String, &'static str, Option<Service>) {
    let name = format!("evil{}", random.below(SERVICES));
    let addr = world::any_group_address(random).to_string();
    let service = load_balancer(&name);
    let annotated = |key: &str, value: &str| service.clone().annotated(key, value);
    let (what, service) = match random.below(9) {
        0 => {
            ("asks by kube-vip's annotation", annotated(keys::ANNOTATION_KUBE_VIP_ADDRESSES, &addr))
        }
        1 => {
            let list: Vec<_> = (0..64).map(|last| format!("10.40.0.{last}")).collect();
            let list = list.join(",");
            ("lists a pool in it", annotated(keys::ANNOTATION_KUBE_VIP_ADDRESSES, &list))
        }
        2 => {
            let first = random.below(48);
            let addrs = (first..first + 16).map(|last| format!("10.40.0.{last}")).collect();
            let service = service.of_type("ClusterIP");
            (
                "lists a pool in externalIPs",
                service.with_spec(|spec| spec.external_ips = Some(addrs)),
            )
        }
        3 => ("asks for an address", annotated(keys::ANNOTATION_ADDRESSES, &addr)),
        4 => ("asks by the words of MetalLB", annotated("metallb.io/loadBalancerIPs", &addr)),
        5 => {
            let shared = annotated(keys::ANNOTATION_SHARING_WITH, "*").sharing("red", &[9999]);
            ("guesses a key", shared.asking(&addr))
        }
        6 => {
            let shared = annotated("metallb.io/allow-shared-ip", "red");
            ("guesses a key of MetalLB", shared.asking(&addr))
        }
        7 => {
            let list = vec!["pool"; 20_000].join(",");
            ("writes a long list", annotated(keys::ANNOTATION_POOL, &list))
        }
        _ => return (name, "goes", None),
    };
    (name, what, Some(service))
}

/// Pool addresses that the tenant got, and other Services told about it. An address outside every pool may go
/// to any Service that asks for it, where kube-vip is in use and nothing forbids it.
pub(super) fn harm(seen: &Snapshot) -> Vec<String> {
    let prefix = format!("{HOSTILE}/");
    let (of_pools, beyond): (Vec<_>, Vec<_>) = seen
        .claims
        .iter()
        .filter(|claim| {
            let mut holders = claim.spec.holders.iter();
            holders.any(|holder| holder.namespace.as_deref() == Some(HOSTILE))
        })
        .partition(|claim| claim.spec.pool.is_some());
    let got =
        of_pools.iter().map(|claim| format!("a Service of {HOSTILE} has {}", claim.name_any()));
    // A Service that asks for an address which the tenant has outside the pools is told its holder.
    let is_beyond = |message: &str| {
        let mut addrs = beyond.iter().filter_map(|claim| claim.spec.address.as_deref());
        addrs.any(|addr| message.contains(&format!("{addr} ")))
    };
    let others = seen.services.iter().filter(|service| !key(service).starts_with(&prefix));
    let told = others.filter_map(|service| {
        let conditions = service.status.as_ref()?.conditions.as_ref()?;
        let mut said = conditions.iter().filter(|said| said.message.contains(&prefix));
        let said = said.find(|said| !is_beyond(&said.message))?;
        Some(format!("{} was written because of {HOSTILE}: {}", key(service), said.message))
    });
    got.chain(told).collect()
}
