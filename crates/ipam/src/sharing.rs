//! The terms on which several holders may share an address.

use alloc::{string::String, vec::Vec};

/// The consent and the needs of a holder on an address that it would share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Terms {
    /// Only holders with the same key share; without a key it shares with none.
    pub key: Option<String>,
    /// Namespaces besides its own that it shares with, or `*` for all.
    pub with: Vec<String>,
    /// Protocol and number of each port it uses, such as `TCP/443`.
    pub ports: Vec<String>,
    /// Whether traffic must stay on the node it arrives at.
    pub local: bool,
    /// The pods it selects, written the same way for the same selector.
    pub selector: Option<String>,
    /// Whether it agrees to share with holders that select other pods even though traffic stays on its node.
    pub other_pods: bool,
}

impl Terms {
    /// The same terms for all namespaces.
    #[must_use]
    pub fn with_all(&self) -> Self {
        Self { with: [String::from("*")].into(), ..self.clone() }
    }

    /// Whether it agrees to share with a namespace other than its own.
    fn names(&self, namespace: &str) -> bool {
        self.with.iter().any(|name| name == "*" || name == namespace)
    }
}

/// One of the holders that would share an address: its namespace, and its terms if it has any.
pub type Party<'a> = (&'a str, Option<&'a Terms>);

/// Why two holders may not share an address, told from the side of the newcomer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clash {
    /// The newcomer has no sharing key.
    NoKey,
    /// The other holder has no sharing key.
    OtherHasNoKey,
    /// Their keys differ.
    OtherKey,
    /// The newcomer does not name the other holder's namespace.
    NotNamed(String),
    /// The other holder does not name the newcomer's namespace.
    OtherDoesNotName(String),
    /// Both use this port.
    Port(String),
    /// One needs traffic to stay on the node it arrives at and the other does not: the address may be drawn
    /// to a node without pods of the first.
    Policy,
    /// Both need traffic to stay on the node it arrives at, and they are not known to select the same pods.
    Pods,
}

/// Why a newcomer may not share an address with another holder, or `None` if it may. Whichever of the two
/// comes second, there is a clash for both or for neither.
pub fn clash(newcomer: Party<'_>, other: Party<'_>) -> Option<Clash> {
    let ((here, mine), (there, theirs)) = (newcomer, other);
    let Some(mine) = mine.filter(|terms| terms.key.is_some()) else {
        return Some(Clash::NoKey);
    };
    let Some(theirs) = theirs.filter(|terms| terms.key.is_some()) else {
        return Some(Clash::OtherHasNoKey);
    };
    if mine.key != theirs.key {
        return Some(Clash::OtherKey);
    }
    if here != there && !mine.names(there) {
        return Some(Clash::NotNamed(there.into()));
    }
    if here != there && !theirs.names(here) {
        return Some(Clash::OtherDoesNotName(here.into()));
    }
    if let Some(port) = mine.ports.iter().find(|port| theirs.ports.contains(port)) {
        return Some(Clash::Port(port.clone()));
    }
    if mine.local != theirs.local {
        return Some(Clash::Policy);
    }
    let same_pods = here == there && mine.selector.is_some() && mine.selector == theirs.selector;
    let agreed = mine.other_pods && theirs.other_pods;
    (mine.local && !same_pods && !agreed).then_some(Clash::Pods)
}

#[cfg(test)]
mod tests {
    use alloc::{borrow::ToOwned, string::ToString, vec};

    use proptest::prelude::*;

    use super::*;

    fn terms(key: &str, with: &[&str], ports: &[&str]) -> Terms {
        Terms {
            key: Some(key.to_owned()),
            with: with.iter().map(ToString::to_string).collect(),
            ports: ports.iter().map(ToString::to_string).collect(),
            local: false,
            selector: Some("app=web".to_owned()),
            other_pods: false,
        }
    }

