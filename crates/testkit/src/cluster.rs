//! The properties that a whole cluster must have, at rest and at every moment before.

mod history;
mod recorder;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use landfall_api::{HolderKind, IP, convert, keys, kube_vip, name, text};
use landfall_ipam::{ClaimFact, HolderFact, Party, Terms, check};

pub use history::{Finding, History, Then, Unasked};
pub use recorder::Recorder;

use crate::wait::{self, TimedOut};
use crate::{Error, Result};

/// On a Service whose addresses do not concern the operator.
pub const FOREIGN: &str = "testkit.landfall.dev/foreign";

/// All claims and all Services of a cluster.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub claims: Vec<IP>,
    pub services: Vec<Service>,
}

impl Snapshot {
    pub async fn take(client: &Client) -> Result<Self> {
        let (ips, services) = (Api::<IP>::all(client.clone()), Api::<Service>::all(client.clone()));
        let claims = ips.list(&ListParams::default()).await;
        let claims = claims.map_err(Error::kube("listing all IPs"))?.items;
        let services = services.list(&ListParams::default()).await;
        let services = services.map_err(Error::kube("listing all Services"))?.items;
        Ok(Self { claims, services })
    }

    /// Violations in a cluster at rest; empty means that all is well.
    pub fn problems(&self) -> Vec<String> {
        let services: Vec<_> =
            self.services.iter().filter(|service| !is_foreign(service)).collect();
        let identity = |namespace: &str, name: &str| {
            let same = |service: &&&Service| {
                service.namespace().as_deref() == Some(namespace) && service.name_any() == name
            };
            services.iter().find(same).map(|service| identity_of(service))
        };
        let claims: Vec<_> = self
            .claims
            .iter()
            .filter_map(|ip| {
                let holders: Vec<_> =
                    holders(ip, identity).into_iter().map(|named| named.id).collect();
                let reserved = holders.is_empty();
                Some(ClaimFact { addr: name::parse(&ip.name_any()).ok()?, holders, reserved })
            })
            .collect();
        let all_named = self.claims.iter().flat_map(|ip| holders(ip, identity));
        let shared_by_consent: BTreeSet<_> =
            all_named.filter(Named::shares_by_map).map(|named| named.id).collect();
        let holders: Vec<_> = services
            .iter()
            .map(|service| {
                let id = identity_of(service);
                let spec = service.spec.as_ref().filter(|_| shared_by_consent.contains(&id));
                HolderFact {
                    id,
                    shows: taken_by(service),
                    namespace: service.namespace().unwrap_or_default(),
                    terms: terms(service).or_else(|| spec.map(convert::terms_by_map)),
                }
            })
            .collect();
        let violations = check(&claims, &holders);
        violations.iter().map(|found| text::violation(HolderKind::Service, found)).collect()
    }

    /// The addresses that each Service shows, by `namespace/name`, without Services that show none.
    pub fn shown(&self) -> BTreeMap<String, Vec<IpAddr>> {
        let all = self.services.iter().map(|service| (key(service), shown(service)));
        all.filter(|(_, addrs)| !addrs.is_empty()).collect()
    }
}

/// Waits until ledger and Services agree everywhere; the error tells where they do not.
pub async fn settled(client: &Client, deadline: Duration) -> Result<Snapshot, TimedOut> {
    wait::until("ledger and Services to agree", deadline, async || {
        let seen = Snapshot::take(client).await.map_err(|error| format!("{error:?}"))?;
        let problems = seen.problems();
        if problems.is_empty() { Ok(seen) } else { Err(problems.join("; ")) }
    })
    .await
}

