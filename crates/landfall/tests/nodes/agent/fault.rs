//! Everything that can happen to a node, and how it comes back.

use std::time::Instant;

use landfall_testkit::bed::Running;
use landfall_testkit::process::Signal;
use landfall_testkit::wait;

use super::group::Group;
use crate::LONG;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// All of keepalived dies at once, so that no part of it can clean up after another.
    KeepalivedKilled,
    /// Its parent process dies, which tells the child.
    ParentKilled,
    /// The child of keepalived that speaks VRRP dies.
    ChildKilled,
    KeepalivedFrozen,
    WorkerKilled,
    KeeperKilled,
    /// Every process of the node dies at once, and its kernel goes on.
    ProgramsKilled,
    PowerLost,
    LinkCut,
    PortCut,
    /// The switch drops every frame, and the node sees no difference.
    PortSilent,
    /// The agent is told to stop.
    Drained,
}

impl Fault {
    pub(super) const ALL: [Self; 12] = [
        Self::KeepalivedKilled,
        Self::LinkCut,
        Self::WorkerKilled,
        Self::PowerLost,
        Self::ChildKilled,
        Self::PortSilent,
        Self::ParentKilled,
        Self::KeeperKilled,
        Self::PortCut,
        Self::KeepalivedFrozen,
        Self::Drained,
        Self::ProgramsKilled,
    ];

    /// Whether the node's addresses move to others.
    pub(super) fn moves(self) -> bool {
        !matches!(self, Self::WorkerKilled | Self::KeeperKilled)
    }

    /// Whether the node has its addresses although others take them, until it comes back, its keeper acts or its
    /// network is gone with it.
    pub(super) fn leaves_addresses(self) -> bool {
        let by_node = matches!(self, Self::ProgramsKilled | Self::PortSilent | Self::PowerLost);
        by_node || self == Self::KeepalivedFrozen
    }

    /// Whether the node comes back by itself.
    pub(super) fn heals_itself(self) -> bool {
        matches!(
            self,
            Self::KeepalivedKilled
                | Self::ParentKilled
                | Self::ChildKilled
                | Self::KeepalivedFrozen
        )
    }

    /// Lets it happen, and returns the processes that have to be replaced.
    pub(super) async fn strike(self, group: &Group, name: &str) -> Vec<Running> {
        let node = group.bed.node(name);
        let struck = match self {
            Self::KeepalivedKilled | Self::ParentKilled | Self::KeepalivedFrozen => {
                group.keepalived(name)
            }
            Self::ChildKilled => group.keepalived(name)[1..].to_vec(),
            Self::WorkerKilled => vec![group.worker(name).unwrap()],
            Self::KeeperKilled
            | Self::ProgramsKilled
            | Self::PowerLost
            | Self::LinkCut
            | Self::PortCut
            | Self::PortSilent
            | Self::Drained => vec![],
        };
        match self {
            Self::KeepalivedKilled | Self::ChildKilled | Self::WorkerKilled => {
                Running::kill_at_once(&struck).unwrap();
            }
            Self::ParentKilled => struck[0].signal(Signal::SIGKILL).unwrap(),
            Self::KeepalivedFrozen => Running::suspend(&struck).unwrap(),
            Self::KeeperKilled => drop(group.agent(name).kill().unwrap()),
            Self::ProgramsKilled => drop(node.kill_programs().unwrap()),
            Self::PowerLost => drop(node.power_off().unwrap()),
            Self::LinkCut => drop(node.cut_link().unwrap()),
            Self::PortCut => drop(node.cut_port().unwrap()),
            Self::PortSilent => drop(node.silence_port().unwrap()),
            Self::Drained => assert!(group.agent(name).terminate(LONG).await.unwrap().success()),
        }
        struck
    }

    /// Lets the node come back, or waits until it has. Returns the moment from which on it may have no address that
    /// another node has.
    pub(super) async fn heal(self, group: &mut Group, name: &str, struck: &[Running]) -> Instant {
        let begin = Instant::now();
        match self {
            Self::KeepalivedKilled
            | Self::ParentKilled
            | Self::ChildKilled
            | Self::KeepalivedFrozen => {
                let what = format!("another keepalived on {name}");
                let outcome = wait::until(what, LONG, async || {
                    let now = group.keepalived(name);
                    let is_other = now.len() == 2 && !now.iter().any(|it| struck.contains(it));
                    if is_other { Ok(()) } else { Err(format!("{now:?}")) }
                });
                outcome.await.unwrap();
                return Instant::now();
            }
            Self::WorkerKilled => {
                wait::until("another worker", LONG, async || group.worker(name)).await.unwrap();
            }
            Self::LinkCut | Self::PortCut => {
                return group.bed.node(name).restore().await.unwrap();
            }
            Self::PortSilent => {
                group.bed.node(name).restore().await.unwrap();
                // Until then it could hear no other node.
                return Instant::now();
            }
            Self::PowerLost => {
                group.bed.node(name).power_on().await.unwrap();
                group.start(name);
            }
            Self::KeeperKilled | Self::ProgramsKilled | Self::Drained => group.start(name),
        }
        begin
    }
}
