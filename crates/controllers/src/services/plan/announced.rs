//! Writes how Services are announced into their conditions. Another planner knows it; this one writes all
//! conditions of Services, so that no two writers are in each other's way.

use landfall_api::{
    condition::{self, Status},
    keys::CONDITION_ANNOUNCED,
};

use super::{Effect, Round};
use crate::{announcements::Wanted, backoff::Backoff, object::ObjectKey};

impl Round<'_> {
    /// Writes the condition of a Service if it is not as it should be.
    pub(super) fn plan_announced(&mut self, key: &ObjectKey) {
        let Some(view) = self.cluster.services.get(key).filter(|view| !view.deleting) else {
            return;
        };
        let wanted = self.announcements.wanted(key);
        let has_one = || condition::get(view.conditions(), CONDITION_ANNOUNCED).is_some();
        // Of most Services nothing is said, and they are looked at often.
        if wanted == Wanted::AsItIs || (wanted == Wanted::Absent && !has_one()) {
            return;
        }
        let mut conditions = view.conditions().to_vec();
        let changed = match wanted {
            Wanted::AsItIs => false,
            Wanted::Absent => condition::remove(&mut conditions, CONDITION_ANNOUNCED),
            Wanted::This(announcement) => {
                let status = if announcement.announced { Status::True } else { Status::False };
                let (kind, message) = (CONDITION_ANNOUNCED, announcement.message.as_str());
                let (reason, now) = (announcement.reason, self.now.wall);
                condition::set(&mut conditions, kind, status, reason, message, None, now)
            }
        };
        let delay = self.own.progress.clean_up_delay(key);
        if !changed || delay.is_some_and(|delay| delay.holds(self.now)) {
            return;
        }
        let held = self.own.damper.hold(key, ("announced", wanted), self.now);
        if let Some(until) = held {
            let delay = Backoff { until: Some(until), tries: 0 };
            self.own.progress.set_clean_up_delay(key, Some(delay));
            return;
        }
        let (key, uid, version) = (key.clone(), view.uid.clone(), view.version);
        self.own.progress.begin_call(&key);
        self.out.effects.push(Effect::SetConditions { key, uid, version, conditions });
    }
}