/// The addresses published on a Service, in order: in the annotation that kube-vip reads, if the label that
/// goes with it is there, else in the status. An annotation alone is a user's request.
pub fn shown(service: &Service) -> Vec<IpAddr> {
    let labels = service.metadata.labels.as_ref();
    let label = labels.and_then(|labels| labels.get(keys::LABEL_IMPLEMENTATION));
    let annotated = kube_vip::addresses(&service.metadata).first;
    if label.is_some_and(|value| value == keys::IMPLEMENTATION_KUBE_VIP) && !annotated.is_empty() {
        return annotated;
    }
    in_status(service)
}

/// The addresses in a Service's status, whichever program wrote them.
pub fn in_status(service: &Service) -> Vec<IpAddr> {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_deref()).unwrap_or_default();
    ingress.iter().filter_map(|entry| entry.ip.as_deref()?.parse().ok()).collect()
}

/// The shown addresses that need a claim: `0.0.0.0` and `::`, which leave the address to DHCP, do not.
fn taken_by(service: &Service) -> Vec<IpAddr> {
    shown(service).into_iter().filter(|addr| !addr.is_unspecified()).collect()
}

/// The addresses in `spec.externalIPs`, where the copies of `VirtualIP`s show theirs.
pub fn external(service: &Service) -> Vec<IpAddr> {
    let listed = service.spec.as_ref().and_then(|spec| spec.external_ips.as_deref());
    listed.unwrap_or_default().iter().filter_map(|text| text.parse().ok()).collect()
}

/// `namespace/name`.
pub fn key(service: &Service) -> String {
    format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any())
}

fn identity_of(service: &Service) -> String {
    format!("Service/{}/{}", key(service), service.uid().unwrap_or_default())
}

/// The addresses that a Service asks for, in either place; unreadable texts are skipped.
pub fn asked(service: &Service) -> BTreeSet<IpAddr> {
    let written = keys::entries(&service.metadata, keys::ANNOTATION_ADDRESSES);
    let field = service.spec.as_ref().and_then(|spec| spec.load_balancer_ip.as_deref());
    let field = field.and_then(|text| text.parse().ok());
    // Where kube-vip announces the Service, a given address is also written to `loadBalancerIP`.
    let annotated = kube_vip::addresses(&service.metadata).first;
    let field = field.filter(|addr| !annotated.contains(addr));
    written.filter_map(|text| text.parse().ok()).chain(field).collect()
}

/// The terms on which a Service shares an address now; a Service with unreadable terms shares with none.
pub fn terms(service: &Service) -> Option<Terms> {
    convert::sharing_terms(&service.metadata, service.spec.as_ref()?)
        .ok()
        .flatten()
        .map(|read| read.terms)
}

fn is_foreign(service: &Service) -> bool {
    service.annotations().contains_key(FOREIGN)
}

/// A Service that a claim names, with the terms that the claim records for it.
#[derive(Clone, Debug, PartialEq)]
struct Named {
    id: String,
    namespace: String,
    terms: Option<Terms>,
}

impl Named {
    /// Whether it shares because its namespace lets all its Services do so.
    fn shares_by_map(&self) -> bool {
        let key = self.terms.as_ref().and_then(|terms| terms.key.as_deref());
        key == Some(keys::SHARING_KEY_BY_MAP)
    }
}

impl Named {
    /// Whether it is the Service with this identity. A claim of the original operator means any Service with
    /// the name.
    fn means(&self, id: &str) -> bool {
        let of_name = self.id.strip_suffix('?');
        self.id == id || of_name.is_some_and(|of_name| id.starts_with(of_name))
    }

    fn party(&self) -> Party<'_> {
        (&self.namespace, self.terms.as_ref())
    }
}

