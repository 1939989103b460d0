//! The keywords that groups and Services may set.

use super::keyword::{Keyword, Takes};

/// A hundred gratuitous ARPs for each of a thousand addresses is what a network may still bear.
const REPEATS: i64 = 100;
const HOUR: i64 = 3600;
const DAY: i64 = 86_400;

/// What a group may set, in `global_defs`.
///
/// Nothing that starts a program, names a file, changes a name that the agent relies on, or depends on the
/// node. `vrrp_strict` is not among them: it forbids unicast and passwords and drops all packets for the
/// addresses. Neither is `router_id`, which Landfall writes itself.
pub const OF_GROUPS: &[Keyword] = &[
    inert("script_user", Takes::Names(1, 2), "The user for scripts. Landfall runs none."),
    inert(
        "enable_script_security",
        Takes::Nothing,
        "Refuses scripts that others may change. Landfall runs none.",
    ),
    inert(
        "vrrp_iptables",
        Takes::Names(0, 2),
        "Chains for a firewall that nothing in Landfall's configuration uses.",
    ),
    inert("vrrp_ipsets", Takes::Names(0, 5), "Sets for the same firewall."),
    inert("nftables", Takes::Names(0, 1), "The table of the same firewall."),
    inert("nftables_priority", Takes::Whole(-10_000, 10_000), "The priority of its chains."),
    inert("nftables_counters", Takes::Nothing, "Adds counters to its rules."),
    inert("nftables_ifindex", Takes::Nothing, "Lets its rules name devices by number."),
    keyword(
        "vrrp_garp_master_delay",
        Takes::Whole(0, HOUR),
        "Seconds until a new holder announces its addresses a second time.",
    ),
    keyword(
        "vrrp_garp_master_repeat",
        Takes::Whole(1, REPEATS),
        "How often a new holder announces each address at once.",
    ),
    keyword(
        "vrrp_garp_lower_prio_delay",
        Takes::Whole(0, HOUR),
        "Seconds until a holder that heard a lower priority announces its addresses a second time.",
    ),
    keyword(
        "vrrp_garp_lower_prio_repeat",
        Takes::Whole(0, REPEATS),
        "How often a holder that heard a lower priority announces each address.",
    ),
    keyword(
        "vrrp_garp_master_refresh",
        Takes::Whole(0, DAY),
        "Seconds after which a holder announces its addresses again; 0 for never.",
    ),
    keyword(
        "vrrp_garp_master_refresh_repeat",
        Takes::Whole(1, REPEATS),
        "How often it then announces each of them.",
    ),
    keyword(
        "vrrp_garp_interval",
        Takes::Seconds(1, 1_000_000),
        "Pause between two gratuitous ARPs of a device.",
    ),
    keyword("vrrp_gna_interval", Takes::Seconds(1, 1_000_000), "The same for IPv6."),
    keyword(
        "vrrp_min_garp",
        Takes::Switch,
        "A new holder announces each address once and not again.",
    ),
    keyword(
        "vrrp_garp_extra_if",
        Takes::AllAndWhole(1, DAY),
        "Seconds between announcements on devices other than that of the instance.",
    ),
    keyword(
        "vrrp_lower_prio_no_advert",
        Takes::Switch,
        "A holder does not answer adverts of a lower priority.",
    ),
    keyword(
        "vrrp_higher_prio_send_advert",
        Takes::Switch,
        "A holder that hears a higher priority sends one last advert.",
    ),
    keyword(
        "vrrp_skip_check_adv_addr",
        Takes::Switch,
        "Looks at the addresses in an advert only when its sender is new.",
    ),
    keyword("vrrp_check_unicast_src", Takes::Switch, "Takes unicast adverts from peers only."),
    old(
        "vrrp_version",
        Takes::Whole(2, 3),
        "The version of VRRP for IPv4. Groups with `spec.vrrp` use version 3.",
    ),
    keyword(
        "vrrp_mcast_group4",
        Takes::Multicast4,
        "The group to which IPv4 adverts are sent, for instance to keep two clusters on one network apart.",
    ),
    keyword("vrrp_mcast_group6", Takes::Multicast6, "The same for IPv6."),
    keyword(
        "vrrp_down_timer_adverts",
        Takes::Whole(1, 100),
        "How many adverts must be missing before a node takes over.",
    ),
    keyword(
        "vrrp_startup_delay",
        Takes::Seconds(1_000, 600_000_000),
        "Pause between the start of keepalived and that of its instances.",
    ),
    keyword(
        "log_unknown_vrids",
        Takes::Nothing,
        "Logs adverts of router IDs that are not configured.",
    ),
    keyword(
        "dynamic_interfaces",
        Takes::MaybeWord("allow_if_changes"),
        "A device that is missing stops only its own instances.",
    ),
    keyword(
        "max_auto_priority",
        Takes::MaybeWhole(-1, 99),
        "How far keepalived may raise its own scheduling priority.",
    ),
    keyword(
        "min_auto_priority_delay",
        Takes::Whole(1, 10_000_000),
        "Microseconds that a timer must be late before it does.",
    ),
    keyword("vrrp_priority", Takes::Whole(-20, 19), "The nice value of the process."),
    keyword("vrrp_no_swap", Takes::Nothing, "Keeps the process in memory."),
    keyword("vrrp_rt_priority", Takes::Whole(1, 99), "Real-time scheduling at this priority."),
    keyword(
        "vrrp_rlimit_rttime",
        Takes::Whole(10_000, 10_000_000),
        "Microseconds that it may then run without a pause.",
    ),
    keyword(
        "vrrp_netlink_cmd_rcv_bufs",
        Takes::Whole(1, 1 << 30),
        "Bytes of the receive buffer for answers to netlink commands.",
    ),
    keyword("vrrp_netlink_cmd_rcv_bufs_force", Takes::Switch, "Lets it exceed the system's limit."),
    keyword(
        "vrrp_netlink_monitor_rcv_bufs",
        Takes::Whole(1, 1 << 30),
        "Bytes of the receive buffer for netlink notifications.",
    ),
    keyword(
        "vrrp_netlink_monitor_rcv_bufs_force",
        Takes::Switch,
        "Lets it exceed the system's limit.",
    ),
    keyword(
        "vrrp_rx_bufs_policy",
        Takes::Word(&["MTU", "ADVERT"]),
        "The unit in which receive buffers of sockets are measured: the MTU, or the size of an advert.",
    ),
    keyword(
        "vrrp_rx_bufs_multiplier",
        Takes::Whole(1, 1000),
        "Size of the receive buffers as a multiple of it.",
    ),
];

/// What a Service may set, in its own instances.
///
/// A tenant writes it, so there is only what concerns its own addresses and what those that ran before us were
/// seen with. `advert_int` ends at 40, although version 2 takes 255: keepalived warns about more where the
/// instance turns out to be one of version 3, and a file with a warning is not loaded, so that one Service
/// would keep back those of all others.
pub const OF_SERVICES: &[Keyword] = &[
    old(
        "advert_int",
        Takes::Whole(1, 40),
        "Seconds between two adverts of its instances. In groups with `spec.vrrp` that of the group applies.",
    ),
    keyword(
        "track_src_ip",
        Takes::Nothing,
        "Its instances stop on a node that has lost the address it sends adverts from.",
    ),
];

const fn keyword(name: &'static str, takes: Takes, meaning: &'static str) -> Keyword {
    Keyword { name, takes, meaning, inert: false, old_layout_only: false }
}

const fn inert(name: &'static str, takes: Takes, meaning: &'static str) -> Keyword {
    Keyword { inert: true, ..keyword(name, takes, meaning) }
}

const fn old(name: &'static str, takes: Takes, meaning: &'static str) -> Keyword {
    Keyword { old_layout_only: true, ..keyword(name, takes, meaning) }
}