    #[test]
    fn both_sides_must_agree_and_stay_out_of_each_others_way() {
        let web = terms("k", &[], &["TCP/80"]);
        let local = |terms: &Terms| Terms { local: true, ..terms.clone() };
        let agreeing = |terms: &Terms| Terms { other_pods: true, ..terms.clone() };
        let elsewhere = |terms: &Terms| Terms { selector: Some("app=x".into()), ..terms.clone() };
        let anywhere = terms("k", &["*"], &["TCP/443"]);
        let named = terms("k", &["shop", "other"], &["TCP/443"]);
        let dns = terms("k", &[], &["UDP/53", "TCP/53"]);
        let no_pods = Terms { selector: None, ..terms("k", &[], &["TCP/443"]) };
        for (case, mine, (there, theirs), expected) in [
            ("disjoint ports", Some(&web), ("shop", Some(&dns)), None),
            ("no key", None, ("shop", Some(&dns)), Some(Clash::NoKey)),
            ("the other has no key", Some(&web), ("shop", None), Some(Clash::OtherHasNoKey)),
            (
                "another key",
                Some(&web),
                ("shop", Some(&terms("other", &[], &["TCP/443"]))),
                Some(Clash::OtherKey),
            ),
            (
                "the same port",
                Some(&dns),
                ("shop", Some(&terms("k", &[], &["TCP/80", "TCP/53"]))),
                Some(Clash::Port("TCP/53".to_owned())),
            ),
            (
                "the same number of another protocol",
                Some(&terms("k", &[], &["UDP/80"])),
                ("shop", Some(&web)),
                None,
            ),
            (
                "another namespace, not named",
                Some(&web),
                ("other", Some(&anywhere)),
                Some(Clash::NotNamed("other".to_owned())),
            ),
            (
                "named by one side only",
                Some(&named),
                ("other", Some(&web)),
                Some(Clash::OtherDoesNotName("shop".to_owned())),
            ),
            (
                "each names the other",
                Some(&named),
                ("other", Some(&terms("k", &["*"], &["TCP/80"]))),
                None,
            ),
            ("local, the same pods", Some(&local(&web)), ("shop", Some(&local(&dns))), None),
            (
                "local, other pods",
                Some(&local(&web)),
                ("shop", Some(&local(&elsewhere(&dns)))),
                Some(Clash::Pods),
            ),
            (
                "local, the same selector in another namespace",
                Some(&local(&named)),
                ("other", Some(&local(&terms("k", &["*"], &["TCP/80"])))),
                Some(Clash::Pods),
            ),
            (
                "local, other pods, and both agree to that",
                Some(&agreeing(&local(&web))),
                ("shop", Some(&agreeing(&local(&elsewhere(&dns))))),
                None,
            ),
            (
                "local, other pods, and one agrees to that",
                Some(&local(&web)),
                ("shop", Some(&agreeing(&local(&elsewhere(&dns))))),
                Some(Clash::Pods),
            ),
            ("only one is local", Some(&local(&web)), ("shop", Some(&dns)), Some(Clash::Policy)),
            ("not local, other pods", Some(&web), ("shop", Some(&elsewhere(&dns))), None),
            (
                "local, with unknown pods",
                Some(&Terms { local: true, ports: vec!["TCP/1".to_owned()], ..no_pods.clone() }),
                ("shop", Some(&local(&no_pods))),
                Some(Clash::Pods),
            ),
        ] {
            assert_eq!(clash(("shop", mine), (there, theirs)), expected, "{case}");
        }
    }

    fn any_terms() -> impl Strategy<Value = (&'static str, Option<Terms>)> {
        let word = |words: &'static [&'static str]| prop::sample::select(words);
        let words = |words: &'static [&'static str]| {
            prop::sample::subsequence(words, 0..=words.len())
                .prop_map(|list| list.into_iter().map(ToOwned::to_owned).collect::<Vec<_>>())
        };
        let some = (
            prop::option::of(word(&["a", "b"]).prop_map(ToOwned::to_owned)),
            words(&["*", "shop", "other"]),
            words(&["TCP/80", "UDP/80", "TCP/443"]),
            any::<bool>(),
            prop::option::of(word(&["x=1", "y=2"]).prop_map(ToOwned::to_owned)),
            any::<bool>(),
        )
            .prop_map(|(key, with, ports, local, selector, other_pods)| Terms {
                key,
                with,
                ports,
                local,
                selector,
                other_pods,
            });
        (word(&["shop", "other"]), prop::option::of(some))
    }

    proptest! {
        #[test]
        fn sharing_does_not_depend_on_the_order_of_the_two_holders(one in any_terms(), other in any_terms()) {
            let (one, other) = ((one.0, one.1.as_ref()), (other.0, other.1.as_ref()));
            prop_assert_eq!(clash(one, other).is_some(), clash(other, one).is_some());
        }
    }
}
