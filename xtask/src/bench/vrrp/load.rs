//! Groups with many addresses: how long a plan takes, and how long their holder's death.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use landfall_testkit::bed::{Announcement, Announcements, Keepalived, Place, Record, group};
use landfall_testkit::{Bed, wait};
use landfall_vrrp::Plan;
use landfall_vrrp::render::{Host, render};

use super::event::Event;
use super::report::Load;
use super::takeover::Subject;
use super::{DEADLINE, Site};
use crate::bench::error::{Error, Result};
use crate::bench::neighbours::Moment;
use crate::bench::report::Spread;

/// Each run takes seconds, and moves all addresses.
const MOST_RUNS: u32 = 10;
const RELOADS: &str = "landfall_agent_reloads_total";

/// Measures a group whose addresses are all in one slot, so that one node gets all of them at once.
pub(super) async fn measure(site: &Site<'_>, addresses: u16) -> Result<Load> {
    let runs = site.runs.min(MOST_RUNS);
    let all: BTreeSet<IpAddr> = (1..=addresses).map(Bed::vip4).collect();
    let begin = Moment::now(&[])?;
    let (group, plane) = site.group().await?;
    let instance = group::slot(1, &[0, 1, 2], &[]);
    let anchor = instance.form.advertised[0];
    let mut subject = Subject::new(group, instance).await?;
    subject.turn(anchor).await?;

    let mut load = Load { addresses, ..Load::default() };
    let reloads = |subject: &Subject| -> Result<BTreeMap<String, u64>> {
        let nodes = subject.group.bed.nodes().iter();
        nodes
            .map(|node| Ok((node.name().to_owned(), Place::First.metric(node, RELOADS)?)))
            .collect()
    };
    let before = reloads(&subject)?;
    let announcements = subject.group.bed.announcements()?;
    let at = Instant::now();
    subject.instance.excluded = all.iter().copied().collect();
    subject.write().await?;
    let last = announced(&announcements, &all, None).await?;
    load.plan_seconds = last.saturating_duration_since(at).as_secs_f64();
    let since = |(node, after): (String, u64)| after - before.get(&node).copied().unwrap_or(0);
    load.reloads = reloads(&subject)?.into_iter().map(since).max().unwrap_or_default();

    let plan = subject.group.plan(1, vec![subject.instance.clone()]);
    let checks = (0..runs).map(|_| check(&subject, &plan)).collect::<Result<Vec<_>>>()?;
    load.check_seconds = Spread::of(checks);

    let mut spreads = Vec::new();
    for _ in 0..runs {
        let turn = subject.turn(anchor).await?;
        let sampler = subject.group.bed.sampler()?;
        sampler.next_sample().await;
        let announcements = subject.group.bed.announcements()?;
        let died = Event::NodeDead.happen(&subject.group, &turn.first, &subject.instance)?;
        let last_announced = announced(&announcements, &all, Some(&turn.first)).await?;
        sampler.next_sample().await;
        let record = sampler.record();
        let (first_held, last_held) = held(&record, &all, &turn.first, died)?;
        spreads.push(last_held.max(last_announced).saturating_duration_since(first_held));
        Event::NodeDead.undo(&mut subject.group, &turn.first, &subject.instance).await?;
        subject.is_back(&turn.first).await?;
        sampler.next_sample().await;
        let doubled = sampler.record().all_doubled(&subject.group.bed.names());
        load.doubled_samples += doubled.values().map(|doubled| doubled.samples).sum::<usize>();
    }
    load.runs = spreads.len();
    load.spread_seconds = Spread::of(spreads);
    load.busy = begin.busy_until(&Moment::now(&[])?);
    drop(subject);
    drop(plane);
    Ok(load)
}

/// Makes the configuration of a node and lets keepalived check it.
fn check(subject: &Subject, plan: &Plan) -> Result<Duration> {
    let node = &subject.group.bed.nodes()[0];
    let run_dir = Place::First.run_dir(node);
    let host = Host {
        node: Some(0),
        interface: node.device(),
        run_dir: &run_dir.to_string_lossy(),
        passwords: &BTreeMap::new(),
    };
    let begin = Instant::now();
    let refused = |reason: String| Error::Never {
        what: "a configuration that keepalived accepts".to_owned(),
        seconds: 0,
        missing: reason,
    };
    let text = render(plan, host).map_err(|error| refused(error.to_string()))?;
    Keepalived::check(node, &text).map_err(refused)?;
    Ok(begin.elapsed())
}

/// Waits until every address has been announced by one node other than `but`, and returns the moment of the last.
async fn announced(
    announcements: &Announcements,
    addresses: &BTreeSet<IpAddr>,
    but: Option<&str>,
) -> Result<Instant> {
    let what = "all addresses to be announced";
    let all = wait::until(what, DEADLINE, async || {
        let heard = announcements.all();
        let firsts = firsts(&heard, addresses, but);
        if firsts.len() == addresses.len() {
            Ok(firsts)
        } else {
            Err(format!("{} of {}", firsts.len(), addresses.len()))
        }
    })
    .await
    .map_err(landfall_testkit::Error::from)?;
    Ok(all.into_values().max().unwrap_or_else(Instant::now))
}

/// When each address was announced first.
fn firsts(
    heard: &[Announcement],
    addresses: &BTreeSet<IpAddr>,
    but: Option<&str>,
) -> BTreeMap<IpAddr, Instant> {
    let mut firsts = BTreeMap::new();
    let counts =
        |it: &&Announcement| addresses.contains(&it.address) && Some(it.node.as_str()) != but;
    for announcement in heard.iter().filter(counts) {
        firsts.entry(announcement.address).or_insert(announcement.at);
    }
    firsts
}

/// When the first and the last of the addresses came to another node.
fn held(
    record: &Record,
    addresses: &BTreeSet<IpAddr>,
    but: &str,
    at: Instant,
) -> Result<(Instant, Instant)> {
    let taken = addresses.iter().filter_map(|address| record.taken(*address, but, at));
    let times: Vec<_> = taken.map(|taken| at + taken.after).collect();
    match (times.iter().min(), times.iter().max()) {
        (Some(first), Some(last)) if times.len() == addresses.len() => Ok((*first, *last)),
        _ => Err(Error::Never {
            what: "all addresses on another node".to_owned(),
            seconds: 0,
            missing: format!("{} of {}", times.len(), addresses.len()),
        }),
    }
}
