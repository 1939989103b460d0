//! The old kinds `VirtualIP` and `GroupSegmentMapping`: existing ones keep working, and become
//! `LoadBalancer` Services with the same address when their user says so.
//!
//! All of it is idle while there are neither `VirtualIP`s nor claims of any, and starts when they
//! appear. Claims alone are enough, even without the kind: their holders may be gone for good, and then
//! the claims must be released. Its memory is what the watches have shown plus our own writes that they
//! have not echoed yet. It shares nothing but the ledger with the allocator: the claim that passes to a
//! Service is the message.

use std::{future::Future, time::Duration};

use kube::runtime::watcher::Config;
use landfall_api::{IP, VirtualIP, keys::LABEL_GSM};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::info;

use self::{
    effect::Effect,
    planner::{News, Planner},
};
use crate::{
    Context,
    engine::{self, NEWS, Now, Plan, Report},
    kinds::{self, Served, VIRTUAL_IPS},
    readiness::Listed,
};

mod apply;
mod claim;
mod clone;
mod effect;
mod observe;
pub mod permissions;
mod plan;
mod planner;
#[cfg(test)]
mod tests;
mod view;
mod watch;
mod world;

/// The definition of `GroupSegmentMapping`.
const MAPPINGS: &str = "groupsegmentmappings.paas.org";

/// Serves the old kinds until `stop`, whenever they are installed.
///
/// Watches are registered with `context.readiness` at once; a kind that is not installed delays
/// nothing. A claim waits for `orphan_grace` for a `VirtualIP` that was missing when we started.
pub fn run(
    context: Context,
    orphan_grace: Duration,
    stop: CancellationToken,
) -> impl Future<Output = ()> + use<> {
    let register = |name| context.readiness.register(name);
    let (served, watch_virtual_ips) =
        kinds::watch(context.client.clone(), VIRTUAL_IPS, register(VIRTUAL_IPS));
    let (mappings, watch_mappings) =
        kinds::watch(context.client.clone(), MAPPINGS, register(MAPPINGS));
    let (any_virtual_ip, watch_any_virtual_ip) = kinds::watch_exists::<VirtualIP>(
        context.client.clone(),
        served.clone(),
        Config::default(),
        register("virtualips"),
    );
    let (any_claim, watch_any_claim) = kinds::watch_exists::<IP>(
        context.client.clone(),
        Served::always(),
        Config::default().labels(LABEL_GSM),
        register("ips"),
    );
    let (any, tell_any) = kinds::either(any_virtual_ip, any_claim);
    let listed =
        ["virtualips", "groupsegmentmappings", "ipgroups", "ips", "services"].map(register);
    let serve = serve(context, orphan_grace, any, [served, mappings], listed, stop);
    async {
        tokio::select! {
            () = watch_virtual_ips => {}
            () = watch_any_virtual_ip => {}
            () = watch_any_claim => {}
            () = tell_any => {}
            () = watch_mappings => {}
            () = serve => {}
        }
    }
}

/// Runs while there is `any` work, and waits otherwise.
async fn serve(
    context: Context,
    orphan_grace: Duration,
    mut any: Served,
    kinds: [Served; 2],
    listed: [Listed; 5],
    stop: CancellationToken,
) {
    loop {
        let there = tokio::select! {
            () = stop.cancelled() => return,
            there = any.now() => there,
        };
        if there {
            info!("serving VirtualIPs");
            let gone = stop.child_token();
            let (sender, news) = mpsc::channel(NEWS);
            let watches = Box::pin(watch_all(&context, sender, kinds.clone(), listed.clone()));
            let planner = Planner::new(orphan_grace);
            let engine = engine::run(planner, context.tools(), news, gone.clone());
            let ends = async {
                any.becomes(false).await;
                gone.cancel();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = watches => {}
                () = ends => {}
                () = engine => {}
            }
        }
        for listed in &listed {
            listed.done();
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = any.becomes(true) => {}
        }
    }
}

/// All watches. Claims are listed before their possible holders: the other way round, a claim made in
/// between would seem to have no holder.
fn watch_all(
    context: &Context,
    news: mpsc::Sender<News>,
    [virtual_ips_served, mappings_served]: [Served; 2],
    listed: [Listed; 5],
) -> impl Future<Output = ()> + use<> {
    let client = &context.client;
    let [virtual_ips, mappings, groups, claims, services] = listed;
    let claims_known = claims.subscribe();
    let claims = watch::claims(client.clone(), news.clone(), claims);
    let mappings = watch::mappings(client.clone(), news.clone(), mappings, mappings_served);
    let groups = watch::groups(client.clone(), news.clone(), groups);
    let services = watch::services(client.clone(), news.clone(), services);
    let virtual_ips = watch::virtual_ips(client.clone(), news, virtual_ips, virtual_ips_served);
    let holders = async move {
        claims_known.await;
        tokio::join!(services, virtual_ips);
    };
    async move {
        tokio::join!(claims, mappings, groups, holders);
    }
}

impl engine::Planner for Planner {
    const NAME: &'static str = "migration";
    type News = News;
    type Effect = Effect;

    fn on_news(&mut self, news: News) {
        self.on_news(news);
    }

    fn on_report(&mut self, report: Report<Effect>, now: Now, out: &mut Plan<Effect>) {
        out.events.extend(self.on_report(report, now));
    }

    fn reconsider_all(&mut self) {
        self.reconsider_all();
    }

    fn plan(&mut self, now: Now, out: &mut Plan<Effect>) {
        out.effects.extend(self.plan(now));
    }

    fn next_due(&self) -> Option<Duration> {
        self.next_due()
    }
}
