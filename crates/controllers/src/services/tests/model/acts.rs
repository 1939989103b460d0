//! The acts of users, administrators and time in a random story, in a world so small that Services often
//! compete.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use landfall_ipam::{Family, Terms};
use proptest::{prelude::*, sample::select};

/// A fixed name of a Service, a pool, a namespace or a class.
pub(super) type Name = &'static str;

pub(super) const SERVICES: [Name; 7] =
    ["shop/a", "shop/b", "shop/c", "shop/d", "other/a", "other/b", "other/c"];
pub(super) const POOLS: [Name; 3] = ["IPGroup/a", "IPGroup/b", "IPGroup/c"];
/// A pool that is never created.
const NO_POOL: Name = "IPGroup/none";
pub(super) const NAMESPACES: [Name; 2] = ["shop", "other"];
/// A class that pools may serve.
const CLASS: Name = "known.example/lb";
/// A class that no pool ever serves.
const FOREIGN_CLASS: Name = "foreign.example/lb";
pub(super) const NODES: [Name; 2] = ["n1", "n2"];

/// The families of a Service, in its own order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stack {
    V4,
    V6,
    Prefer,
    PreferV6First,
    Require,
}

impl Stack {
    pub(super) fn families(self) -> Vec<Family> {
        match self {
            Self::V4 => vec![Family::V4],
            Self::V6 => vec![Family::V6],
            Self::Prefer | Self::Require => vec![Family::V4, Family::V6],
            Self::PreferV6First => vec![Family::V6, Family::V4],
        }
    }
}

/// Which Services a pool serves that do not name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// Those of its namespace, before any other pool.
    OfNamespace,
    Usual,
    /// Those that no other pool serves.
    Rest,
    OnRequest,
}

/// Which namespaces a pool names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Only(Name),
    AllBut(Name),
}

/// One field of a pool, as an administrator changes it.
#[derive(Clone, Debug)]
pub(super) enum PoolEdit {
    /// First and last address by their last number.
    V4(Option<(u8, u8)>),
    V6(Option<(u8, u8)>),
    Exclude(Vec<IpAddr>),
    AvoidEnds(bool),
    Priority(i32),
    AutoAssign(bool),
    Drain(bool),
    /// Only for namespaces with the label.
    SomeNamespaces(bool),
    /// Only for Services with the label.
    SomeServices(bool),
    Class(Option<Name>),
    /// For each namespace, and a different one for `shop`.
    Quota(Option<u32>, Option<u32>),
    /// Seconds.
    RetainFor(Option<i64>),
    Broken(bool),
    Rank(Rank),
    /// Whether pools of a later rank serve as a fallback.
    FallsBack(bool),
    Scope(Option<Scope>),
}

/// One act.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// Creates a Service, if it does not exist, with these terms.
    Create(Name, Option<Terms>),
    Delete(Name),
    /// Deletes a Service that another program's finalizer still holds.
    BeginDeletion(Name),
    /// Deletes and creates a Service before the operator sees either.
    Recreate(Name),
    /// Makes it a `LoadBalancer` or not.
    Type(Name, bool),
    Class(Name, Option<Name>),
    Stack(Name, Stack),
    /// Asks for these addresses, or for none in particular.
    Ask(Name, Vec<IpAddr>),
    /// Asks for these pools, or for none in particular.
    AskPools(Name, Vec<Name>),
    LabelService(Name, bool),
    Share(Name, Option<Terms>),
    LabelNamespace(Name, bool),
    /// Changes a pool, which is created if it does not exist.
    EditPool(Name, PoolEdit),
    DeletePool(Name),
    Reserve {
        addr: IpAddr,
        namespace: Name,
        /// A Service of the namespace.
        name: Option<Name>,
        /// Seconds from now.
        ends_in: Option<i64>,
    },
    /// Deletes an unused reservation.
    Unreserve(IpAddr),
    /// A node has these addresses; without any it is gone.
    Node(Name, Vec<IpAddr>),
    PassTime(i64),
    /// The operator dies and is started again.
    Restart,
}

