//! One effect, one guarded call (a release reads before it deletes), one deadline.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use kube::{Api, Client, ResourceExt as _, core::DeserializeGuard};
use landfall_api::{IP, IPSpec, ReservedFor, Use, VirtualIP, VirtualIPStatus, keys, name};
use serde_json::{Value, json};

use super::{
    effect::{Answer, Step, Tenure},
    observe,
    view::ClaimView,
    world::is_clone,
};
use crate::{
    call::{Failure, creating, deleting, failure, found, guarded, patching},
    object::{ObjectKey, Version},
    services::observe::pool_label,
};

/// Does one step for a `VirtualIP` against the API server.
pub(super) async fn apply(
    client: &Client,
    vip: &ObjectKey,
    step: &Step,
) -> Result<Answer, Failure> {
    Applier { client }.call(vip, step).await
}

struct Applier<'a> {
    client: &'a Client,
}

impl Applier<'_> {
    async fn call(&self, vip: &ObjectKey, effect: &Step) -> Result<Answer, Failure> {
        match effect {
            Step::Status { version, status, .. } => {
                let patch = guarded(*version, json!({ "status": fields(status) }));
                virtual_ip(
                    self.virtual_ips(vip).patch_status(vip.name(), &patching(), &patch).await,
                )
            }
            Step::Finalizers { version, finalizers } => {
                let patch = guarded(*version, json!({"metadata": {"finalizers": finalizers}}));
                virtual_ip(self.virtual_ips(vip).patch(vip.name(), &patching(), &patch).await)
            }
            Step::Take { addr, tenure } => self.take(*addr, tenure).await,
            Step::Pass { addr, version, tenure } => self.pass(*addr, *version, tenure).await,
            Step::EndReservation { addr, version } => {
                self.write_claim(*addr, *version, json!({"spec": {"reservedFor": null}})).await
            }
            Step::Release { claim, copy } => self.release(vip, claim, copy).await,
            Step::Copy { copy } => {
                let services = self.services(&ObjectKey::of(&copy.metadata));
                service(services.create(&creating(), copy).await)
            }
            Step::Align { copy, version, patch } => {
                let patch = guarded(*version, patch.clone());
                service(self.services(copy).patch(copy.name(), &patching(), &patch).await)
            }
            Step::DropCopy { copy, uid } => {
                match self.services(copy).delete(copy.name(), &deleting(uid, None)).await {
                    Ok(either) => Ok(either
                        .left()
                        .filter(|left: &Service| left.metadata.deletion_timestamp.is_some())
                        .map_or(Answer::ServiceGone, |left| {
                            Answer::Service(Box::new(observe::service(left)))
                        })),
                    Err(error) => gone_is(Answer::ServiceGone, failure(&error)),
                }
            }
            Step::Convert { service: key, version, addr } => {
                let spec = json!({"type": "LoadBalancer", "loadBalancerIP": addr});
                let patch = guarded(*version, json!({ "spec": spec }));
                service(self.services(key).patch(key.name(), &patching(), &patch).await)
            }
            Step::StopAsking { service: key, version } => {
                let patch = guarded(*version, json!({"spec": {"loadBalancerIP": null}}));
                service(self.services(key).patch(key.name(), &patching(), &patch).await)
            }
        }
    }

    async fn take(&self, addr: IpAddr, tenure: &Tenure) -> Result<Answer, Failure> {
        let holder = tenure.holder();
        let mut ip = IP::new(
            &name::of(addr),
            IPSpec {
                address: Some(addr.to_string()),
                use_: Some(Use::LoadBalancer),
                pool: pool(tenure),
                holders: vec![holder.clone()],
                reserved_for: reservation(tenure),
            },
        );
        ip.annotations_mut().insert(keys::ANNOTATION_OWNER.to_owned(), owner(tenure));
        for (key, value) in labels(tenure) {
            if let Some(value) = value {
                ip.labels_mut().insert(key.to_owned(), value);
            }
        }
        claim(self.claims().create(&creating(), &ip).await)
    }

    /// All of it at once, so that nobody ever sees a claim that is half of each.
    async fn pass(
        &self,
        addr: IpAddr,
        version: Version,
        tenure: &Tenure,
    ) -> Result<Answer, Failure> {
        let labels: serde_json::Map<String, Value> =
            labels(tenure).into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect();
        let patch = json!({
            "metadata": {"labels": labels, "annotations": {keys::ANNOTATION_OWNER: owner(tenure)}},
            "spec": {
                "address": addr,
                "use": Use::LoadBalancer,
                "pool": pool(tenure),
                "holders": [tenure.holder()],
                "reservedFor": reservation(tenure),
            },
        });
        self.write_claim(addr, version, patch).await
    }

    async fn write_claim(
        &self,
        addr: IpAddr,
        version: Version,
        patch: Value,
    ) -> Result<Answer, Failure> {
        let patch = guarded(version, patch);
        claim(self.claims().patch(&name::of(addr), &patching(), &patch).await)
    }

    /// The order matters: the claim's version was known before, the others are read now, and the
    /// deletion holds only for that very version.
    async fn release(
        &self,
        vip: &ObjectKey,
        known: &ClaimView,
        copy: &ObjectKey,
    ) -> Result<Answer, Failure> {
        let live = found(self.virtual_ips(vip).get(vip.name()).await)?;
        let readable = live.as_ref().is_none_or(|live| live.0.is_ok());
        let live = live.and_then(observe::virtual_ip).filter(|live| known.is_of(live));
        // Whoever cannot be read may well be the one that is named.
        if !readable || live.as_ref().is_some_and(|live| !live.deleting) {
            return Ok(Answer::Kept);
        }
        let copied = found(self.services(copy).get(copy.name()).await)?;
        let in_use = copied.is_some_and(|copied| match &live {
            Some(live) => is_clone(&copied, &live.uid),
            None => observe::external_ips(&copied).contains(&known.addr),
        });
        if in_use {
            return Ok(Answer::Kept);
        }
        let delete = deleting(&known.uid, Some(known.version));
        match self.claims().delete(&name::of(known.addr), &delete).await {
            Ok(_) => Ok(Answer::Released),
            Err(error) => gone_is(Answer::Released, failure(&error)),
        }
    }

    fn claims(&self) -> Api<IP> {
        Api::all(self.client.clone())
    }

    fn services(&self, key: &ObjectKey) -> Api<Service> {
        Api::namespaced(self.client.clone(), key.namespace())
    }

    /// One that cannot be read is no reason to fail.
    fn virtual_ips(&self, key: &ObjectKey) -> Api<DeserializeGuard<VirtualIP>> {
        Api::namespaced(self.client.clone(), key.namespace())
    }
}

