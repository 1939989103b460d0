//! The objects on the API server: Services, claims, and the judgements that need nothing else.

/// An address; there are two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Addr {
    Low,
    High,
}

impl Addr {
    pub(crate) const ALL: [Self; 2] = [Self::Low, Self::High];
}

/// The name of a Service; there are two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Name {
    Red,
    Blue,
}

impl Name {
    pub(crate) const ALL: [Self; 2] = [Self::Red, Self::Blue];

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Red => Self::Blue,
            Self::Blue => Self::Red,
        }
    }
}

/// A `resourceVersion`, or a uid, which is the version at which the object was created.
///
/// Only equality is ever asked, so versions are renumbered after each step, and all that cannot
/// equal anything any more are [`Version::PAST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Version(pub(crate) u8);

impl Version {
    pub(crate) const PAST: Self = Self(0);
    /// What a write makes. No step writes twice, so renumbering finds it unused each time.
    pub(crate) const FRESH: Self = Self(u8::MAX);
}

/// A Service, which may hold an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Service {
    pub(crate) version: Version,
    pub(crate) uid: Version,
    /// Whether its type is `LoadBalancer`.
    pub(crate) balanced: bool,
    pub(crate) request: Option<Addr>,
    /// Whether it would share an address with others that would as well.
    pub(crate) shares: bool,
    pub(crate) shows: Option<Addr>,
}

impl Service {
    /// One that was just created.
    pub(crate) const fn wanting(shares: bool) -> Self {
        Self {
            version: Version::FRESH,
            uid: Version::FRESH,
            balanced: true,
            request: None,
            shares,
            shows: None,
        }
    }
}

/// One holder in a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Entry {
    pub(crate) uid: Version,
    /// The version of the holder at which its wish was judged.
    pub(crate) seen: Version,
    /// Whether it agreed to share when it was entered.
    pub(crate) shares: bool,
}

impl Entry {
    pub(crate) const fn of(service: Service) -> Self {
        Self { uid: service.uid, seen: service.version, shares: service.shares }
    }

    pub(crate) fn is(self, service: Service) -> bool {
        self.uid == service.uid
    }
}

/// By name of the holder.
pub(crate) type Entries = [Option<Entry>; 2];

/// The object of an address. The address is its name, so there can be only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Claim {
    pub(crate) version: Version,
    pub(crate) uid: Version,
    pub(crate) entries: Entries,
}

impl Claim {
    pub(crate) fn created(entries: Entries) -> Self {
        Self { version: Version::FRESH, uid: Version::FRESH, entries }
    }

    pub(crate) fn updated(self, entries: Entries) -> Self {
        Self { version: Version::FRESH, entries, ..self }
    }

    /// The entry that names this very Service.
    pub(crate) fn entry(self, name: Name, service: Service) -> Option<Entry> {
        self.entries[name as usize].filter(|entry| entry.is(service))
    }

    pub(crate) fn without(self, name: Name) -> Entries {
        let mut entries = self.entries;
        entries[name as usize] = None;
        entries
    }

    /// Whether the Service may not be a holder beside the others. One whose terms are in the claim
    /// may, even if others came after it.
    pub(crate) fn clashes(self, name: Name, service: Service) -> bool {
        if self.entry(name, service).is_some_and(|entry| entry.shares == service.shares) {
            return false;
        }
        let other = self.entries[name.other() as usize];
        other.is_some_and(|other| !(other.shares && service.shares))
    }

    /// Whether a Service that has no part in it may be added.
    pub(crate) fn may_be_joined(self, name: Name, service: Service) -> bool {
        service.shares && !self.clashes(name, service)
    }

    /// Whether it names no Service but one that had this one's name before.
    pub(crate) fn left_by_namesake(self, name: Name, service: Service) -> bool {
        self.entries[name.other() as usize].is_none()
            && self.entries[name as usize].is_some_and(|entry| !entry.is(service))
    }
}

/// The one judgement that publishing and releasing share: whether an address that this Service does
/// not show may still become its own.
pub(crate) fn could_want(service: Service, name: Name, claim: Claim, addr: Addr) -> bool {
    let shows_another = service.shows.is_some_and(|shown| shown != addr);
    claim.entry(name, service).is_some()
        && service.balanced
        && (service.request == Some(addr) || !shows_another)
        && !claim.clashes(name, service)
}

/// Whether the holder that a claim names neither shows the address nor could want it.
pub(crate) fn is_unwanted(holder: Option<Service>, name: Name, claim: Claim, addr: Addr) -> bool {
    holder.filter(|service| service.balanced).is_none_or(|service| {
        service.shows != Some(addr) && !could_want(service, name, claim, addr)
    })
}

/// The versions of one object that an operator has yet to see, oldest first; the last is the present
/// one. `None` is an object that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Track<T>(pub(crate) Vec<Option<T>>);

impl<T: Copy> Track<T> {
    pub(crate) fn at(object: Option<T>) -> Self {
        Self(vec![object])
    }

    pub(crate) fn present(&self) -> Option<T> {
        self.0.last().copied().flatten()
    }

    pub(crate) fn write(&mut self, object: Option<T>) {
        self.0.push(object);
    }

    /// The position of the present version.
    pub(crate) fn end(&self) -> usize {
        self.0.len().saturating_sub(1)
    }
}
