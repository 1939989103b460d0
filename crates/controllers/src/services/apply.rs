//! One effect, one guarded call; a release reads before it deletes.

use std::{net::IpAddr, sync::Arc};

use k8s_openapi::api::core::v1::Service;
use kube::{Api, Client, ResourceExt as _, core::DeserializeGuard};
use landfall_api::{IP, IPGroup, IPGroupStatus, IPSpec, Use, keys, name};
use landfall_ipam::PoolName;
use serde_json::{Value, json};

use super::{
    annotate,
    effect::{Answer, Effect, Then},
    lean::LeanService,
    observe,
    view::{ClaimView, HolderView},
    wish::may_release,
};
use crate::{
    call::{Failure, creating, deleting, failure, found, guarded, guarded_by_uid, patching},
    object::{ObjectKey, Version},
};

/// Does one effect against the API server.
pub(super) async fn apply(client: &Client, effect: &Effect) -> Result<Answer, Failure> {
    let applier = Applier { client };
    match effect {
        Effect::Take { addr, pool, holder } => applier.take(*addr, pool.as_ref(), holder).await,
        Effect::Touch { addr, version, pool, holders, end_reservation, .. } => {
            let end = *end_reservation;
            applier.touch(*addr, *version, pool.as_ref(), holders, end).await
        }
        Effect::Publish { key, uid, version, ingress, conditions, .. } => {
            let mut status = json!({ "conditions": conditions });
            if let (Some(addrs), Some(fields)) = (ingress, status.as_object_mut()) {
                let entries: Vec<_> =
                    addrs.iter().map(|addr| json!({"ip": addr, "ipMode": "VIP"})).collect();
                fields.insert("loadBalancer".to_owned(), json!({ "ingress": entries }));
            }
            applier.patch_service_status(key, uid, *version, status).await
        }
        Effect::Retract { key, uid, version, conditions } => {
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
        Effect::Release { claim, holder, then, annotated } => {
            applier.release(claim, holder, then, *annotated).await
        }
        Effect::Expire { addr, uid, version } => {
            applier.delete(*addr, uid, *version).await?;
            Ok(Answer::Released { by: None })
        }
        Effect::LookAtClaim { addr, .. } => {
            Ok(match found(applier.claims().get(&name::of(*addr)).await)? {
                Some(ip) => claim(ip)?,
                None => Answer::NoClaim,
            })
        }
        Effect::LookAtService { key, .. } => {
            let live = found(applier.services(key).get(key.name()).await)?;
            let live: Option<Service> = live.map(Into::into);
            Ok(live.as_ref().map_or(Answer::NoService, seen_service))
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
    /// Patches a Service, but for its status, at exactly this version.
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

    async fn take(
        &self,
        addr: IpAddr,
        pool: Option<&PoolName>,
        holder: &HolderView,
    ) -> Result<Answer, Failure> {
        let mut ip = IP::new(
            &name::of(addr),
            IPSpec {
                address: Some(addr.to_string()),
                use_: Some(Use::LoadBalancer),
                pool: pool.map(ToString::to_string),
                holders: vec![observe::holder_object(holder)],
                reserved_for: None,
            },
        );
        ip.annotations_mut().insert(keys::ANNOTATION_OWNER.to_owned(), holder.key.to_string());
        if let Some(group) = pool.and_then(observe::pool_label) {
            ip.labels_mut().insert(keys::LABEL_IPGROUP.to_owned(), group.to_owned());
        }
        match self.claims().create(&creating(), &ip).await.map_err(|error| failure(&error)) {
            Ok(ip) => claim(ip),
            // For a create this can only mean that the kind itself is missing.
            Err(Failure::NotFound) => Err(Failure::Refused(
                "the API server does not know the kind IP; apply deploy/crds".to_owned(),
            )),
            Err(failure) => Err(failure),
        }
    }

    async fn touch(
        &self,
        addr: IpAddr,
        version: Version,
        pool: Option<&PoolName>,
        holders: &[HolderView],
        end_reservation: bool,
    ) -> Result<Answer, Failure> {
        let owner = holders.first().map(|holder| holder.key.to_string());
        let in_short = observe::holders_in_short(holders);
        let objects: Vec<_> = holders.iter().map(observe::holder_object).collect();
        let mut spec = json!({
            "address": addr,
            "use": Use::LoadBalancer,
            "pool": pool.map(PoolName::as_str),
            "holders": objects,
        });
        if end_reservation && let Some(fields) = spec.as_object_mut() {
            fields.insert("reservedFor".to_owned(), Value::Null);
        }
        let annotations =
            json!({keys::ANNOTATION_OWNER: owner, keys::ANNOTATION_HOLDERS: in_short});
        self.patch_claim(
            addr,
            version,
            json!({"metadata": {"annotations": annotations}, "spec": spec}),
        )
        .await
    }

    async fn patch_claim(
        &self,
        addr: IpAddr,
        version: Version,
        patch: Value,
    ) -> Result<Answer, Failure> {
        let patch = guarded(version, patch);
        let patched = self.claims().patch(&name::of(addr), &patching(), &patch).await;
        claim(patched.map_err(|error| failure(&error))?)
    }

    /// The order matters: the claim's version was known before, the holder is read now, and the
    /// deletion holds only for that very version.
    async fn release(
        &self,
        known: &ClaimView,
        holder: &HolderView,
        then: &Then,
        annotated: bool,
    ) -> Result<Answer, Failure> {
        let object = found(self.services(&holder.key).get(holder.key.name()).await)?;
        let object: Option<Service> = object.map(Into::into);
        let live = object.as_ref().and_then(observe::service);
        let live = live.map(|live| if annotated { live } else { live.without_annotation() });
        let hidden = !object.as_ref().and_then(observe::leftover).is_some_and(|left| left.marked);
        if !hidden || !may_release(live.as_ref(), holder, known) {
            return Ok(Answer::Kept);
        }
        let others = known.holders_without(holder);
        if !others.is_empty() {
            let pool = known.pool.as_ref();
            return self.touch(known.addr, known.version, pool, &others, false).await;
        }
        let uid = object.as_ref().and_then(|object| object.metadata.uid.as_deref());
        let gone = object.is_none() || holder.uid.as_deref().is_some_and(|old| Some(old) != uid);
        let reservation = match then {
            Then::Reserve(reservation) => Some(reservation),
            Then::RetainIfGone(reservation) => Some(reservation).filter(|_| gone),
            Then::Free => None,
        };
        let Some(reservation) = reservation else {
            self.delete(known.addr, &known.uid, known.version).await?;
            let uid = object.and_then(|service| service.metadata.uid).map(Arc::from);
            let by = uid.filter(|uid| holder.uid.as_ref().is_none_or(|of_holder| of_holder == uid));
            return Ok(Answer::Released { by });
        };
        let annotations = json!({keys::ANNOTATION_OWNER: null, keys::ANNOTATION_HOLDERS: null});
        let patch = json!({
            "metadata": {"annotations": annotations},
            "spec": {
                "use": Use::Reserved,
                "holders": null,
                "reservedFor": observe::reservation_object(reservation),
            },
        });
        self.patch_claim(known.addr, known.version, patch).await
    }

    async fn delete(&self, addr: IpAddr, uid: &str, version: Version) -> Result<(), Failure> {
        let deleted = self.claims().delete(&name::of(addr), &deleting(uid, Some(version))).await;
        deleted.map(drop).map_err(|error| failure(&error))
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
        Ok(Answer::Pool(Box::new(observe::pool(&DeserializeGuard(Ok(group))))))
    }

    fn claims(&self) -> Api<IP> {
        Api::all(self.client.clone())
    }

    fn services(&self, key: &ObjectKey) -> Api<LeanService> {
        Api::namespaced(self.client.clone(), key.namespace())
    }
}

fn claim(ip: IP) -> Result<Answer, Failure> {
    let view: Option<ClaimView> = observe::claim(&DeserializeGuard(Ok(ip)));
    view.map(Answer::Claim)
        .ok_or_else(|| Failure::Unknown("the answer names no address".to_owned()))
}

fn seen_service(object: &Service) -> Answer {
    observe::service(object)
        .map_or_else(|| Answer::OtherService(Version::of(&object.metadata)), Answer::Service)
}