/// What was to be deleted and is not there is as good as deleted.
fn gone_is(answer: Answer, failure: Failure) -> Result<Answer, Failure> {
    if failure == Failure::NotFound { Ok(answer) } else { Err(failure) }
}

/// Every field that is ours to write; one without a value goes.
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

fn owner(tenure: &Tenure) -> String {
    let holder = tenure.holder();
    ObjectKey::new(holder.namespace.as_deref().unwrap_or_default(), &holder.name).to_string()
}

/// Exactly one of the two labels tells whose it is; the other goes. The one of a `VirtualIP` is there
/// in any case, though it may name no mapping: by it such claims are found when nothing else is left.
fn labels(tenure: &Tenure) -> [(&'static str, Option<String>); 2] {
    let (mapping, group) = match tenure {
        Tenure::VirtualIp { mapping, .. } => {
            // A name that is too long for a label is left out, as for pools.
            let name = mapping.as_deref().and_then(keys::ipgroup_label);
            (Some(name.unwrap_or_default()), None)
        }
        Tenure::Service { pool, .. } => (None, pool_label(pool)),
    };
    [(keys::LABEL_GSM, mapping.map(str::to_owned)), (keys::LABEL_IPGROUP, group.map(str::to_owned))]
}

fn pool(tenure: &Tenure) -> Option<String> {
    match tenure {
        Tenure::VirtualIp { mapping, .. } => {
            mapping.as_ref().map(|name| super::view::MappingView::pool_name(name).to_string())
        }
        Tenure::Service { pool, .. } => Some(pool.to_string()),
    }
}

fn reservation(tenure: &Tenure) -> Option<ReservedFor> {
    match tenure {
        Tenure::VirtualIp { .. } => None,
        Tenure::Service { holder, .. } => Some(ReservedFor {
            namespace: holder.namespace.clone().unwrap_or_default(),
            name: Some(holder.name.clone()),
            expires: None,
            retained: None,
        }),
    }
}

fn virtual_ip(written: kube::Result<DeserializeGuard<VirtualIP>>) -> Result<Answer, Failure> {
    let written = written.map_err(|error| failure(&error))?;
    Ok(Answer::VirtualIp(observe::virtual_ip(written)))
}

fn claim(written: kube::Result<IP>) -> Result<Answer, Failure> {
    let written = written.map_err(|error| failure(&error))?;
    let view = observe::claim(&DeserializeGuard(Ok(written)));
    view.map(Answer::Claim)
        .ok_or_else(|| Failure::Unknown("the answer names no address".to_owned()))
}

fn service(written: kube::Result<Service>) -> Result<Answer, Failure> {
    let written = written.map_err(|error| failure(&error))?;
    Ok(Answer::Service(Box::new(observe::service(written))))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use landfall_api::Holder;
    use landfall_ipam::PoolName;

    use super::*;

    #[test]
    fn the_label_tells_whose_a_claim_is_whatever_its_mapping_is_called() {
        let long = "m".repeat(80);
        let (gsm, ipgroup) = (keys::LABEL_GSM, keys::LABEL_IPGROUP);
        for (mapping, expected) in [(Some("dmz"), "dmz"), (Some(&*long), ""), (None, "")] {
            let holder = Holder::default();
            let tenure = Tenure::VirtualIp { holder, mapping: mapping.map(Arc::from) };
            assert_eq!(labels(&tenure), [(gsm, Some(expected.to_owned())), (ipgroup, None)]);
        }
        let pool = PoolName::new("IPGroup/dmz");
        let tenure = Tenure::Service { holder: Holder::default(), pool };
        assert_eq!(labels(&tenure), [(gsm, None), (ipgroup, Some("dmz".to_owned()))]);
    }
}
