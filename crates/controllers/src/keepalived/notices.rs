//! Events on Services that a group does not announce, or not with all addresses.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use landfall_api::announce::{Obstacle, not_announced};

use super::{effect::Effect, members::World};
use crate::{
    engine::Plan,
    event::{self, Event},
    object::ObjectKey,
};

/// The reason of an event about lines that are left out.
const LINE_REFUSED: &str = "LineRefused";

/// What was last said to each Service, so that it is said once.
#[derive(Debug, Default)]
pub(super) struct Notices {
    obstacles: BTreeMap<ObjectKey, String>,
    lines: BTreeMap<ObjectKey, String>,
}

impl Notices {
    /// Says what is in the way of a Service, unless that was said last.
    pub(super) fn tell(
        &mut self,
        world: World<'_>,
        service: &ObjectKey,
        obstacles: &[Obstacle],
        out: &mut Plan<Effect>,
    ) {
        let Some((reason, message)) = not_announced(obstacles) else {
            self.forget(service);
            return;
        };
        let Some(view) = world.cluster.services.get(service) else { return };
        if self.obstacles.get(service) != Some(&message) {
            out.events.push(warning(service, &view.uid, reason.as_str(), message.clone()));
            self.obstacles.insert(service.clone(), message);
        }
    }

    /// Says which of its lines for keepalived are left out, unless that was said last.
    pub(super) fn tell_lines(
        &mut self,
        world: World<'_>,
        service: &ObjectKey,
        out: &mut Plan<Effect>,
    ) {
        let view = world.cluster.services.get(service);
        let asked = view.and_then(|view| Some((view, view.announceable.as_ref()?)));
        let refused = asked.map(|(_, asked)| &asked.request.lines.refused);
        let (Some((view, _)), Some(refused)) = (asked, refused.filter(|lines| !lines.is_empty()))
        else {
            self.lines.remove(service);
            return;
        };
        let message = refused.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        if self.lines.get(service) != Some(&message) {
            out.events.push(warning(service, &view.uid, LINE_REFUSED, message.clone()));
            self.lines.insert(service.clone(), message);
        }
    }

    pub(super) fn forget(&mut self, service: &ObjectKey) {
        self.obstacles.remove(service);
    }
}

fn warning(service: &ObjectKey, uid: &str, reason: &str, message: String) -> Event {
    Event {
        about: event::about::<Service>(Some(service.namespace()), service.name(), uid),
        action: "Announce",
        reason: reason.to_owned(),
        message,
        warning: true,
    }
}
