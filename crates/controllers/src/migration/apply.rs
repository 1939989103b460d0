//! Performs effects: each is one guarded call with one deadline, and a release reads before it deletes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use kube::{Api, Client, Resource as _, core::DeserializeGuard};
use landfall_api::{VirtualIP, VirtualIPStatus};
use serde_json::{Value, json};

use super::{
    effect::{Answer, Effect, Services, Step},
    world::is_clone,
};
use crate::{
    call::{Failure, creating, deleting, failure, found, guarded, patching},
    cluster::{Seen, service, virtual_ip},
    engine::Call as _,
    ledger::{self, Claim, Held, Live, LiveHolder, Then},
    object::ObjectKey,
};

/// Performs one step for a `VirtualIP` at the API server.
pub(super) async fn apply(client: &Client, effect: &Effect) -> Result<Answer, Failure> {
    match &effect.write {
        Some(write) => write.perform(client).await.map(Answer::Ledger),
        None => Applier { client }.call(&effect.vip, &effect.step).await,
    }
}

struct Applier<'a> {
    client: &'a Client,
}

impl Applier<'_> {
    async fn call(&self, vip: &ObjectKey, effect: &Step) -> Result<Answer, Failure> {
        match effect {
            Step::Look { target, copy } => {
                let (target, copy) = tokio::try_join!(self.live(target), self.live(copy))?;
                Ok(Answer::Services(Box::new(Services { target, copy })))
            }
            Step::Status { version, status, .. } => {
                let patch = guarded(*version, json!({ "status": fields(status) }));
                updated(self.virtual_ips(vip).patch_status(vip.name(), &patching(), &patch).await)
            }
            Step::Finalizers { version, finalizers } => {
                let patch = guarded(*version, json!({"metadata": {"finalizers": finalizers}}));
                updated(self.virtual_ips(vip).patch(vip.name(), &patching(), &patch).await)
            }
            // The ledger alone makes calls about claims, and it made none of this step.
            Step::Take { .. } | Step::Pass { .. } | Step::EndReservation { .. } => {
                Err(Failure::NotSent)
            }
            Step::Release { claim, copy } => self.release(vip, claim, copy).await,
            Step::Copy { copy } => {
                let services = self.services(&ObjectKey::of(&copy.metadata));
                written(services.create(&creating(), copy).await)
            }
            Step::Align { copy, version, patch } => {
                let patch = guarded(*version, patch.clone());
                written(self.services(copy).patch(copy.name(), &patching(), &patch).await)
            }
            Step::DropCopy { copy, uid } => {
                match self.services(copy).delete(copy.name(), &deleting(uid, None)).await {
                    Ok(_) => Ok(Answer::Seen(None)),
                    Err(error) => gone_is(Answer::Seen(None), failure(&error)),
                }
            }
            Step::Convert { service: key, version, addr } => {
                let spec = json!({"type": "LoadBalancer", "loadBalancerIP": addr});
                let patch = guarded(*version, json!({ "spec": spec }));
                written(self.services(key).patch(key.name(), &patching(), &patch).await)
            }
            Step::StopAsking { service: key, version } => {
                let patch = guarded(*version, json!({"spec": {"loadBalancerIP": null}}));
                written(self.services(key).patch(key.name(), &patching(), &patch).await)
            }
        }
    }

    /// Reads a Service live, without `managedFields`, which are not used.
    async fn live(&self, key: &ObjectKey) -> Result<Option<Box<Service>>, Failure> {
        let live: Option<Service> = found(self.services(key).get(key.name()).await)?;
        Ok(live.map(|mut object| {
            object.metadata.managed_fields = None;
            Box::new(object)
        }))
    }

    async fn release(
        &self,
        vip: &ObjectKey,
        claim: &Claim,
        copy: &ObjectKey,
    ) -> Result<Answer, Failure> {
        let released = ledger::Answer::Released { by: None };
        let Some(holder) = claim.holders().first().filter(|holder| holder.key == *vip) else {
            return Ok(Answer::Ledger(ledger::Answer::Kept));
        };
        let reader = VirtualIpReader { copy };
        match ledger::release(self.client, &reader, (claim, holder), &Then::Free).await {
            // An object to delete that is missing counts as deleted.
            Err(Failure::NotFound) => Ok(Answer::Ledger(released)),
            result => result.map(Answer::Ledger),
        }
    }

    fn services(&self, key: &ObjectKey) -> Api<Service> {
        Api::namespaced(self.client.clone(), key.namespace())
    }

    fn virtual_ips(&self, key: &ObjectKey) -> Api<DeserializeGuard<VirtualIP>> {
        virtual_ips(self.client, key)
    }
}

/// An unreadable object must not make the call fail.
fn virtual_ips(client: &Client, key: &ObjectKey) -> Api<DeserializeGuard<VirtualIP>> {
    Api::namespaced(client.clone(), key.namespace())
}

/// Reads a `VirtualIP` and its copy before it loses its address: the `VirtualIP` must be gone or being
/// deleted, and the copy gone.
struct VirtualIpReader<'a> {
    copy: &'a ObjectKey,
}

impl LiveHolder for VirtualIpReader<'_> {
    async fn read(&self, client: &Client, (claim, holder): Held<'_>) -> Result<Live, Failure> {
        let key = &holder.key;
        let object = found(virtual_ips(client, key).get(key.name()).await)?;
        let uid = object.as_ref().and_then(|object| object.meta().uid.as_deref()).map(Arc::from);
        let readable = object.as_ref().is_none_or(|object| object.0.is_ok());
        let named = object.and_then(virtual_ip::read).filter(|vip| claim.is_of(vip));
        // An unreadable one may be the one that is named.
        if !readable || named.as_ref().is_some_and(|vip| !vip.deleting) {
            return Ok(Live { may_release: false, uid });
        }
        let services: Api<Service> = Api::namespaced(client.clone(), self.copy.namespace());
        let copied = found(services.get(self.copy.name()).await)?;
        let in_use = copied.is_some_and(|copied| match &named {
            Some(vip) => is_clone(&copied, &vip.uid),
            None => service::read(&copied).external.contains(&claim.addr),
        });
        Ok(Live { may_release: !in_use, uid })
    }
}

/// An object to delete that is missing counts as deleted.
fn gone_is(answer: Answer, failure: Failure) -> Result<Answer, Failure> {
    if failure == Failure::NotFound { Ok(answer) } else { Err(failure) }
}

/// Every field that is ours to write; one without a value is removed.
fn fields(status: &VirtualIPStatus) -> Value {
    json!({
        "message": status.message,
        "ip": status.ip,
        "keepalivedGroup": status.keepalived_group,
        "service": status.service,
        "clonedService": status.cloned_service,
        "gsm": status.gsm,
        "state": status.state,
    })
}

fn updated(written: kube::Result<DeserializeGuard<VirtualIP>>) -> Result<Answer, Failure> {
    let written = virtual_ip::read(written.map_err(|error| failure(&error))?);
    // The watch shows one that cannot be read.
    Ok(Answer::Seen(written.map(|view| Seen::VirtualIp(Box::new(view)))))
}

fn written(written: kube::Result<Service>) -> Result<Answer, Failure> {
    let view = service::read(&written.map_err(|error| failure(&error))?);
    Ok(Answer::Seen(Some(Seen::Service(Box::new(view)))))
}
