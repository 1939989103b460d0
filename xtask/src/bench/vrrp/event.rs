//! What happens to the holder of an address, and how long VRRP itself needs after that.

use std::fs;
use std::time::{Duration, Instant};

use landfall_testkit::bed::Running;
use landfall_testkit::bed::{Group, Place};
use landfall_testkit::process::Signal;
use landfall_vrrp::render::track_file;
use landfall_vrrp::{Instance, priority};

use super::DEADLINE;
use crate::bench::error::{Error, Result};

/// An event that makes another node the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    NodeDead,
    LinkDown,
    KeepalivedKilled,
    AgentTerminated,
    HealthFault,
}

impl Event {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::NodeDead => "node dead",
            Self::LinkDown => "link down",
            Self::KeepalivedKilled => "keepalived killed, agent alive",
            Self::AgentTerminated => "agent SIGTERM",
            Self::HealthFault => "health FAULT",
        }
    }

    /// Whether the other nodes have to find out by themselves.
    fn is_silent(self) -> bool {
        matches!(self, Self::NodeDead | Self::LinkDown)
    }

    /// The seconds that the protocol itself takes at most until the next node is the holder: three adverts that do
    /// not come, and the skew of that node, or the skew alone after a goodbye.
    pub(super) fn protocol(self, advert: f64, nodes: usize) -> f64 {
        let skew = (256.0 - f64::from(priority(1, nodes))) / 256.0 * advert;
        if self.is_silent() { 3.0 * advert + skew } else { skew }
    }

    /// The seconds in which the next node should be the holder in 99 of 100 cases.
    pub(super) fn bar(self, advert: f64) -> f64 {
        match self {
            Self::NodeDead | Self::LinkDown => 4.0 * advert,
            Self::KeepalivedKilled => 0.8 * advert + 0.020,
            Self::AgentTerminated | Self::HealthFault => 0.7 * advert + 0.010,
        }
    }

    /// Lets it happen to a node; returns the moment just before.
    pub(super) fn happen(self, group: &Group, node: &str, instance: &Instance) -> Result<Instant> {
        let place = group.bed.node(node);
        Ok(match self {
            Self::NodeDead => place.power_off()?,
            Self::LinkDown => place.cut_link()?,
            Self::KeepalivedKilled => {
                let (keepalived, _) = Place::First.processes(place)?;
                // To find and to stop them takes a while, in which they send nothing.
                Running::suspend(&keepalived)?;
                let at = Instant::now();
                Running::kill_at_once(&keepalived)?;
                at
            }
            Self::AgentTerminated => {
                let at = Instant::now();
                if let Some(agent) = group.agents.get(node) {
                    agent.signal(Signal::SIGTERM)?;
                }
                at
            }
            Self::HealthFault => set_health(group, node, instance, "1\n")?,
        })
    }

    /// Undoes it.
    pub(super) async fn undo(
        self,
        group: &mut Group,
        node: &str,
        instance: &Instance,
    ) -> Result<()> {
        match self {
            Self::NodeDead => {
                group.bed.node(node).power_on().await?;
                group.start(node)?;
            }
            Self::LinkDown => drop(group.bed.node(node).restore().await?),
            // The agent does it.
            Self::KeepalivedKilled => {}
            Self::AgentTerminated => {
                if let Some(agent) = group.agents.get(node) {
                    agent.ended(DEADLINE).await.map_err(landfall_testkit::Error::from)?;
                }
                group.start(node)?;
            }
            Self::HealthFault => drop(set_health(group, node, instance, "0\n")?),
        }
        Ok(())
    }
}

/// Writes the file by which the agent tells keepalived whether the node may hold an instance.
fn set_health(group: &Group, node: &str, instance: &Instance, text: &str) -> Result<Instant> {
    let run_dir = Place::First.run_dir(group.bed.node(node));
    let path = track_file(&run_dir.to_string_lossy(), instance);
    let draft = format!("{path}.new");
    fs::write(&draft, text).map_err(Error::io(format!("writing {draft}")))?;
    let at = Instant::now();
    fs::rename(&draft, &path).map_err(Error::io(format!("writing {path}")))?;
    Ok(at)
}

/// The time between two adverts of an instance.
pub(super) fn advert(instance: &Instance) -> Duration {
    Duration::from_millis(instance.form.advert_millis.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_waits_for_three_adverts_and_the_skew_of_the_second_node() {
        // Of three nodes the second has priority 128, and so half an advert.
        for (event, protocol, bar) in [
            (Event::NodeDead, 0.35, 0.4),
            (Event::LinkDown, 0.35, 0.4),
            (Event::KeepalivedKilled, 0.05, 0.1),
            (Event::AgentTerminated, 0.05, 0.08),
            (Event::HealthFault, 0.05, 0.08),
        ] {
            let found = (event.protocol(0.1, 3), event.bar(0.1));
            let is_near = |a: f64, b: f64| (a - b).abs() < 1e-9;
            assert!(is_near(found.0, protocol) && is_near(found.1, bar), "{event:?}: {found:?}");
        }
    }
}
