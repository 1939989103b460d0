//! One effect, one guarded call (a release reads before it deletes), one deadline.

use std::{fmt::Display, net::IpAddr, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{ConfigMap, ObjectReference, Service},
        events::v1::Event,
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::{DeserializeGuard, params::Preconditions},
};
use landfall_api::{IP, IPGroup, IPGroupStatus, IPSpec, Use, name, words};
use landfall_ipam::PoolName;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    annotate,
    effect::{About, Answer, Effect, Failure, Note, Then},
    lean::LeanService,
    observe,
    view::{ClaimView, HolderView, PoolSource},
    wish::may_release,
};
use crate::object::{ObjectKey, Version};

/// No call waits longer than this: kube has no read timeout of its own.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);
/// Who made a change, in `managedFields` and events.
pub(crate) const MANAGER: &str = "landfall";
/// The API server takes no longer name.
const LONGEST_NAME: usize = 253;
/// The events API takes no longer note.
const LONGEST_NOTE: usize = 1024;

/// Does effects against the API server. Cheap to clone.
#[derive(Clone)]
pub(super) struct Applier {
    client: Client,
    /// Which process reports an event.
    instance: Arc<str>,
}

impl Applier {
    pub(super) fn new(client: Client, instance: &str) -> Self {
        Self { client, instance: instance.into() }
    }

    /// Does one effect. Never tries twice: what a failure means is the planner's to decide.
    pub(super) async fn apply(&self, effect: &Effect, now: Timestamp) -> Result<Answer, Failure> {
        let call = async {
            match effect {
                Effect::Take { addr, pool, holder } => {
                    self.take(*addr, pool.as_ref(), holder).await
                }
                Effect::Touch { addr, version, pool, holders, end_reservation, .. } => {
                    let end = *end_reservation;
                    self.touch(*addr, *version, pool.as_ref(), holders, end).await
                }
                Effect::Publish { key, uid, version, ingress, conditions, .. } => {
                    let mut status = json!({ "conditions": conditions });
                    if let (Some(addrs), Some(fields)) = (ingress, status.as_object_mut()) {
                        let entries: Vec<_> =
                            addrs.iter().map(|addr| json!({"ip": addr, "ipMode": "VIP"})).collect();
                        fields.insert("loadBalancer".to_owned(), json!({ "ingress": entries }));
                    }
                    self.patch_service_status(key, uid, *version, status).await
                }
                Effect::Retract { key, uid, version, conditions } => {
                    let status = json!({ "conditions": conditions });
                    self.patch_service_status(key, uid, *version, status).await
                }
                Effect::Annotate { key, uid, version, addrs, interface, .. } => {
                    let patch = annotate::show(addrs.as_deref(), interface.as_deref());
                    self.patch_service(key, uid, *version, patch).await
                }
                Effect::CleanUp { key, uid, version, finalizers, marks } => {
                    let mut patch =
                        if *marks { annotate::hide() } else { json!({ "metadata": {} }) };
                    if let Some(left) = finalizers {
                        patch["metadata"]["finalizers"] = json!(left);
                    }
                    self.patch_service(key, uid, *version, patch).await
                }
                Effect::Release { claim, holder, then, annotated } => {
                    self.release(claim, holder, then, *annotated).await
                }
                Effect::Expire { addr, uid, version } => {
                    self.delete(*addr, uid, *version).await?;
                    Ok(Answer::Released { by: None })
                }
                Effect::LookAtClaim { addr, .. } => {
                    Ok(match found(self.claims().get(&name::of(*addr)).await)? {
                        Some(ip) => claim(ip)?,
                        None => Answer::NoClaim,
                    })
                }
                Effect::LookAtService { key, .. } => {
                    let live = found(self.services(key).get(key.name()).await)?;
                    let live: Option<Service> = live.map(Into::into);
                    Ok(live.as_ref().map_or(Answer::NoService, seen_service))
                }
                Effect::PoolStatus { object, version, status, .. } => {
                    self.pool_status(object, *version, status).await
                }
                Effect::Note(note) => self.tell(note, now).await,
            }
        };
        timeout(DEADLINE, call).await.unwrap_or_else(|_| {
            Err(Failure::Unknown(format!("no answer within {} s", DEADLINE.as_secs())))
        })
    }

