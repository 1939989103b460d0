//! `deploy/crds`: one file per kind, all that `kubectl apply -f deploy/crds` needs. Below it, in
//! `legacy`, lie the kinds that only clusters of vip-allocator-operator up to 0.3 have.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::{Error, File, NOTICE};

pub(super) fn files() -> Result<Vec<File>, Error> {
    let current = landfall_api::crds().into_iter().map(|crd| file("deploy/crds", &crd));
    let legacy = landfall_api::legacy_crds().into_iter();
    current.chain(legacy.map(|crd| file("deploy/crds/legacy", &crd))).collect()
}

fn file(folder: &str, crd: &CustomResourceDefinition) -> Result<File, Error> {
    let name = crd.metadata.name.as_deref().unwrap_or_default();
    let path = format!("{folder}/{name}.yaml");
    match serde_saphyr::to_string(crd) {
        Ok(yaml) => Ok(File { path, text: format!("# {NOTICE}\n{yaml}") }),
        Err(source) => Err(Error::Yaml { path, source }),
    }
}
