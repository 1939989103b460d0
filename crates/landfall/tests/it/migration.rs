//! The old kinds on a real API server: they keep working, and become Services without a gap.

mod admission;
mod crashes;
mod exposing;
mod migrating;
mod obstacles;
mod orphans;
mod recorded;
mod together;

use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use landfall_api::group_segment_mapping::GroupSegmentMappingSpec;
use landfall_api::virtualip::State;
use landfall_api::{GroupSegmentMapping, VirtualIP, VirtualIPSpec, VirtualIPStatus, keys};
use landfall_testkit::builders::{ServiceBuilder as _, load_balancer};
use landfall_testkit::{cluster, wait};
use serde_json::{Value, json};

use crate::stage::{Arena, LONG, Tenant, ip};

pub(crate) const VALID: &str = "successfully allocated an IP address";
const MIGRATED: &str = "VirtualIP has been migrated";

/// A policy that refuses every Service of type `LoadBalancer`.
const NO_LOAD_BALANCERS: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-load-balancers}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [services]}
  validations:
  - {expression: "object.spec.type != 'LoadBalancer'", message: this cluster has no load balancers}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-load-balancers}
spec: {policyName: no-load-balancers, validationActions: [Deny]}
"#;

/// Removes that policy.
const ALLOW_LOAD_BALANCERS: [&str; 3] =
    ["delete", "validatingadmissionpolicybinding", "no-load-balancers"];

/// The user of `VirtualIPs` in one namespace.
pub(crate) struct Old {
    pub(crate) tenant: Tenant,
    vips: Api<VirtualIP>,
}

impl Old {
    pub(crate) async fn new(arena: &Arena, namespace: &str) -> Self {
        let tenant = arena.tenant(namespace).await;
        let vips = Api::namespaced(tenant.client.clone(), namespace);
        Self { tenant, vips }
    }

    pub(crate) async fn mapping(&self, name: &str, segment: &str, excluded: &[&str]) {
        let all: Api<GroupSegmentMapping> = Api::all(self.tenant.client.clone());
        let spec = GroupSegmentMappingSpec {
            keepalived_group: "ns/kg".into(),
            segment: segment.into(),
            excluded_ips: Some(excluded.iter().map(ToString::to_string).collect()),
        };
        let mapping = GroupSegmentMapping::new(name, spec);
        all.create(&PostParams::default(), &mapping).await.unwrap();
    }

    /// A plain Service to be exposed.
    pub(crate) async fn service(&self, name: &str) -> Service {
        let service = load_balancer(name).of_type("ClusterIP").labelled("app", name);
        self.tenant.create(service).await
    }

    pub(crate) async fn expose(&self, name: &str, service: &str, addr: Option<&str>) {
        let spec = VirtualIPSpec { service: service.into(), ip: addr.map(str::to_owned) };
        let vip = VirtualIP::new(name, spec);
        self.vips.create(&PostParams::default(), &vip).await.unwrap();
    }

    pub(crate) async fn migrate(&self, name: &str) {
        let annotations = json!({keys::ANNOTATION_MIGRATE: ""});
        self.patch(name, json!({"metadata": {"annotations": annotations}})).await;
    }

    async fn patch(&self, name: &str, patch: Value) {
        self.vips.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn delete(&self, name: &str) {
        self.vips.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Refuses every Service of type `LoadBalancer` until [`ALLOW_LOAD_BALANCERS`].
    async fn refuse_load_balancers(&self, arena: &Arena) {
        arena.apply(NO_LOAD_BALANCERS).await;
        wait::until("the policy", LONG, async || {
            let dry = PostParams { dry_run: true, ..PostParams::default() };
            self.tenant.services.create(&dry, &load_balancer("probe")).await.is_err()
        })
        .await
        .unwrap();
    }

    pub(crate) async fn copy(&self, name: &str) -> Option<Service> {
        self.tenant.services.get_opt(&format!("{name}-keepalived-clone")).await.unwrap()
    }

    /// Waits for a state and a part of its message.
    pub(crate) async fn is(&self, name: &str, state: State, fragment: &str) -> VirtualIPStatus {
        let what = format!("VirtualIP {} to be {state:?} {fragment:?}", self.tenant.key(name));
        wait::until(what, LONG, async || {
            let vip = self.vips.get(name).await.map_err(|error| error.to_string())?;
            let status = vip.status.unwrap_or_default();
            let there = status.state.as_deref() == Some(state.as_str())
                && status.message.as_deref().is_some_and(|message| message.contains(fragment));
            if there { Ok(status) } else { Err(format!("{status:?}")) }
        })
        .await
        .unwrap()
    }

    async fn goes(&self, name: &str) {
        wait::until(format!("VirtualIP {name} to go"), LONG, async || {
            match self.vips.get_opt(name).await {
                Ok(None) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await
        .unwrap();
    }

    /// Waits until a migration is complete in every respect.
    pub(crate) async fn is_migrated(&self, name: &str, service: &str, addr: &str) {
        let status = self.is(name, State::Migrated, MIGRATED).await;
        assert_eq!(status.ip.as_deref(), Some(addr), "{name}");
        assert_eq!(status.service.as_deref(), Some(service), "{name}");
        assert_eq!(
            (status.gsm, status.keepalived_group, status.cloned_service),
            (None, None, None),
            "{name}"
        );
        let vip = self.vips.get(name).await.unwrap();
        assert_eq!(vip.finalizers(), <[String; 0]>::default(), "{name}");
        assert!(self.copy(name).await.is_none(), "{name}");
        let shown = self.tenant.get(service).await;
        assert_eq!(cluster::shown(&shown), [ip(addr)], "{name}");
        let claim = self.tenant.claim(addr).await.unwrap();
        assert!(!claim.labels().contains_key(keys::LABEL_GSM), "{name}: {claim:?}");
        assert_eq!(claim.annotations()[keys::ANNOTATION_OWNER], self.tenant.key(service));
    }
}

/// The versions of all objects that must not change without a reason, as text.
async fn versions(client: &Client) -> Vec<String> {
    let vips: Api<VirtualIP> = Api::all(client.clone());
    let seen = cluster::Snapshot::take(client).await.unwrap();
    let vips = vips.list(&ListParams::default()).await.unwrap();
    let version = |kind: &str, key: String, version: Option<String>| {
        format!("{kind} {key} at {}", version.unwrap_or_default())
    };
    let key = |namespace: Option<String>, name: String| {
        format!("{}/{name}", namespace.unwrap_or_default())
    };
    let mut all: Vec<_> =
        seen.claims.iter().map(|ip| version("IP", ip.name_any(), ip.resource_version())).collect();
    all.extend(seen.services.iter().map(|service| {
        version("Service", key(service.namespace(), service.name_any()), service.resource_version())
    }));
    all.extend(vips.iter().map(|vip| {
        version("VirtualIP", key(vip.namespace(), vip.name_any()), vip.resource_version())
    }));
    all
}