impl Act {
    /// The Service that its owner changes.
    pub(super) const fn edits(&self) -> Option<Name> {
        match self {
            Self::Type(name, _)
            | Self::Class(name, _)
            | Self::Stack(name, _)
            | Self::Ask(name, _)
            | Self::AskPools(name, _)
            | Self::LabelService(name, _)
            | Self::Share(name, _) => Some(*name),
            Self::Create(..)
            | Self::Delete(_)
            | Self::BeginDeletion(_)
            | Self::Recreate(_)
            | Self::LabelNamespace(..)
            | Self::EditPool(..)
            | Self::DeletePool(_)
            | Self::Reserve { .. }
            | Self::Unreserve(_)
            | Self::Node(..)
            | Self::PassTime(_)
            | Self::Restart => None,
        }
    }
}

pub(super) fn v4(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

pub(super) fn v6(last: u8) -> IpAddr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()).into()
}

/// Last numbers of the addresses that pools may cover.
const LAST_V4: u8 = 7;
const LAST_V6: u8 = 3;

/// Every address of the story, and one of each family that no pool ever covers.
pub(super) fn addresses() -> Vec<IpAddr> {
    (0..=LAST_V4 + 1).map(v4).chain((0..=LAST_V6 + 1).map(v6)).collect()
}

fn service() -> impl Strategy<Value = Name> {
    select(&SERVICES[..])
}

fn pool() -> impl Strategy<Value = Name> {
    select(&POOLS[..])
}

fn addr() -> impl Strategy<Value = IpAddr> {
    select(addresses())
}

fn range(last: u8) -> impl Strategy<Value = Option<(u8, u8)>> {
    let some = (0..=last, 0..4_u8).prop_map(move |(first, more)| (first, last.min(first + more)));
    prop::option::weighted(0.9, some)
}

fn stack() -> impl Strategy<Value = Stack> {
    prop_oneof![
        4 => Just(Stack::V4),
        1 => Just(Stack::V6),
        2 => Just(Stack::Prefer),
        1 => Just(Stack::PreferV6First),
        2 => Just(Stack::Require),
    ]
}

fn terms() -> impl Strategy<Value = Option<Terms>> {
    let ports = vec!["TCP/80", "TCP/443", "TCP/53", "UDP/53", "UDP/80", "UDP/443"];
    let ports = prop_oneof![3 => Just(1), 1 => Just(2)]
        .prop_flat_map(move |count| prop::sample::subsequence(ports.clone(), count));
    let key = prop_oneof![6 => Just("a"), 1 => Just("b")];
    let with = prop_oneof![3 => Just(vec![]), 5 => Just(vec!["*"]), 1 => Just(vec!["shop"]), 1 => Just(vec!["other"])];
    let local = prop::bool::weighted(0.1);
    let selector = prop::option::of(select(&["app=x", "app=y"][..]));
    let owned =
        |words: Vec<&str>| -> Vec<String> { words.into_iter().map(str::to_owned).collect() };
    let some =
        (key, with, ports, local, selector).prop_map(move |(key, with, ports, local, selector)| {
            Terms {
                key: Some(key.to_owned()),
                with: owned(with),
                ports: owned(ports),
                local,
                selector: selector.map(str::to_owned),
                other_pods: false,
            }
        });
    prop::option::weighted(0.8, some)
}

fn pool_edit() -> impl Strategy<Value = PoolEdit> {
    let few = |max: u32| prop::option::weighted(0.3, 0..=max);
    let rank = prop_oneof![
        2 => Just(Rank::OfNamespace),
        4 => Just(Rank::Usual),
        3 => Just(Rank::Rest),
        1 => Just(Rank::OnRequest),
    ];
    let scope = (select(&NAMESPACES[..]), prop::bool::weighted(0.7))
        .prop_map(|(name, only)| if only { Scope::Only(name) } else { Scope::AllBut(name) });
    prop_oneof![
        4 => range(LAST_V4).prop_map(PoolEdit::V4),
        3 => range(LAST_V6).prop_map(PoolEdit::V6),
        2 => prop::collection::vec(addr(), 0..3).prop_map(PoolEdit::Exclude),
        1 => any::<bool>().prop_map(PoolEdit::AvoidEnds),
        2 => select(&[50, 100, 150][..]).prop_map(PoolEdit::Priority),
        1 => prop::bool::weighted(0.8).prop_map(PoolEdit::AutoAssign),
        1 => prop::bool::weighted(0.15).prop_map(PoolEdit::Drain),
        1 => prop::bool::weighted(0.25).prop_map(PoolEdit::SomeNamespaces),
        1 => prop::bool::weighted(0.25).prop_map(PoolEdit::SomeServices),
        1 => prop::option::weighted(0.2, Just(CLASS)).prop_map(PoolEdit::Class),
        2 => (few(3), few(3)).prop_map(|(each, shop)| PoolEdit::Quota(each, shop)),
        2 => prop::option::of(select(&[3, 31][..])).prop_map(PoolEdit::RetainFor),
        1 => prop::bool::weighted(0.2).prop_map(PoolEdit::Broken),
        2 => rank.prop_map(PoolEdit::Rank),
        1 => any::<bool>().prop_map(PoolEdit::FallsBack),
        1 => prop::option::weighted(0.4, scope).prop_map(PoolEdit::Scope),
    ]
}

