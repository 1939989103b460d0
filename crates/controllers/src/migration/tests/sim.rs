//! A cluster in memory: effects succeed at once, and the allocator lets a Service show the address whose
//! claim names it. Enough to follow a `VirtualIP` step by step until it rests.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use kube::core::DeserializeGuard;
use landfall_api::{GroupSegmentMapping, IP, IPGroup, VirtualIP};
use serde_json::{Value, json};

use crate::migration::{
    effect::Step,
    observe, plan,
    view::VirtualIpView,
    world::{World, is_clone, is_load_balancer, shows_something},
};
use crate::{
    ledger::{Claim, object},
    object::{ObjectKey, Version},
    store::{Source, Watched},
};

/// More steps than any `VirtualIP` may need.
const ENOUGH: usize = 40;

#[derive(Default)]
pub(in crate::migration) struct Cluster {
    pub world: World,
    version: u64,
    /// Whether the API server refuses to make a Service a `LoadBalancer`.
    pub refuses_conversion: bool,
    /// The effects so far, in order.
    pub trace: Vec<&'static str>,
    /// Addresses that no Service showed after some step.
    pub gaps: Vec<(IpAddr, &'static str)>,
}

impl Cluster {
    pub(in crate::migration) fn new() -> Self {
        let mut cluster = Self::default();
        let world = &mut cluster.world;
        world.virtual_ips.observe_only(Watched::ListEnds);
        world.mappings.observe_only(Watched::ListEnds);
        world.groups.observe_only(Watched::ListEnds);
        world.claims.observe_only(Watched::ListEnds);
        world.services.observe_only(Watched::ListEnds);
        cluster
    }

    fn next_version(&mut self) -> Version {
        self.version += 1;
        Version(self.version)
    }

    pub(in crate::migration) fn virtual_ip(&mut self, object: Value) -> &mut Self {
        let object: VirtualIP = serde_json::from_value(object).unwrap();
        let mut view = observe::virtual_ip(DeserializeGuard(Ok(object))).unwrap();
        view.version = self.next_version();
        self.put_virtual_ip(view);
        self
    }

    pub(in crate::migration) fn put_virtual_ip(&mut self, mut view: VirtualIpView) {
        view.version = self.next_version();
        let (key, version) = (view.key.clone(), view.version);
        self.world.virtual_ips.put(key, version, view, Source::Watch);
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
        let view = observe::mapping(&DeserializeGuard(Ok(object)));
        let version = self.next_version();
        self.world.mappings.put(view.name.clone(), version, view, Source::Watch);
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
        let view = observe::pool(&DeserializeGuard(Ok(object)));
        let version = self.next_version();
        self.world.groups.put(view.name.clone(), version, view, Source::Watch);
        self
    }

    pub(in crate::migration) fn service(&mut self, object: Value) -> &mut Self {
        self.put_service(serde_json::from_value(object).unwrap());
        self
    }

    pub(in crate::migration) fn put_service(&mut self, mut object: Service) {
        let version = self.next_version();
        object.metadata.resource_version = Some(version.to_string());
        let key = ObjectKey::of(&object.metadata);
        object.metadata.uid.get_or_insert_with(|| format!("uid-of-{key}"));
        self.world.services.put(key, version, object, Source::Watch);
    }

    pub(in crate::migration) fn remove_service(&mut self, key: &str) -> &mut Self {
        let version = self.next_version();
        self.world.services.remove(&ObjectKey::parse(key).unwrap(), version, false);
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
        let mut view = object::read(&DeserializeGuard(Ok(object))).unwrap();
        view.uid = "uid-of-claim".into();
        self.put_claim(view);
        self
    }

    /// Deletes a claim as a person might.
    pub(in crate::migration) fn remove_claim(&mut self, addr: &str) -> &mut Self {
        let (addr, version) = (addr.parse().unwrap(), self.next_version());
        self.world.claims.remove(&addr, version, false);
        self
    }

    fn put_claim(&mut self, mut view: Claim) {
        view.version = self.next_version();
        self.world.claims.put(view.addr, view.version, view, Source::Watch);
    }

