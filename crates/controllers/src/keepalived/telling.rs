//! What each Service is told about being announced: its condition, and an event when something is in its way.
//!
//! Several groups may announce one Service, each with other addresses. What passes by itself in a moment, such as a
//! move from one node to another, is told only once it lasts.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use landfall_api::{
    announce::{NotAnnounced, Obstacle, announced, not_announced},
    condition,
    keys::CONDITION_ANNOUNCED,
};

use super::{effect::Effect, members::World};
use crate::{
    announcements::{Announcement, Announcements},
    engine::{Now, Plan},
    event::{self, Event},
    object::ObjectKey,
};

/// How long other nodes must hold the addresses before that is told. An instance that goes back and forth is told
/// once it has settled.
const MOVED: Duration = Duration::from_secs(1);
/// How long addresses must be held by no node, or be missing on nodes, before that is told.
const LOST: Duration = Duration::from_secs(2);

/// How one group announces one Service.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Found {
    /// Addresses that a node holds: which, and since when.
    pub held: Vec<(IpAddr, String, Timestamp)>,
    /// What is in the way of the others.
    pub obstacles: Vec<Obstacle>,
}

/// What is known of one Service, and what it was told.
#[derive(Debug, Default)]
struct Story {
    /// By group; `None` while nothing is known of a group.
    groups: BTreeMap<ObjectKey, Option<Found>>,
    /// Why no group announces it, whichever it asks for.
    lost: Option<Obstacle>,
    told: Option<Announcement>,
    /// What it will be told if it lasts, and since when it does.
    next: Option<(Announcement, Duration)>,
}

/// The Services that ask for a group.
#[derive(Debug, Default)]
pub(super) struct Telling {
    stories: BTreeMap<ObjectKey, Story>,
    /// Services about which something else is known.
    changed: BTreeSet<ObjectKey>,
    /// When something is to be told that has lasted long enough by then.
    due: BTreeSet<(Duration, ObjectKey)>,
}

impl Telling {
    /// Takes in how a group announces the Services that ask for it; `None` where that is not known.
    pub(super) fn heard(&mut self, group: &ObjectKey, all: BTreeMap<ObjectKey, Option<Found>>) {
        for (service, story) in &mut self.stories {
            if !all.contains_key(service) && story.groups.remove(group).is_some() {
                self.changed.insert(service.clone());
            }
        }
        for (service, found) in all {
            let story = self.stories.entry(service.clone()).or_default();
            let is_new = match (story.groups.get(group), &found) {
                (Some(_), None) => false,
                (Some(known), found) => known != found,
                (None, _) => true,
            };
            if is_new {
                story.groups.insert(group.clone(), found);
                self.changed.insert(service);
            }
        }
    }

    /// Takes in why no group can announce a Service, if none can.
    pub(super) fn lost(&mut self, service: &ObjectKey, obstacle: Option<Obstacle>) {
        let known = self.stories.get(service).and_then(|story| story.lost.as_ref());
        if known != obstacle.as_ref() {
            self.stories.entry(service.clone()).or_default().lost = obstacle;
            self.changed.insert(service.clone());
        }
    }

    /// Tells what is new and has lasted long enough.
    pub(super) fn tell(
        &mut self,
        world: World<'_>,
        announcements: &mut Announcements,
        now: Now,
        out: &mut Plan<Effect>,
    ) {
        while let Some((at, service)) =
            self.due.first().cloned().filter(|(at, _)| *at <= now.uptime)
        {
            self.due.remove(&(at, service.clone()));
            self.changed.insert(service);
        }
        for service in std::mem::take(&mut self.changed) {
            self.tell_service(world, &service, announcements, now, out);
        }
        if announcements.complete() {
            let others = world.cluster.services.values().filter(|view| {
                condition::get(view.conditions(), CONDITION_ANNOUNCED).is_some()
                    && !self.stories.contains_key(&view.key)
            });
            others.for_each(|view| announcements.look_again(view.key.clone()));
        }
    }