/// Any act.
///
/// Steps take an even number of seconds, and whatever expires does so at an odd one, so that nothing expires
/// at the very moment of an act.
pub(super) fn any_act() -> impl Strategy<Value = Act> {
    let asked = prop_oneof![
        2 => Just(vec![]),
        4 => (0..=LAST_V4).prop_map(|last| vec![v4(last)]),
        1 => addr().prop_map(|addr| vec![addr]),
        2 => (0..=LAST_V4, 0..=LAST_V6).prop_map(|(four, six)| vec![v4(four), v6(six)]),
        1 => prop::collection::vec(addr(), 2),
    ];
    let pools = vec![POOLS[0], POOLS[1], POOLS[2], NO_POOL];
    let pools = prop::sample::subsequence(pools, 0..=2).prop_shuffle();
    let class =
        prop_oneof![6 => Just(None), 2 => Just(Some(CLASS)), 1 => Just(Some(FOREIGN_CLASS))];
    let reserve = (
        addr(),
        select(&SERVICES[..]),
        prop::bool::weighted(0.6),
        prop::option::of(select(&[5, 25][..])),
    );
    let services = prop_oneof![
        12 => (service(), prop_oneof![1 => Just(None), 2 => terms()])
            .prop_map(|(who, terms)| Act::Create(who, terms)),
        4 => service().prop_map(Act::Delete),
        1 => service().prop_map(Act::BeginDeletion),
        2 => service().prop_map(Act::Recreate),
        3 => (service(), prop::bool::weighted(0.7)).prop_map(|(who, on)| Act::Type(who, on)),
        2 => (service(), class).prop_map(|(who, class)| Act::Class(who, class)),
        5 => (service(), stack()).prop_map(|(who, stack)| Act::Stack(who, stack)),
        7 => (service(), asked).prop_map(|(who, asked)| Act::Ask(who, asked)),
        3 => (service(), pools).prop_map(|(who, pools)| Act::AskPools(who, pools)),
        2 => (service(), any::<bool>()).prop_map(|(who, on)| Act::LabelService(who, on)),
        7 => (service(), terms()).prop_map(|(who, terms)| Act::Share(who, terms)),
    ];
    let around = prop_oneof![
        2 => (select(&NAMESPACES[..]), any::<bool>())
            .prop_map(|(namespace, on)| Act::LabelNamespace(namespace, on)),
        12 => (pool(), pool_edit()).prop_map(|(pool, edit)| Act::EditPool(pool, edit)),
        1 => pool().prop_map(Act::DeletePool),
        3 => reserve.prop_map(|(addr, service, by_name, ends_in)| {
            let (namespace, name) = service.split_once('/').expect("a namespace and a name");
            Act::Reserve { addr, namespace, name: by_name.then_some(name), ends_in }
        }),
        4 => addr().prop_map(Act::Unreserve),
        3 => (select(&NODES[..]), prop::collection::vec(addr(), 0..3))
            .prop_map(|(node, addrs)| Act::Node(node, addrs)),
        2 => select(&[2, 10, 40][..]).prop_map(Act::PassTime),
        2 => Just(Act::Restart),
    ];
    prop_oneof![48 => services, 29 => around]
}