    pub(in crate::migration) fn vip(&self, key: &str) -> &VirtualIpView {
        self.world.virtual_ips.get(&ObjectKey::parse(key).unwrap()).unwrap()
    }

    pub(in crate::migration) fn has_vip(&self, key: &str) -> bool {
        self.world.virtual_ips.get(&ObjectKey::parse(key).unwrap()).is_some()
    }

    pub(in crate::migration) fn state(&self, key: &str) -> (&str, &str) {
        let status = &self.vip(key).status;
        (status.state.as_deref().unwrap_or(""), status.message.as_deref().unwrap_or(""))
    }

    pub(in crate::migration) fn get_service(&self, key: &str) -> Option<&Service> {
        self.world.services.get(&ObjectKey::parse(key)?)
    }

    pub(in crate::migration) fn is_shown(&self, addr: IpAddr) -> bool {
        self.world.is_shown(addr)
    }

    /// Follows one `VirtualIP` until it rests; returns whether it does.
    pub(in crate::migration) fn follow(&mut self, key: &str) -> bool {
        let key = ObjectKey::parse(key).unwrap();
        for _ in 0..ENOUGH {
            self.allocate();
            let Some(vip) = self.world.virtual_ips.get(&key).cloned() else { return true };
            let Some(mut effect) = plan::plan(&self.world, &vip) else { return true };
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
            let keys: Vec<_> = self.world.virtual_ips.keys().map(ToString::to_string).collect();
            for key in keys {
                assert!(self.follow(&key), "{key} never rests: {:?}", self.trace);
            }
        }
    }

    /// The allocator: a `LoadBalancer` Service that shows nothing gets the address whose claim names it.
    fn allocate(&mut self) {
        let waiting: Vec<_> = self
            .world
            .services
            .values()
            .filter(|service| is_load_balancer(service) && !shows_something(service))
            .cloned()
            .collect();
        for mut service in waiting {
            let key = ObjectKey::of(&service.metadata);
            let uid = service.metadata.uid.clone();
            let claim = self.world.claims.values().find(|claim| claim.names(&key, uid.as_deref()));
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
                    let version = self.next_version();
                    self.world.virtual_ips.remove(&vip.key, version, false);
                } else {
                    let finalizers = finalizers.clone();
                    self.put_virtual_ip(VirtualIpView { finalizers, ..vip.clone() });
                }
            }
            Step::Take { claim } => {
                assert!(self.world.claims.get(&claim.addr).is_none(), "taken twice");
                self.put_claim(claim.clone());
            }
            Step::Pass { claim } | Step::EndReservation { claim } => {
                assert_eq!(self.world.claims.get(&claim.addr).unwrap().version, claim.version);
                self.put_claim(claim.clone());
            }
            Step::Release { claim, .. } => {
                assert!(claim.is_of(vip), "{vip:?} gives up {claim:?}");
                let version = self.next_version();
                self.world.claims.remove(&claim.addr, version, false);
            }
            Step::Copy { copy } => {
                assert!(self.world.services.get(&ObjectKey::of(&copy.metadata)).is_none());
                self.put_service((**copy).clone());
            }
            Step::Align { copy, patch, .. } => self.patch_service(copy, patch),
            Step::DropCopy { copy, .. } => {
                assert!(is_clone(self.world.services.get(copy).unwrap(), &vip.uid));
                let version = self.next_version();
                self.world.services.remove(copy, version, false);
            }
            Step::Convert { service, addr, .. } => {
                let spec = json!({"type": "LoadBalancer", "loadBalancerIP": addr});
                self.patch_service(service, &json!({ "spec": spec }));
            }
            Step::StopAsking { service, .. } => {
                self.patch_service(service, &json!({"spec": {"loadBalancerIP": null}}));
            }
        }
    }

    pub(in crate::migration) fn patch_service(&mut self, key: &ObjectKey, patch: &Value) {
        let mut object = serde_json::to_value(self.world.services.get(key).unwrap()).unwrap();
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
