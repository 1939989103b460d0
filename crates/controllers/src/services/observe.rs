//! Turns watched objects into views. A part that cannot be read is data, carried to the condition.

use std::{net::IpAddr, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{Node, Service},
        discovery::v1::EndpointSlice,
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time},
};
use kube::core::{DeserializeGuard, Selector};
use landfall_api::{
    Holder, IP, IPGroup, IPGroupSpec, IPGroupStatus, ReservedFor, Use, VirtualIP, convert, name,
    virtualip::State,
    words,
    words::{ANNOTATION_OWNER, LABEL_GSM, LABEL_IPGROUP},
};
use landfall_ipam::{Family, PoolName, Refusal};

use self::kube_vip::Carried;
use super::{
    classes::Classes,
    view::{
        ClaimView, Doubt, HolderView, Leftover, Place, PoolSource, PoolView, Request, Reservation,
        ServiceKey, ServiceView, Setter, Tenure, Version,
    },
};

pub(super) mod kube_vip;

/// The kind of pool an `IPGroup` is, as it stands in a claim's `spec.pool`.
const POOL_KIND: &str = "IPGroup";

/// A Service, or `None` if it is not of type `LoadBalancer`: then the planner need not know it.
pub(crate) fn service(object: &Service) -> Option<ServiceView> {
    let spec = object.spec.as_ref().filter(|spec| spec.type_.as_deref() == Some("LoadBalancer"))?;
    let status = object.status.as_ref();
    let ingress = status
        .and_then(|status| status.load_balancer.as_ref())
        .and_then(|balancer| balancer.ingress.as_deref())
        .unwrap_or_default();
    let mut in_status: Vec<IpAddr> =
        ingress.iter().filter_map(|entry| entry.ip.as_deref()?.parse().ok()).collect();
    in_status.shrink_to_fit();
    let carried = Carried::by(&object.metadata);
    let place = carried.place();
    let annotated = carried.annotated.as_ref().map(|annotated| annotated.addrs.as_slice());
    let annotated = annotated.unwrap_or_default();
    let families: Vec<Family> = spec
        .ip_families
        .iter()
        .flatten()
        .map(|family| if family == "IPv6" { Family::V6 } else { Family::V4 })
        .collect();
    let mut families = if families.is_empty() { vec![Family::V4] } else { families };
    let single = spec.ip_family_policy.as_deref() == Some("SingleStack");
    let mut unwanted = None;
    for family in annotated.iter().map(|addr| Family::of(*addr)) {
        // It was given one of each family once, or its user wrote them.
        if !families.contains(&family) {
            families.push(family);
            unwanted = single.then_some(family);
        }
    }
    let terms = convert::sharing_terms(&object.metadata, spec);
    let problem = carried.annotated.as_ref().and_then(|annotated| annotated.problem.clone());
    let spec_ip = spec.load_balancer_ip.as_deref().map(str::trim).filter(|text| !text.is_empty());
    // What stands in both was written by whoever gave it the address.
    let spec_ip =
        spec_ip.filter(|text| !text.parse().is_ok_and(|addr: IpAddr| annotated.contains(&addr)));
    let illegible = problem.is_some();
    let request = match (problem, &terms) {
        (Some(refusal), _) => Request::Bad(refusal),
        (None, Err(refusal)) => Request::Bad(refusal.clone()),
        (None, Ok(_)) => request(&object.metadata, spec_ip, &families),
    };
    let by_spec_alone = words::entries(&object.metadata, words::ANNOTATION_ADDRESSES).is_empty();
    let at_odds = spec_ip.is_some()
        && by_spec_alone
        && annotated.iter().any(|addr| request.of(Family::of(*addr)).is_some());
    Some(ServiceView {
        key: service_key(&object.metadata),
        uid: text(object.metadata.uid.as_deref()),
        version: version(&object.metadata),
        created: created(&object.metadata),
        deleting: object.metadata.deletion_timestamp.is_some(),
        class: spec.load_balancer_class.as_deref().map(Arc::from),
        require_all: spec.ip_family_policy.as_deref() == Some("RequireDualStack"),
        families,
        unwanted,
        at_odds,
        request,
        pools: pools_asked(&object.metadata),
        terms: terms.ok().flatten().map(Arc::new),
        terms_by_map: convert::terms_by_map(spec).into(),
        labels: object.metadata.labels.clone().unwrap_or_default(),
        place,
        shows_other: place == Place::Status && in_status.len() < ingress.len(),
        unmarked: carried.annotated.is_some() && (!carried.labelled || carried.outdated),
        illegible,
        shuns: carried.ignored.then_some(Place::Annotation),
        shows: match place {
            Place::Status => in_status,
            Place::Annotation => annotated.to_vec(),
        },
        conditions: status.and_then(|status| status.conditions.clone()).unwrap_or_default(),
    })
}