    fn tell_service(
        &mut self,
        world: World<'_>,
        service: &ObjectKey,
        announcements: &mut Announcements,
        now: Now,
        out: &mut Plan<Effect>,
    ) {
        let Some(story) = self.stories.get_mut(service) else { return };
        if story.groups.is_empty() && story.lost.is_none() {
            self.stories.remove(service);
            announcements.retract(service);
            return;
        }
        let Some(next) = story.to_tell() else {
            story.next = None;
            if story.is_known() {
                // It has no address any more.
                story.told = None;
                announcements.retract(service);
            } else {
                announcements.say(service, story.told.clone());
            }
            return;
        };
        if story.told.as_ref() == Some(&next) {
            story.next = None;
            announcements.say(service, Some(next));
            return;
        }
        let since = match &story.next {
            Some((same, since)) if *same == next => *since,
            Some(_) | None => now.uptime,
        };
        let due = since.saturating_add(patience(story.told.as_ref(), &next));
        if now.uptime < due {
            story.next = Some((next, since));
            self.due.insert((due, service.clone()));
            announcements.say(service, story.told.clone());
            return;
        }
        out.events.extend(event(world, service, story.told.as_ref(), &next));
        announcements.say(service, Some(next.clone()));
        (story.told, story.next) = (Some(next), None);
    }

    /// Everything is said again: another operator may have written since.
    pub(super) fn say_again(&mut self) {
        self.changed.extend(self.stories.keys().cloned());
    }

    /// The uptime at which there is something to tell.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.due.first().map(|(at, _)| *at)
    }
}

impl Story {
    /// Whether something is known of every group.
    fn is_known(&self) -> bool {
        self.groups.values().all(Option::is_some)
    }

    /// What there is to tell; `None` if that is not known, or the Service has no address.
    fn to_tell(&self) -> Option<Announcement> {
        let found: Vec<_> = self.groups.values().map(Option::as_ref).collect::<Option<_>>()?;
        let obstacles = found.iter().flat_map(|found| &found.obstacles).chain(&self.lost);
        let obstacles: Vec<_> = obstacles.cloned().collect();
        if let Some((reason, message)) = not_announced(&obstacles) {
            return Some(Announcement { announced: false, reason: reason.as_str(), message });
        }
        let held = found.iter().flat_map(|found| &found.held);
        let held: Vec<_> =
            held.map(|(address, node, since)| (*address, node.as_str(), *since)).collect();
        (!held.is_empty()).then(|| Announcement {
            announced: true,
            reason: NotAnnounced::NONE,
            message: announced(&held),
        })
    }
}

/// Whether a reason says that somebody refused, and not that something is to come or has failed.
fn is_refusal(announcement: &Announcement) -> bool {
    let passing = [NotAnnounced::NotApplied, NotAnnounced::NoHolder, NotAnnounced::HolderSilent];
    !announcement.announced && !passing.iter().any(|word| word.as_str() == announcement.reason)
}

/// How long something must last before it is told.
fn patience(told: Option<&Announcement>, next: &Announcement) -> Duration {
    let was_held = told.is_some_and(|told| told.announced);
    match (next.announced, is_refusal(next)) {
        (true, _) if was_held => MOVED,
        (true, _) | (false, true) => Duration::ZERO,
        (false, false) => LOST,
    }
}

/// The event about something in the way, if it is news.
fn event(
    world: World<'_>,
    service: &ObjectKey,
    told: Option<&Announcement>,
    next: &Announcement,
) -> Option<Event> {
    let view = world.cluster.services.get(service)?;
    // After a restart nothing was told, but it may stand in the condition.
    let shown = condition::get(view.conditions(), CONDITION_ANNOUNCED);
    let (reason, message) = match (told, shown) {
        (Some(told), _) => (told.reason, told.message.as_str()),
        (None, Some(shown)) => (shown.reason.as_str(), shown.message.as_str()),
        (None, None) => ("", ""),
    };
    let is_news = reason != next.reason || (is_refusal(next) && message != next.message);
    (is_news && !next.announced).then(|| Event {
        about: event::about::<Service>(Some(service.namespace()), service.name(), &view.uid),
        action: "Announce",
        reason: next.reason.to_owned(),
        message: next.message.clone(),
        warning: true,
    })
}
