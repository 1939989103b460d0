//! What the demo created in a cluster, so that it can remove exactly that.

use std::cell::Cell;
use std::fmt;

use futures::future::join_all;
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams, Preconditions};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use landfall::report;
use landfall_testkit::wait;
use tokio::time::timeout;

use super::{CALL_DEADLINE, Error, LABEL, if_there};
use crate::demo::DEADLINE;
use crate::output::Output;

/// Objects in the order in which they were created.
///
/// An object is entered before it is created, because a call may take hold and its answer be lost.
/// Each bears the label of this run, by which it is known again: one that others made under the same
/// name is not ours.
pub(super) struct Journal {
    client: Client,
    run: String,
    entries: Vec<Entry>,
}

struct Entry {
    resource: ApiResource,
    namespace: Option<String>,
    name: String,
    /// Whether the API server said that it is.
    is_created: bool,
    /// Whether it is removed; known even when the removal of the others is cut off.
    is_gone: Cell<bool>,
    /// Why it could not be removed.
    problem: Option<String>,
}

impl Entry {
    fn new(object: &DynamicObject) -> Result<Self, Error> {
        let kind = object.types.as_ref().and_then(|types| GroupVersionKind::try_from(types).ok());
        let kind = kind.ok_or_else(|| Error::NoKind(object.name_any()))?;
        Ok(Self {
            resource: ApiResource::from_gvk(&kind),
            namespace: object.namespace(),
            name: object.name_any(),
            is_created: false,
            is_gone: Cell::new(false),
            problem: None,
        })
    }

    fn api(&self, client: &Client) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }

    /// Deletes it unless that is done already; an error says what is still there.
    async fn remove(&self, client: &Client, run: &str) -> Result<(), String> {
        let api = self.api(client);
        let found =
            if_there(api.get_metadata(&self.name).await).map_err(|error| report::chain(&error))?;
        let Some(found) =
            found.filter(|found| found.labels().get(LABEL).is_some_and(|it| it == run))
        else {
            return Ok(());
        };
        if found.metadata.deletion_timestamp.is_none() {
            let preconditions = Preconditions { uid: found.uid(), resource_version: None };
            let params =
                DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
            api.delete(&self.name, &params).await.map_err(|error| report::chain(&error))?;
        }
        Err("it is deleted and not gone yet".to_owned())
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.resource.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}

impl Journal {
    pub(super) fn new(client: &Client, run: &str) -> Self {
        Self { client: client.clone(), run: run.to_owned(), entries: Vec::new() }
    }

    /// Creates objects in their order, up to the first that is refused.
    ///
    /// Do not drop it half way: what a cut call creates later would be left behind.
    pub(super) async fn create_all(
        &mut self,
        objects: impl IntoIterator<Item = DynamicObject>,
        output: &Output,
    ) -> Result<(), Error> {
        for object in objects {
            self.create(object, output).await?;
        }
        Ok(())
    }

    pub(super) async fn create(
        &mut self,
        mut object: DynamicObject,
        output: &Output,
    ) -> Result<(), Error> {
        let labels = object.metadata.labels.get_or_insert_default();
        labels.insert(LABEL.to_owned(), self.run.clone());
        let entry = Entry::new(&object)?;
        let (api, what) = (entry.api(&self.client), entry.to_string());
        let entry = self.entries.push_mut(entry);
        match timeout(CALL_DEADLINE, api.create(&PostParams::default(), &object)).await {
            Ok(Ok(_)) => {
                entry.is_created = true;
                output.say(format_args!("created {what}"));
                Ok(())
            }
            Ok(Err(source)) => Err(Error::Create { what, source: Box::new(source) }),
            Err(_) => Err(Error::CreateLate { what }),
        }
    }

    /// Those of the objects that exist already, made by any program.
    pub(super) async fn found(
        client: &Client,
        objects: impl IntoIterator<Item = &DynamicObject>,
    ) -> Result<Vec<String>, Error> {
        let mut found = Vec::new();
        for object in objects {
            let entry = Entry::new(object)?;
            let there = entry.api(client).get_metadata(&entry.name).await;
            if if_there(there).map_err(Error::call(format!("reading {entry}")))?.is_some() {
                found.push(entry.to_string());
            }
        }
        Ok(found)
    }

    /// Deletes everything, the last first, and waits until it is gone.
    pub(super) async fn remove_all(&mut self, output: &Output) {
        let (client, run) = (&self.client, &self.run);
        // All are told first, so that they go at the same time.
        for entry in self.entries.iter().rev() {
            drop(timeout(CALL_DEADLINE, entry.remove(client, run)).await);
        }
        let gone = self.entries.iter().map(async |entry| {
            let remove = async || entry.remove(client, run).await;
            let gone = wait::until(entry.to_string(), DEADLINE, remove).await;
            entry.is_gone.set(gone.is_ok());
            if gone.is_ok() && entry.is_created {
                output.say(format_args!("removed {entry}"));
            }
            gone
        });
        let outcomes = join_all(gone).await;
        for (entry, outcome) in self.entries.iter_mut().zip(outcomes) {
            entry.problem = outcome.err().map(|late| late.seen);
        }
    }

    /// What is not removed, each with the reason.
    pub(super) fn left(&self) -> impl Iterator<Item = String> {
        let left = self.entries.iter().filter(|entry| !entry.is_gone.get());
        left.map(|entry| match &entry.problem {
            Some(problem) => format!("{entry}: {problem}"),
            None => entry.to_string(),
        })
    }

    /// Leaves everything where it is.
    pub(super) fn forget(&mut self) {
        self.entries.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
