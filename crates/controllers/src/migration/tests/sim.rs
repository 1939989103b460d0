//! Steps of `VirtualIP`s carried out at the simulated API server: they succeed at once, and the allocator lets
//! a Service show the address whose claim names it. Enough to follow a `VirtualIP` until it rests.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use kube::core::DeserializeGuard;
use landfall_api::{GroupSegmentMapping, IP, IPGroup, VirtualIP};
use serde_json::{Value, json};

use crate::{
    cluster::{
        pool,
        virtual_ip::{self, VirtualIpView},
    },
    ledger::{Claim, object},
    migration::{
        effect::{Services, Step},
        plan,
        world::{World, is_clone, is_load_balancer, is_shown, shows_something},
    },
    object::ObjectKey,
    shared::Shared,
    sim::ApiServer,
};

/// More steps than any `VirtualIP` may need.
const ENOUGH: usize = 40;

#[derive(Default)]
pub(in crate::migration) struct Cluster {
    server: ApiServer,
    shared: Shared,
    /// How much of the history the watches have delivered.
    delivered: usize,
    /// Whether the API server refuses to make a Service a `LoadBalancer`.
    pub refuses_conversion: bool,
    /// The effects so far, in order.
    pub trace: Vec<&'static str>,
    /// Addresses that no Service showed after some step.
    pub gaps: Vec<(IpAddr, &'static str)>,
}

impl Cluster {
    /// All watches deliver everything.
    fn deliver(&mut self) {
        while let Some(change) = self.server.history.get(self.delivered) {
            self.shared.hear(change.news());
            self.delivered += 1;
        }
        self.shared.settle();
    }

    pub(in crate::migration) fn virtual_ip(&mut self, object: Value) -> &mut Self {
        let object: VirtualIP = serde_json::from_value(object).unwrap();
        self.put_virtual_ip(virtual_ip::read(DeserializeGuard(Ok(object))).unwrap());
        self
    }

    pub(in crate::migration) fn put_virtual_ip(&mut self, view: VirtualIpView) {
        self.server.put_virtual_ip(view);
        self.deliver();
    }

    pub(in crate::migration) fn mapping(
        &mut self,
        name: &str,
        segment: &str,
        excluded: &[&str],
    ) -> &mut Self {
        let object = json!({
            "apiVersion": "paas.org/v1", "kind": "GroupSegmentMapping", "metadata": {"name": name},
            "spec": {"keepalivedGroup": "kg", "segment": segment, "excludedIPs": excluded},
        });
        let object: GroupSegmentMapping = serde_json::from_value(object).unwrap();
        self.server.put_mapping(virtual_ip::read_mapping(&DeserializeGuard(Ok(object))));
        self.deliver();
        self
    }

    pub(in crate::migration) fn group(
        &mut self,
        name: &str,
        segment: &str,
        excluded: &[&str],
    ) -> &mut Self {
        let object = json!({
            "apiVersion": "paas.org/v1", "kind": "IPGroup", "metadata": {"name": name},
            "spec": {"segment": segment, "excludedIPs": excluded},
        });
        let object: IPGroup = serde_json::from_value(object).unwrap();
        let view = pool::read(&DeserializeGuard(Ok(object)));
        self.server.put_pool(&view.name.clone(), |pool| *pool = view);
        self.deliver();
        self
    }

    pub(in crate::migration) fn service(&mut self, object: Value) -> &mut Self {
        self.put_service(serde_json::from_value(object).unwrap());
        self
    }

    pub(in crate::migration) fn put_service(&mut self, object: Service) {
        self.server.put_object(object);
        self.deliver();
    }

    pub(in crate::migration) fn remove_service(&mut self, key: &str) -> &mut Self {
        self.server.delete_service(key);
        self.deliver();
        self
    }

    /// A claim as the API server stores it.
    pub(in crate::migration) fn claim(
        &mut self,
        addr: &str,
        labels: &Value,
        owner: &str,
        spec: &Value,
    ) -> &mut Self {
        let object = json!({
            "apiVersion": "paas.org/v1", "kind": "IP",
            "metadata": {
                "name": addr, "labels": labels, "annotations": {"virtualips.paas.il/owner": owner},
            },
            "spec": spec,
        });
        let object: IP = serde_json::from_value(object).unwrap();
        self.put_claim(object::read(&DeserializeGuard(Ok(object))).unwrap());
        self
    }

    /// Deletes a claim as a person might.
    pub(in crate::migration) fn remove_claim(&mut self, addr: &str) -> &mut Self {
        self.server.delete_claim(addr.parse().unwrap());
        self.deliver();
        self
    }

    fn put_claim(&mut self, claim: Claim) {
        self.server.put_claim(claim);
        self.deliver();
    }

    /// The claim on an address.
    pub(in crate::migration) fn claim_on(&self, addr: IpAddr) -> Option<&Claim> {
        self.server.claims.get(&addr)
    }

    pub(in crate::migration) fn vip(&self, key: &str) -> &VirtualIpView {
        &self.server.virtual_ips[&ObjectKey::parse(key).unwrap()]
    }

    pub(in crate::migration) fn has_vip(&self, key: &str) -> bool {
        self.server.virtual_ips.contains_key(&ObjectKey::parse(key).unwrap())
    }

    pub(in crate::migration) fn state(&self, key: &str) -> (&str, &str) {
        let status = &self.vip(key).status;
        (status.state.as_deref().unwrap_or(""), status.message.as_deref().unwrap_or(""))
    }

    pub(in crate::migration) fn get_service(&self, key: &str) -> Option<&Service> {
        self.server.object(&ObjectKey::parse(key)?)
    }