/// The addresses a Service asks for, by annotation and by `spec.loadBalancerIP`, which may agree or
/// complete each other but not contradict.
fn request(metadata: &ObjectMeta, spec: Option<&str>, families: &[Family]) -> Request {
    let listed = words::entries(metadata, words::ANNOTATION_ADDRESSES);
    let listed = listed.into_iter().map(|text| (words::ANNOTATION_ADDRESSES, text));
    let spec = spec.map(str::trim).filter(|text| !text.is_empty());
    let mut addrs: Vec<IpAddr> = Vec::new();
    for (field, text) in listed.chain(spec.map(|text| ("spec.loadBalancerIP", text))) {
        let Ok(addr) = text.parse::<IpAddr>() else {
            let (input, expected) = (text.to_owned(), "an address such as 10.0.0.5 or fd00::5");
            return Request::Bad(Refusal::Unparseable { field, input, expected });
        };
        if !families.contains(&Family::of(addr)) {
            return Request::Bad(Refusal::WrongFamily(addr));
        }
        match addrs.iter().find(|other| Family::of(**other) == Family::of(addr)) {
            Some(other) if *other == addr => {}
            Some(other) => return Request::Bad(Refusal::TwoOfOneFamily(*other, addr)),
            None => addrs.push(addr),
        }
    }
    if addrs.is_empty() { Request::Any } else { Request::Addresses(addrs) }
}

/// The pools a Service asks for; a bare name is that of an `IPGroup`.
fn pools_asked(metadata: &ObjectMeta) -> Option<Vec<PoolName>> {
    let names = words::entries(metadata, words::ANNOTATION_POOL);
    let pools = names.iter().map(|name| {
        if name.contains('/') {
            PoolName::new(name)
        } else {
            PoolName::new(&format!("{POOL_KIND}/{name}"))
        }
    });
    (!names.is_empty()).then(|| pools.collect())
}

