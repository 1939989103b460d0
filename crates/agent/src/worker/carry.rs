//! Carries out a plan: from the plan to what keepalived runs.
//!
//! keepalived is given a configuration only if it takes it without a word, and what it then runs is compared
//! with the plan. If either fails, the last good configuration stays.

use std::{collections::BTreeSet, fs, io, net::IpAddr, sync::Arc, time::Duration};

use landfall_vrrp::{
    Form, NodeIndex, Plan,
    render::{self, Host},
};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::{
    check::{self, Keepalived},
    confirm::{self, Expected},
    device::{self, Wait},
    farewell::farewells,
    netlink::{self, Network},
    owned::{self, Owned},
    passwords::Passwords,
    throttle::Throttle,
    track::{self, Mutes, TrackFiles},
    view::Running,
};
use crate::{
    Error as RunDirError, Keeper, RunDir,
    call::{Answer, State},
};

/// At most two configurations a second.
const RELOAD_INTERVAL: Duration = Duration::from_millis(500);
/// Longer than the keeper lets keepalived take.
const USE_DEADLINE: Duration = Duration::from_mins(1);
const REPORT_DEADLINE: Duration = Duration::from_secs(10);
/// How long keepalived's answers may differ from its configuration.
const CONFIRM_DEADLINE: Duration = Duration::from_secs(5);
const CONFIRM_INTERVAL: Duration = Duration::from_millis(20);

