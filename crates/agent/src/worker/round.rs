//! The loop of the worker: whatever has changed, the plan is carried out again as far as it is not yet.

use std::{collections::BTreeSet, io, net::IpAddr, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use landfall_vrrp::{PasswordFrom, Plan};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    backoff::Backoff,
    carry::{Carrier, Trouble},
    check::Keepalived,
    follow::Seen,
    history::History,
    listener::{Advert, Families, Listener},
    netlink::{self, Changes, Network},
    passwords::Passwords,
    peers::{self, Search},
    plan_source,
    silence::Silence,
    throttle::Throttle,
    view::{Health, Running, View},
};
use crate::{
    RunDir,
    call::{Answer, Counts, InstanceReport},
};

/// How often the keeper is asked for states. It answers from memory as long as nothing has changed.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);
/// How often a network that changes all the time is looked at.
const NETWORK_INTERVAL: Duration = Duration::from_millis(50);
/// How long the API server has to answer before a plan from the disk is carried out on a node that holds nothing.
const ANSWER_DEADLINE: Duration = Duration::from_secs(4);
/// After so long the keeper is asked to start keepalived: it does so by itself much sooner.
const DOWN_TOO_LONG: Duration = Duration::from_secs(10);
/// How long the keeper may take to say what has become of keepalived in the end.
const LAST_ANSWER_DEADLINE: Duration = Duration::from_millis(1500);
/// Means "never".
const NEVER: Duration = Duration::from_hours(24 * 365);

#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) plan: watch::Receiver<Seen<ConfigMap>>,
    pub(super) secret: watch::Receiver<Seen<Secret>>,
    pub(super) changes: Changes,
}

#[derive(Debug)]
pub(super) struct Rounds {
    group: String,
    node: String,
    carrier: Carrier,
    keepalived: Keepalived,
    passwords: Passwords,
    plan: Option<Arc<Plan>>,
    /// Why the newest plan is not taken.
    refusal: Option<String>,
    /// Why the plan is not carried out.
    trouble: Option<String>,
    history: History,
    silence: Silence,
    listener: Option<Listener>,
    /// Whether a listener was needed when that was looked at last.
    listens: bool,
    /// Why a holder that is waited for cannot be heard.
    deaf: Option<String>,
    /// Where adverts of this node come from.
    own: BTreeSet<IpAddr>,
    search: Search,
    backoff: Backoff,
    /// When the plan is carried out next, unless it is held.
    due: Option<Instant>,
    /// Until when nothing is carried out, because the API server may have a newer plan than the disk.
    held_until: Option<Instant>,
    network: Throttle,
    network_due: Option<Instant>,
    keepalived_is: Health,
    instances: Vec<InstanceReport>,
    counts: Counts,
    down_since: Option<Instant>,
}

impl Rounds {
    pub(super) fn new(
        group: String,
        node: String,
        run_dir: &RunDir,
        keepalived: Keepalived,
    ) -> Result<Self, Trouble> {
        let passwords = Passwords::load(run_dir).unwrap_or_else(|error| {
            warn!(%error, "passwords are read from the Secret again");
            Passwords::none(run_dir)
        });
        let plan = match std::fs::read(run_dir.plan()) {
            Ok(text) => plan_source::read(&text, &group)
                .inspect_err(|refusal| warn!(%refusal, "the plan on disk is not used"))
                .ok()
                .map(Arc::new),
            Err(error) => {
                debug!(%error, "there is no plan on disk");
                None
            }
        };
        let backoff = Backoff::new(&node);
        let carrier =
            Carrier::new(node.clone(), run_dir.clone(), keepalived.clone(), plan.as_ref())?;
        Ok(Self {
            group,
            node,
            carrier,
            keepalived,
            passwords,
            plan,
            refusal: None,
            trouble: None,
            history: History::default(),
            silence: Silence::default(),
            listener: None,
            listens: false,
            deaf: None,
            own: BTreeSet::new(),
            search: Search::default(),
            backoff,
            due: None,
            held_until: None,
            network: Throttle::new(NETWORK_INTERVAL),
            network_due: None,
            keepalived_is: Health::default(),
            instances: Vec::new(),
            counts: Counts::default(),
            down_since: None,
        })
    }

