//! What an agent uses when nothing happens.

use std::fs;
use std::time::{Duration, Instant};

use landfall_testkit::Bed;
use landfall_testkit::bed::{Place, Running, group};
use tokio::time::sleep;

use super::report::Idle;
use super::{DEADLINE, Site};
use crate::bench::error::{Error, Result};
use crate::bench::neighbours::Moment;
use crate::bench::subject::Usage;

const SLOTS: u8 = 8;
/// An agent and its worker.
const PROCESSES: usize = 2;
const ADVERT_MILLIS: u32 = 100;
/// How long a group may still be busy with its start.
const REST: Duration = Duration::from_secs(15);
const LENGTH: Duration = Duration::from_mins(1);

/// Watches three agents that have nothing to do.
pub(super) async fn measure(site: &Site<'_>) -> Result<Idle> {
    let (group, plane) = site.group().await?;
    let slots = (1..=SLOTS).map(|slot| {
        let first = u32::from(slot);
        let order = [first % 3, (first + 1) % 3, (first + 2) % 3];
        group::slot(slot, &order, &[Bed::vip4(slot.into())])
    });
    group.write(&group.plan(1, slots.collect())).await?;
    group.applied(1, &group.bed.names(), DEADLINE).await?;
    sleep(REST).await;
    let look = || -> Result<Vec<(Usage, Usage)>> {
        let nodes = group.bed.nodes().iter().map(|node| {
            let (keepalived, agent) = Place::First.processes(node)?;
            if keepalived.is_empty() || agent.len() != PROCESSES {
                let what = format!("a resting agent on {}", node.name());
                let missing = format!("it has {agent:?} and {keepalived:?}");
                return Err(Error::Never { what, seconds: REST.as_secs(), missing });
            }
            Ok((sum(&agent)?, sum(&keepalived)?))
        });
        nodes.collect()
    };
    let (moment, begin, before) = (Moment::now(&[])?, Instant::now(), look()?);
    sleep(LENGTH).await;
    let seconds = begin.elapsed().as_secs_f64();
    let after = look()?;
    let mut idle = Idle {
        slots: SLOTS,
        advert_millis: ADVERT_MILLIS,
        seconds,
        busy: moment.busy_until(&Moment::now(&[])?),
        ..Idle::default()
    };
    for (before, after) in before.into_iter().zip(after) {
        let share = |after: Usage, before| after.since(before).cpu_seconds / seconds;
        idle.summed_mb = idle.summed_mb.max(after.0.resident_mb);
        idle.agent_cpu = idle.agent_cpu.max(share(after.0, before.0));
        idle.keepalived_cpu = idle.keepalived_cpu.max(share(after.1, before.1));
    }
    for node in group.bed.nodes() {
        let (_, agent) = Place::First.processes(node)?;
        idle.resident_mb = idle.resident_mb.max(resident_mb(&agent)?);
    }
    drop(group);
    drop(plane);
    Ok(idle)
}

/// What processes use together.
fn sum(processes: &[Running]) -> Result<Usage> {
    let mut sum = Usage::default();
    for process in processes {
        let one = Usage::of(process.pid)?;
        sum.resident_mb += one.resident_mb;
        sum.peak_mb += one.peak_mb;
        sum.cpu_seconds += one.cpu_seconds;
    }
    Ok(sum)
}

/// The memory that processes of one program have together: what each has of its own, and the program itself once.
fn resident_mb(processes: &[Running]) -> Result<f64> {
    let (mut own, mut program) = (0.0, 0.0_f64);
    for process in processes {
        let path = format!("/proc/{}/status", process.pid);
        let text = fs::read_to_string(&path).map_err(Error::io(format!("reading {path}")))?;
        own += Usage::megabytes(&text, "RssAnon:") + Usage::megabytes(&text, "RssShmem:");
        program = program.max(Usage::megabytes(&text, "RssFile:"));
    }
    Ok(own + program)
}
