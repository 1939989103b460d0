//! One claim, as read from an `IP` object, and the holders that it names.

use std::{fmt, net::IpAddr, sync::Arc};

use jiff::Timestamp;
use landfall_api::{HolderKind, Use, keys};
use landfall_ipam::{Party, PoolName, Terms};

use crate::object::{ObjectKey, Version};

/// An object that holds an address or may hold one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HolderRef {
    pub kind: HolderKind,
    pub key: ObjectKey,
}

impl HolderRef {
    pub(crate) fn service(key: &ObjectKey) -> Self {
        Self { kind: HolderKind::Service, key: key.clone() }
    }

    pub(crate) fn virtual_ip(key: &ObjectKey) -> Self {
        Self { kind: HolderKind::VirtualIp, key: key.clone() }
    }
}

impl fmt::Display for HolderRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}

/// One holder that a claim names. Lossless, because claims are always written whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HolderEntry {
    pub kind: HolderKind,
    pub key: ObjectKey,
    /// Missing in claims of the original operator.
    pub uid: Option<Arc<str>>,
    pub class: Option<Arc<str>>,
    /// The version of the holder that was judged when the claim was created or touched.
    pub seen: Option<Version>,
    /// The terms on which it has the address; others may join on terms that do not clash.
    pub terms: Option<Arc<Terms>>,
    /// The pools that it asked for when it took the address.
    pub asked_pools: Vec<PoolName>,
    /// The address that this one is to replace.
    pub replaces: Option<IpAddr>,
    /// Read from the label and annotation of the original operator, which served every class.
    pub legacy: bool,
}

impl HolderEntry {
    /// An entry with nothing but the object's kind and name.
    pub(crate) fn new(kind: HolderKind, key: ObjectKey) -> Self {
        Self {
            kind,
            key,
            uid: None,
            class: None,
            seen: None,
            terms: None,
            asked_pools: Vec::new(),
            replaces: None,
            legacy: false,
        }
    }

    pub(crate) fn holder(&self) -> HolderRef {
        HolderRef { kind: self.kind, key: self.key.clone() }
    }

    /// Whether this names the object with that uid, not a later one with the same name.
    pub(crate) fn names(&self, key: &ObjectKey, uid: &str) -> bool {
        self.key == *key && self.uid.as_deref().is_none_or(|named| named == uid)
    }

    /// Its namespace and terms, to compare with those of another holder.
    pub(crate) fn party(&self) -> Party<'_> {
        (self.key.namespace(), self.terms.as_deref())
    }

    /// Whether it shares the address because its namespace lets all its Services share.
    pub(crate) fn shares_by_map(&self) -> bool {
        let key = self.terms.as_ref().and_then(|terms| terms.key.as_deref());
        key == Some(keys::SHARING_KEY_BY_MAP)
    }

    /// Whether it shares the address with every namespace.
    pub(crate) fn shares_with_all(&self) -> bool {
        self.terms.as_ref().is_some_and(|terms| terms.with.iter().any(|name| name == "*"))
    }
}

/// Which holders a claim names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tenure {
    /// These; none while a reservation keeps the address.
    Held(Vec<HolderEntry>),
    /// Holders of a kind, a use, or a reservation for a kind that this version does not know, described
    /// for people. Such a claim counts as taken, is never judged and never touched.
    Other(String),
    /// No readable holder, though the claim takes an address. Never touched.
    WithoutHolder(String),
}

/// The object for which an address is reserved while it has no holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub kind: HolderKind,
    pub namespace: String,
    /// `None` for any object of the kind in the namespace.
    pub name: Option<String>,
    pub expires: Option<Timestamp>,
    /// Whether it was made when its holder was deleted, not by an administrator.
    pub retained: bool,
}

impl Reservation {
    /// The namespace, and the object's name if it is for one object.
    pub(crate) fn whom(&self) -> (String, Option<String>) {
        (self.namespace.clone(), self.name.clone())
    }

    fn is_for_service(&self, key: &ObjectKey) -> bool {
        self.kind == HolderKind::Service
            && self.namespace == key.namespace()
            && self.name.as_ref().is_none_or(|name| name == key.name())
    }
}

impl fmt::Display for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a reservation for ")?;
        match (self.kind, &self.name) {
            (HolderKind::Service | HolderKind::VirtualIp, name) => {
                write!(f, "{}/{}", self.namespace, name.as_deref().unwrap_or("*"))?;
            }
            (HolderKind::Namespace, _) => write!(f, "Namespace {}", self.namespace)?,
            (kind @ (HolderKind::Node | HolderKind::Pool), name) => {
                write!(f, "{kind} {}", name.as_deref().unwrap_or("*"))?;
            }
        }
        self.expires.map_or(Ok(()), |expires| write!(f, " until {expires}"))
    }
}

