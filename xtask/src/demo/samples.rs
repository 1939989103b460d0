//! The objects of `examples/demo`, and what its Services should come to.

use std::path::{Path, PathBuf};
use std::{fs, io};

use kube::api::DynamicObject;
use kube::{Api, Client, ResourceExt};
use landfall_api::IPGroup;
use landfall_ipam::Reason;
use landfall_testkit::wait;
use serde_json::json;

use super::DEADLINE;
use crate::cargo::repository;

/// A Service and what it should have.
#[derive(Debug)]
pub(super) struct Sample {
    /// `namespace/name`.
    pub service: String,
    pub expected: Expected,
}

#[derive(Debug)]
pub(super) enum Expected {
    /// An address from each of these pools.
    From(Vec<String>),
    /// An address from this pool that a node holds.
    Floating(String),
    /// Exactly this address.
    Address(&'static str),
    /// None, for this reason.
    Refused(Reason),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("reading the samples in {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("understanding the samples in {}", path.display())]
    Parse { path: PathBuf, source: Box<serde_saphyr::Error> },
}

/// One for each Service in `examples/demo`, where `prefix` is before the names of namespaces and pools.
pub(super) fn expected(prefix: &str) -> Vec<Sample> {
    let from = |pools: &[&str]| {
        Expected::From(pools.iter().map(|pool| format!("IPGroup/{prefix}{pool}")).collect())
    };
    let samples = [
        ("shop/web", from(&["public"])),
        ("shop/mail", Expected::Address("192.0.2.25")),
        ("shop/web-v6", from(&["public-v6"])),
        ("shop/api", from(&["public", "public-v6"])),
        ("bank/ledger", from(&["payments"])),
        ("shop/mail-copy", Expected::Refused(Reason::TakenBy)),
        ("shop/typo", Expected::Refused(Reason::Unparseable)),
    ];
    samples
        .map(|(service, expected)| Sample { service: format!("{prefix}{service}"), expected })
        .into()
}

/// The Service in `examples/nodes`.
pub(super) fn floating() -> Sample {
    let expected = Expected::Floating("IPGroup/floating".to_owned());
    Sample { service: "front/proxy".to_owned(), expected }
}

/// The pools among the samples.
pub(super) const POOLS: &str = "10-pools.yaml";

/// Where the samples lie.
pub(super) fn folder() -> PathBuf {
    repository().join("examples/demo")
}

/// Every object in the folder, in the order in which they are applied.
pub(super) fn objects() -> Result<Vec<DynamicObject>, Error> {
    let folder = folder();
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| Error::Read { path, source }
    };
    let entries = fs::read_dir(&folder).and_then(|entries| {
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()
    });
    let mut paths = entries.map_err(failed(&folder))?;
    paths.sort();
    let mut objects = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).map_err(failed(&path))?;
        for document in text.split("\n---\n") {
            objects.push(
                serde_saphyr::from_str(document).map_err(|source| Error::Parse {
                    path: path.clone(),
                    source: Box::new(source),
                })?,
            );
        }
    }
    Ok(objects)
}

pub(super) fn is(object: &DynamicObject, kind: &str) -> bool {
    object.types.as_ref().is_some_and(|types| types.kind == kind)
}

pub(super) fn names(objects: &[DynamicObject]) -> Vec<String> {
    objects.iter().map(ResourceExt::name_any).collect()
}

/// Waits until the operator has read these pools. It hears of pools and Services on watches of their
/// own: of a Service that comes before a pool it may find that another pool has an address for it.
pub(super) async fn pools_read(client: &Client, pools: &[String]) -> Result<(), wait::TimedOut> {
    let api: Api<IPGroup> = Api::all(client.clone());
    wait::until(
        format!("the operator to read IPGroups {}", pools.join(", ")),
        DEADLINE,
        async || {
            for pool in pools {
                let found = api.get(pool).await.map_err(|error| error.to_string())?;
                let read = found.status.as_ref().and_then(|status| status.observed_generation);
                if read != found.metadata.generation {
                    return Err(format!("IPGroup {pool} has no status of its generation"));
                }
            }
            Ok(())
        },
    )
    .await
}

