//! Starts one watch for each kind that some planner needs.

use std::{collections::BTreeSet, future::Future, pin::Pin};

use futures::future::join_all;
use tokio::sync::mpsc;

use super::{
    Kind, News,
    keepalived::ChildKind,
    watch::{self, PoolMapPlace},
};
use crate::{Context, kinds};

type Watch = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Watches these kinds until the receiver is gone. The watches are registered with `context.readiness` at
/// once, not when the future is first polled, so that the process never looks ready too early.
pub(crate) fn watch_all(
    context: &Context,
    kinds: &BTreeSet<Kind>,
    map: &PoolMapPlace,
    news: &mpsc::Sender<News>,
) -> impl Future<Output = ()> + use<> {
    let wanted = |kind| kinds.contains(&kind);
    let client = || context.client.clone();
    let news = || news.clone();
    let register = |name| context.readiness.register(name);
    let mut all: Vec<Watch> = Vec::new();
    // Claims are listed before their possible holders: the other way round, a claim made in between would
    // seem to have no holder. The ranges of `ClusterIPs` come before Services as well: addresses that they
    // cover need not be remembered per Service.
    let mut before_services: Vec<Watch> = Vec::new();
    let mut before_holders: Vec<Watch> = Vec::new();
    if wanted(Kind::Claims) {
        let listed = register("ips");
        before_services.push(Box::pin(listed.subscribe()));
        before_holders.push(Box::pin(listed.subscribe()));
        all.push(Box::pin(watch::claims(client(), news(), listed)));
    }
    if wanted(Kind::ServiceRanges) {
        let (served, asking) = kinds::built_in(client(), kinds::SERVICE_CIDRS);
        let listed = register("servicecidrs");
        before_services.push(Box::pin(listed.subscribe()));
        all.push(Box::pin(asking));
        all.push(Box::pin(watch::service_ranges(client(), served, news(), listed)));
    }
    if wanted(Kind::Services) {
        let services = watch::services(client(), news(), register("services"));
        all.push(after(before_services, services));
    }
    if wanted(Kind::VirtualIps) {
        let name = kinds::VIRTUAL_IPS;
        let (served, definition) = kinds::watch(client(), name, register(name));
        let listed = register("virtualips");
        all.push(Box::pin(definition));
        all.push(after(before_holders, watch::virtual_ips(client(), served, news(), listed)));
    }
    if wanted(Kind::Mappings) {
        let name = kinds::MAPPINGS;
        let (served, definition) = kinds::watch(client(), name, register(name));
        let listed = register("groupsegmentmappings");
        all.push(Box::pin(definition));
        all.push(Box::pin(watch::mappings(client(), served, news(), listed)));
    }
    if wanted(Kind::KeepalivedGroups) {
        let name = kinds::KEEPALIVED_GROUPS;
        let (served, definition) = kinds::watch(client(), name, register(name));
        all.push(Box::pin(definition));
        let listed = register("keepalivedgroups");
        let (any, are_any) = kinds::told();
        all.push(Box::pin(watch::keepalived_groups(client(), served, news(), listed, any)));
        // The rest begins with the first group: it needs rights that an operator without groups has not.
        let on_demand = |name| context.readiness.on_demand(name);
        for kind in ChildKind::ALL.into_iter().filter(|kind| wanted(Kind::Children(*kind))) {
            let served = if kind == ChildKind::PodMonitor {
                let name = kinds::POD_MONITORS;
                let (served, definition) = kinds::watch(client(), name, on_demand(name));
                let definition = kinds::from_first(are_any.clone(), definition);
                let (both, joining) = kinds::both(are_any.clone(), served);
                all.push(Box::pin(async {
                    tokio::join!(definition, joining);
                }));
                both
            } else {
                are_any.clone()
            };
            let listed = on_demand(kind.plural());
            all.push(Box::pin(watch::children(client(), kind, served, news(), listed)));
        }
        if wanted(Kind::Endpoints) {
            let listed = on_demand("endpoints");
            all.push(Box::pin(watch::endpoints(client(), are_any, news(), listed)));
        }
    }
    if wanted(Kind::IpGroups) {
        all.push(Box::pin(watch::pools(client(), news(), register("ipgroups"))));
    }
    if wanted(Kind::PoolMap) {
        all.push(Box::pin(watch::pool_map(client(), map, news(), register("configmaps"))));
    }
    if wanted(Kind::Namespaces) {
        all.push(Box::pin(watch::namespaces(client(), news(), register("namespaces"))));
    }
    if wanted(Kind::Nodes) {
        all.push(Box::pin(watch::nodes(client(), news(), register("nodes"))));
    }
    if wanted(Kind::ApiServers) {
        all.push(Box::pin(watch::api_servers(client(), news(), register("endpointslices"))));
    }
    async {
        join_all(all).await;
    }
}

/// A watch that begins after others have listed.
fn after(others: Vec<Watch>, watch: impl Future<Output = ()> + Send + 'static) -> Watch {
    Box::pin(async {
        join_all(others).await;
        watch.await;
    })
}
