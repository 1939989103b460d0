//! `deploy/crds`: one file per kind, all that `kubectl apply -f deploy/crds` needs.

use super::{Error, File, NOTICE};

pub(super) fn files() -> Result<Vec<File>, Error> {
    landfall_api::crds()
        .into_iter()
        .map(|crd| {
            let name = crd.metadata.name.as_deref().unwrap_or_default();
            let path = format!("deploy/crds/{name}.yaml");
            match serde_saphyr::to_string(&crd) {
                Ok(yaml) => Ok(File { path, text: format!("# {NOTICE}\n{yaml}") }),
                Err(source) => Err(Error::Yaml { path, source }),
            }
        })
        .collect()
}
