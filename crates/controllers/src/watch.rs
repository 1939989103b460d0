//! Feeds the events of a watch to a planner as news.

use std::fmt::Debug;

use futures::StreamExt as _;
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt as _, watcher,
        watcher::{Config, Event},
    },
};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use crate::{blind::Comparison, readiness::Listed};

/// Passes on the events of a watch; ends only when the receiver is gone.
pub(crate) async fn feed<K, N>(
    kind: &'static str,
    (api, config): (Api<K>, Config),
    news: mpsc::Sender<N>,
    listed: Listed,
    translate: impl Fn(Event<K>) -> Vec<N>,
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let stream = || Box::pin(watcher(api.clone(), config.clone()).default_backoff());
    let mut comparison = Comparison::new(kind, api.clone(), &config, listed.checks());
    let mut events = stream();
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            step = comparison.next() => {
                if comparison.goes_on(step) {
                    events = stream();
                }
                continue;
            }
        };
        match event {
            Some(Ok(event)) => {
                comparison.told(&event);
                let done = matches!(event, Event::InitDone);
                for item in translate(event) {
                    if news.send(item).await.is_err() {
                        return;
                    }
                }
                if done {
                    debug!(kind, "listed");
                    listed.done();
                }
            }
            Some(Err(error)) => {
                warn!(kind, error = &error as &dyn std::error::Error, "watch failed; it goes on");
                listed.failed();
            }
            None => return,
        }
    }
}
