//! What the reports of keepalived tell only together: transitions, and a second holder.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use crate::call::{Counters, InstanceReport, State};

/// For so long a holder is watched for adverts of another one, and longer if it sends them rarely.
const SHORTEST_WINDOW: Duration = Duration::from_secs(1);
/// A holder that has just been replaced may send one more advert.
const FOREIGN_ADVERTS: u64 = 2;
/// For so many adverts another holder goes on before it counts: the one before, and one that is preferred and takes
/// over, send one or two.
const RIVAL_ADVERTS: u32 = 3;

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
    router_id: u8,
    state: State,
    advert_interval: Duration,
    last_transition_millis: i64,
    window: Option<Window>,
    /// Whether keepalived's own counters show another holder. They do not if its adverts are of a form that
    /// keepalived does not even look at.
    is_counted: bool,
    /// Another holder, by its adverts.
    rival: Option<Rival>,
}

/// A node that sends adverts while this one does.
#[derive(Clone, Copy, Debug)]
struct Rival {
    first: Instant,
    last: Instant,
    /// For how long it must be heard to count, and must not be heard to be gone.
    length: Duration,
}

impl Rival {
    fn is_there(&self, now: Instant) -> bool {
        let goes_on = self.last.duration_since(self.first) >= self.length;
        goes_on && now.duration_since(self.last) <= self.length
    }
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
                router_id: report.router_id,
                state: report.state,
                advert_interval: interval,
                last_transition_millis: report.last_transition_millis,
                window: None,
                is_counted: false,
                rival: None,
            });
            known.advert_interval = interval;
            known.observe(report, length(interval), now);
        }
    }

    /// Takes in an advert of another node, which says itself how long it takes to the next one.
    pub(super) fn heard(&mut self, router_id: u8, interval: Duration, now: Instant) {
        let held = self.instances.values_mut();
        for known in held.filter(|it| it.router_id == router_id && it.state == State::Master) {
            let length = length(known.advert_interval.max(interval));
            let before = known.rival.filter(|it| now.duration_since(it.last) <= length);
            let first = before.map_or(now, |it| it.first);
            known.rival = Some(Rival { first, last: now, length });
        }
    }

    /// Whether this node holds an instance.
    pub(super) fn holds_any(&self) -> bool {
        self.instances.values().any(|it| it.state == State::Master)
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
        (self.router_id, self.state) = (report.router_id, report.state);
        let (sent, heard) = (report.counters.advert_sent, foreign(&report.counters));
        let new = Window { begin: now, sent, heard };
        if moved || report.state != State::Master {
            self.window = (report.state == State::Master).then_some(new);
            (self.is_counted, self.rival, self.past.is_doubled) = (false, None, false);
            return;
        }
        let window = *self.window.get_or_insert(new);
        if now.duration_since(window.begin) >= length && sent != window.sent {
            self.is_counted = heard.saturating_sub(window.heard) >= FOREIGN_ADVERTS;
            self.window = Some(new);
        }
        let is_doubled = self.is_counted || self.rival.is_some_and(|rival| rival.is_there(now));
        if is_doubled && !self.past.is_doubled {
            self.past.times_doubled = self.past.times_doubled.saturating_add(1);
        }
        self.past.is_doubled = is_doubled;
    }
}

fn length(advert_interval: Duration) -> Duration {
    (advert_interval * RIVAL_ADVERTS).max(SHORTEST_WINDOW)
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
    fn a_second_holder_of_another_form_shows_by_the_adverts_that_are_heard() {
        use State::{Backup, Master};
        let start = Instant::now();
        let range = |begin: u64, end: u64, step: usize| (begin..end).step_by(step).collect();
        for (case, state_at_2500, own_millis, heard_millis, adverts, doubled) in [
            ("none", Master, 100, 100, vec![], [false, false, false]),
            ("two of the holder before", Master, 100, 100, vec![10, 110], [false, false, false]),
            ("fast ones", Master, 100, 100, range(0, 2000, 100), [true, true, false]),
            ("slow ones", Master, 100, 1000, range(0, 10_000, 1000), [false, false, true]),
            ("one now and then", Master, 100, 100, vec![0, 1400, 2900, 5000], [false; 3]),
            ("this node gives up", Backup, 100, 100, range(0, 9000, 100), [true, false, false]),
            ("beside slow ones", Master, 1000, 100, range(0, 9000, 100), [false, false, true]),
        ] {
            let mut history = History::default();
            let observe = |history: &mut History, millis: u64, state| {
                let now = start + Duration::from_millis(millis);
                let own = |_: &str| Some(Duration::from_millis(own_millis));
                let report = InstanceReport { router_id: 7, ..report(state, 1, millis, 0) };
                history.observe(&[report], own, now);
                history.of("ns/a")
            };
            observe(&mut history, 0, Master);
            let adverts: Vec<u64> = adverts;
            let mut adverts = adverts.into_iter().peekable();
            let mut found = Vec::new();
            for (millis, state) in [(1500, Master), (2500, state_at_2500), (4500, state_at_2500)] {
                while let Some(at) = adverts.next_if(|at| *at <= millis) {
                    let now = start + Duration::from_millis(at);
                    history.heard(7, Duration::from_millis(heard_millis), now);
                    history.heard(8, Duration::from_millis(heard_millis), now);
                }
                found.push(observe(&mut history, millis, state).is_doubled);
            }
            assert_eq!(found, doubled, "{case}");
            assert_eq!(history.of("ns/a").times_doubled, u64::from(doubled.contains(&true)));
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