/// One `IP` object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub addr: IpAddr,
    pub uid: Arc<str>,
    pub version: Version,
    /// The use that the address is taken for; `None` if this version does not know the word.
    pub purpose: Option<Use>,
    pub pool: Option<PoolName>,
    pub reserved: Option<Reservation>,
    pub tenure: Tenure,
    /// The node that carries the address, as its status says.
    pub node: Option<Arc<str>>,
}

impl Claim {
    /// A claim that is not written yet.
    pub(crate) fn new(
        addr: IpAddr,
        purpose: Use,
        pool: Option<PoolName>,
        holder: HolderEntry,
    ) -> Self {
        Self {
            addr,
            uid: "".into(),
            version: Version::default(),
            purpose: Some(purpose),
            pool,
            reserved: None,
            tenure: Tenure::Held(vec![holder]),
            node: None,
        }
    }

    /// All holders that it names.
    pub(crate) fn holders(&self) -> &[HolderEntry] {
        match &self.tenure {
            Tenure::Held(holders) => holders,
            Tenure::Other(_) | Tenure::WithoutHolder(_) => &[],
        }
    }

    /// The Services that hold the address; none if the claim is not for Services.
    pub(crate) fn services(&self) -> &[HolderEntry] {
        if self.is_of_services() { self.holders() } else { &[] }
    }

    /// Whether this claim follows the rules of Services: it has no other kind of holder and no other
    /// use.
    pub(crate) fn is_of_services(&self) -> bool {
        !self.has_another_use()
            && self.holders().iter().all(|holder| holder.kind == HolderKind::Service)
    }

    /// Whether the address is taken for a use that no Service can make of it.
    pub(crate) const fn has_another_use(&self) -> bool {
        match self.purpose {
            Some(Use::LoadBalancer | Use::Reserved) => false,
            Some(Use::Egress | Use::Floating) | None => true,
        }
    }

    /// Whether it reserves its address for this Service. A claim with another use reserves it for none,
    /// whichever namespace it names: kind `Service` is only what a reservation without a kind says.
    pub(crate) fn is_reserved_for(&self, service: &ObjectKey) -> bool {
        let kept = self.reserved.as_ref().filter(|_| !self.has_another_use());
        kept.is_some_and(|kept| kept.is_for_service(service))
    }

    /// All its holders except this one.
    pub(crate) fn holders_without(&self, holder: &HolderEntry) -> Vec<HolderEntry> {
        self.holders().iter().filter(|other| *other != holder).cloned().collect()
    }

    /// The reservation that keeps the address, if it has no holder.
    pub(crate) fn waits_for(&self) -> Option<&Reservation> {
        let free = matches!(&self.tenure, Tenure::Held(holders) if holders.is_empty());
        self.reserved.as_ref().filter(|_| free)
    }

    /// A description of its reservation, with the use of the address if that is another one.
    pub(crate) fn with_use(&self, reservation: impl fmt::Display) -> String {
        match self.purpose.filter(|_| self.has_another_use()) {
            Some(purpose) => format!("{reservation} with use {}", purpose.as_str()),
            None => reservation.to_string(),
        }
    }

    /// The claim with other holders.
    pub(crate) fn held_by(&self, holders: Vec<HolderEntry>) -> Self {
        Self { tenure: Tenure::Held(holders), ..self.clone() }
    }
}

/// The holder of the address, for readers who may see all names.
impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.tenure, &self.reserved) {
            (Tenure::Other(text) | Tenure::WithoutHolder(text), _) => f.write_str(text),
            (Tenure::Held(holders), Some(reservation)) if holders.is_empty() => {
                f.write_str(&self.with_use(reservation))
            }
            (Tenure::Held(holders), _) if holders.is_empty() => match self.purpose {
                Some(Use::Reserved) => f.write_str("a reservation for no namespace"),
                Some(purpose @ (Use::LoadBalancer | Use::Egress | Use::Floating)) => {
                    write!(f, "an IP object for {} that names no holder", purpose.as_str())
                }
                None => f.write_str("an IP object that names no holder"),
            },
            (Tenure::Held(holders), _) => {
                let names: Vec<_> =
                    holders.iter().map(|entry| entry.holder().to_string()).collect();
                f.write_str(&names.join(", "))
            }
        }
    }
}