    /// Runs until `stop`, and then shows what the keeper says last.
    pub(super) async fn run(
        mut self,
        inputs: Inputs,
        sources: watch::Sender<Option<PasswordFrom>>,
        views: watch::Sender<View>,
        stop: CancellationToken,
    ) {
        tokio::select! {
            () = stop.cancelled() => self.end(&views).await,
            () = self.work(inputs, &sources, &views) => {}
        }
    }

    async fn work(
        &mut self,
        mut inputs: Inputs,
        sources: &watch::Sender<Option<PasswordFrom>>,
        views: &watch::Sender<View>,
    ) {
        match self.keepalived.version().await {
            Ok(version) => views.send_modify(|view| view.version = version),
            Err(error) => warn!(%error, "the version of keepalived is not known"),
        }
        let runs_last_plan = self.carrier.recognise().await;
        if self.plan.is_some() {
            info!("the last good plan is carried out until there is a newer one");
            let now = Instant::now();
            self.due = Some(now);
            // A node that takes part in an old form of an instance hears no holder of a new one.
            self.held_until = (!runs_last_plan).then(|| now + ANSWER_DEADLINE);
        }
        let mut ticks = interval(REPORT_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let source = self.password_source().cloned();
            sources.send_if_modified(|known| {
                let is_new = *known != source;
                *known = source;
                is_new
            });
            tokio::select! {
                biased;
                changed = inputs.plan.changed() => match changed {
                    Ok(()) => self.take_plan(&inputs.plan.borrow_and_update()),
                    Err(_) => return,
                },
                changed = inputs.secret.changed() => match changed {
                    Ok(()) => self.take_secret(&inputs.secret.borrow_and_update()),
                    Err(_) => return,
                },
                () = until(self.next_carry()) => {
                    (self.due, self.held_until) = (None, None);
                    self.carry(views).await;
                }
                () = until(self.network_due) => {
                    self.network_due = None;
                    self.network.done(Instant::now());
                    self.follow_network();
                }
                () = until(self.search.due()) => {
                    if let Err(error) = self.search.look(Instant::now()) {
                        warn!(%error, "other nodes cannot be looked for");
                    }
                    // Nothing else has changed.
                    continue;
                }
                () = until(self.silence.due(self.hears())) => {
                    if self.silence.end(self.hears(), Instant::now()) {
                        warn!(instances = ?self.silence.ended(), "a holder is silent in the middle of a change");
                        self.due = Some(Instant::now());
                    }
                }
                heard = hear(self.listener.as_ref()) => match heard {
                    Ok(advert) => {
                        self.take_advert(advert);
                        // Nothing else has changed.
                        continue;
                    }
                    Err(error) => {
                        warn!(%error, "adverts of a holder cannot be heard");
                        self.listener = None;
                    }
                },
                changed = inputs.changes.next() => {
                    if let Err(error) = changed {
                        warn!(%error, "changes of the network are missed");
                        sleep(NETWORK_INTERVAL).await;
                    }
                    let next = self.network.next(Instant::now());
                    self.network_due.get_or_insert(next);
                }
                _ = ticks.tick() => {
                    let answer = self.carrier.report().await;
                    self.take_answer(answer.map_err(|error| error.to_string()));
                }
            }
            self.show(views);
        }
    }

    /// When the plan is carried out next.
    fn next_carry(&self) -> Option<Instant> {
        self.due.map(|due| self.held_until.map_or(due, |held| due.max(held)))
    }

    async fn end(&mut self, views: &watch::Sender<View>) {
        match timeout(LAST_ANSWER_DEADLINE, self.carrier.report()).await {
            // It ends its calls when keepalived has ended.
            Ok(Err(_)) => self.take_down("the agent has ended".to_owned()),
            Ok(answer) => self.take_answer(answer.map_err(|error| error.to_string())),
            Err(_) => warn!("the keeper does not say how keepalived has ended"),
        }
        self.show(views);
    }

