//! The passwords that this node knows, by the names that plans have for them.
//!
//! A plan under change names the password before and the one after it, and the Secret has only the latter: the
//! others are kept on disk.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use landfall_vrrp::{Plan, password_name, render::usable_password};

use crate::{Error, RunDir};

#[derive(Debug)]
pub(super) struct Passwords {
    run_dir: RunDir,
    known: BTreeMap<String, String>,
    /// The name of the one that the Secret has now.
    latest: Option<String>,
}

impl Passwords {
    pub(super) fn load(run_dir: &RunDir) -> Result<Self, Error> {
        let known = RunDir::read(&run_dir.passwords())?.unwrap_or_default();
        Ok(Self { run_dir: run_dir.clone(), known, latest: None })
    }

    /// Knows nothing yet.
    pub(super) fn none(run_dir: &RunDir) -> Self {
        Self { run_dir: run_dir.clone(), known: BTreeMap::new(), latest: None }
    }

    pub(super) fn known(&self) -> &BTreeMap<String, String> {
        &self.known
    }

    /// Takes the password in a Secret. One that is no text is unknown.
    pub(super) fn learn(&mut self, secret: &Secret, key: &str) -> Result<(), Error> {
        let (Some(uid), Some(version)) = (&secret.metadata.uid, &secret.metadata.resource_version)
        else {
            return Ok(());
        };
        let value = secret.data.as_ref().and_then(|data| data.get(key));
        let text = value.and_then(|bytes| str::from_utf8(&bytes.0).ok());
        let Some(text) = text else { return Ok(()) };
        let name = password_name(uid, version);
        self.latest = Some(name.clone());
        if self.known.get(&name).is_some_and(|known| known == text) {
            return Ok(());
        }
        self.known.insert(name, text.to_owned());
        self.save()
    }

    /// Forgets those that none of these plans names.
    pub(super) fn forget_others<'a>(
        &mut self,
        plans: impl Iterator<Item = &'a Plan>,
    ) -> Result<(), Error> {
        let named: BTreeSet<&str> = plans.flat_map(Plan::password_names).collect();
        let latest = self.latest.as_ref();
        let before = self.known.len();
        self.known.retain(|name, _| named.contains(name.as_str()) || latest == Some(name));
        if self.known.len() < before { self.save() } else { Ok(()) }
    }

    /// Forgets all of them, since no instance is on this node any more.
    pub(super) fn forget_all(&mut self) -> Result<(), Error> {
        self.latest = None;
        if self.known.is_empty() {
            return Ok(());
        }
        self.known.clear();
        self.save()
    }

    /// A text without any of the passwords.
    pub(super) fn hide_in(&self, text: &str) -> String {
        let used = self.known.values().filter_map(|password| usable_password(password).ok());
        used.fold(text.to_owned(), |text, used| text.replace(used, "***"))
    }

    fn save(&self) -> Result<(), Error> {
        RunDir::write(&self.run_dir.passwords(), &self.known)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::ObjectMeta};
    use landfall_vrrp::{Change, Form, Step};

    use super::*;
    use crate::worker::samples::{form, instance, plan};

    fn secret(version: &str, key: &str, value: &[u8]) -> Secret {
        Secret {
            metadata: ObjectMeta {
                uid: Some("uid".to_owned()),
                resource_version: Some(version.to_owned()),
                ..ObjectMeta::default()
            },
            data: Some([(key.to_owned(), ByteString(value.to_vec()))].into()),
            ..Secret::default()
        }
    }

    fn with_password(name: &str) -> Form {
        Form { password: Some(name.to_owned()), ..form(&["192.0.2.9"]) }
    }

    #[test]
    fn a_password_is_remembered_as_long_as_a_plan_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(dir.path());
        let load = || Passwords::load(&run_dir).unwrap();
        let mut passwords = load();
        passwords.learn(&secret("1", "password", b"first"), "password").unwrap();
        passwords.learn(&secret("2", "password", b"second"), "password").unwrap();
        let mut changing = instance("ns/a", 1, with_password("uid/2"));
        changing.change =
            Some(Change { before: with_password("uid/1"), holder: 0, step: Step::Mute, since: 1 });
        let both = plan(vec![changing]);
        let names = |passwords: &Passwords| passwords.known().keys().cloned().collect::<Vec<_>>();
        passwords.forget_others([&both].into_iter()).unwrap();
        assert_eq!(names(&load()), ["uid/1", "uid/2"]);
        let after = plan(vec![instance("ns/a", 1, with_password("uid/2"))]);
        passwords.forget_others([&after].into_iter()).unwrap();
        assert_eq!(names(&load()), ["uid/2"]);
        // The plan for the newest may be on its way.
        passwords.learn(&secret("3", "password", b"third"), "password").unwrap();
        passwords.forget_others([&after].into_iter()).unwrap();
        assert_eq!(names(&load()), ["uid/2", "uid/3"]);
        assert_eq!(load().known()["uid/3"], "third");
        passwords.forget_all().unwrap();
        assert!(passwords.known().is_empty() && load().known().is_empty());
    }

    #[test]
    fn what_is_no_password_is_not_known() {
        let dir = tempfile::tempdir().unwrap();
        let mut passwords = Passwords::load(&RunDir::new(dir.path())).unwrap();
        passwords.learn(&secret("1", "other", b"first"), "password").unwrap();
        passwords.learn(&secret("2", "password", b"\xff\xfe"), "password").unwrap();
        passwords.learn(&Secret::default(), "password").unwrap();
        assert_eq!(passwords.known().len(), 0);
    }

    #[test]
    fn a_message_shows_no_password() {
        let dir = tempfile::tempdir().unwrap();
        let mut passwords = Passwords::load(&RunDir::new(dir.path())).unwrap();
        passwords.learn(&secret("1", "password", b"s3cr3tpw-and-more"), "password").unwrap();
        assert_eq!(passwords.hide_in("unknown word s3cr3tpw here"), "unknown word *** here");
    }
}
