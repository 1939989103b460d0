//! What the keeper knows about the keepalived that runs, and what it gives up in its place.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tracing::{info, warn};

use super::{addresses, goodbye, notices::Notice};
use crate::{
    Farewell, OwnedAddress, RunDir,
    call::{Counts, InstanceReport, State},
};

#[derive(Debug, Default)]
pub(super) struct Known {
    /// Of the configuration that keepalived has read.
    farewells: Vec<Farewell>,
    owned: BTreeSet<OwnedAddress>,
    states: BTreeMap<String, State>,
    pub(super) counts: Counts,
}

impl Known {
    /// Reads what belongs to the configuration in the folder. What cannot be read stays as it was.
    pub(super) fn read(&mut self, run_dir: &RunDir) {
        match RunDir::read(&run_dir.farewells()) {
            Ok(farewells) => self.farewells = farewells.unwrap_or_default(),
            Err(error) => warn!(%error, "goodbyes are said as before"),
        }
        self.read_owned(run_dir);
    }

    fn read_owned(&mut self, run_dir: &RunDir) {
        match run_dir.read_owned() {
            Ok(owned) => self.owned = owned,
            Err(error) => warn!(%error, "the same addresses count as ours as before"),
        }
    }

    pub(super) fn farewells(&self) -> &[Farewell] {
        &self.farewells
    }

    /// The longest time between two adverts.
    pub(super) fn longest_interval(&self) -> Duration {
        let millis = self.farewells.iter().map(|it| it.form.advert_millis).max();
        Duration::from_millis(millis.unwrap_or_default().into())
    }

    pub(super) fn holds_something(&self) -> bool {
        self.states.values().any(|state| *state == State::Master)
    }

    pub(super) fn note(&mut self, notices: Vec<Notice>) {
        for notice in notices {
            self.states.insert(notice.instance, notice.state);
        }
    }

    /// What was told around the end of keepalived. Its successor's first words may be among it, which say that
    /// it holds nothing; what is master now or was until then stays master.
    ///
    /// What became master and then something else may have done so in either order of events. Then the addresses
    /// tell, which are still there if it was master at its end.
    pub(super) fn note_last(&mut self, notices: Vec<Notice>) {
        let last: BTreeMap<_, _> =
            notices.into_iter().map(|notice| (notice.instance, notice.state)).collect();
        self.states.extend(last.into_iter().filter(|(_, state)| *state == State::Master));
    }

    pub(super) fn set(&mut self, instances: &[InstanceReport]) {
        self.states = instances.iter().map(|it| (it.name.clone(), it.state)).collect();
    }

    /// Forgets all states: keepalived itself has given everything up.
    pub(super) fn forget(&mut self) {
        self.states.clear();
    }

    /// Takes all addresses off the node, and then says goodbye for the instances that keepalived was master of.
    pub(super) fn give_up(&mut self, run_dir: &RunDir) {
        let removed = self.remove(run_dir);
        let masters: Vec<_> =
            self.farewells.iter().filter(|it| self.was_master(it, &removed)).collect();
        let said = goodbye::say(&masters, &self.owned);
        self.counts.goodbyes += said;
        self.states.clear();
        if said > 0 || !removed.is_empty() {
            info!(goodbyes = said, addresses = removed.len(), "gave up what keepalived held");
        }
    }

    /// Takes all addresses off the node that a keepalived left there that ended at an unknown time. No goodbye is
    /// said: others may hold the addresses by now, and a node that hears one does not ask whose it is.
    pub(super) fn sweep(&mut self, run_dir: &RunDir) {
        let removed = self.remove(run_dir);
        if !removed.is_empty() {
            info!(addresses = removed.len(), "swept what keepalived left behind");
        }
    }

    fn remove(&mut self, run_dir: &RunDir) -> BTreeSet<OwnedAddress> {
        // The worker may know by now that some of them are gone, and they may be anybody's since.
        self.read_owned(run_dir);
        let removed = addresses::remove(&self.owned).unwrap_or_else(|error| {
            warn!(%error, "no address can be removed");
            BTreeSet::new()
        });
        self.counts.swept += u64::try_from(removed.len()).unwrap_or(u64::MAX);
        removed
    }

