//! `deploy/crds`: one file per kind, everything that `kubectl apply -f deploy/crds` needs.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::{Error, File, NOTICE, labels};

pub(super) fn files() -> Result<Vec<File>, Error> {
    landfall_api::crds().iter().chain(&landfall_api::legacy_crds()).map(file).collect()
}

fn file(crd: &CustomResourceDefinition) -> Result<File, Error> {
    let name = crd.metadata.name.as_deref().unwrap_or_default();
    let path = format!("deploy/crds/{name}.yaml");
    let mut crd = crd.clone();
    let labels = serde_json::from_value(labels("api"));
    crd.metadata.labels =
        Some(labels.map_err(|source| Error::Json { path: path.clone(), source })?);
    match serde_saphyr::to_string(&crd) {
        Ok(yaml) => Ok(File { path, text: format!("# {NOTICE}\n{yaml}") }),
        Err(source) => Err(Error::Yaml { path, source }),
    }
}