    fn take_plan(&mut self, seen: &Seen<ConfigMap>) {
        let plan = match seen {
            Seen::Unknown => return,
            // The group is being deleted, or the operator is about to write it again.
            Seen::Absent => {
                if self.plan.is_none() {
                    self.refusal = Some("there is no ConfigMap of the group".to_owned());
                }
                return;
            }
            Seen::Present(map) => plan_source::from_config_map(map, &self.group),
        };
        match plan {
            Ok(plan) => {
                self.refusal = None;
                self.held_until = None;
                if self.plan.as_deref() != Some(&plan) {
                    info!(generation = plan.generation, "a new plan");
                    self.plan = Some(Arc::new(plan));
                    self.backoff.succeeded();
                    self.due = Some(Instant::now());
                }
            }
            Err(refusal) => {
                warn!(%refusal, "the plan is not taken");
                self.refusal = Some(refusal.to_string());
            }
        }
    }

    /// Where this node reads its password, if it has instances.
    fn password_source(&self) -> Option<&PasswordFrom> {
        let plan = self.plan.as_ref().filter(|plan| plan.node_index(&self.node).is_some())?;
        plan.password_from.as_ref()
    }

    fn take_secret(&mut self, seen: &Seen<Secret>) {
        let source = self.password_source().cloned();
        let (Seen::Present(secret), Some(source)) = (seen, source) else { return };
        if let Err(error) = self.passwords.learn(secret, &source.key) {
            warn!(%error, "the password is not kept on disk");
        }
        self.due = Some(Instant::now());
    }

    async fn carry(&mut self, views: &watch::Sender<View>) {
        let Some(plan) = &self.plan else { return };
        let node = plan.node_index(&self.node);
        self.silence.follow(plan, node, Instant::now());
        let outcome = self.carrier.carry(plan, &self.passwords, self.silence.ended()).await;
        match outcome {
            Ok(done) => {
                self.trouble = None;
                self.backoff.succeeded();
                self.due = done.again;
                let running = self.carrier.running.as_ref().map(|running| &running.plan);
                let plans = self.plan.iter().chain(running).map(AsRef::as_ref);
                let forgotten = if node.is_some() {
                    self.passwords.forget_others(plans)
                } else {
                    self.passwords.forget_all()
                };
                if let Err(error) = forgotten {
                    warn!(%error, "old passwords are still on disk");
                }
                if let Some(answer) = done.report {
                    self.take_answer(Ok(answer));
                }
            }
            Err(trouble) => {
                // keepalived may quote the line that it does not like.
                let text = self.passwords.hide_in(&trouble.to_string());
                warn!(trouble = text, "the plan is not carried out");
                self.trouble = Some(text);
                self.due = Some(Instant::now() + self.backoff.failed());
            }
        }
        match netlink::network() {
            Ok(network) => self.listen(&network),
            Err(error) => warn!(%error, "the network cannot be looked at"),
        }
        self.show(views);
    }

    fn follow_network(&mut self) {
        let network = netlink::network().map_err(Trouble::Network);
        if let Ok(network) = &network {
            self.listen(network);
            self.find_peers(network);
        }
        match network.and_then(|it| self.carrier.follow(&it, self.silence.ended())) {
            Ok(Some(again)) => self.due = Some(self.due.map_or(again, |due| due.min(again))),
            Ok(None) => {}
            Err(trouble) => warn!(%trouble, "the network cannot be looked at"),
        }
    }

    fn take_advert(&mut self, Advert { router_id, source, interval }: Advert) {
        let now = Instant::now();
        self.silence.heard(router_id, now);
        if !self.own.contains(&source) {
            self.history.heard(router_id, interval, now);
        }
    }

    fn hears(&self) -> Families {
        self.listener.as_ref().map_or(Families::NONE, Listener::hears)
    }

    /// Listens to the device as long as an instance waits for its holder, or holds its addresses.
    fn listen(&mut self, network: &Network) {
        self.own = self.carrier.own_addresses(network);
        self.listens = self.needs_listener();
        let name = self.carrier.device.as_deref().filter(|_| self.listens);
        let device = name.and_then(|name| network.named(name)).filter(|device| device.is_up);
        let Some(device) = device else {
            (self.listener, self.deaf) = (None, None);
            return;
        };
        if self.listener.as_ref().is_none_or(|listener| !listener.is_on(device)) {
            // Until now nothing could be heard.
            self.silence.begin(Instant::now());
            self.listener = Listener::open(device)
                .inspect_err(|error| warn!(%error, "adverts of other nodes cannot be heard"))
                .ok();
        }
        let is_deaf = !self.hears().contain(self.silence.families());
        self.deaf = is_deaf.then(|| {
            "adverts cannot be heard here: if the holder dies in this change, nothing ends it"
                .to_owned()
        });
    }