pub(crate) fn service_key(metadata: &ObjectMeta) -> ServiceKey {
    ServiceKey::new(
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}

/// What a replaced operator left on a Service, whatever its type.
pub(super) fn leftover(object: &Service) -> Option<Leftover> {
    let metadata = &object.metadata;
    let spec = object.spec.as_ref();
    let setter = match spec.filter(|spec| spec.type_.as_deref() == Some("LoadBalancer")) {
        Some(spec) => Setter::Class(spec.load_balancer_class.as_deref().map(Arc::from)),
        None => Setter::Former,
    };
    let carried = Carried::by(metadata);
    let all = metadata.finalizers.as_deref().unwrap_or_default();
    let certain = |finalizer: &String| words::FINALIZERS_LEFT.contains(&finalizer.as_str());
    let any_certain = all.iter().any(certain);
    // Many operators use this one. It is looked at when nothing clearer is left.
    let any_shared = all.iter().any(|finalizer| finalizer == words::FINALIZER_CLOUD_PROVIDER);
    let shared_too = any_shared && (carried.is_evident() || !any_certain);
    let left = |finalizer: &String| {
        certain(finalizer) || (shared_too && finalizer == words::FINALIZER_CLOUD_PROVIDER)
    };
    let marked = carried.labelled && setter == Setter::Former;
    (any_certain || any_shared || marked).then(|| Leftover {
        uid: text(metadata.uid.as_deref()),
        version: version(metadata),
        deleting: metadata.deletion_timestamp.is_some(),
        finalizers: (any_certain || any_shared)
            .then(|| all.iter().filter(|finalizer| !left(finalizer)).cloned().collect()),
        marked,
        doubt: shared_too.then(|| Doubt { setter, evident: carried.is_evident() }),
    })
}

/// The addresses in a Service's `spec.externalIPs`, whatever its type.
pub(crate) fn external_ips(object: &Service) -> Vec<IpAddr> {
    let listed = object.spec.as_ref().and_then(|spec| spec.external_ips.as_deref());
    listed.unwrap_or_default().iter().filter_map(|text| text.parse().ok()).collect()
}

/// The addresses of a node.
pub(super) fn node_addresses(object: &Node) -> Vec<IpAddr> {
    let listed = object.status.as_ref().and_then(|status| status.addresses.as_deref());
    listed.unwrap_or_default().iter().filter_map(|entry| entry.address.parse().ok()).collect()
}

/// The addresses in a slice of endpoints.
pub(super) fn endpoint_addresses(object: &EndpointSlice) -> Vec<IpAddr> {
    let listed = object.endpoints.iter().flat_map(|endpoint| &endpoint.addresses);
    listed.filter_map(|text| text.parse().ok()).collect()
}

/// A `VirtualIP` and the address it has, unless it is migrated and nothing of it is left.
///
/// The original operator says `Migrated` also when it failed, and then the finalizers are still
/// there.
pub(super) fn virtual_ip(
    object: &DeserializeGuard<VirtualIP>,
) -> (ServiceKey, Version, Option<IpAddr>) {
    let (metadata, status) = match &object.0 {
        Ok(virtual_ip) => (&virtual_ip.metadata, virtual_ip.status.as_ref()),
        Err(invalid) => (&invalid.metadata, None),
    };
    let done = metadata.finalizers.as_ref().is_none_or(Vec::is_empty)
        && status.is_some_and(|status| {
            status.state.as_deref() == Some(State::Migrated.as_str())
                && status.cloned_service.as_deref().is_none_or(str::is_empty)
        });
    let addr = status.and_then(|status| status.address()?.parse().ok());
    (service_key(metadata), version(metadata), addr.filter(|_| !done))
}

/// An `IP`, or `None` if its name is no address: then it takes none.
pub(super) fn claim(object: &DeserializeGuard<IP>) -> Option<ClaimView> {
    let (metadata, spec) = match &object.0 {
        Ok(ip) => (&ip.metadata, Ok(&ip.spec)),
        Err(invalid) => (&invalid.metadata, Err(&invalid.error)),
    };
    let addr = name::parse(metadata.name.as_deref()?).ok()?;
    let tenure = match spec {
        Err(error) => Tenure::Nobody(format!("an IP object that cannot be read ({error})")),
        Ok(spec) if !spec.holders.is_empty() => tenure(&spec.holders),
        Ok(spec) if spec.reserved_for.is_some() => Tenure::Services(Vec::new()),
        Ok(spec) if spec.use_ == Some(Use::Reserved) => {
            Tenure::Other("a reservation for nobody".to_owned())
        }
        Ok(_) => legacy_tenure(metadata),
    };
    let reserved = spec.ok().and_then(|spec| spec.reserved_for.as_ref()).map(|to| Reservation {
        namespace: to.namespace.clone(),
        name: to.name.clone(),
        expires: to.expires.as_ref().map(|time| time.0),
    });
    let labelled = || label(metadata, LABEL_IPGROUP).map(|group| format!("{POOL_KIND}/{group}"));
    let pool = spec.ok().and_then(|spec| spec.pool.clone()).or_else(labelled);
    Some(ClaimView {
        addr,
        uid: text(metadata.uid.as_deref()),
        version: version(metadata),
        pool: pool.map(|pool| PoolName::new(&pool)),
        reserved,
        tenure,
    })
}

fn tenure(holders: &[Holder]) -> Tenure {
    // What is collected by trial gets room for four, and almost every claim has one holder.
    let mut views = Vec::with_capacity(holders.len());
    views.extend(holders.iter().map_while(holder));
    let all = views.len() == holders.len();
    all.then_some(views).map_or_else(
        || {
            let names: Vec<_> = holders
                .iter()
                .map(|holder| match &holder.namespace {
                    Some(namespace) => format!("{} {namespace}/{}", holder.kind, holder.name),
                    None => format!("{} {}", holder.kind, holder.name),
                })
                .collect();
            Tenure::Other(names.join(", "))
        },
        Tenure::Services,
    )
}

fn holder(holder: &Holder) -> Option<HolderView> {
    let namespace = holder.namespace.as_deref().filter(|_| holder.kind == "Service")?;
    Some(HolderView {
        key: ServiceKey::new(namespace, &holder.name),
        uid: holder.uid.as_deref().map(Arc::from),
        class: holder.load_balancer_class.as_deref().map(Arc::from),
        seen: holder.seen_version.as_deref().map(|seen| Version::read(Some(seen))),
        terms: convert::holder_terms(holder).map(Arc::new),
        legacy: false,
    })
}

/// Whose a claim with an empty spec is: the original operator kept that in label and annotation.
fn legacy_tenure(metadata: &ObjectMeta) -> Tenure {
    let owner = metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION_OWNER));
    match owner {
        // The owner text has no kind: with the label `gsm` it is a VirtualIP's.
        Some(owner) if label(metadata, LABEL_GSM).is_some() => {
            Tenure::Other(format!("VirtualIP {owner}"))
        }
        Some(owner) => ServiceKey::parse(owner).map_or_else(
            || Tenure::Nobody(format!("an IP object whose owner reads {owner:?}")),
            |key| {
                Tenure::Services(vec![HolderView {
                    key,
                    uid: None,
                    class: None,
                    seen: None,
                    terms: None,
                    legacy: true,
                }])
            },
        ),
        None => Tenure::Nobody("an IP object that names no holder".to_owned()),
    }
}

