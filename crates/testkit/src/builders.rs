//! Builders for objects as users write them, one line each.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt as _;
use kube::api::ObjectMeta;
use landfall_api::{IP, IPGroup, IPGroupSpec, IPSpec, keys, name};

/// A Service of type `LoadBalancer` with one port.
///
/// It has no node ports, because a cluster has fewer of them than a large test has Services.
pub fn load_balancer(name: &str) -> Service {
    Service {
        metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
        spec: Some(ServiceSpec {
            type_: Some("LoadBalancer".into()),
            allocate_load_balancer_node_ports: Some(false),
            ports: Some(vec![ServicePort { port: 80, ..ServicePort::default() }]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// Settings of a Service.
pub trait ServiceBuilder: Sized {
    #[must_use]
    fn with_spec(self, change: impl FnOnce(&mut ServiceSpec)) -> Self;

    #[must_use]
    fn labelled(self, key: &str, value: &str) -> Self;

    /// Asks for an address, or for a text that is not an address.
    #[must_use]
    fn asking(self, text: &str) -> Self {
        self.with_spec(|spec| spec.load_balancer_ip = Some(text.into()))
    }

    #[must_use]
    fn of_class(self, class: &str) -> Self {
        self.with_spec(|spec| spec.load_balancer_class = Some(class.into()))
    }

    #[must_use]
    fn of_type(self, kind: &str) -> Self {
        self.with_spec(|spec| {
            spec.type_ = Some(kind.into());
            spec.allocate_load_balancer_node_ports = None;
        })
    }

    #[must_use]
    fn annotated(self, key: &str, value: &str) -> Self;

    /// Shares its address with Services of the same key, on these TCP ports.
    #[must_use]
    fn sharing(self, key: &str, ports: &[i32]) -> Self {
        let port = |port: &i32| ServicePort {
            name: Some(format!("p{port}")),
            port: *port,
            ..ServicePort::default()
        };
        self.annotated(keys::ANNOTATION_SHARING_KEY, key)
            .with_spec(|spec| spec.ports = Some(ports.iter().map(port).collect()))
    }

    /// `SingleStack`, `PreferDualStack` or `RequireDualStack`, and the families in order.
    #[must_use]
    fn with_families(self, policy: &str, families: &[&str]) -> Self {
        self.with_spec(|spec| {
            spec.ip_family_policy = Some(policy.into());
            spec.ip_families = Some(families.iter().map(ToString::to_string).collect());
        })
    }
}

impl ServiceBuilder for Service {
    fn with_spec(mut self, change: impl FnOnce(&mut ServiceSpec)) -> Self {
        change(self.spec.get_or_insert_default());
        self
    }

    fn annotated(mut self, key: &str, value: &str) -> Self {
        self.annotations_mut().insert(key.into(), value.into());
        self
    }

    fn labelled(mut self, key: &str, value: &str) -> Self {
        self.labels_mut().insert(key.into(), value.into());
        self
    }
}

/// A pool of some CIDRs, addresses or ranges that serves every Service.
pub fn pool(name: &str, ranges: &[&str]) -> IPGroup {
    let ranges = ranges.iter().map(ToString::to_string).collect();
    IPGroup::new(name, IPGroupSpec { ranges, ..IPGroupSpec::default() })
}

/// A pool as the original operator writes it.
pub fn segment(name: &str, segment: &str, excluded: &[&str]) -> IPGroup {
    IPGroup::new(name, IPGroupSpec { segment: Some(segment.into()), ..IPGroupSpec::default() })
        .excluding(excluded)
}

/// Settings of a pool.
pub trait PoolBuilder: Sized {
    #[must_use]
    fn with(self, change: impl FnOnce(&mut IPGroupSpec)) -> Self;

    #[must_use]
    fn excluding(self, entries: &[&str]) -> Self {
        let entries = entries.iter().map(ToString::to_string).collect();
        self.with(|spec| spec.excluded_ips = Some(entries))
    }

    /// Serves one namespace only, so that tests that run at once do not interfere.
    #[must_use]
    fn only_for(self, namespace: &str) -> Self {
        let selector = matching("kubernetes.io/metadata.name", namespace);
        self.with(|spec| spec.namespace_selector = Some(selector))
    }

    #[must_use]
    fn for_services(self, key: &str, value: &str) -> Self {
        let selector = matching(key, value);
        self.with(|spec| spec.service_selector = Some(selector))
    }

    #[must_use]
    fn for_class(self, class: &str) -> Self {
        self.with(|spec| spec.load_balancer_class = Some(class.into()))
    }

    #[must_use]
    fn with_priority(self, priority: i32) -> Self {
        self.with(|spec| spec.priority = Some(priority))
    }
}

impl PoolBuilder for IPGroup {
    fn with(mut self, change: impl FnOnce(&mut IPGroupSpec)) -> Self {
        change(&mut self.spec);
        self
    }
}

/// A selector for one label.
pub fn matching(key: &str, value: &str) -> LabelSelector {
    LabelSelector {
        match_labels: Some(BTreeMap::from([(key.into(), value.into())])),
        ..LabelSelector::default()
    }
}

/// An `IP` that names no holder.
pub fn bare_claim(addr: IpAddr) -> IP {
    IP::new(&name::of(addr), IPSpec::default())
}

/// An `IP` as the original operator writes it for a Service: an empty spec, a label, an annotation.
pub fn original_claim(addr: IpAddr, group: &str, owner: &str) -> IP {
    labelled_claim(addr, keys::LABEL_IPGROUP, group, owner)
}

/// An `IP` as the original operator up to 0.3 writes it for a `VirtualIP`.
pub fn virtual_ip_claim(addr: IpAddr, mapping: &str, owner: &str) -> IP {
    labelled_claim(addr, keys::LABEL_GSM, mapping, owner)
}

/// The Service that shows a `VirtualIP`'s address, with only the fields that matter.
pub fn virtual_ip_copy(virtual_ip: &str, addr: &str) -> Service {
    let copy = load_balancer(&format!("{virtual_ip}-keepalived-clone")).of_type("ClusterIP");
    copy.with_spec(|spec| spec.external_ips = Some(vec![addr.into()]))
}

fn labelled_claim(addr: IpAddr, key: &str, value: &str, owner: &str) -> IP {
    let mut ip = bare_claim(addr);
    ip.labels_mut().insert(key.into(), value.into());
    ip.annotations_mut().insert(keys::ANNOTATION_OWNER.into(), owner.into());
    ip
}
