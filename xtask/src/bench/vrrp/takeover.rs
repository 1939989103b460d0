//! How long an address has no holder after something has happened to its holder.

use std::net::IpAddr;
use std::time::Duration;

use landfall_testkit::Bed;
use landfall_testkit::bed::{Group, Place, Sampler, group};
use landfall_vrrp::{Instance, NodeIndex};
use tokio::time::sleep;

use super::event::{Event, advert};
use super::report::Row;
use super::{DEADLINE, Site};
use crate::bench::error::{Error, Result};
use crate::bench::report::Spread;

/// How long to leave the nodes alone before something happens, beside some adverts: every node is at rest then.
const REST: Duration = Duration::from_millis(300);
/// The golden ratio, whose multiples are spread evenly over the time between two adverts.
const PHASE: f64 = 0.618_033_988_749;

/// Lets one event happen to the holder again and again.
pub(super) async fn measure(
    site: &Site<'_>,
    event: Event,
    advert_millis: u32,
    row: &mut Row,
) -> Result<()> {
    let vip = Bed::vip4(1);
    let (group, plane) = site.group().await?;
    let mut instance = group::slot(1, &[0, 1, 2], &[vip]);
    instance.form.advert_millis = advert_millis;
    let mut subject = Subject::new(group, instance).await?;
    subject.turn(vip).await?;
    let sampler = subject.group.bed.sampler()?;
    let mut times = Vec::new();
    for run in 0..site.runs {
        let turn = subject.turn(vip).await?;
        sleep(advert(&subject.instance).mul_f64(f64::from(run) * PHASE % 1.0)).await;
        let (first, next) = (turn.first.as_str(), turn.next.as_str());
        let at = event.happen(&subject.group, first, &subject.instance)?;
        held(&sampler, vip, &subject.group.bed.names_without(first)).await?;
        let taken = sampler.record().taken(vip, first, at);
        let taken = taken.ok_or_else(|| Error::Never {
            what: "another holder".to_owned(),
            seconds: 0,
            missing: "its beginning".to_owned(),
        })?;
        row.by_another += u32::from(taken.node != next);
        times.push(taken.after);
        event.undo(&mut subject.group, first, &subject.instance).await?;
        subject.is_back(first).await?;
    }
    sampler.next_sample().await;
    row.count_doubles(&sampler.record(), &subject.group.bed.names());
    row.runs = times.len();
    row.seconds = Spread::of(times);
    drop(subject);
    drop(plane);
    Ok(())
}

/// Waits until exactly one of these nodes holds an address, and names it.
pub(super) async fn held(sampler: &Sampler, address: IpAddr, among: &[&str]) -> Result<String> {
    let holder = sampler.holder(address, among, DEADLINE).await;
    Ok(holder.map_err(landfall_testkit::Error::from)?)
}

/// A group with one instance, whose holder always comes first in the order of its nodes.
pub(super) struct Subject {
    pub(super) group: Group,
    pub(super) instance: Instance,
    generation: i64,
}

/// The node that holds the address, and the node that comes next.
pub(super) struct Turn {
    pub(super) first: String,
    pub(super) next: String,
}

impl Subject {
    pub(super) async fn new(group: Group, instance: Instance) -> Result<Self> {
        let mut subject = Self { group, instance, generation: 0 };
        subject.write().await?;
        Ok(subject)
    }

    /// Lets all nodes carry out the instance as it is now.
    pub(super) async fn write(&mut self) -> Result<()> {
        self.generation += 1;
        let mut instance = self.instance.clone();
        instance.generation = self.generation;
        self.group.write(&self.group.plan(self.generation, vec![instance])).await?;
        self.all_applied().await
    }

    /// Waits until the agent of a node says that it is ready: it has heard the holder.
    pub(super) async fn is_back(&self, name: &str) -> Result<()> {
        Ok(Place::First.ready(self.group.bed.node(name), DEADLINE).await?)
    }

    async fn all_applied(&self) -> Result<()> {
        let names = self.group.bed.names();
        Ok(self.group.applied(self.generation, &names, DEADLINE).await?)
    }

    /// Makes the holder of an address the first of the nodes, so that every run is like the others, and waits until
    /// all nodes know.
    pub(super) async fn turn(&mut self, address: IpAddr) -> Result<Turn> {
        loop {
            let sampler = self.group.bed.sampler()?;
            let names = self.group.bed.names();
            let first = held(&sampler, address, &names).await?;
            let count = names.len();
            let place = names.iter().position(|name| *name == first).unwrap_or_default();
            let order: Vec<_> = (place..place + count).map(|place| place % count).collect();
            let next = names[order[1]].to_owned();
            let wanted: Vec<NodeIndex> =
                order.iter().filter_map(|place| NodeIndex::try_from(*place).ok()).collect();
            let is_known = self.instance.order == wanted;
            self.instance.order = wanted;
            if !is_known {
                self.write().await?;
            }
            sleep(REST + advert(&self.instance) * 4).await;
            sampler.next_sample().await;
            if sampler.record().holders(address) == [first.as_str()] {
                return Ok(Turn { first, next });
            }
        }
    }
}
