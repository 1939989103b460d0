//! Scenario: Services exist, then the operator starts.

use std::time::Instant;

use futures::future;
use serde_json::json;
use tokio::task::JoinSet;

use super::{Bench, Scenario, as_usize, sorted_times};
use crate::bench::crew::Crew;
use crate::bench::error::{Error, Result};
use crate::bench::neighbours::Moment;
use crate::bench::report::{Row, Spread, duration};
use crate::bench::stage::MOST_ADDRESSES;
use crate::bench::watch::first_event;

impl Bench<'_> {
    /// A burst from a pool much larger than needed, for one operator or for two at once.
    pub(in crate::bench) async fn burst(&mut self, scenario: Scenario) -> Result<Row> {
        self.output.heading(format_args!("{} ({} Services)", scenario.name(), self.services));
        let namespace = self.open(scenario.name(), MOST_ADDRESSES).await?;
        let outcome = self.all_at_once(scenario, &namespace).await;
        self.closed(&namespace, outcome.map(|(row, ..)| row)).await
    }

    /// A burst that takes the pool's last address: does it slow down towards the end?
    pub(in crate::bench) async fn fill(&mut self) -> Result<Row> {
        self.output.heading(format_args!("fill ({} addresses)", self.services));
        let namespace = self.open("fill", self.services).await?;
        let outcome =
            self.all_at_once(Scenario::Fill, &namespace).await.map(|(mut row, begin, times)| {
                let (head, tail) = ends(&times, begin);
                row.more.insert("first_tenth_seconds", json!(head));
                row.more.insert("last_tenth_seconds", json!(tail));
                row.remark =
                    format!("first 10 % in {}, last 10 % in {}", duration(head), duration(tail));
                row
            });
        self.closed(&namespace, outcome).await
    }

    /// The figures, the first write, and when each Service had its address.
    async fn all_at_once(
        &self,
        scenario: Scenario,
        namespace: &str,
    ) -> Result<(Row, Instant, Vec<Instant>)> {
        let watch = self.watch(namespace);
        self.stage.create_services(namespace, 0..self.services, self.width()).await?;
        let (count, deadline) = (as_usize(self.services), self.deadline());
        let seen = "all Services are seen";
        watch.until(seen, deadline, |known| known.services.len() == count).await?;
        let mut first_write = JoinSet::new();
        if self.subject.is_ours() {
            let path = self.stage.claims_watch(namespace);
            first_write.spawn(first_event(self.stage.admin.clone(), path));
        }

        let mut pids = self.stage.plane.pids();
        let before = Moment::now(&pids)?;
        let crew = self.crew(scenario).await?;
        pids.extend(crew.pids());
        let all = "all have an address";
        self.wait_for(crew.death(), &watch, all, deadline, |known| known.with_address == count)
            .await?;
        let others = before.others_until(&Moment::now(&pids)?);

        let calls = crew.quiet().await?;
        let usage = crew.usage()?;
        let times = watch.look(sorted_times);
        let (Some(first), Some(last)) = (times.first().copied(), times.last().copied()) else {
            return Err(Error::WatchEnded);
        };
        let begin = match first_write.try_join_next() {
            Some(at) => at??.min(first),
            None => first,
        };
        let writing = (last - begin).as_secs_f64();
        let from_start = f64::from(self.services) / (last - crew.spawned()).as_secs_f64();
        let mut row = Row::new(scenario.name(), self.services);
        row.seconds = Spread::since(crew.spawned(), &times);
        row.rate = Some(f64::from(self.services) / writing);
        row.allocations = self.services;
        row.calls = calls;
        row.usage = Some(usage);
        row.more.insert("seconds_from_first_write", json!(writing));
        row.more.insert("rate_from_start", json!(from_start));
        row.others = Some(others);
        let begun = if self.subject.is_ours() { "write" } else { "address" };
        row.remark =
            format!("from first {begun} {}; from start {from_start:.0}/s", duration(writing));
        self.audit(&mut row, namespace, &watch).await?;
        crew.stop().await?;
        Ok((row, begin, times))
    }

    /// One operator as it is installed, or two that work without an election.
    async fn crew(&self, scenario: Scenario) -> Result<Crew> {
        if scenario != Scenario::TwoOperators {
            return Ok(Crew::alone(self.start().await?));
        }
        let kubeconfig = self.stage.kubeconfig(None).await?;
        let (first, second) = future::try_join(
            self.subject.start_unelected(&kubeconfig),
            self.subject.start_unelected(&kubeconfig),
        )
        .await?;
        Ok(Crew { first, others: vec![second] })
    }
}

/// How long the first and the last tenth took.
fn ends(times: &[Instant], begin: Instant) -> (f64, f64) {
    let tenth = (times.len() / 10).max(1);
    let at = |index: usize| times.get(index).copied().unwrap_or(begin);
    let last = times.len().saturating_sub(1);
    let head = at(tenth - 1).saturating_duration_since(begin);
    let tail = at(last).saturating_duration_since(at(last.saturating_sub(tenth)));
    (head.as_secs_f64(), tail.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_tenths_are_those_at_both_ends() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        // One a second at first, then one in two seconds.
        let times: Vec<_> = (1..=20).map(|n| at(if n <= 10 { n } else { 2 * n - 10 })).collect();
        let (head, tail) = ends(&times, begin);
        assert!((head - 2.0).abs() < 1e-9 && (tail - 4.0).abs() < 1e-9, "{head} {tail}");
    }
}
