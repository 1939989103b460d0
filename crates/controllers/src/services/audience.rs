//! Who reads what is said about a Service, and which names they may see.

use landfall_ipam::Clash;

use crate::{
    ledger::{ForeignAddress, Reservation},
    object::ObjectKey,
};

/// Those who read what is said about a Service: its namespace, which may not be told who is in others.
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

    /// The same for whoever has an address outside the ledger.
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

    /// The same for whom an address is kept.
    pub(crate) fn reservation(self, reservation: &Reservation) -> String {
        if self.sees(&reservation.namespace) {
            reservation.to_string()
        } else {
            "a reservation for another namespace".to_owned()
        }
    }

    /// The same for why an address cannot be shared.
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
