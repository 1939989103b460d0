//! Performs effects: each is one guarded call, and a release reads before it writes.

use k8s_openapi::api::core::v1::Service;
use kube::{Api, Client, core::DeserializeGuard};
use landfall_api::{IPGroup, IPGroupStatus};
use serde_json::{Value, json};

use super::{
    annotate,
    effect::{Answer, Effect},
    wish::may_release,
};
use crate::{
    call::{Failure, failure, found, guarded, guarded_by_uid, patching},
    cluster::{Seen, lean::LeanService, pool, service},
    engine::Call as _,
    ledger::{self, Held, Live, LiveHolder},
    object::{ObjectKey, Version},
};

/// Performs one effect at the API server.
pub(super) async fn apply(client: &Client, effect: &Effect) -> Result<Answer, Failure> {
    let applier = Applier { client };
    match effect {
        Effect::Claim { write, .. } => write.perform(client).await.map(Answer::Ledger),
        Effect::Publish { key, uid, version, ingress, conditions, .. } => {
            let mut status = json!({ "conditions": conditions });
            if let (Some(addrs), Some(fields)) = (ingress, status.as_object_mut()) {
                let entries: Vec<_> =
                    addrs.iter().map(|addr| json!({"ip": addr, "ipMode": "VIP"})).collect();
                fields.insert("loadBalancer".to_owned(), json!({ "ingress": entries }));
            }
            applier.patch_service_status(key, uid, *version, status).await
        }
        Effect::SetConditions { key, uid, version, conditions } => {
            let status = json!({ "conditions": conditions });
            applier.patch_service_status(key, uid, *version, status).await
        }
        Effect::Annotate { key, uid, version, addrs, interface, .. } => {
            let patch = annotate::show(addrs.as_deref(), interface.as_deref());
            applier.patch_service(key, uid, *version, patch).await
        }
        Effect::CleanUp { key, uid, version, finalizers, marks } => {
            let mut patch = if *marks { annotate::hide() } else { json!({ "metadata": {} }) };
            if let Some(left) = finalizers {
                patch["metadata"]["finalizers"] = json!(left);
            }
            applier.patch_service(key, uid, *version, patch).await
        }
        Effect::Release { claim, holder, then, annotated, .. } => {
            let reader = ServiceReader { annotated: *annotated };
            ledger::release(client, &reader, (claim, holder), then).await.map(Answer::Ledger)
        }
        Effect::LookAtService { key, known } => {
            let live = live(client, key).await?;
            let gone = || known.map(|known| Seen::NoService(key.clone(), known));
            Ok(live.as_ref().map_or_else(|| Answer::Seen(gone()), seen_service))
        }
        Effect::PoolStatus { object, version, status, .. } => {
            applier.pool_status(object, *version, status).await
        }
    }
}

struct Applier<'a> {
    client: &'a Client,
}

impl Applier<'_> {
    /// Patches a Service, except its status, at exactly this version.
    async fn patch_service(
        &self,
        key: &ObjectKey,
        uid: &str,
        version: Version,
        patch: Value,
    ) -> Result<Answer, Failure> {
        let patch = guarded_by_uid(version, uid, patch);
        let written = self.services(key).patch(key.name(), &patching(), &patch).await;
        Ok(seen_service(&written.map_err(|error| failure(&error))?.into()))
    }

    /// Patches the status of a Service at exactly this version.
    async fn patch_service_status(
        &self,
        key: &ObjectKey,
        uid: &str,
        version: Version,
        status: Value,
    ) -> Result<Answer, Failure> {
        let patch = guarded_by_uid(version, uid, json!({ "status": status }));
        let written = self.services(key).patch_status(key.name(), &patching(), &patch).await;
        Ok(seen_service(&written.map_err(|error| failure(&error))?.into()))
    }

    async fn pool_status(
        &self,
        object: &str,
        version: Version,
        status: &IPGroupStatus,
    ) -> Result<Answer, Failure> {
        let status = json!({
            "capacity": status.capacity,
            "used": status.used,
            "free": status.free,
            "freeShort": status.free_short,
            "ranges": status.ranges,
            "ipv4": status.ipv4,
            "ipv6": status.ipv6,
            "waiting": status.waiting,
            "longestWaiting": status.longest_waiting,
            "observedGeneration": status.observed_generation,
            "conditions": status.conditions,
        });
        let patch = guarded(version, json!({ "status": status }));
        let groups: Api<IPGroup> = Api::all(self.client.clone());
        let written: kube::Result<IPGroup> = groups.patch_status(object, &patching(), &patch).await;
        let group = written.map_err(|error| failure(&error))?;
        let view = pool::read(&DeserializeGuard(Ok(group)));
        Ok(Answer::Seen(Some(Seen::Pool(Box::new(view)))))
    }

    fn services(&self, key: &ObjectKey) -> Api<LeanService> {
        services(self.client, key)
    }
}

/// Reads a Service before it loses an address.
struct ServiceReader {
    /// Whether addresses in kube-vip's annotation count as shown.
    annotated: bool,
}

impl LiveHolder for ServiceReader {
    async fn read(&self, client: &Client, (claim, holder): Held<'_>) -> Result<Live, Failure> {
        let object = live(client, &holder.key).await?;
        let view = object.as_ref().map(service::read);
        let uid = view.as_ref().map(|view| view.uid.clone());
        let (balancer, leftover) = view.map_or((None, None), |view| (view.balancer, view.leftover));
        let balancer =
            balancer.map(|view| if self.annotated { *view } else { view.without_annotation() });
        let hidden = !leftover.is_some_and(|left| left.marked);
        Ok(Live { may_release: hidden && may_release(balancer.as_ref(), holder, claim), uid })
    }
}

fn services(client: &Client, key: &ObjectKey) -> Api<LeanService> {
    Api::namespaced(client.clone(), key.namespace())
}

/// Reads a Service live.
async fn live(client: &Client, key: &ObjectKey) -> Result<Option<Service>, Failure> {
    let live = found(services(client, key).get(key.name()).await)?;
    Ok(live.map(Into::into))
}

fn seen_service(object: &Service) -> Answer {
    Answer::Seen(Some(Seen::Service(Box::new(service::read(object)))))
}