    /// Patches a Service, but for its status, at exactly this version.
    async fn patch_service(
        &self,
        key: &ObjectKey,
        uid: &str,
        version: Version,
        mut patch: Value,
    ) -> Result<Answer, Failure> {
        patch["metadata"]["resourceVersion"] = json!(version.to_string());
        patch["metadata"]["uid"] = json!(uid);
        let services = self.services(key);
        let written = services.patch(key.name(), &params(), &Patch::Merge(patch)).await;
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
        let patch = json!({
            "metadata": {"resourceVersion": version.to_string(), "uid": uid},
            "status": status,
        });
        let services = self.services(key);
        let written = services.patch_status(key.name(), &params(), &Patch::Merge(patch)).await;
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
        ip.annotations_mut().insert(words::ANNOTATION_OWNER.to_owned(), holder.key.to_string());
        if let Some(group) = pool.and_then(observe::pool_label) {
            ip.labels_mut().insert(words::LABEL_IPGROUP.to_owned(), group.to_owned());
        }
        let post = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        match self.claims().create(&post, &ip).await.map_err(|error| failure(&error)) {
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
        let patch = json!({
            "metadata": {
                "resourceVersion": version.to_string(),
                "annotations": {
                    words::ANNOTATION_OWNER: owner, words::ANNOTATION_HOLDERS: in_short,
                },
            },
            "spec": spec,
        });
        let patched = self.claims().patch(&name::of(addr), &params(), &Patch::Merge(patch)).await;
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
        let patch = json!({
            "metadata": {
                "resourceVersion": known.version.to_string(),
                "annotations": {
                    words::ANNOTATION_OWNER: null, words::ANNOTATION_HOLDERS: null,
                },
            },
            "spec": {
                "use": Use::Reserved,
                "holders": null,
                "reservedFor": observe::reservation_object(reservation),
            },
        });
        let name = name::of(known.addr);
        let patched = self.claims().patch(&name, &params(), &Patch::Merge(patch)).await;
        claim(patched.map_err(|error| failure(&error))?)
    }

    async fn delete(&self, addr: IpAddr, uid: &str, version: Version) -> Result<(), Failure> {
        let delete = DeleteParams {
            preconditions: Some(Preconditions {
                resource_version: Some(version.to_string()),
                uid: Some(uid.to_owned()),
            }),
            ..DeleteParams::default()
        };
        let deleted = self.claims().delete(&name::of(addr), &delete).await;
        deleted.map(drop).map_err(|error| failure(&error))
    }

    async fn pool_status(
        &self,
        object: &str,
        version: Version,
        status: &IPGroupStatus,
    ) -> Result<Answer, Failure> {
        let patch = json!({
            "metadata": {"resourceVersion": version.to_string()},
            "status": {
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
            },
        });
        let groups: Api<IPGroup> = Api::all(self.client.clone());
        let written: kube::Result<IPGroup> =
            groups.patch_status(object, &params(), &Patch::Merge(patch)).await;
        let group = written.map_err(|error| failure(&error))?;
        Ok(Answer::Pool(Box::new(observe::pool(&DeserializeGuard(Ok(group))))))
    }

    async fn tell(&self, note: &Note, now: Timestamp) -> Result<Answer, Failure> {
        let (regarding, namespace) = match &note.about {
            About::Service { key, uid } => {
                (reference::<Service>(Some(key.namespace()), key.name(), uid), key.namespace())
            }
            About::Pool { source, object, uid } => pool_reference(*source, object, uid),
            About::Claim { addr, uid } => (reference::<IP>(None, &name::of(*addr), uid), "default"),
        };
        let happening = Happening {
            regarding,
            action: "Allocate",
            reason: &note.reason,
            message: &note.message,
            warning: note.warning,
        };
        write_event(&self.client, &self.instance, namespace, happening, now).await?;
        Ok(Answer::Done)
    }

    fn claims(&self) -> Api<IP> {
        Api::all(self.client.clone())
    }

    fn services(&self, key: &ObjectKey) -> Api<LeanService> {
        Api::namespaced(self.client.clone(), key.namespace())
    }
}

/// The object that a pool comes from, and the namespace of events about it.
fn pool_reference<'a>(
    source: PoolSource,
    object: &'a str,
    uid: &str,
) -> (ObjectReference, &'a str) {
    match source {
        // Events of cluster-scoped objects lie in the namespace `default`.
        PoolSource::IpGroups => (reference::<IPGroup>(None, object, uid), "default"),
        PoolSource::ConfigMap => {
            let (namespace, name) = object.split_once('/').unwrap_or(("default", object));
            (reference::<ConfigMap>(Some(namespace), name, uid), namespace)
        }
    }
}

