//! The files that mute instances: keepalived keeps an instance in state FAULT as long as its file says so.

use std::{
    collections::BTreeMap,
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
};

use landfall_vrrp::{Form, NodeIndex, Plan};

/// Whether each instance, by its router id, is to be muted.
pub(super) type Mutes = BTreeMap<u8, bool>;

/// What the plan says, and that adverts of a form cannot be sent from this node yet. The instances in `ended` wait
/// for their holder no longer.
pub(super) fn mutes(
    plan: &Plan,
    node: NodeIndex,
    can_send: impl Fn(&Form) -> bool,
    ended: &[String],
) -> Mutes {
    let instances = plan.instances.iter().map(|instance| {
        let waits = instance.waits_for_holder_on(node) && !ended.contains(&instance.name);
        let is_unready = !can_send(instance.form_on(node));
        let is_alone = plan.waits_for_peers(instance, node);
        (instance.router_id, waits || is_unready || is_alone || instance.is_kept_off(node))
    });
    instances.collect()
}

/// Whether adverts of a form are sent over IPv6.
pub(super) fn adverts_are_v6(form: &Form) -> bool {
    form.advertised.first().is_some_and(IpAddr::is_ipv6)
}

/// The files, and what is in them.
#[derive(Debug)]
pub(super) struct TrackFiles {
    dir: PathBuf,
    written: Mutes,
}

impl TrackFiles {
    /// Reads the files that are there.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let mut written = Mutes::new();
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let id = path.file_name().and_then(|name| name.to_str()?.parse().ok());
            if let Some(id) = id {
                written.insert(id, fs::read_to_string(&path)?.trim() != "0");
            }
        }
        Ok(Self { dir: dir.to_owned(), written })
    }

    /// Whether the files are these.
    pub(super) fn are(&self, wanted: &Mutes) -> bool {
        self.written == *wanted
    }

    pub(super) fn is_muted(&self, router_id: u8) -> bool {
        self.written.get(&router_id).is_some_and(|is_muted| *is_muted)
    }

    /// What comes before a new configuration: new files, and instances that are to be muted. An instance that
    /// is muted stays so, for its old form must not take part.
    pub(super) fn mute(&mut self, wanted: &Mutes) -> io::Result<()> {
        let before = |(id, is_muted): (&u8, &bool)| match self.written.get(id) {
            Some(is_already) => (*is_muted && !is_already).then_some((*id, true)),
            None => Some((*id, *is_muted)),
        };
        let due: Vec<_> = wanted.iter().filter_map(before).collect();
        due.into_iter().try_for_each(|(id, is_muted)| self.write(id, is_muted))
    }

    /// What comes after it: the rest.
    pub(super) fn settle(&mut self, wanted: &Mutes) -> io::Result<()> {
        for (id, is_muted) in wanted {
            if self.written.get(id) != Some(is_muted) {
                self.write(*id, *is_muted)?;
            }
        }
        let gone: Vec<_> =
            self.written.keys().copied().filter(|id| !wanted.contains_key(id)).collect();
        for id in gone {
            fs::remove_file(self.dir.join(id.to_string()))?;
            self.written.remove(&id);
        }
        Ok(())
    }

    fn write(&mut self, id: u8, is_muted: bool) -> io::Result<()> {
        let path = self.dir.join(id.to_string());
        // As a whole, for keepalived may read it at any moment. It need not survive the node.
        let draft = path.with_extension("new");
        fs::write(&draft, if is_muted { "1\n" } else { "0\n" })?;
        fs::rename(&draft, &path)?;
        self.written.insert(id, is_muted);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use landfall_vrrp::{Change, Step};

    use super::*;
    use crate::worker::samples::{form, instance, plan};

    fn files(dir: &Path) -> BTreeMap<String, String> {
        let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
        let name = |entry: &fs::DirEntry| entry.file_name().into_string().unwrap();
        entries.map(|entry| (name(&entry), fs::read_to_string(entry.path()).unwrap())).collect()
    }

    #[test]
    fn instances_are_muted_by_the_plan_and_by_a_device_that_is_not_ready() {
        let changing =
            Change { before: form(&["192.0.2.9"]), holder: 1, step: Step::Mute, since: 1 };
        let mut muted = instance("ns/a", 1, form(&["192.0.2.9"]));
        muted.change = Some(changing);
        let mut elsewhere = instance("ns/b", 2, form(&["192.0.2.10"]));
        elsewhere.only_on = Some(vec![1]);
        let free = instance("ns/c", 3, form(&["192.0.2.11"]));
        let v6 = instance("ns/d", 4, form(&["2001:db8::9"]));
        let plan = plan(vec![muted, elsewhere, free, v6]);
        let a = ["ns/a".to_owned(), "ns/b".to_owned()];
        for (node, usable, ended, expected) in [
            (0, true, &[][..], [true, true, false, false]),
            (1, true, &[], [false, false, false, false]),
            (1, false, &[], [false, false, false, true]),
            (0, true, &a, [false, true, false, false]),
        ] {
            let can_send = |form: &Form| usable || !adverts_are_v6(form);
            let found: Vec<_> = mutes(&plan, node, can_send, ended).into_values().collect();
            assert_eq!(found, expected, "{node} {usable} {ended:?}");
        }
    }

    #[test]
    fn instances_are_muted_before_a_change_and_freed_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("track");
        let mut tracks = TrackFiles::open(&dir).unwrap();
        let wanted: Mutes = [(1, false), (2, true), (3, false)].into();
        tracks.mute(&wanted).unwrap();
        let text = |entries: &[(&str, &str)]| -> BTreeMap<String, String> {
            entries.iter().map(|(name, text)| ((*name).to_owned(), format!("{text}\n"))).collect()
        };
        assert_eq!(files(&dir), text(&[("1", "0"), ("2", "1"), ("3", "0")]));

        let mut tracks = TrackFiles::open(&dir).unwrap();
        let wanted: Mutes = [(1, true), (2, false)].into();
        tracks.mute(&wanted).unwrap();
        assert_eq!(files(&dir), text(&[("1", "1"), ("2", "1"), ("3", "0")]));
        tracks.settle(&wanted).unwrap();
        assert_eq!(files(&dir), text(&[("1", "1"), ("2", "0")]));
    }
}
