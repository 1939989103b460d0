//! Follows one object by its name, and no other.
//!
//! Each watch ends after a minute and the next one begins at the version that was seen last: a connection that
//! is dead without a word, and a watch that misses events, go unnoticed no longer than that.

use std::{fmt::Debug, time::Duration};

use futures::{StreamExt as _, TryStreamExt as _};
use kube::{
    Api, Resource,
    api::{ListParams, WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout, timeout_at},
};
use tracing::{debug, warn};

use super::backoff::Backoff;

const LIST_DEADLINE: Duration = Duration::from_secs(10);
const WATCH_SECONDS: u32 = 60;
/// Later than this, a watch that should have ended is dead.
const WATCH_DEADLINE: Duration = Duration::from_secs(70);

/// What is known of an object.
#[derive(Clone, Debug)]
pub(super) enum Seen<K> {
    /// The API server has not been reached.
    Unknown,
    Absent,
    Present(Box<K>),
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Call(#[from] kube::Error),
    #[error("no answer in time")]
    Late,
    /// The API server has forgotten the version at which the watch was to begin.
    #[error("{0}")]
    Expired(String),
}

/// Follows an object for good.
pub(super) async fn follow<K>(
    api: Api<K>,
    name: &str,
    news: &watch::Sender<Seen<K>>,
    mut backoff: Backoff,
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    loop {
        let failure = match follow_from_list(&api, name, news, &mut backoff).await {
            Ok(never) => match never {},
            Err(failure) => failure,
        };
        match failure {
            Failure::Expired(_) => {
                debug!(name, %failure, "the watch begins again with a list");
            }
            Failure::Call(_) | Failure::Late => {
                warn!(name, %failure, "the watch failed; it goes on");
            }
        }
        sleep(backoff.failed()).await;
    }
}

async fn follow_from_list<K>(
    api: &Api<K>,
    name: &str,
    news: &watch::Sender<Seen<K>>,
    backoff: &mut Backoff,
) -> Result<std::convert::Infallible, Failure>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let fields = format!("metadata.name={name}");
    let params = ListParams::default().fields(&fields);
    let list = timeout(LIST_DEADLINE, api.list(&params)).await.map_err(|_| Failure::Late)??;
    let mut version = list.metadata.resource_version.unwrap_or_default();
    let found = list.items.into_iter().next();
    tell(news, found.map_or(Seen::Absent, |object| Seen::Present(Box::new(object))));
    loop {
        let deadline = Instant::now() + WATCH_DEADLINE;
        let params = WatchParams::default().fields(&fields).timeout(WATCH_SECONDS);
        let params = params.disable_bookmarks();
        let stream = timeout(LIST_DEADLINE, api.watch(&params, &version)).await;
        let mut stream = stream.map_err(|_| Failure::Late)??.boxed();
        while let Some(event) =
            timeout_at(deadline, stream.try_next()).await.map_err(|_| Failure::Late)??
        {
            let (object, is_gone) = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                WatchEvent::Deleted(object) => (object, true),
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(status) => return Err(Failure::Expired(status.message)),
            };
            if let Some(seen) = &object.meta().resource_version {
                version.clone_from(seen);
            }
            tell(news, if is_gone { Seen::Absent } else { Seen::Present(Box::new(object)) });
        }
        backoff.succeeded();
    }
}

fn tell<K>(news: &watch::Sender<Seen<K>>, seen: Seen<K>) {
    news.send_replace(seen);
}
