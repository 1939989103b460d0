//! Takes in changes of the watched objects.

use std::time::Duration;

use super::{Balancer, Change, Round};
use crate::{
    cluster::{Labels, service::ServiceView},
    object::ObjectKey,
};

impl Round<'_> {
    /// Takes in a change of the watched objects.
    pub(super) fn changed(&mut self, change: &Change) {
        match change {
            Change::Service(key, old) => self.service_changed(key, old.as_deref()),
            Change::ServiceUnsure(key) => self.own.progress.read_at(key, Duration::ZERO),
            Change::Pool(name, _) => self.own.statuses.pool_changed(name, self.cluster),
            Change::Namespace(name, old) => self.namespace_changed(name, old.as_ref()),
            Change::PoolsSettled => {
                self.reconsider_all();
                self.own.repair.recheck_all();
            }
            Change::OtherService(_)
            | Change::Node(..)
            | Change::KeepalivedGroup(..)
            | Change::Endpoints(_)
            | Change::Child(..)
            | Change::ApiServer(..)
            | Change::VirtualIp { .. }
            | Change::Mapping(_)
            | Change::Listed(_) => {}
        }
        self.on_ledger_changes();
    }

    fn service_changed(&mut self, key: &ObjectKey, old: Option<&ServiceView>) {
        let old_balancer = old.and_then(|old| old.balancer.as_deref());
        if self.cluster.balancer(key).is_some() {
            self.service_put(key, old_balancer);
        } else if let Some(old) = old_balancer {
            self.service_left(old);
        }
        let view = self.cluster.services.get(key);
        if view.is_some_and(|view| view.leftover.is_some() || view.announceable.is_some()) {
            self.mark(key);
        } else if old.is_some_and(|old| old.leftover.is_some()) {
            // Work that waited for that goes on, even if our own call seemed to fail.
            self.own.progress.set_clean_up_delay(key, None);
            self.own.repair.recheck(key);
            self.mark(key);
        }
    }

    /// There is a newer version of a Service.
    fn service_put(&mut self, key: &ObjectKey, old: Option<&Balancer>) {
        self.own.absent.forget(key);
        self.own.pending_reads.forget(key);
        self.own.repair.recheck(key);
        self.note_asked_first(key, old);
        self.mark(key);
    }

    fn service_left(&mut self, old: &Balancer) {
        let key = &old.key;
        self.own.pending_reads.forget(key);
        self.own.repair.recheck(key);
        self.own.waiting.clear(key);
        self.contest(key, None);
        self.own.notes.asked_first.remove_key(key);
        self.own.progress.end_write_delay(key);
        if self.ledger.has_service(key) || self.own.progress.is_engaged(key) {
            self.own.absent.saw_leave(key);
        }
        self.mark(key);
    }

    fn namespace_changed(&mut self, name: &str, old: Option<&Labels>) {
        if old != self.cluster.namespaces.get(&name.to_owned()) {
            self.wake(self.own.waiting.in_namespace(name));
        }
    }
}
