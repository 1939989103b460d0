//! Addresses that move from one instance to another.
//!
//! Nodes read a plan at different moments. A node that still runs the one before holds an address by its old
//! instance, and another that runs the new one would hold it by its new instance, for they know nothing of each
//! other. So an address is on no instance at all until every node has taken it off the old one.

use alloc::{collections::BTreeMap, string::String};
use core::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::plan::{Instance, Plan};

/// Where an address was, and since when it is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leaving {
    /// The name of the instance.
    pub instance: String,
    /// Its virtual router id.
    pub router_id: u8,
    /// The generation of the first plan without the address on the instance.
    pub since: i64,
}

impl Plan {
    /// Takes addresses off instances as long as a node may have them by another one: a node that runs `before`, or
    /// an earlier plan still. `is_run` tells whether every node runs the plan of a generation or a later one.
    /// Returns for each address that has to wait the generation that it waits for.
    pub fn hold_back(
        &mut self,
        before: &Self,
        is_run: impl Fn(i64) -> bool,
    ) -> BTreeMap<IpAddr, i64> {
        let since = before.generation.saturating_add(1);
        let mut leaving = before.leaving.clone();
        leaving.retain(|_, left| !is_run(left.since));
        let mut stay = BTreeMap::new();
        for old in &before.instances {
            let same = self.instances.iter().find(|new| is_same(old, new));
            for address in old.serves() {
                let stays = same.is_some_and(|new| new.serves().any(|it| it == address));
                if stays {
                    stay.insert(address, old.name.clone());
                } else {
                    let (instance, router_id) = (old.name.clone(), old.router_id);
                    leaving.insert(address, Leaving { instance, router_id, since });
                }
            }
        }
        let mut waiting = BTreeMap::new();
        self.instances.retain_mut(|instance| {
            let (name, router_id) = (&instance.name, instance.router_id);
            let mut may_have = |address: &IpAddr| {
                if let Some(owner) = stay.get(address) {
                    return owner == name;
                }
                let is_own =
                    |left: &&Leaving| left.instance == *name && left.router_id == router_id;
                let left = leaving.get(address).filter(|left| !is_own(left));
                left.is_none_or(|left| {
                    waiting.insert(*address, left.since);
                    false
                })
            };
            instance.excluded.retain(&mut may_have);
            // What an instance advertises changes by a change of its form, which has its own order of events.
            if instance.change.is_none() && !instance.form.anchor {
                instance.form.advertised.retain(may_have);
            }
            !instance.form.advertised.is_empty()
        });
        // An address that is back where it was has not left.
        for instance in &self.instances {
            for address in instance.serves() {
                leaving.remove(&address);
            }
        }
        self.leaving = leaving;
        waiting
    }
}

fn is_same(one: &Instance, other: &Instance) -> bool {
    one.name == other.name && one.router_id == other.router_id
}

#[cfg(test)]
mod tests;