/// Why a plan is not carried out.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    Plan(#[from] render::Error),
    #[error("the group names no device")]
    NoDevice,
    #[error("reading devices and addresses: {0}")]
    Network(#[source] io::Error),
    #[error("{0}: {source}", source = source_of(.0))]
    File(#[from] RunDirError),
    #[error("writing the files that mute instances: {0}")]
    Track(#[source] io::Error),
    #[error(transparent)]
    Check(#[from] check::Error),
    #[error("asking the keeper: {0}")]
    Keeper(#[source] io::Error),
    #[error("keepalived does not run: {0}")]
    Down(String),
    #[error("{0}")]
    Different(String),
}

fn source_of(error: &RunDirError) -> String {
    std::error::Error::source(error).map(ToString::to_string).unwrap_or_default()
}

/// What a round came to.
#[derive(Debug)]
pub(super) struct Done {
    /// When to look again, if nothing else happens before.
    pub(super) again: Option<Instant>,
    /// What keepalived reported when it was given a configuration.
    pub(super) report: Option<Answer>,
}

#[derive(Debug)]
pub(super) struct Carrier {
    node: String,
    run_dir: RunDir,
    keeper: Keeper,
    keepalived: Keepalived,
    tracks: TrackFiles,
    owned: Owned,
    wait: Wait,
    throttle: Throttle,
    /// The configuration that keepalived is known to run.
    in_use: Option<String>,
    pub(super) running: Option<Running>,
    pub(super) device: Option<String>,
    /// The own addresses that were missing since keepalived was given its configuration: it may have been unable to
    /// bind a socket to them.
    unbound: BTreeSet<IpAddr>,
    /// The addresses of the plan that are not used, because the device had them before.
    pub(super) strangers: BTreeSet<IpAddr>,
    pub(super) reloads: u64,
    pub(super) failures: u64,
}

/// A plan as it is to be on this node.
struct Target<'a> {
    plan: &'a Arc<Plan>,
    /// The plan as far as it can be used here.
    usable: Arc<Plan>,
    strangers: BTreeSet<IpAddr>,
    /// The addresses of this node that adverts are to leave from and that it does not have yet.
    missing: BTreeSet<IpAddr>,
    node: Option<NodeIndex>,
    device: String,
    mutes: Mutes,
    /// When the wait for the device's address ends.
    again: Option<Instant>,
}

impl Carrier {
    pub(super) fn new(
        node: String,
        run_dir: RunDir,
        keepalived: Keepalived,
        last: Option<&Arc<Plan>>,
    ) -> Result<Self, Trouble> {
        let tracks = TrackFiles::open(&run_dir.track()).map_err(Trouble::Track)?;
        let owned = run_dir.read_owned().unwrap_or_else(|error| {
            // A restart of the node may have cut it off, and has removed all addresses.
            warn!(%error, "the list of our addresses is begun again");
            Owned::new()
        });
        let running =
            last.map(|plan| Running { plan: Arc::clone(plan), node: plan.node_index(&node) });
        Ok(Self {
            node,
            keeper: Keeper::new(&run_dir),
            run_dir,
            keepalived,
            tracks,
            owned,
            wait: Wait::default(),
            throttle: Throttle::new(RELOAD_INTERVAL),
            in_use: None,
            running,
            device: None,
            unbound: BTreeSet::new(),
            strangers: BTreeSet::new(),
            reloads: 0,
            failures: 0,
        })
    }

    /// Whether keepalived runs the last good configuration, as it does if only the worker was restarted.
    pub(super) async fn recognise(&mut self) -> bool {
        let read = |path| fs::read_to_string(path).ok();
        let good = read(self.run_dir.good_configuration());
        if good.is_some() && good == read(self.run_dir.configuration()) {
            let runs = match self.report().await {
                // One that is in FAULT without a reason of ours may lack what it lacked at the start.
                Ok(Answer::Runs { instances, .. }) => instances
                    .iter()
                    .all(|it| it.state != State::Fault || self.tracks.is_muted(it.router_id)),
                Ok(Answer::Down { .. }) | Err(_) => false,
            };
            self.in_use = good.filter(|_| runs);
        }
        self.in_use.is_some()
    }

    /// What every instance does.
    pub(super) async fn report(&self) -> io::Result<Answer> {
        timeout(REPORT_DEADLINE, self.keeper.report()).await?
    }

    /// Gives keepalived its configuration again, whatever it is believed to run.
    pub(super) fn distrust(&mut self) {
        self.in_use = None;
    }

    /// Carries out a plan as far as can be done now.
    pub(super) async fn carry(
        &mut self,
        plan: &Arc<Plan>,
        passwords: &Passwords,
        ended: &[String],
    ) -> Result<Done, Trouble> {
        let network = netlink::network().map_err(Trouble::Network)?;
        let target = self.target(plan, &network, ended)?;
        let host = Host {
            node: target.node,
            interface: &target.device,
            run_dir: &self.run_dir.path().to_string_lossy(),
            passwords: passwords.known(),
        };
        // Even if the rest of the plan cannot be carried out here: other nodes wait for that.
        self.tracks.mute(&target.mutes).map_err(Trouble::Track)?;
        let text = render::render(&target.usable, host)?;
        self.strangers.clone_from(&target.strangers);
        if !self.unbound.is_subset(&target.missing) {
            // keepalived does not try again by itself.
            self.distrust();
        }
        self.unbound.extend(&target.missing);
        let mut done = Done { again: target.again, report: None };
        if self.in_use.as_ref() != Some(&text) {
            let due = self.throttle.next(Instant::now());
            if due > Instant::now() {
                done.again = Some(due);
                return Ok(done);
            }
            done.report = Some(self.reload(&target, &text, passwords).await?);
        }
        self.tracks.settle(&target.mutes).map_err(Trouble::Track)?;
        self.settle(&target)?;
        Ok(done)
    }

    /// The addresses of this node that are none of the group's.
    pub(super) fn own_addresses(&self, network: &Network) -> BTreeSet<IpAddr> {
        let all = network.addresses.iter().map(|address| address.ip);
        all.filter(|ip| self.owned.iter().all(|owned| owned.address != *ip)).collect()
    }

    /// When the plan is to be carried out again because the network has changed, if it is.
    pub(super) fn follow(
        &mut self,
        network: &Network,
        ended: &[String],
    ) -> Result<Option<Instant>, Trouble> {
        let Some(running) = self.running.clone() else { return Ok(Some(Instant::now())) };
        let target = self.target(&running.plan, network, ended)?;
        let same_device = self.device.as_ref() == Some(&target.device);
        let has_leftovers = self.owned != owned::of(&target.usable, target.node, &target.device);
        let same_strangers = self.strangers == target.strangers;
        let is_same =
            same_device && same_strangers && !has_leftovers && self.tracks.are(&target.mutes);
        Ok(if is_same { target.again } else { Some(Instant::now()) })
    }

    fn target<'a>(
        &mut self,
        plan: &'a Arc<Plan>,
        network: &Network,
        ended: &[String],
    ) -> Result<Target<'a>, Trouble> {
        let node = plan.node_index(&self.node);
        let route = match plan.interface_from {
            Some(address) => netlink::route_to(address).map_err(Trouble::Network)?,
            None => None,
        };
        let before = self.device.as_deref();
        let device = device::choose(plan, &self.node, network, route, before).to_owned();
        if device.is_empty() {
            return Err(Trouble::NoDevice);
        }
        let is_ours = |ip| self.owned.iter().any(|owned| owned.address == ip);
        let ipv6 = device::ipv6(network, &device, is_ours);
        let waited = self.wait.is_over(ipv6, Instant::now());
        let is_v6 = |node| plan.instances.iter().any(|it| track::adverts_are_v6(it.form_on(node)));
        let is_needed = node.is_some_and(is_v6);
        let again = waited.err().flatten().filter(|_| is_needed);
        let own = node.and_then(|node| plan.node(node));
        let lacks = |form: &Form| device::missing_source(network, own?, form);
        let forms =
            node.into_iter().flat_map(|node| plan.instances.iter().map(move |it| it.form_on(node)));
        let missing = forms.filter_map(lacks).collect();
        let can_send =
            |form: &Form| (waited.is_ok() || !track::adverts_are_v6(form)) && lacks(form).is_none();
        let mutes = node.map(|node| track::mutes(plan, node, can_send, ended));
        let mutes = mutes.unwrap_or_default();
        let strangers = self.strangers_on(&device, plan, node, network);
        let usable = match node {
            Some(node) if !strangers.is_empty() => owned::without(plan, &strangers, node).into(),
            Some(_) | None => Arc::clone(plan),
        };
        Ok(Target { plan, usable, strangers, missing, node, device, mutes, again })
    }

    /// What keepalived runs with is ours, even if the list of our addresses was lost.
    fn strangers_on(
        &self,
        device: &str,
        plan: &Plan,
        node: Option<NodeIndex>,
        network: &Network,
    ) -> BTreeSet<IpAddr> {
        let mut found = owned::strangers(plan, node, device, &network.held(), &self.owned);
        if let Some(text) = self.in_use.as_ref().filter(|_| !found.is_empty()) {
            let expected = confirm::expected(text);
            let known: BTreeSet<_> = expected.iter().flat_map(Expected::addresses).collect();
            found.retain(|address| !known.contains(address));
        }
        found
    }

    /// Lets keepalived run a configuration, or the last good one if it does not.
    async fn reload(
        &mut self,
        target: &Target<'_>,
        text: &str,
        passwords: &Passwords,
    ) -> Result<Answer, Trouble> {
        let begin = Instant::now();
        self.throttle.done(begin);
        let outcome = self.try_reload(target, text, passwords).await;
        match outcome {
            Ok(report) => {
                self.reloads = self.reloads.saturating_add(1);
                info!(generation = target.plan.generation, took = ?begin.elapsed(), "keepalived runs");
                Ok(report)
            }
            Err(trouble) => {
                self.failures = self.failures.saturating_add(1);
                Err(trouble)
            }
        }
    }

    async fn try_reload(
        &mut self,
        target: &Target<'_>,
        text: &str,
        passwords: &Passwords,
    ) -> Result<Answer, Trouble> {
        let draft = self.run_dir.draft_configuration();
        RunDir::write_text_for_now(&draft, text.as_bytes())?;
        self.keepalived.check(&draft).await?;
        // Before keepalived can put them on the node.
        let new = owned::of(&target.usable, target.node, &target.device);
        self.set_owned(self.owned.union(&new).cloned().collect())?;
        let said = farewells(&target.usable, target.node, &target.device, passwords.known());
        let said_before = self
            .running
            .as_ref()
            .zip(self.device.as_deref())
            .map(|(it, device)| farewells(&it.plan, it.node, device, passwords.known()));
        RunDir::write_for_now(&self.run_dir.farewells(), &said)?;
        self.in_use = None;
        self.unbound.clone_from(&target.missing);
        let configuration = self.run_dir.configuration();
        fs::rename(&draft, &configuration)
            .map_err(|source| RunDirError::Write { path: configuration, source })?;
        match self.use_and_confirm(&confirm::expected(text)).await {
            Ok(report) => {
                let good = self.run_dir.good_configuration();
                RunDir::write_text_for_now(&good, text.as_bytes())?;
                self.in_use = Some(text.to_owned());
                Ok(report)
            }
            // The keeper has not been asked, or does not answer: it has nothing to do with the configuration.
            Err(Trouble::Keeper(error)) => Err(Trouble::Keeper(error)),
            Err(trouble) => {
                self.restore(text, said_before.as_deref()).await;
                Err(trouble)
            }
        }
    }

    /// Goes back to the last good configuration, if there is one other than the one that has failed.
    async fn restore(&mut self, failed: &str, farewells: Option<&[crate::Farewell]>) {
        let good = fs::read_to_string(self.run_dir.good_configuration()).ok();
        let Some(good) = good.filter(|good| good != failed) else { return };
        let written = RunDir::write_text_for_now(&self.run_dir.configuration(), good.as_bytes());
        let written = written.and_then(|()| match farewells {
            Some(farewells) => RunDir::write_for_now(&self.run_dir.farewells(), &farewells),
            None => Ok(()),
        });
        let expected = confirm::expected(&good);
        let restored = match written {
            Ok(()) => self.use_and_confirm(&expected).await.map(drop),
            Err(error) => Err(error.into()),
        };
        match restored {
            Ok(()) => self.in_use = Some(good),
            Err(trouble) => warn!(%trouble, "the last good configuration could not be restored"),
        }
    }

    async fn use_and_confirm(&self, expected: &[Expected]) -> Result<Answer, Trouble> {
        let answer = timeout(USE_DEADLINE, self.keeper.use_configuration()).await;
        let mut answer = answer.map_err(io::Error::from).flatten().map_err(Trouble::Keeper)?;
        let until = Instant::now() + CONFIRM_DEADLINE;
        loop {
            let difference = match &answer {
                Answer::Runs { instances, .. } => confirm::difference(expected, instances),
                Answer::Down { error, .. } => return Err(Trouble::Down(error.clone())),
            };
            match difference {
                None => return Ok(answer),
                Some(difference) if Instant::now() > until => {
                    return Err(Trouble::Different(difference));
                }
                Some(_) => sleep(CONFIRM_INTERVAL).await,
            }
            answer = self.report().await.map_err(Trouble::Keeper)?;
        }
    }

    /// Takes note of what runs now.
    fn settle(&mut self, target: &Target<'_>) -> Result<(), Trouble> {
        let new = owned::of(&target.usable, target.node, &target.device);
        if self.owned != new {
            let network = netlink::network().map_err(Trouble::Network)?;
            self.set_owned(owned::remaining(&self.owned, &new, &network.held()))?;
        }
        let is_known = self.running.as_ref().is_some_and(|running| running.plan == *target.plan);
        if !is_known {
            RunDir::write(&self.run_dir.plan(), target.plan.as_ref())?;
        }
        self.running = Some(Running { plan: Arc::clone(target.plan), node: target.node });
        self.device = Some(target.device.clone());
        Ok(())
    }

    fn set_owned(&mut self, owned: Owned) -> Result<(), Trouble> {
        if self.owned != owned {
            RunDir::write_for_now(&self.run_dir.owned(), &owned)?;
            self.owned = owned;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
