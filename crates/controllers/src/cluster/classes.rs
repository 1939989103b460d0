//! Sets of `loadBalancerClass`es.

use std::{collections::BTreeSet, sync::Arc};

/// The classes of Services that a pool serves. Having no class counts as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes(Arc<BTreeSet<Option<Arc<str>>>>);

impl Classes {
    /// Only Services of this class, or only those without one.
    pub fn only(class: Option<&str>) -> Self {
        [class].into_iter().collect()
    }

    /// Whether Services of that class, or without one, are among them.
    pub fn include(&self, class: Option<&Arc<str>>) -> bool {
        self.0.iter().any(|one| one.as_ref() == class)
    }
}

/// Services without a class.
impl Default for Classes {
    fn default() -> Self {
        Self::only(None)
    }
}

impl<'a> FromIterator<Option<&'a str>> for Classes {
    fn from_iter<T: IntoIterator<Item = Option<&'a str>>>(classes: T) -> Self {
        let classes = classes.into_iter().map(|class| class.map(Arc::from));
        Self(Arc::new(classes.collect()))
    }
}
