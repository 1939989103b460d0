//! The name of a group as Services and pools write it: `namespace/name`.

use core::{fmt, str::FromStr};

use crate::keys;

/// Longest name of an object whose name is a DNS subdomain.
const LONGEST_NAME: usize = 253;
/// Longest name of a namespace.
const LONGEST_NAMESPACE: usize = 63;

/// A group, by its namespace and name.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct GroupName {
    namespace: String,
    name: String,
}

/// Text that names no group.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0:?} is not the namespace/name of a KeepalivedGroup")]
pub struct GroupNameError(String);

impl GroupName {
    /// The namespace of the group.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name of the group in its namespace.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for GroupName {
    type Err = GroupNameError;

    fn from_str(text: &str) -> Result<Self, GroupNameError> {
        let parts = text.split_once('/').filter(|(namespace, name)| {
            is_label(namespace, LONGEST_NAMESPACE)
                && name.len() <= LONGEST_NAME
                && name.split('.').all(|part| is_label(part, LONGEST_NAME))
        });
        match parts {
            Some((namespace, name)) => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            None => Err(GroupNameError(keys::excerpt(text))),
        }
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

fn is_label(text: &str, longest: usize) -> bool {
    let inner = |letter: u8| matches!(letter, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=longest).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}
