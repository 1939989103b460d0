//! Views for tests, built fluently.

use std::{net::IpAddr, sync::Arc};

use jiff::Timestamp;
use landfall_api::{Use, VirtualIPStatus};
use landfall_ipam::{Family, Terms};

use crate::{
    cluster::{
        service::{Balancer, Place, Request},
        virtual_ip::VirtualIpView,
    },
    ledger::{Claim, HolderEntry, Tenure},
    object::{ObjectKey, Version},
};

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A `LoadBalancer` Service without requests of its own.
pub(crate) fn service(key: &str) -> Balancer {
    Balancer {
        key: ObjectKey::parse(key).unwrap(),
        uid: Arc::from(format!("uid-of-{key}")),
        version: Version(1),
        created: Timestamp::UNIX_EPOCH,
        deleting: false,
        class: None,
        families: vec![Family::V4],
        extra_family: None,
        require_all: false,
        request: Request::Any,
        spec_contradicts_annotation: false,
        pools: None,
        pools_left: false,
        external: Vec::new(),
        meant_all: false,
        terms: None,
        terms_by_map: Arc::default(),
        labels: std::collections::BTreeMap::new(),
        shows: Vec::new(),
        ingress_has_hostname: false,
        place: Place::Status,
        label_missing: false,
        annotation_unreadable: false,
        opts_out_of: None,
        announced: Vec::new(),
        conditions: Vec::new(),
        plain: None,
    }
}

pub(crate) fn holder_of(service: &Balancer) -> HolderEntry {
    service.holder_entry()
}

/// A claim on an address with these Services as holders.
pub(crate) fn claim_of(addr: IpAddr, services: &[&Balancer]) -> Claim {
    Claim {
        addr,
        uid: Arc::from(format!("uid-of-{addr}")),
        version: Version(1),
        purpose: Some(Use::LoadBalancer),
        pool: None,
        reserved: None,
        tenure: Tenure::Held(services.iter().map(|service| holder_of(service)).collect()),
        node: None,
    }
}

/// A `VirtualIP` with an address, of the Service with the name of the `VirtualIP`.
pub(crate) fn virtual_ip(namespace: &str, name: &str, addr: &str) -> VirtualIpView {
    let status = VirtualIPStatus { ip: Some(addr.to_owned()), ..VirtualIPStatus::default() };
    VirtualIpView {
        key: ObjectKey::new(namespace, name),
        uid: Arc::from(format!("uid-of-{namespace}/{name}")),
        version: Version(1),
        deleting: false,
        finalizers: Vec::new(),
        migrate: false,
        service: name.to_owned(),
        wanted: None,
        status,
    }
}

impl Balancer {
    /// Willing to share with its own namespace and `other`, on one TCP port.
    pub(crate) fn sharing(mut self, key: &str, port: u16) -> Self {
        self.terms = Some(Arc::new(Terms {
            key: Some(key.to_owned()),
            with: vec!["other".to_owned()],
            ports: vec![format!("TCP/{port}")],
            ..Terms::default()
        }));
        self
    }

    pub(crate) fn showing(mut self, addrs: &[&str]) -> Self {
        self.shows = addrs.iter().map(|addr| ip(addr)).collect();
        self
    }

    pub(crate) fn asking(mut self, addr: &str) -> Self {
        self.request = Request::Addresses(vec![ip(addr)]);
        self
    }

    pub(crate) fn deleting(mut self) -> Self {
        self.deleting = true;
        self
    }

    pub(crate) fn with_uid(mut self, uid: &str) -> Self {
        self.uid = Arc::from(uid);
        self
    }

    pub(crate) fn of_class(mut self, class: &str) -> Self {
        self.class = Some(Arc::from(class));
        self
    }

    pub(crate) fn with_families(mut self, families: &[Family]) -> Self {
        self.families = families.to_vec();
        self
    }
}
