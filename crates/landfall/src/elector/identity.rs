//! A candidate's identity in the lease, and how it recognizes an earlier process of its own Pod.

use std::fs;
use std::process;

use jiff::Timestamp;

/// A candidate's name in the lease: unique to each process, and new after each restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    name: String,
    /// The prefix of the names of all processes of our Pod, if our Pod is known.
    pod: Option<String>,
}

impl Identity {
    /// The identity of this process. `pod_uid` must come from the Pod itself: host names, for example, are
    /// shared by the processes of a host, and those may well run at the same time.
    pub fn new(pod_uid: Option<&str>, wall: Timestamp) -> Self {
        let unique = unique(wall);
        let pod = pod_uid.filter(|uid| !uid.is_empty()).map(|uid| format!("{}_{uid}_", host()));
        let name = pod.as_ref().map_or_else(|| with_host(&unique), |pod| format!("{pod}{unique}"));
        Self { name, pod }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this holder is another process of our Pod.
    pub(super) fn shares_pod_with(&self, holder: &str) -> bool {
        holder != self.name && self.pod.as_ref().is_some_and(|pod| holder.starts_with(pod))
    }
}

/// A candidate that runs in no Pod.
impl From<&str> for Identity {
    fn from(name: &str) -> Self {
        Self { name: name.to_owned(), pod: None }
    }
}

/// A name for this process that no other process has, and that changes with a restart.
pub fn process_name(wall: Timestamp) -> String {
    with_host(&unique(wall))
}

/// The host name is for the reader; the rest makes it unique.
fn with_host(unique: &str) -> String {
    format!("{}_{unique}", host())
}

fn host() -> String {
    read("/proc/sys/kernel/hostname").unwrap_or_else(|| "landfall".to_owned())
}

fn unique(wall: Timestamp) -> String {
    read("/proc/sys/kernel/random/uuid")
        .unwrap_or_else(|| format!("{}-{}", process::id(), wall.as_nanosecond()))
}

fn read(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn identities_differ_between_starts() {
        for pod in [None, Some("5f0c")] {
            assert_ne!(Identity::new(pod, T), Identity::new(pod, T));
        }
    }

    #[test]
    fn only_processes_that_name_the_same_pod_share_it() {
        let of = |pod| Identity::new(pod, T);
        let mine = of(Some("5f0c"));
        for (case, holder, shares) in [
            ("the same pod", of(Some("5f0c")), true),
            ("another pod", of(Some("77aa")), false),
            ("a pod whose UID begins like ours", of(Some("5f0c1")), false),
            ("a process of this host without a pod", of(None), false),
            ("we ourselves", mine.clone(), false),
        ] {
            assert_eq!(mine.shares_pod_with(holder.name()), shares, "{case}");
        }
        for pod in [None, Some("")] {
            assert!(!of(pod).shares_pod_with(of(pod).name()), "no pod is shared: {pod:?}");
        }
    }
}
