//! The page of metrics, in the text format of Prometheus.
//!
//! Dashboards know keepalived's counters by names without `_total`, which no library for the newer
//! `OpenMetrics` format would write. Hence this page is written by hand, in the older format.

use std::fmt::Write as _;

use super::view::{Health, View};
use crate::call::{Counters, InstanceReport, State};

/// A metric with its kind and its help text.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    pub name: &'static str,
    pub kind: &'static str,
    pub help: &'static str,
}

const fn counter(name: &'static str, help: &'static str) -> Description {
    Description { name, kind: "counter", help }
}

const fn gauge(name: &'static str, help: &'static str) -> Description {
    Description { name, kind: "gauge", help }
}

const UP: Description = gauge("keepalived_up", "Whether keepalived runs");
const GENERATION: Description =
    gauge("landfall_agent_generation", "Generation of the plan that keepalived runs");
const RELOADS: Description =
    counter("landfall_agent_reloads_total", "Configurations that keepalived was given");
const RELOAD_FAILURES: Description = counter(
    "landfall_agent_reload_failures_total",
    "Configurations that keepalived refused or did not run as planned",
);
const GOODBYES: Description = counter(
    "landfall_agent_goodbyes_total",
    "Adverts by which the agent gave up addresses for a keepalived that died",
);
const SWEPT: Description = counter(
    "landfall_agent_swept_total",
    "Addresses that the agent took off the node in keepalived's place",
);
const STATE: Description = gauge(
    "landfall_agent_state",
    "State of an instance: 0 has not begun, 1 waits, 2 holds the addresses, 3 cannot hold them",
);
const TRANSITIONS: Description =
    counter("landfall_agent_transitions_total", "Changes of state of an instance");
const DOUBLED: Description = gauge(
    "landfall_agent_duplicate_master",
    "Whether another node sends adverts for an instance while this node holds its addresses",
);
const TIMES_DOUBLED: Description = counter(
    "landfall_agent_duplicate_masters_total",
    "How often another node was found to send adverts while this node held the addresses",
);

/// Reads one of keepalived's counters.
type Read = fn(&Counters) -> u64;

/// keepalived's counters, by names that dashboards know.
const COUNTERS: [(Description, Read); 14] = [
    (counter("keepalived_vrrp_advert_rcvd", "Adverts received"), |it| it.advert_rcvd),
    (counter("keepalived_vrrp_advert_sent", "Adverts sent"), |it| it.advert_sent),
    (counter("keepalived_vrrp_become_master", "Times it took the addresses"), |it| {
        it.become_master
    }),
    (counter("keepalived_vrrp_release_master", "Times it gave the addresses up"), |it| {
        it.release_master
    }),
    (counter("keepalived_vrrp_packet_len_err", "Adverts of a wrong length"), |it| {
        it.packet_len_err
    }),
    (counter("keepalived_vrrp_advert_interval_err", "Adverts with another interval"), |it| {
        it.advert_interval_err
    }),
    (counter("keepalived_vrrp_ip_ttl_err", "Adverts that came through a router"), |it| {
        it.ip_ttl_err
    }),
    (counter("keepalived_vrrp_invalid_type_rcvd", "Packets that are no adverts"), |it| {
        it.invalid_type_rcvd
    }),
    (counter("keepalived_vrrp_addr_list_err", "Adverts with other addresses"), |it| {
        it.addr_list_err
    }),
    (
        counter("keepalived_vrrp_invalid_authtype", "Adverts with an unknown kind of password"),
        |it| it.invalid_authtype,
    ),
    (counter("keepalived_vrrp_authtype_mismatch", "Adverts with another kind of password"), |it| {
        it.authtype_mismatch
    }),
    (counter("keepalived_vrrp_auth_failure", "Adverts with a wrong password"), |it| {
        it.auth_failure
    }),
    (counter("keepalived_vrrp_pri_zero_rcvd", "Adverts by which a holder gave up"), |it| {
        it.pri_zero_rcvd
    }),
    (counter("keepalived_vrrp_pri_zero_sent", "Adverts by which this node gave up"), |it| {
        it.pri_zero_sent
    }),
];

/// All metrics of the page, in its order.
pub fn descriptions() -> impl Iterator<Item = Description> {
    let ours = [
        UP,
        GENERATION,
        RELOADS,
        RELOAD_FAILURES,
        GOODBYES,
        SWEPT,
        STATE,
        TRANSITIONS,
        DOUBLED,
        TIMES_DOUBLED,
    ];
    ours.into_iter().chain(COUNTERS.map(|(description, _)| description))
}

pub(super) fn page(view: &View) -> String {
    let mut page = Page::default();
    let runs = view.keepalived == Health::Runs;
    page.one(UP, u64::from(runs));
    page.begin(GENERATION);
    if let Some(running) = &view.running {
        page.sample(GENERATION, &[], running.plan.generation);
    }
    page.one(RELOADS, view.reloads);
    page.one(RELOAD_FAILURES, view.reload_failures);
    page.one(GOODBYES, view.counts.goodbyes);
    page.one(SWEPT, view.counts.swept);
    // A keepalived that does not run has no states.
    let instances = if runs { view.instances.as_slice() } else { &[] };
    page.begin(STATE);
    for (report, _) in instances {
        page.sample(STATE, &identity(report), number(report.state));
    }
    page.begin(TRANSITIONS);
    for (report, past) in instances {
        page.sample(TRANSITIONS, &identity(report), past.transitions);
    }
    page.begin(DOUBLED);
    for (report, past) in instances {
        page.sample(DOUBLED, &identity(report), u64::from(past.is_doubled));
    }
    page.begin(TIMES_DOUBLED);
    for (report, past) in instances {
        page.sample(TIMES_DOUBLED, &identity(report), past.times_doubled);
    }
    for (description, read) in COUNTERS {
        page.begin(description);
        for (report, _) in instances {
            let [name, intf, vrid] = identity(report);
            let labels = [name, intf, vrid, ("state", state_name(report.state).to_owned())];
            page.sample(description, &labels, read(&report.counters));
        }
    }
    page.text
}

fn identity(report: &InstanceReport) -> [(&'static str, String); 3] {
    [
        ("name", report.name.clone()),
        ("intf", report.interface.clone()),
        ("vrid", report.router_id.to_string()),
    ]
}

fn state_name(state: State) -> &'static str {
    match state {
        State::Init => "INIT",
        State::Backup => "BACKUP",
        State::Master => "MASTER",
        State::Fault => "FAULT",
    }
}

fn number(state: State) -> u8 {
    match state {
        State::Init => 0,
        State::Backup => 1,
        State::Master => 2,
        State::Fault => 3,
    }
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn begin(&mut self, description: Description) {
        let Description { name, kind, help } = description;
        self.line(format_args!("# HELP {name} {help}."));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn one(&mut self, description: Description, value: u64) {
        self.begin(description);
        self.sample(description, &[], value);
    }

    fn sample(
        &mut self,
        description: Description,
        labels: &[(&str, String)],
        value: impl std::fmt::Display,
    ) {
        let labels: Vec<_> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let name = description.name;
        if labels.is_empty() {
            self.line(format_args!("{name} {value}"));
        } else {
            self.line(format_args!("{name}{{{}}} {value}", labels.join(",")));
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        writeln!(self.text, "{line}").ok();
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests;
