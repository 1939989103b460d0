//! A namespace, with the acts of its users and what they observe.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use landfall_api::{IP, IPGroup, IPGroupStatus, keys, name};
use landfall_testkit::builders::ServiceBuilder as _;
use landfall_testkit::cluster::{self, Snapshot};
use landfall_testkit::{ControlPlane, builders, wait};
use serde_json::{Value, json};

use super::{LONG, delete};
use crate::kube_vip::Map;

/// The two ways to define pools and to publish addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// An `IPGroup`, and the status.
    Groups,
    /// The `ConfigMap` of kube-vip's cloud provider, and its annotation.
    KubeVip,
}

/// A namespace with its user's acts, and the pools that an administrator makes for it.
#[derive(Clone)]
pub(crate) struct Tenant {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) services: Api<Service>,
    pub(crate) pools: Api<IPGroup>,
    pub(crate) claims: Api<IP>,
    /// Whether an operator runs all the time, so that edits of pools are waited for.
    pub(crate) served: bool,
}

impl Tenant {
    pub(super) async fn new(plane: &ControlPlane, namespace: &str) -> Self {
        plane.ensure_namespace(namespace).await.unwrap();
        // Clients belong to a runtime, and each test has its own.
        let client = plane.admin_client().await.unwrap();
        Self {
            namespace: namespace.to_owned(),
            services: Api::namespaced(client.clone(), namespace),
            pools: Api::all(client.clone()),
            claims: Api::all(client.clone()),
            client,
            served: false,
        }
    }

    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.namespace)
    }

    pub(crate) async fn create(&self, service: Service) -> Service {
        self.services.create(&PostParams::default(), &service).await.unwrap()
    }

    pub(crate) async fn get(&self, name: &str) -> Service {
        self.services.get(name).await.unwrap()
    }

    pub(crate) async fn patch(&self, name: &str, patch: Value) -> Service {
        self.services.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    /// Writes the status as another program or a person might.
    pub(crate) async fn set_ingress(&self, name: &str, ingress: Value) -> Service {
        let patch = json!({"status": {"loadBalancer": {"ingress": ingress}}});
        let patch = Patch::Merge(patch);
        self.services.patch_status(name, &PatchParams::default(), &patch).await.unwrap()
    }

    pub(crate) async fn ask(&self, name: &str, address: impl Into<Option<&str>>) -> Service {
        self.patch(name, json!({"spec": {"loadBalancerIP": address.into()}})).await
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.services.delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn pool(&self, pool: IPGroup) -> IPGroup {
        let pool = self.pools.create(&PostParams::default(), &pool).await.unwrap();
        self.knows(&pool).await;
        pool
    }

    pub(crate) async fn edit_pool(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        let pool = self.pools.patch(name, &PatchParams::default(), &patch).await.unwrap();
        self.knows(&pool).await;
    }

    /// Waits until the operator has seen this version of a pool: watches of different kinds run at their own
    /// pace, and the next act on a Service would otherwise race against the edit.
    async fn knows(&self, pool: &IPGroup) {
        if !self.served {
            return;
        }
        let (name, generation) = (pool.name_any(), pool.metadata.generation);
        wait::until(format!("the operator to know IPGroup {name}"), LONG, async || {
            let status = self.pools.get(&name).await.map_err(|error| error.to_string())?.status;
            match status.as_ref().and_then(|status| status.observed_generation) {
                seen if seen >= generation => Ok(()),
                _ => Err(format!("{status:?}")),
            }
        })
        .await
        .unwrap();
    }

    /// Lets Services of all namespaces have these addresses and no others, in one dialect or the other. In
    /// the `ConfigMap`, `.0` and `.255` are never given.
    pub(crate) async fn addresses(&self, dialect: Dialect, ranges: &[&str]) {
        match dialect {
            Dialect::Groups => {
                let name = &*self.namespace;
                if self.pools.get_opt(name).await.unwrap().is_some() {
                    self.edit_pool(name, json!({ "ranges": ranges })).await;
                } else {
                    self.pool(builders::pool(name, ranges)).await;
                }
            }
            Dialect::KubeVip => {
                Map::new(&self.client).keeps(&json!({"cidr-global": ranges.join(",")})).await;
            }
        }
    }

    /// Removes the addresses that a Service shows, as a careless user might.
    pub(crate) async fn wipe(&self, dialect: Dialect, name: &str) {
        match dialect {
            Dialect::Groups => drop(self.set_ingress(name, json!([])).await),
            Dialect::KubeVip => {
                let annotation = json!({keys::ANNOTATION_KUBE_VIP_ADDRESSES: null});
                self.patch(name, json!({"metadata": {"annotations": annotation}})).await;
            }
        }
    }

    pub(crate) async fn delete_pool(&self, name: &str) {
        self.pools.delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn make_claim(&self, claim: &IP) -> IP {
        self.claims.create(&PostParams::default(), claim).await.unwrap()
    }

    pub(crate) async fn claim(&self, addr: &str) -> Option<IP> {
        self.claims.get_opt(&name::of(ip(addr))).await.unwrap()
    }

    pub(crate) async fn delete_claim(&self, addr: &str) {
        self.claims.delete(&name::of(ip(addr)), &DeleteParams::default()).await.unwrap();
    }

    /// Waits until the Service shows exactly these addresses, in this order.
    pub(crate) async fn shows(&self, name: &str, addrs: &[&str]) -> Service {
        let wanted: Vec<_> = addrs.iter().map(|addr| ip(addr)).collect();
        wait::until(format!("{} to show {addrs:?}", self.key(name)), LONG, async || {
            let service = self.services.get(name).await.map_err(|error| error.to_string())?;
            if cluster::shown(&service) == wanted { Ok(service) } else { Err(describe(&service)) }
        })
        .await
        .unwrap()
    }

    /// Waits until the Service shows any address, and returns the first.
    pub(crate) async fn shows_something(&self, name: &str) -> IpAddr {
        wait::until(format!("{} to show an address", self.key(name)), LONG, async || {
            let service = self.services.get(name).await.map_err(|error| error.to_string())?;
            cluster::shown(&service).first().copied().ok_or_else(|| describe(&service))
        })
        .await
        .unwrap()
    }

    /// Waits for the Service's condition: status, reason, and a part of the message.
    pub(crate) async fn says(
        &self,
        name: &str,
        status: &str,
        reason: &str,
        fragment: &str,
    ) -> Service {
        let what = format!("{} to say {status} {reason} {fragment:?}", self.key(name));
        wait::until(what, LONG, async || {
            let service = self.services.get(name).await.map_err(|error| error.to_string())?;
            let there = allocated(&service).is_some_and(|condition| {
                condition.status == status
                    && condition.reason == reason
                    && condition.message.contains(fragment)
            });
            if there { Ok(service) } else { Err(describe(&service)) }
        })
        .await
        .unwrap()
    }

    pub(crate) async fn claim_is_gone(&self, addr: &str) {
        wait::until(format!("the claim on {addr} to go"), LONG, async || {
            self.claim(addr).await.map_or(Ok(()), |claim| Err(format!("{:?}", claim.spec)))
        })
        .await
        .unwrap();
    }

    /// Waits for a pool's `Ready` condition and a part of its message.
    pub(crate) async fn pool_says(&self, name: &str, status: &str, fragment: &str) -> IPGroup {
        let what = format!("pool {name} to say {status} {fragment:?}");
        wait::until(what, LONG, async || {
            let pool = self.pools.get(name).await.map_err(|error| error.to_string())?;
            let conditions = pool.status.clone().unwrap_or_default().conditions;
            let current = pool.status.as_ref().and_then(|status| status.observed_generation)
                == pool.metadata.generation;
            let there = current
                && conditions.iter().any(|condition| {
                    condition.type_ == keys::CONDITION_READY
                        && condition.status == status
                        && condition.message.contains(fragment)
                });
            if there { Ok(pool) } else { Err(format!("{:?}", pool.status)) }
        })
        .await
        .unwrap()
    }

    /// Waits for a pool's numbers: capacity, used, free.
    pub(crate) async fn pool_counts(&self, name: &str, capacity: &str, used: &str, free: &str) {
        let wanted = [capacity, used, free];
        self.pool_is(name, &format!("counting {wanted:?}"), |status| {
            [&status.capacity, &status.used, &status.free].map(|text| text.as_deref())
                == wanted.map(Some)
        })
        .await;
    }

    /// Waits until a pool's status is as it should be.
    pub(crate) async fn pool_is(
        &self,
        name: &str,
        what: &str,
        test: impl Fn(&IPGroupStatus) -> bool,
    ) -> IPGroupStatus {
        wait::until(format!("pool {name} to be {what}"), LONG, async || {
            let pool = self.pools.get(name).await.map_err(|error| error.to_string())?;
            let status = pool.status.unwrap_or_default();
            if test(&status) { Ok(status) } else { Err(format!("{status:?}")) }
        })
        .await
        .unwrap()
    }

    /// Waits for an event about a Service.
    pub(crate) async fn tells(&self, service: &str, reason: &str, fragment: &str) {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        wait::until(format!("an event {reason} about {service}"), LONG, async || {
            let all = events.list(&ListParams::default()).await.map_err(|e| e.to_string())?.items;
            let about = |event: &&Event| {
                event.regarding.as_ref().and_then(|it| it.name.as_deref()) == Some(service)
            };
            let told: Vec<_> = all
                .iter()
                .filter(about)
                .map(|event| (event.reason.clone(), event.note.clone()))
                .map(|(reason, note)| (reason.unwrap_or_default(), note.unwrap_or_default()))
                .collect();
            let there = told.iter().any(|(why, note)| why == reason && note.contains(fragment));
            if there { Ok(()) } else { Err(format!("{told:?}")) }
        })
        .await
        .unwrap();
    }

    /// Waits until an address has a claim.
    pub(crate) async fn has_claim(&self, addr: &str) -> IP {
        wait::until(format!("a claim on {addr}"), LONG, async || {
            self.claim(addr).await.ok_or("there is none")
        })
        .await
        .unwrap()
    }

    /// Waits until the operator has answered to an object created after all others, so that nothing is left
    /// to answer.
    pub(crate) async fn answered(&self) {
        let last = "zz-last";
        self.create(builders::load_balancer(last).asking("nothing")).await;
        wait::until(format!("an answer to {}", self.key(last)), LONG, async || {
            let service = self.services.get(last).await.map_err(|error| error.to_string())?;
            if allocated(&service).is_some() { Ok(()) } else { Err(describe(&service)) }
        })
        .await
        .unwrap();
    }

    /// Waits until the whole cluster is in order.
    pub(crate) async fn settled(&self) -> Snapshot {
        cluster::settled(&self.client, LONG).await.unwrap()
    }

    /// Ends a test: the whole cluster is in order, and once the test's objects are deleted, none of their
    /// addresses is taken.
    pub(crate) async fn ends(self, pools: &[&str]) {
        self.settled().await;
        self.clear().await;
        for pool in pools {
            self.delete_pool(pool).await;
        }
    }

    /// Deletes all Services of the namespace, and waits until none of their addresses is taken.
    pub(crate) async fn clear(&self) {
        for service in self.services.list(&ListParams::default()).await.unwrap() {
            delete(&self.services, &service).await;
        }
        wait::until("every claim of this test to go", LONG, async || {
            let seen = Snapshot::take(&self.client).await.map_err(|error| format!("{error:?}"))?;
            let left: Vec<_> = seen
                .claims
                .iter()
                .filter(|claim| {
                    let names = claim.spec.holders.iter();
                    names
                        .clone()
                        .any(|holder| holder.namespace.as_deref() == Some(&*self.namespace))
                })
                .map(|claim| format!("{}: {:?}", claim.name_any(), claim.spec.holders))
                .collect();
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await
        .unwrap();
    }
}

/// The condition under test, if the Service has it.
pub(crate) fn allocated(service: &Service) -> Option<&Condition> {
    let conditions = service.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().find(|condition| condition.type_ == keys::CONDITION_ALLOCATED)
}

/// A Service's addresses and condition, for people.
pub(crate) fn describe(service: &Service) -> String {
    let condition = allocated(service)
        .map(|condition| (&condition.status, &condition.reason, &condition.message));
    format!("{:?}, {condition:?}", cluster::shown(service))
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}