/// How samples are kept apart from everything else in a cluster.
#[derive(Clone, Debug)]
pub(super) struct Seal {
    /// Before the names of namespaces and pools.
    pub prefix: &'static str,
    /// On pools and Services: no other allocator serves this class, and the pools serve no other.
    pub class: &'static str,
    /// Key and value of a label on the namespaces that the pools serve.
    pub label: (&'static str, String),
}

impl Seal {
    /// The sample under a name of its own, served by the pools of the samples alone.
    pub(super) fn apply(&self, mut object: DynamicObject) -> DynamicObject {
        let (prefix, (key, value)) = (self.prefix, &self.label);
        object.metadata.labels.get_or_insert_default().insert((*key).to_owned(), value.clone());
        if let Some(namespace) = &mut object.metadata.namespace {
            namespace.insert_str(0, prefix);
        } else if let Some(name) = &mut object.metadata.name {
            name.insert_str(0, prefix);
        }
        match object.types.as_ref().map(|types| types.kind.as_str()) {
            Some("IPGroup") => {
                let spec = &mut object.data["spec"];
                spec["loadBalancerClass"] = json!(self.class);
                spec["namespaceSelector"]["matchLabels"][key] = json!(value);
            }
            Some("Service") => {
                let spec = &mut object.data["spec"];
                spec["loadBalancerClass"] = json!(self.class);
                // It is never called, so no port of the nodes need be taken.
                spec["allocateLoadBalancerNodePorts"] = json!(false);
                // What is expected of a sample must not depend on the cluster's first family.
                if spec["ipFamilies"].is_null() {
                    spec["ipFamilies"] = json!(["IPv4"]);
                }
            }
            _ => {}
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_service_of_the_demo_has_an_expectation() {
        let services = objects().unwrap().into_iter().filter(|object| is(object, "Service"));
        let found: BTreeSet<_> = services
            .map(|service| format!("{}/{}", service.namespace().unwrap(), service.name_any()))
            .collect();
        let expected = expected("").into_iter().map(|sample| sample.service).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_sealed_sample_serves_and_asks_only_samples() {
        let label = ("landfall.dev/demo", "7".to_owned());
        let seal = Seal { prefix: "x-", class: "example.com/demo", label };
        for object in objects().unwrap() {
            let (name, namespace) = (object.name_any(), object.namespace());
            let sealed = seal.apply(object);
            assert_eq!(sealed.labels()["landfall.dev/demo"], "7");
            let spec = &sealed.data["spec"];
            if is(&sealed, "Service") {
                assert_eq!(sealed.name_any(), name);
                assert_eq!(sealed.namespace().unwrap(), format!("x-{}", namespace.unwrap()));
                assert_eq!(spec["loadBalancerClass"], "example.com/demo");
                assert_eq!(spec["type"], "LoadBalancer");
                assert_eq!(spec["allocateLoadBalancerNodePorts"], false);
                let family = if name == "web-v6" { "IPv6" } else { "IPv4" };
                assert_eq!(spec["ipFamilies"][0], family, "{name}");
                continue;
            }
            assert_eq!(sealed.name_any(), format!("x-{name}"));
            if is(&sealed, "IPGroup") {
                assert_eq!(spec["loadBalancerClass"], "example.com/demo");
                let labels = &spec["namespaceSelector"]["matchLabels"];
                assert_eq!(labels["landfall.dev/demo"], "7");
                let selects_zone = labels["landfall.example/zone"] == "payments";
                assert_eq!(selects_zone, name == "payments", "what it selected, it selects");
            } else {
                assert!(is(&sealed, "Namespace"), "{sealed:?}");
                assert!(spec.is_null(), "a namespace is as it was: {sealed:?}");
            }
        }
    }
}