    /// Whether keepalived said so, or left on the node what only a master has there.
    fn was_master(&self, farewell: &Farewell, removed: &BTreeSet<OwnedAddress>) -> bool {
        self.states.get(&farewell.instance) == Some(&State::Master)
            || removed.iter().any(|it| farewell.form.advertised.contains(&it.address))
    }
}

#[cfg(test)]
mod tests {
    use landfall_vrrp::{Form, Transport, Version};

    use super::*;

    fn farewell(instance: &str, address: &str) -> Farewell {
        let form = Form {
            version: Version::V3,
            advert_millis: 100,
            transport: Transport::Multicast,
            password: None,
            advertised: vec![address.parse().unwrap()],
            anchor: true,
        };
        Farewell {
            instance: instance.to_owned(),
            router_id: 1,
            form,
            interface: "eth0".to_owned(),
            source: None,
            peers: Vec::new(),
            password: None,
        }
    }

    #[test]
    fn an_instance_was_held_if_keepalived_said_so_or_left_its_addresses() {
        let mut known = Known {
            farewells: vec![farewell("a", "169.254.112.1"), farewell("b", "169.254.112.2")],
            ..Known::default()
        };
        let left = |address: &str| {
            let address = address.parse().unwrap();
            BTreeSet::from([OwnedAddress { address, interface: "eth0".to_owned() }])
        };
        let masters = |known: &Known, removed: &BTreeSet<OwnedAddress>| -> Vec<String> {
            let held = known.farewells.iter().filter(|it| known.was_master(it, removed));
            held.map(|it| it.instance.clone()).collect()
        };
        assert_eq!(masters(&known, &BTreeSet::new()), [""; 0]);
        assert_eq!(masters(&known, &left("169.254.112.2")), ["b"]);
        assert_eq!(masters(&known, &left("192.0.2.1")), [""; 0]);
        let told = |instance: &str, state| Notice { instance: instance.to_owned(), state };
        known.note(vec![told("a", State::Master), told("b", State::Backup)]);
        assert!(known.holds_something());
        assert_eq!(masters(&known, &BTreeSet::new()), ["a"]);
        assert_eq!(masters(&known, &left("169.254.112.2")), ["a", "b"]);
        known.note_last(vec![told("a", State::Backup), told("b", State::Master)]);
        assert_eq!(masters(&known, &BTreeSet::new()), ["a", "b"]);
        known.note(vec![told("a", State::Backup), told("b", State::Backup)]);
        known.note_last(vec![told("a", State::Master), told("a", State::Backup)]);
        assert_eq!(masters(&known, &BTreeSet::new()), [""; 0]);
        assert_eq!(masters(&known, &left("169.254.112.1")), ["a"]);
        known.note_last(vec![told("a", State::Backup), told("a", State::Master)]);
        assert_eq!(masters(&known, &BTreeSet::new()), ["a"]);
        known.note(vec![told("a", State::Fault), told("b", State::Init)]);
        assert!(!known.holds_something());
        assert_eq!(masters(&known, &BTreeSet::new()), [""; 0]);
    }

    #[test]
    fn files_that_cannot_be_read_change_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(dir.path());
        let mut known = Known::default();
        known.read(&run_dir);
        assert_eq!(known.farewells(), []);
        let mut slow = farewell("b", "169.254.112.2");
        slow.form.advert_millis = 1000;
        let farewells = [farewell("a", "169.254.112.1"), slow];
        RunDir::write(&run_dir.farewells(), &farewells).unwrap();
        known.read(&run_dir);
        assert_eq!(known.farewells(), farewells);
        assert_eq!(known.longest_interval(), Duration::from_secs(1));
        for file in [run_dir.farewells(), run_dir.owned()] {
            RunDir::write_text(&file, b"[{").unwrap();
        }
        known.read(&run_dir);
        assert_eq!(known.farewells(), farewells);
    }
}
