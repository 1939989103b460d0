//! Queues of effects, in lanes that do not delay each other.

use std::collections::{BTreeMap, VecDeque};

use crate::event::Event;

/// The destination of a call. Each lane has its own limit, so that a slow cloud never takes the slots
/// of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// The API server.
    Kube,
    /// Kubernetes events, which are best effort.
    Event,
    /// A cloud or DNS provider, by its name.
    #[cfg_attr(not(test), expect(dead_code, reason = "the first provider comes with its planner"))]
    Provider(&'static str),
}

impl Lane {
    /// How many calls of the lane may be in flight at once.
    const fn width(self) -> usize {
        match self {
            // More than this only lengthens the API server's queue.
            Self::Kube => 64,
            Self::Event => 2,
            // Clouds limit calls per second, and answer in hundreds of milliseconds.
            Self::Provider(_) => 8,
        }
    }
}

/// How many events may wait. The oldest are dropped first: the newest matter most.
const EVENTS_KEPT: usize = 512;

/// Effects by lane and rank, first in first out within a rank, and how many are in flight.
#[derive(Debug)]
pub(super) struct Lanes<E> {
    waiting: BTreeMap<(Lane, u8), VecDeque<E>>,
    /// Events with the names of the planners that asked for them.
    events: VecDeque<(&'static str, Box<Event>)>,
    in_flight: BTreeMap<Lane, usize>,
    dropped: u64,
}

impl<E> Default for Lanes<E> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            events: VecDeque::new(),
            in_flight: BTreeMap::new(),
            dropped: 0,
        }
    }
}

/// The next thing to send.
#[derive(Debug, PartialEq)]
pub(super) enum Next<E> {
    Effect(Lane, E),
    /// An event, and the name of the planner that asked for it.
    Event(&'static str, Box<Event>),
}

impl<E> Lanes<E> {
    pub(super) fn push(&mut self, lane: Lane, rank: u8, effect: E) {
        self.waiting.entry((lane, rank)).or_default().push_back(effect);
    }

    pub(super) fn push_event(&mut self, planner: &'static str, event: Event) {
        if self.events.len() >= EVENTS_KEPT {
            self.events.pop_front();
            self.dropped = self.dropped.saturating_add(1);
        }
        self.events.push_back((planner, Box::new(event)));
    }

    /// The next effect of a lane that has room, the lowest rank first; else an event, if no call to the
    /// API server waits. It counts as in flight until [`Lanes::ended`].
    pub(super) fn pop(&mut self) -> Option<Next<E>> {
        let mut full = None;
        for (&(lane, rank), effects) in &mut self.waiting {
            if full == Some(lane) {
                continue;
            }
            let in_flight = self.in_flight.entry(lane).or_default();
            if *in_flight >= lane.width() {
                full = Some(lane);
                continue;
            }
            if let Some(effect) = effects.pop_front() {
                *in_flight = in_flight.saturating_add(1);
                if effects.is_empty() {
                    self.waiting.remove(&(lane, rank));
                }
                return Some(Next::Effect(lane, effect));
            }
        }
        self.pop_event().map(|(planner, event)| Next::Event(planner, event))
    }

    fn pop_event(&mut self) -> Option<(&'static str, Box<Event>)> {
        let api_server_waits = self.waiting.keys().any(|(lane, _)| *lane == Lane::Kube);
        let in_flight = self.in_flight.entry(Lane::Event).or_default();
        if api_server_waits || *in_flight >= Lane::Event.width() {
            return None;
        }
        let event = self.events.pop_front()?;
        *in_flight = in_flight.saturating_add(1);
        Some(event)
    }

    /// A call has ended.
    pub(super) fn ended(&mut self, lane: Lane) {
        if let Some(in_flight) = self.in_flight.get_mut(&lane) {
            *in_flight = in_flight.saturating_sub(1);
        }
    }

    /// How many events were dropped since the last call.
    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;

    fn event(message: &str) -> Event {
        Event {
            about: ObjectReference::default(),
            action: "Test",
            reason: String::new(),
            message: message.to_owned(),
            warning: false,
        }
    }

    fn effects(lanes: &mut Lanes<&'static str>) -> Vec<&'static str> {
        let mut all = Vec::new();
        while let Some(Next::Effect(lane, effect)) = lanes.pop() {
            lanes.ended(lane);
            all.push(effect);
        }
        all
    }

    #[test]
    fn the_lowest_rank_goes_first_and_events_last() {
        let mut lanes = Lanes::default();
        lanes.push_event("p", event("e"));
        for (rank, effect) in [(2, "take"), (1, "first look"), (1, "second look"), (0, "publish")] {
            lanes.push(Lane::Kube, rank, effect);
        }
        assert_eq!(lanes.pop_event(), None, "allocations wait");
        for expected in ["publish", "first look", "second look", "take"] {
            assert_eq!(lanes.pop(), Some(Next::Effect(Lane::Kube, expected)));
        }
        assert_eq!(lanes.pop(), Some(Next::Event("p", Box::new(event("e")))));
        assert_eq!(lanes.pop(), None);
    }

    #[test]
    fn a_flood_of_events_keeps_the_newest() {
        let mut lanes = Lanes::<()>::default();
        for n in 0..EVENTS_KEPT + 3 {
            lanes.push_event("p", event(&n.to_string()));
        }
        assert_eq!(lanes.take_dropped(), 3);
        assert_eq!(lanes.take_dropped(), 0);
        assert_eq!(lanes.pop_event(), Some(("p", Box::new(event("3")))));
    }

    #[test]
    fn a_full_lane_holds_up_no_other() {
        let mut lanes = Lanes::default();
        let cloud = Lane::Provider("cloud");
        for _ in 0..cloud.width() + 2 {
            lanes.push(cloud, 0, "cloud");
        }
        for _ in 0..=Lane::Kube.width() {
            lanes.push(Lane::Kube, 0, "api server");
        }
        let mut sent = BTreeMap::new();
        while let Some(Next::Effect(lane, _)) = lanes.pop() {
            *sent.entry(lane).or_insert(0) += 1;
        }
        assert_eq!(sent, BTreeMap::from([(Lane::Kube, 64), (cloud, 8)]));
        lanes.ended(cloud);
        assert_eq!(lanes.pop(), Some(Next::Effect(cloud, "cloud")));
        assert_eq!(lanes.pop(), None, "the API server's lane is full as well");
        lanes.ended(Lane::Kube);
        assert_eq!(effects(&mut lanes), ["api server"]);
    }
}
