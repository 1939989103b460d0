//! Events on Services with lines for keepalived that are left out.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;

use super::{effect::Effect, members::World};
use crate::{
    engine::Plan,
    event::{self, Event},
    object::ObjectKey,
};

/// The reason of an event about lines that are left out.
const LINE_REFUSED: &str = "LineRefused";

/// What was last said to each Service about its lines, so that it is said once.
#[derive(Debug, Default)]
pub(super) struct Notices {
    lines: BTreeMap<ObjectKey, String>,
}

impl Notices {
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
