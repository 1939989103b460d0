//! Whether a claim names a Service, and whether the Service may share it with the other holders.

use landfall_ipam::{Clash, clash};

use super::audience::Audience;
use crate::{
    cluster::service::Balancer,
    ledger::{Claim, HolderEntry, Tenure},
};

impl HolderEntry {
    /// Whether this names exactly that Service, not a later one with the same name.
    pub(crate) fn is(&self, service: &Balancer) -> bool {
        self.names(&service.key, &service.uid)
    }

    /// Whether it already shares the address with another holder in spite of the same clash.
    fn puts_up_with(&self, other: &Self, new: &Clash) -> bool {
        matches!(new, Clash::Policy | Clash::Pods)
            && clash(self.party(), other.party()).as_ref() == Some(new)
    }
}

impl Claim {
    /// The holder entry that names exactly this Service.
    pub(crate) fn holder(&self, service: &Balancer) -> Option<&HolderEntry> {
        self.services().iter().find(|holder| holder.is(service))
    }

    /// The other holder with which the Service may not share the address, and why. The claim records
    /// what was agreed: a holder that has not changed since may stay, whichever others joined.
    pub(crate) fn clash(&self, service: &Balancer) -> Option<(&HolderEntry, Clash)> {
        let own = self.holder(service);
        // A Service that shares because its namespace allows it keeps sharing even if that permission
        // is withdrawn.
        let by_map = || own.filter(|own| own.shares_by_map()).map(|_| &service.terms_by_map);
        let terms = service.terms.as_ref().or_else(by_map);
        // The same for one whose key meant sharing with every namespace.
        let with_all = own.filter(|own| service.meant_all && own.shares_with_all());
        let widened = terms.filter(|_| with_all.is_some()).map(|terms| terms.with_all().into());
        let terms = widened.as_ref().or(terms);
        if own.is_some_and(|own| own.terms.as_ref() == terms) {
            return None;
        }
        let newcomer = (service.key.namespace(), terms.map(AsRef::as_ref));
        let others = self.services().iter().filter(|holder| holder.key != service.key);
        let mut clashes =
            others.filter_map(|holder| Some((holder, clash(newcomer, holder.party())?)));
        clashes.find(|(holder, clash)| !own.is_some_and(|own| own.puts_up_with(holder, clash)))
    }

    /// The holder with which a Service shares the address though the terms in the claim clash: they
    /// came together under other rules.
    pub(crate) fn odd_company(&self, service: &Balancer) -> Option<(&HolderEntry, Clash)> {
        let own = self.holder(service)?;
        let mut others = self.services().iter().filter(|holder| holder.key != service.key);
        others.find_map(|holder| Some((holder, clash(own.party(), holder.party())?)))
    }

    /// Whether it names only earlier Services of this name, which cannot exist any more.
    pub(crate) fn left_by_namesake(&self, service: &Balancer) -> bool {
        let mut holders = self.services().iter();
        !self.services().is_empty()
            && holders.all(|holder| holder.key == service.key && !holder.is(service))
    }

    /// The holder of the address, for a refusal's text.
    pub(crate) fn described(&self, audience: Audience<'_>) -> String {
        if let Some(reservation) = self.waits_for() {
            return self.with_use(audience.reservation(reservation));
        }
        let is_readable = !matches!(self.tenure, Tenure::WithoutHolder(_));
        if self.services().is_empty() {
            return if is_readable && !audience.sees_all {
                "another holder".to_owned()
            } else {
                self.to_string()
            };
        }
        let mut names = Vec::new();
        for name in self.services().iter().map(|holder| audience.service(&holder.key)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(", ")
    }
}
