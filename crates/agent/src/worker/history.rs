//! What the reports of keepalived tell only together: transitions, and a second holder.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use crate::call::{Counters, InstanceReport, State};

/// For so long a holder is watched for adverts of another one, and longer if it sends them rarely.
const SHORTEST_WINDOW: Duration = Duration::from_secs(1);
/// A holder that has just been replaced may send one more advert.
const FOREIGN_ADVERTS: u64 = 2;

/// What is known of one instance beyond its last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Past {
    pub(super) transitions: u64,
    /// Whether another node sends adverts for the instance while this one holds it.
    pub(super) is_doubled: bool,
    pub(super) times_doubled: u64,
}

#[derive(Debug, Default)]
pub(super) struct History {
    instances: BTreeMap<String, Watched>,
}

#[derive(Debug)]
struct Watched {
    past: Past,
    last_transition_millis: i64,
    window: Option<Window>,
}

/// A time in which an instance was the holder.
#[derive(Clone, Copy, Debug)]
struct Window {
    begin: Instant,
    /// How many adverts it had sent by then: as long as the number is the same, a report is an old one.
    sent: u64,
    /// How many adverts of others had come by then.
    heard: u64,
}

impl History {
    /// Takes in a report. `advert_interval` is that of an instance, by its name.
    pub(super) fn observe(
        &mut self,
        reports: &[InstanceReport],
        advert_interval: impl Fn(&str) -> Option<Duration>,
        now: Instant,
    ) {
        self.instances.retain(|name, _| reports.iter().any(|report| report.name == *name));
        for report in reports {
            let interval = advert_interval(&report.name).unwrap_or_default();
            let known = self.instances.entry(report.name.clone()).or_insert_with(|| Watched {
                past: Past::default(),
                last_transition_millis: report.last_transition_millis,
                window: None,
            });
            known.observe(report, (interval * 3).max(SHORTEST_WINDOW), now);
        }
    }

    pub(super) fn of(&self, instance: &str) -> Past {
        self.instances.get(instance).map(|known| known.past).unwrap_or_default()
    }
}

impl Watched {
    fn observe(&mut self, report: &InstanceReport, length: Duration, now: Instant) {
        let moved = self.last_transition_millis != report.last_transition_millis;
        if moved {
            self.past.transitions = self.past.transitions.saturating_add(1);
            self.last_transition_millis = report.last_transition_millis;
        }
        let (sent, heard) = (report.counters.advert_sent, foreign(&report.counters));
        let new = Window { begin: now, sent, heard };
        if moved || report.state != State::Master {
            self.past.is_doubled = false;
            self.window = (report.state == State::Master).then_some(new);
            return;
        }
        let window = *self.window.get_or_insert(new);
        if now.duration_since(window.begin) < length || sent == window.sent {
            return;
        }
        let is_doubled = heard.saturating_sub(window.heard) >= FOREIGN_ADVERTS;
        if is_doubled && !self.past.is_doubled {
            self.past.times_doubled = self.past.times_doubled.saturating_add(1);
        }
        self.past.is_doubled = is_doubled;
        self.window = Some(new);
    }
}

/// Adverts of others. Those that keepalived did not accept, such as a holder of another form sends, are counted
/// by the reason, and most of them as received besides.
fn foreign(counters: &Counters) -> u64 {
    let refused = [
        counters.packet_len_err,
        counters.advert_interval_err,
        counters.addr_list_err,
        counters.invalid_authtype,
        counters.authtype_mismatch,
        counters.auth_failure,
    ];
    counters.advert_rcvd.max(refused.into_iter().fold(0, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(state: State, at: i64, sent: u64, heard: u64) -> InstanceReport {
        InstanceReport {
            name: "ns/a".to_owned(),
            state,
            last_transition_millis: at,
            counters: Counters { advert_rcvd: heard, advert_sent: sent, ..Counters::default() },
            ..InstanceReport::default()
        }
    }

    #[test]
    fn a_second_holder_shows_by_adverts_that_go_on() {
        use State::{Backup, Master};
        let start = Instant::now();
        for (case, interval, reports, doubled) in [
            (
                "alone",
                100,
                vec![
                    (0, Master, 1, 5, None),
                    (900, Master, 1, 5, None),
                    (2000, Master, 1, 5, None),
                ],
                vec![false, false, false],
            ),
            (
                "one late advert of the holder before",
                100,
                vec![
                    (0, Master, 1, 5, None),
                    (1000, Master, 1, 6, None),
                    (2000, Master, 1, 6, None),
                ],
                vec![false, false, false],
            ),
            (
                "another holder comes and goes",
                100,
                vec![
                    (0, Master, 1, 5, None),
                    (1000, Master, 1, 15, None),
                    (2000, Master, 1, 25, None),
                    (3000, Master, 1, 25, None),
                ],
                vec![false, true, true, false],
            ),
            (
                "another holder, seldom",
                1000,
                vec![
                    (0, Master, 1, 5, None),
                    (1000, Master, 1, 6, None),
                    (3000, Master, 1, 8, None),
                ],
                vec![false, false, true],
            ),
            (
                "a backup hears a holder",
                100,
                vec![
                    (0, Backup, 1, 5, None),
                    (1000, Backup, 1, 15, None),
                    (2000, Master, 2, 25, None),
                    (2500, Master, 2, 25, None),
                ],
                vec![false, false, false, false],
            ),
            (
                "this node gives up",
                100,
                vec![
                    (0, Master, 1, 5, None),
                    (1000, Master, 1, 15, None),
                    (1500, Backup, 2, 16, None),
                ],
                vec![false, true, false],
            ),
            (
                "an old report in between",
                100,
                vec![
                    (0, Master, 1, 5, Some(1)),
                    (1000, Master, 1, 15, Some(2)),
                    (2000, Master, 1, 15, Some(2)),
                    (3000, Master, 1, 15, Some(3)),
                ],
                vec![false, true, true, false],
            ),
        ] {
            let mut history = History::default();
            let mut found = Vec::new();
            for (millis, state, at, heard, sent) in reports {
                let now = start + Duration::from_millis(millis);
                let interval = |_: &str| Some(Duration::from_millis(interval));
                let sent = sent.unwrap_or(millis);
                history.observe(&[report(state, at, sent, heard)], interval, now);
                found.push(history.of("ns/a").is_doubled);
            }
            assert_eq!(found, doubled, "{case}");
        }
    }

    #[test]
    fn each_new_time_of_transition_is_one_more() {
        let mut history = History::default();
        for at in [10, 10, 20, 20, 30] {
            history.observe(&[report(State::Backup, at, 0, 0)], |_| None, Instant::now());
        }
        assert_eq!(history.of("ns/a").transitions, 2);
        history.observe(&[], |_| None, Instant::now());
        assert_eq!(history.of("ns/a"), Past::default());
    }
}
