//! The readers of messages about a Service, and the names they may see.

use landfall_ipam::Clash;

use crate::{
    ledger::{ForeignAddress, Reservation},
    object::ObjectKey,
};

/// The readers of messages about a Service: its namespace, which may not see the names in others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Audience<'a> {
    pub namespace: &'a str,
    pub sees_all: bool,
}

impl Audience<'_> {
    fn sees(self, namespace: &str) -> bool {
        self.sees_all || self.namespace == namespace
    }

    /// A Service by its name, if they may know it.
    pub(crate) fn service(self, key: &ObjectKey) -> String {
        if self.sees(key.namespace()) {
            format!("Service {key}")
        } else {
            "a Service of another namespace".to_owned()
        }
    }

    /// The same for an object outside the ledger that has an address.
    pub(crate) fn foreign_address(self, foreign_address: &ForeignAddress) -> String {
        match foreign_address {
            ForeignAddress::External(key, _) => {
                format!("{}, which has it in spec.externalIPs", self.service(key))
            }
            ForeignAddress::ClusterIp(key) => {
                format!("{}, whose ClusterIP it is", self.service(key))
            }
            ForeignAddress::VirtualIp(key) if !self.sees(key.namespace()) => {
                "a VirtualIP of another namespace".to_owned()
            }
            ForeignAddress::Node(_)
            | ForeignAddress::ApiServer(_)
            | ForeignAddress::VirtualIp(_) => foreign_address.to_string(),
        }
    }

    /// The same for a reservation.
    pub(crate) fn reservation(self, reservation: &Reservation) -> String {
        if self.sees(&reservation.namespace) {
            reservation.to_string()
        } else {
            "a reservation for another namespace".to_owned()
        }
    }

    /// The same for a clash.
    pub(crate) fn clash(self, clash: Clash) -> Clash {
        match &clash {
            Clash::NotNamed(namespace) if !self.sees(namespace) => {
                Clash::NotNamed("the holder's namespace".to_owned())
            }
            Clash::NoKey
            | Clash::OtherHasNoKey
            | Clash::OtherKey
            | Clash::NotNamed(_)
            | Clash::OtherDoesNotName(_)
            | Clash::Port(_)
            | Clash::Policy
            | Clash::Pods => clash,
        }
    }
}