/// An `IPGroup`. Whatever is wrong with it is kept, part by part, for its condition.
pub(crate) fn pool(object: &DeserializeGuard<IPGroup>) -> PoolView {
    let metadata = match &object.0 {
        Ok(group) => &group.metadata,
        Err(invalid) => &invalid.metadata,
    };
    let object_name = text(metadata.name.as_deref());
    let name = PoolName::new(&format!("{POOL_KIND}/{object_name}"));
    let mut view = PoolView::empty(
        name.clone(),
        PoolSource::IpGroups,
        object_name,
        text(metadata.uid.as_deref()),
    );
    view.version = version(metadata);
    view.status = Some(IPGroupStatus::default());
    view.generation = metadata.generation;
    match &object.0 {
        Err(invalid) => view.pool = Err(vec![invalid.error.clone()]),
        Ok(group) => {
            let pool = convert::pool(name, &group.spec);
            let mut problems = pool.as_ref().err().cloned().unwrap_or_default();
            view.namespaces = selector(
                "namespaceSelector",
                group.spec.namespace_selector.as_ref(),
                &mut problems,
            );
            view.services =
                selector("serviceSelector", group.spec.service_selector.as_ref(), &mut problems);
            match group.spec.retain_for() {
                Ok(time) => view.retain_for = time,
                Err(error) => problems.push(error.to_string()),
            }
            view.pool = match pool {
                Ok(pool) if problems.is_empty() => Ok(pool),
                Ok(_) | Err(_) => Err(problems),
            };
            view.classes = Classes::one(group.spec.load_balancer_class.as_deref());
            view.quota.clone_from(&group.spec.quota);
            view.ignored = ignored(&group.spec);
            view.status = Some(group.status.clone().unwrap_or_default());
        }
    }
    view
}

fn selector(
    field: &str,
    selector: Option<&LabelSelector>,
    problems: &mut Vec<String>,
) -> Option<Selector> {
    match Selector::try_from(selector?.clone()) {
        Ok(selector) => Some(selector),
        Err(error) => {
            problems.push(format!("{field}: {error}"));
            None
        }
    }
}

fn ignored(spec: &IPGroupSpec) -> Vec<&'static str> {
    spec.announce.as_ref().map(|_| "announce").into_iter().collect()
}

pub(crate) fn version(metadata: &ObjectMeta) -> Version {
    Version::read(metadata.resource_version.as_deref())
}

fn created(metadata: &ObjectMeta) -> Timestamp {
    metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a String> {
    metadata.labels.as_ref().and_then(|all| all.get(key))
}

fn text(value: Option<&str>) -> Arc<str> {
    value.unwrap_or_default().into()
}

/// A holder as it is written into a claim.
pub(crate) fn holder_object(view: &HolderView) -> Holder {
    let terms = view.terms.as_deref().cloned().unwrap_or_default();
    Holder {
        kind: "Service".to_owned(),
        namespace: Some(view.key.namespace().to_owned()),
        name: view.key.name().to_owned(),
        uid: view.uid.as_deref().map(str::to_owned),
        ports: terms.ports,
        sharing_key: terms.key,
        sharing_with: terms.with,
        local_traffic: terms.local.then_some(true),
        selector: terms.selector,
        load_balancer_class: view.class.as_deref().map(str::to_owned),
        seen_version: view.seen.map(|seen| seen.to_string()),
    }
}

/// A reservation as it is written into a claim.
pub(super) fn reservation_object(view: &Reservation) -> ReservedFor {
    ReservedFor {
        namespace: view.namespace.clone(),
        name: view.name.clone(),
        expires: view.expires.map(Time),
    }
}

/// The value of the label `ipgroup` for a pool, where its name fits into a label.
pub(crate) fn pool_label(pool: &PoolName) -> Option<&str> {
    let group = pool.as_str().strip_prefix(POOL_KIND)?.strip_prefix('/')?;
    words::ipgroup_label(group)
}

#[cfg(test)]
mod tests;
