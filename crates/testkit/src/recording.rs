//! Replays objects that another program left in a cluster into a fresh one.
//!
//! A recording is a `v1` List as `kubectl get -o yaml` prints it. The API server gives each object a new uid,
//! version and time, so those of the recording cannot be kept; everything else can, even statuses, finalizers
//! and deletions that wait for one.

use std::collections::BTreeMap;

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Api, Client, ResourceExt as _};
use serde::Deserialize;

use crate::{Error, Result};

/// The objects of a recorded cluster, in the order in which they can be created.
#[derive(Clone, Debug)]
pub struct Recording {
    items: Vec<DynamicObject>,
}

#[derive(Deserialize)]
struct List {
    items: Vec<DynamicObject>,
}

impl Recording {
    /// Reads the text of a recording.
    pub fn load(yaml: &str) -> Result<Self> {
        let list: List =
            serde_saphyr::from_str(yaml).map_err(|error| Error::Recording(error.to_string()))?;
        Ok(Self { items: list.items })
    }

    /// The recorded objects of these kinds only: the rest may be of kinds that are not installed.
    #[must_use]
    pub fn only(mut self, kinds: &[&str]) -> Self {
        let kind = |object: &DynamicObject| object.types.clone().unwrap_or_default().kind;
        self.items.retain(|object| kinds.contains(&kind(object).as_str()));
        self
    }

    /// The recorded objects, as they were.
    pub fn items(&self) -> &[DynamicObject] {
        &self.items
    }

    /// Creates the objects in file order, then writes their status, then begins the deletions that were under
    /// way. Objects that every cluster has, such as the namespace `default`, are updated instead.
    ///
    /// The kinds must be installed, and no operator may run yet.
    pub async fn replay(&self, client: &Client) -> Result<()> {
        let mut uids = BTreeMap::new();
        for recorded in &self.items {
            let made = make(client, recorded, &uids).await?;
            if let (Some(old), Some(new)) = (recorded.uid(), made.uid()) {
                uids.insert(old, new);
            }
        }
        for recorded in &self.items {
            if recorded.data.get("status").is_some() {
                set_status(client, recorded).await?;
            }
        }
        for recorded in self.items.iter().filter(|it| it.metadata.deletion_timestamp.is_some()) {
            let deleted =
                api(client, recorded).delete(&recorded.name_any(), &DeleteParams::default()).await;
            deleted.map_err(Error::kube("beginning a recorded deletion"))?;
        }
        Ok(())
    }
}

/// The object without fields that only the API server may set, and without status, which is a subresource.
fn bare(recorded: &DynamicObject, uids: &BTreeMap<String, String>) -> DynamicObject {
    let mut object = recorded.clone();
    let metadata = &mut object.metadata;
    metadata.uid = None;
    metadata.resource_version = None;
    metadata.creation_timestamp = None;
    metadata.generation = None;
    metadata.deletion_timestamp = None;
    metadata.deletion_grace_period_seconds = None;
    metadata.managed_fields = None;
    // With the uid of an owner that never existed here, a garbage collector would delete the object.
    for owner in metadata.owner_references.iter_mut().flatten() {
        if let Some(uid) = uids.get(&owner.uid) {
            owner.uid.clone_from(uid);
        }
    }
    if let Some(fields) = object.data.as_object_mut() {
        fields.remove("status");
    }
    object
}

async fn make(
    client: &Client,
    recorded: &DynamicObject,
    uids: &BTreeMap<String, String>,
) -> Result<DynamicObject> {
    let (api, object) = (api(client, recorded), bare(recorded, uids));
    match api.create(&PostParams::default(), &object).await {
        Ok(made) => Ok(made),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let patched = api
                .patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&object))
                .await;
            patched.map_err(Error::kube("bringing an object in line with a recording"))
        }
        Err(error) => Err(Error::kube("making a recorded object")(error)),
    }
}

async fn set_status(client: &Client, recorded: &DynamicObject) -> Result<()> {
    let api = api(client, recorded);
    let now = api.get(&recorded.name_any()).await.map_err(Error::kube("reading what was made"))?;
    if now.data.get("status") == recorded.data.get("status") {
        return Ok(());
    }
    let mut object = now;
    if let (Some(fields), Some(status)) = (object.data.as_object_mut(), recorded.data.get("status"))
    {
        fields.insert("status".to_owned(), status.clone());
    }
    let written = api.replace_status(&recorded.name_any(), &PostParams::default(), &object).await;
    written.map(drop).map_err(Error::kube("writing a recorded status"))
}

/// The API for an object of any kind. Plurals are the regular ones; no recorded kind has another.
fn api(client: &Client, object: &DynamicObject) -> Api<DynamicObject> {
    let types = object.types.clone().unwrap_or_default();
    let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
    let kind = GroupVersionKind::gvk(group, version, &types.kind);
    let resource = ApiResource::from_gvk(&kind);
    match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}