    fn needs_listener(&self) -> bool {
        !self.silence.is_empty() || self.history.holds_any()
    }

    /// Looks for the other nodes once the link is back.
    fn find_peers(&mut self, network: &Network) {
        let device = self.carrier.device.as_deref().and_then(|name| network.named(name));
        let device = device.filter(|device| device.is_up).map(|device| device.index);
        let running = self.carrier.running.as_ref();
        let peers =
            || running.and_then(|it| Some(peers::of(&it.plan, it.node?))).unwrap_or_default();
        self.search.follow(device, peers, Instant::now());
    }

    fn take_answer(&mut self, answer: Result<Answer, String>) {
        match answer {
            Ok(Answer::Runs { instances, counts, .. }) => {
                let running = self.carrier.running.as_ref();
                let interval = |name: &str| {
                    let Running { plan, node } = running?;
                    let instance = plan.instances.iter().find(|it| it.name == name)?;
                    let millis = instance.form_on((*node)?).advert_millis;
                    Some(Duration::from_millis(millis.into()))
                };
                self.history.observe(&instances, interval, Instant::now());
                if self.listens != self.needs_listener() {
                    match netlink::network() {
                        Ok(network) => self.listen(&network),
                        Err(error) => warn!(%error, "the network cannot be looked at"),
                    }
                }
                self.down_since = None;
                self.keepalived_is = Health::Runs;
                self.instances = instances;
                self.counts = counts;
            }
            Ok(Answer::Down { error, counts }) => {
                self.counts = counts;
                self.take_down(error);
            }
            Err(error) => self.take_down(format!("the keeper does not answer: {error}")),
        }
    }

    fn take_down(&mut self, error: String) {
        if self.plan.is_none() {
            return;
        }
        self.keepalived_is = Health::Down(error);
        self.instances.clear();
        let now = Instant::now();
        let since = *self.down_since.get_or_insert(now);
        if now.duration_since(since) > DOWN_TOO_LONG {
            self.down_since = Some(now);
            self.carrier.distrust();
            self.due.get_or_insert(now);
        }
    }

    fn show(&self, views: &watch::Sender<View>) {
        let down = match &self.keepalived_is {
            Health::Down(error) => Some(error),
            Health::NotNeeded | Health::Runs => None,
        };
        let errors = [&self.refusal, &self.trouble].into_iter().flatten();
        let stranger = self.carrier.strangers.first().map(|address| {
            format!(
                "{address} was on this node before the group had it, and is not used here: \
                 remove it from the node or from the group"
            )
        });
        let error = errors.chain(down).chain(&self.deaf).chain(&stranger).next().cloned();
        let with_past = |report: &InstanceReport| (report.clone(), self.history.of(&report.name));
        views.send_if_modified(|view| {
            let now = View {
                running: self.carrier.running.clone(),
                keepalived: self.keepalived_is.clone(),
                instances: self.instances.iter().map(with_past).collect(),
                counts: self.counts,
                reloads: self.carrier.reloads,
                reload_failures: self.carrier.failures,
                device: self.carrier.device.clone(),
                version: view.version.clone(),
                error: error.clone(),
                is_left_out: is_left_out(self.plan.as_deref(), &self.node),
                ended: self.silence.ended().to_vec(),
            };
            let is_new = *view != now;
            *view = now;
            is_new
        });
    }
}

fn is_left_out(plan: Option<&Plan>, node: &str) -> bool {
    plan.is_some_and(|plan| plan.node_index(node).is_none())
}

async fn hear(listener: Option<&Listener>) -> io::Result<Advert> {
    match listener {
        Some(listener) => listener.next().await,
        None => std::future::pending().await,
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => sleep(NEVER).await,
    }
}
