//! What pools say of themselves.

use landfall_ipam::Reason;

use super::{About, Effect, Note, Now, Planner, STATUS_INTERVAL, status};

impl Planner {
    pub(super) fn plan_pool_status(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let due = self.status_at.is_some_and(|at| at <= now.uptime);
        let others_wait = self.waiting.take_changed();
        if !std::mem::take(&mut self.status_dirty) && !others_wait && !due {
            return;
        }
        self.status_at = None;
        for name in self.world.order.clone() {
            if self.pool_calls.contains(&name) {
                continue; // its report brings us back
            }
            let next = self.pool_next.get(&name).copied().unwrap_or_default();
            if next > now.uptime {
                self.status_at = Some(self.status_at.map_or(next, |at| at.min(next)));
                continue;
            }
            let Some(view) = self.world.pools.get(&name) else { continue };
            let told = status::Told {
                count: self.world.book.count(&name),
                waiting: &self.waiting,
                blocked: self.blocked.as_ref().map(|blocked| blocked.words.as_str()),
                findings: self.repair.about(&name).collect(),
            };
            let Some(next) = status::pool(view, &told, now.wall) else {
                self.repair.told(&name);
                continue;
            };
            let problem = status::problem(view);
            let told = self.pool_notes.get(&name);
            if let Some(problem) = problem.filter(|problem| told != Some(problem)) {
                let about = About::Pool { object: view.object.clone(), uid: view.uid.clone() };
                effects.push(Effect::Note(Note {
                    about,
                    warning: true,
                    reason: Reason::PoolInvalid.as_str().to_owned(),
                    message: problem.clone(),
                }));
                self.pool_notes.insert(name.clone(), problem);
            }
            effects.push(Effect::PoolStatus {
                pool: name.clone(),
                object: view.object.clone(),
                version: view.version,
                status: next,
            });
            self.pool_calls.insert(name.clone());
            self.pool_next.insert(name, now.uptime.saturating_add(STATUS_INTERVAL));
        }
    }
}