/// The Services a claim names. Holders of other kinds are left out.
///
/// A claim of the original operator has no uid; `find` gives the Service that has the name now.
fn holders(ip: &IP, find: impl Fn(&str, &str) -> Option<String>) -> Vec<Named> {
    if ip.spec.holders.is_empty() && !ip.labels().contains_key(keys::LABEL_GSM) {
        let owner = ip.annotations().get(keys::ANNOTATION_OWNER);
        let owner = owner.and_then(|owner| owner.split_once('/'));
        return owner
            .map(|(namespace, name)| Named {
                id: find(namespace, name)
                    .unwrap_or_else(|| format!("Service/{namespace}/{name}/?")),
                namespace: namespace.to_owned(),
                terms: None,
            })
            .into_iter()
            .collect();
    }
    let services = ip.spec.holders.iter().filter(|holder| holder.kind == "Service");
    services
        .map(|holder| {
            let namespace = holder.namespace.as_deref().unwrap_or_default();
            let uid = holder.uid.as_deref().unwrap_or("?");
            Named {
                id: format!("Service/{namespace}/{}/{uid}", holder.name),
                namespace: namespace.to_owned(),
                terms: convert::holder_terms(holder),
            }
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, ServiceStatus};
    use landfall_api::Holder;

    use super::*;
    use crate::builders::{ServiceBuilder as _, bare_claim, load_balancer, original_claim};

    pub(crate) fn service(name: &str, uid: &str, shows: &[&str]) -> Service {
        let mut service = load_balancer(name);
        service.metadata.namespace = Some("shop".into());
        service.metadata.uid = Some(uid.into());
        let entry = |addr: &&str| LoadBalancerIngress {
            ip: Some((*addr).into()),
            ..LoadBalancerIngress::default()
        };
        let balancer = LoadBalancerStatus { ingress: Some(shows.iter().map(entry).collect()) };
        service.status =
            Some(ServiceStatus { load_balancer: Some(balancer), ..ServiceStatus::default() });
        service
    }

    pub(crate) fn claim(addr: &str, name: &str, uid: &str) -> IP {
        let mut ip = bare_claim(addr.parse().unwrap());
        ip.spec.holders = vec![Holder {
            kind: "Service".into(),
            namespace: Some("shop".into()),
            name: name.into(),
            uid: Some(uid.into()),
            ..Holder::default()
        }];
        ip
    }

    #[test]
    fn a_snapshot_knows_the_holder_of_a_claim() {
        let (a, b) = ("10.0.0.1", "10.0.0.2");
        let original = original_claim(a.parse().unwrap(), "dmz", "shop/web");
        let bare = bare_claim(a.parse().unwrap());
        let web = service("web", "1", &[a]);
        for (case, claims, services, problems) in [
            ("in order", vec![claim(a, "web", "1")], vec![web.clone()], 0),
            ("another of that name", vec![claim(a, "web", "0")], vec![web.clone()], 2),
            ("by the original", vec![original.clone()], vec![web.clone()], 0),
            ("by the original, gone", vec![original], vec![], 1),
            ("a reservation", vec![bare.clone()], vec![], 0),
            ("a reservation, shown", vec![bare], vec![web.clone()], 1),
            ("left over", vec![claim(a, "web", "1"), claim(b, "web", "1")], vec![web.clone()], 1),
            ("doubled", vec![claim(a, "web", "1")], vec![web, service("db", "2", &[a])], 2),
        ] {
            let found = Snapshot { claims, services }.problems();
            assert_eq!(found.len(), problems, "{case}: {found:?}");
        }
    }

    #[test]
    fn a_service_asks_for_the_addresses_in_its_annotation_and_field() {
        let asks = |service: Service| asked(&service).iter().map(ToString::to_string).collect();
        for (service, expected) in [
            (load_balancer("a"), vec![]),
            (load_balancer("a").asking("10.0.0.1"), vec!["10.0.0.1"]),
            (load_balancer("a").asking("here"), vec![]),
            (
                load_balancer("a")
                    .asking("10.0.0.1")
                    .annotated(keys::ANNOTATION_ADDRESSES, "10.0.0.2, fd00::1"),
                vec!["10.0.0.1", "10.0.0.2", "fd00::1"],
            ),
        ] {
            let found: Vec<String> = asks(service);
            assert_eq!(found, expected);
        }
    }
}