    pub(in crate::migration) fn is_shown(&self, addr: IpAddr) -> bool {
        is_shown(&self.shared.ledger, addr)
    }

    /// The Services of a `VirtualIP`, as a live read shows them.
    fn services_of(&self, vip: &VirtualIpView) -> Services {
        let read = |key: &ObjectKey| self.server.object(key).cloned().map(Box::new);
        Services { target: read(&vip.target()), copy: read(&vip.clone_key()) }
    }

    /// The next step of a `VirtualIP`.
    pub(in crate::migration) fn next(&self, vip: &VirtualIpView) -> Option<Step> {
        let services = self.services_of(vip);
        let Shared { cluster, ledger, .. } = &self.shared;
        plan::plan(World { cluster, ledger, services: &services }, vip)
    }

    /// Follows one `VirtualIP` until it rests; returns whether it does.
    pub(in crate::migration) fn follow(&mut self, key: &str) -> bool {
        let key = ObjectKey::parse(key).unwrap();
        for _ in 0..ENOUGH {
            self.allocate();
            let Some(vip) = self.server.virtual_ips.get(&key).cloned() else { return true };
            let Some(mut effect) = self.next(&vip) else { return true };
            if self.refuses_conversion && matches!(effect, Step::Convert { .. }) {
                match plan::refused(&vip, &effect, "exceeded quota") {
                    Some(status) => effect = status,
                    None => return true,
                }
            }
            let shown: Vec<_> = vip
                .status
                .address()
                .and_then(|text| text.parse().ok())
                .filter(|addr| self.is_shown(*addr))
                .into_iter()
                .collect();
            self.trace.push(effect.label());
            self.apply(&vip, &effect);
            for addr in shown {
                if !self.is_shown(addr) {
                    self.gaps.push((addr, effect.label()));
                }
            }
        }
        false
    }

    /// Follows every `VirtualIP` until all rest.
    pub(in crate::migration) fn settle(&mut self) {
        for _ in 0..4 {
            let keys: Vec<_> = self.server.virtual_ips.keys().map(ToString::to_string).collect();
            for key in keys {
                assert!(self.follow(&key), "{key} never rests: {:?}", self.trace);
            }
        }
    }

    /// The allocator: a `LoadBalancer` Service that shows nothing gets the address whose claim names it.
    fn allocate(&mut self) {
        let objects = self.server.services.values().filter_map(|stored| stored.object.as_deref());
        let waiting = objects.filter(|one| is_load_balancer(one) && !shows_something(one));
        let waiting: Vec<_> = waiting.cloned().collect();
        for mut service in waiting {
            let key = ObjectKey::of(&service.metadata);
            let uid = service.metadata.uid.clone();
            let claim = self.server.claims.values().find(|claim| claim.names(&key, uid.as_deref()));
            if let Some(addr) = claim.map(|claim| claim.addr) {
                let status = json!({"loadBalancer": {"ingress": [{"ip": addr}]}});
                service.status = serde_json::from_value(status).unwrap();
                self.put_service(service);
            }
        }
    }

    pub(in crate::migration) fn apply(&mut self, vip: &VirtualIpView, effect: &Step) {
        match effect {
            Step::Status { version, status, .. } => {
                assert_eq!(*version, vip.version);
                self.put_virtual_ip(VirtualIpView { status: status.clone(), ..vip.clone() });
            }
            Step::Finalizers { version, finalizers } => {
                assert_eq!(*version, vip.version);
                if vip.deleting && finalizers.is_empty() {
                    self.server.delete_virtual_ip(&vip.key);
                    self.deliver();
                } else {
                    let finalizers = finalizers.clone();
                    self.put_virtual_ip(VirtualIpView { finalizers, ..vip.clone() });
                }
            }
            Step::Take { claim } => {
                assert!(!self.server.claims.contains_key(&claim.addr), "taken twice");
                self.put_claim(claim.clone());
            }
            Step::Pass { claim } | Step::EndReservation { claim } => {
                assert_eq!(self.server.claims[&claim.addr].version, claim.version);
                self.put_claim(claim.clone());
            }
            Step::Release { claim, .. } => {
                assert!(claim.is_of(vip), "{vip:?} gives up {claim:?}");
                self.server.delete_claim(claim.addr);
                self.deliver();
            }
            Step::Copy { copy } => {
                assert!(self.server.object(&ObjectKey::of(&copy.metadata)).is_none());
                self.put_service((**copy).clone());
            }
            Step::Align { copy, patch, .. } => self.patch_service(copy, patch),
            Step::DropCopy { copy, .. } => {
                assert!(is_clone(self.server.object(copy).unwrap(), &vip.uid));
                self.server.delete_service(copy.as_str());
                self.deliver();
            }
            Step::Convert { service, addr, .. } => {
                let spec = json!({"type": "LoadBalancer", "loadBalancerIP": addr});
                self.patch_service(service, &json!({ "spec": spec }));
            }
            Step::StopAsking { service, .. } => {
                self.patch_service(service, &json!({"spec": {"loadBalancerIP": null}}));
            }
            Step::Look { .. } => unreachable!("a plan has read its Services"),
        }
    }

    pub(in crate::migration) fn patch_service(&mut self, key: &ObjectKey, patch: &Value) {
        let mut object = serde_json::to_value(self.server.object(key).unwrap()).unwrap();
        merge(&mut object, patch);
        self.put_service(serde_json::from_value(object).unwrap());
    }
}

/// A merge patch, as the API server does it.
fn merge(object: &mut Value, patch: &Value) {
    let Some(changes) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (key, change) in changes {
        let fields = object.as_object_mut().unwrap();
        if change.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key).or_insert(Value::Null), change);
        }
    }
}
