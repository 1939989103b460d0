//! The folder that keeper, worker and keepalived share, and what its files hold.

use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    net::IpAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use landfall_vrrp::Form;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The extension of a file that takes another one's place when it is whole.
const DRAFT: &str = "draft";

/// What went wrong with a file of the folder.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("reading {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("writing {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{} cannot be understood", path.display())]
    Content { path: PathBuf, source: serde_json::Error },
}

/// The folder that keeper, worker and keepalived share.
#[derive(Clone, Debug)]
pub struct RunDir {
    path: PathBuf,
}

/// What the keeper needs in order to give up the addresses of one instance in keepalived's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Farewell {
    pub instance: String,
    pub router_id: u8,
    /// The form of the instance on this node.
    pub form: Form,
    /// The device that adverts leave from.
    pub interface: String,
    /// Where unicast adverts come from; multicast ones come from the device's first address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// Where adverts go: to the other nodes or to a multicast group, or nothing if that is the usual group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
}

/// An address that keepalived puts on the node on our behalf.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OwnedAddress {
    pub address: IpAddr,
    pub interface: String,
}

impl RunDir {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The configuration that keepalived runs with.
    pub fn configuration(&self) -> PathBuf {
        self.path.join("keepalived.conf")
    }

    /// The configuration that is known to work: what keepalived ran with when it was asked last.
    pub fn good_configuration(&self) -> PathBuf {
        self.path.join("keepalived.good")
    }

    /// A configuration that is being checked.
    pub fn draft_configuration(&self) -> PathBuf {
        self.path.join("keepalived.conf.new")
    }

    /// The passwords that the plan names, by the names that it has for them.
    pub fn passwords(&self) -> PathBuf {
        self.path.join("passwords.json")
    }

    /// The plan that the configuration was made from.
    pub fn plan(&self) -> PathBuf {
        self.path.join("plan.json")
    }

    /// A list of [`Farewell`], one for each instance of the configuration.
    pub fn farewells(&self) -> PathBuf {
        self.path.join("farewells.json")
    }

    /// A set of [`OwnedAddress`]: all addresses that keepalived may have put on the node and that are not known
    /// to be gone. Written before a configuration with a new address is used.
    pub fn owned(&self) -> PathBuf {
        self.path.join("owned.json")
    }

    /// The process id of keepalived's parent process.
    pub fn pid_file(&self) -> PathBuf {
        self.path.join("keepalived.pid")
    }

    /// The process id of keepalived's VRRP process.
    pub fn vrrp_pid_file(&self) -> PathBuf {
        self.path.join("vrrp.pid")
    }

    /// The keeper's socket.
    pub fn socket(&self) -> PathBuf {
        self.path.join("keeper.sock")
    }

    /// The folder of the files that mute instances.
    pub fn track(&self) -> PathBuf {
        self.path.join("track")
    }

    /// Reads a file; `None` if it does not exist.
    pub fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Error> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::Read { path: path.to_owned(), source }),
        };
        let content = serde_json::from_slice(&text);
        content.map(Some).map_err(|source| Error::Content { path: path.to_owned(), source })
    }

    /// Replaces a file as a whole: no reader sees half of it, and only its owner can read it.
    pub fn write<T: Serialize>(path: &Path, content: &T) -> Result<(), Error> {
        Self::write_text(path, &json(path, content)?)
    }

    /// As [`Self::write`], for text of any form.
    pub fn write_text(path: &Path, text: &[u8]) -> Result<(), Error> {
        replace(path, text, true)
    }

    /// As [`Self::write`], for what is worth nothing after a restart of the node: it does not wait for the disk.
    pub fn write_for_now<T: Serialize>(path: &Path, content: &T) -> Result<(), Error> {
        replace(path, &json(path, content)?, false)
    }

    /// As [`Self::write_for_now`], for text of any form.
    pub fn write_text_for_now(path: &Path, text: &[u8]) -> Result<(), Error> {
        replace(path, text, false)
    }

    /// Removes the plan, the passwords and everything that has one in it.
    pub fn forget(&self) -> Result<(), Error> {
        let named = [
            self.passwords(),
            self.configuration(),
            self.good_configuration(),
            self.draft_configuration(),
            self.farewells(),
            self.plan(),
        ];
        let remove = |path: PathBuf| match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(Error::Write { path, source })
            }
            _ => Ok(()),
        };
        // A file that was being written when its writer was killed has a draft.
        named.into_iter().try_for_each(|path| {
            remove(path.with_extension(DRAFT))?;
            remove(path)
        })
    }

    /// The addresses that keepalived may have put on the node.
    pub fn read_owned(&self) -> Result<BTreeSet<OwnedAddress>, Error> {
        Ok(Self::read(&self.owned())?.unwrap_or_default())
    }
}

fn json<T: Serialize>(path: &Path, content: &T) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(content).map_err(|source| Error::Content { path: path.to_owned(), source })
}

fn replace(path: &Path, text: &[u8], is_lasting: bool) -> Result<(), Error> {
    let failed = |source| Error::Write { path: path.to_owned(), source };
    let draft = path.with_extension(DRAFT);
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&draft).map_err(failed)?;
    file.write_all(text).map_err(failed)?;
    if is_lasting {
        file.sync_all().map_err(failed)?;
    }
    fs::rename(&draft, path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_readable_by_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(dir.path());
        assert_eq!(run_dir.read_owned().unwrap(), BTreeSet::new());
        let owned = BTreeSet::from([OwnedAddress {
            address: "192.0.2.7".parse().unwrap(),
            interface: "eth0".to_owned(),
        }]);
        for _ in 0..2 {
            RunDir::write(&run_dir.owned(), &owned).unwrap();
            assert_eq!(run_dir.read_owned().unwrap(), owned);
        }
        let mode = fs::metadata(run_dir.owned()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn no_file_with_a_password_is_left_of_a_folder_that_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(dir.path());
        run_dir.forget().unwrap();
        for name in ["passwords.json", "passwords.draft", "keepalived.conf", "keepalived.conf.new"]
            .into_iter()
            .chain(["keepalived.conf.draft", "keepalived.draft", "keepalived.good"])
            .chain(["farewells.json", "farewells.draft", "plan.json", "plan.draft", "owned.json"])
        {
            fs::write(dir.path().join(name), "secret").unwrap();
        }
        run_dir.forget().unwrap();
        let left = fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["owned.json"]);
    }

    #[test]
    fn a_damaged_file_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(dir.path());
        fs::write(run_dir.owned(), "[{").unwrap();
        let error = run_dir.read_owned().unwrap_err().to_string();
        assert!(error.contains("owned.json"), "{error}");
    }
}