/// What a Kubernetes event says.
pub(crate) struct Happening<'a> {
    pub regarding: ObjectReference,
    /// What we were doing, as a verb.
    pub action: &'static str,
    pub reason: &'a str,
    pub message: &'a str,
    pub warning: bool,
}

/// Writes an event into a namespace: that of the object it is about, or `default` if it has none.
pub(crate) async fn write_event(
    client: &Client,
    instance: &str,
    namespace: &str,
    happening: Happening<'_>,
    now: Timestamp,
) -> Result<(), Failure> {
    let name = happening.regarding.name.clone().unwrap_or_default();
    let mut text = happening.message.to_owned();
    while text.len() > LONGEST_NOTE {
        text.pop();
    }
    let event = Event {
        metadata: ObjectMeta {
            // Unique without a random number: one process tells one object once a nanosecond.
            name: Some(event_name(&name, now)),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        action: Some(happening.action.to_owned()),
        event_time: Some(MicroTime(now)),
        note: Some(text),
        reason: Some(happening.reason.to_owned()),
        regarding: Some(happening.regarding),
        reporting_controller: Some(format!("{}operator", words::PREFIX)),
        reporting_instance: Some(instance.to_owned()),
        type_: Some(if happening.warning { "Warning" } else { "Normal" }.to_owned()),
        ..Event::default()
    };
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let created = events.create(&PostParams::default(), &event).await;
    created.map(drop).map_err(|error| failure(&error))
}

/// The name of an event: as much of the object's name as fits, for a pool's may be as long as any.
fn event_name(about: &str, now: Timestamp) -> String {
    let suffix = format!(".{:x}", now.as_nanosecond());
    // Object names are ASCII, so every position is a boundary.
    let kept = about.get(..LONGEST_NAME.saturating_sub(suffix.len())).unwrap_or(about);
    format!("{}{suffix}", kept.trim_end_matches(['-', '.']))
}

pub(crate) fn params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

pub(crate) fn reference<K: Resource<DynamicType = ()>>(
    namespace: Option<&str>,
    name: &str,
    uid: &str,
) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        namespace: namespace.map(str::to_owned),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
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

/// A live read: no cache, so no `resourceVersion`, which is what `get` sends.
pub(crate) fn found<K: DeserializeOwned>(read: kube::Result<K>) -> Result<Option<K>, Failure> {
    match read.map_err(|error| failure(&error)) {
        Ok(object) => Ok(Some(object)),
        Err(Failure::NotFound) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// What an error says about whether the call happened.
pub(crate) fn failure(error: &kube::Error) -> Failure {
    let kube::Error::Api(status) = error else {
        return Failure::Unknown(chain(error));
    };
    match (status.code, status.reason.as_str()) {
        (409, "AlreadyExists") => Failure::Exists,
        (409, _) => Failure::Conflict,
        (404, _) => Failure::NotFound,
        (429, _) => {
            let wait = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
            Failure::Throttled(Duration::from_secs(wait.into()))
        }
        (400..=408 | 411..=428, _) => Failure::Refused(status.message.clone()),
        (500, _) if status.message.contains("failed calling webhook") => {
            Failure::Blocked(webhook_explained(&status.message))
        }
        _ => Failure::Unknown(chain(error)),
    }
}

/// The replaced operator's webhook outlives it and then refuses every write of an `IP`, for
/// administrators too. Who meets it needs its name more than the API server's own words.
fn webhook_explained(message: &str) -> String {
    if message.contains(&format!("{:?}", words::WEBHOOK_LEFT)) {
        format!(
            "the webhook {} that vip-allocator-operator left behind refuses every change of an IP \
             object; remove it with `kubectl delete validatingwebhookconfiguration {}`, and this \
             goes on by itself ({message})",
            words::WEBHOOK_LEFT,
            words::WEBHOOK_LEFT_CONFIGURATION,
        )
    } else {
        message.to_owned()
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        append(&mut text, &cause);
        source = cause.source();
    }
    text
}

fn append(text: &mut String, cause: &dyn Display) {
    let cause = cause.to_string();
    if !text.contains(&cause) {
        text.push_str(": ");
        text.push_str(&cause);
    }
}
