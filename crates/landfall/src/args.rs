//! The command line; every flag also has a `LANDFALL_…` variable.

mod agent;
mod original;

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use landfall_api::kube_vip::go_bool;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

pub use agent::{Agent, AgentProbe, Session};
pub use original::{Ignored, Original};

use crate::elector::LEASE_NAME;

/// One operator that gives out, announces and moves the IP addresses of a cluster.
#[derive(Debug, Parser)]
#[command(name = "landfall", version, about)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// The options of every verb.
#[derive(Args, Debug)]
pub struct Global {
    /// Kubeconfig to use; else KUBECONFIG, else the service account of the pod
    #[arg(long, global = true, env = "LANDFALL_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// How to write the log
    #[arg(
        long,
        alias = "logging-format",
        global = true,
        env = "LANDFALL_LOG_FORMAT",
        default_value = "text"
    )]
    pub log_format: LogFormat,

    /// How much to log: a level, or a filter such as `info,landfall=debug`
    #[arg(
        long,
        global = true,
        env = "LANDFALL_LOG_LEVEL",
        default_value = "info",
        value_parser = log_filter
    )]
    pub log_level: String,
}

/// Lines for people, or objects for collectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the operator: allocate addresses until told to stop
    Operator(Box<Operator>),
    /// Run the agent on a node: hold the addresses of a `KeepalivedGroup` there until told to stop
    Agent(Agent),
    /// Ask whether the agent with a folder is alive, as the liveness probe of its container does
    AgentProbe(AgentProbe),
    /// Carry out the plan of a `KeepalivedGroup` on a node, as a part of its agent
    #[command(hide = true)]
    AgentWorker(Agent),
    /// Become another program in a session of its own, as the agent starts its parts
    #[command(hide = true)]
    AgentSession(Session),
}

/// The operator's own flags.
#[derive(Args, Debug)]
pub struct Operator {
    /// Where to serve /healthz, /readyz and /metrics; port 0 takes a free one and logs it
    #[arg(
        long,
        env = "LANDFALL_ADMIN_ADDR",
        value_name = "ADDR",
        default_value_t = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 8080))
    )]
    pub admin_addr: SocketAddr,

    /// Act only while holding the lease, so that one of several operators acts
    #[arg(
        long,
        env = "LANDFALL_LEADER_ELECT",
        value_name = "BOOL",
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        value_parser = boolean,
        action = ArgAction::Set
    )]
    pub leader_elect: bool,

    /// Name of the lease, the same for all operators of a cluster
    #[arg(
        long,
        alias = "leader-elect-resource-name",
        env = "LANDFALL_LEASE_NAME",
        value_name = "NAME",
        default_value = LEASE_NAME
    )]
    pub lease_name: String,

    /// Namespace of the lease, the same for all operators of a cluster; else that of the
    /// kubeconfig's context or the pod, else `landfall-system`
    #[arg(
        long,
        alias = "leader-elect-resource-namespace",
        env = "LANDFALL_NAMESPACE",
        value_name = "NAME"
    )]
    pub namespace: Option<String>,

    /// UID of the Pod that this process runs in, as the downward API gives it; then a restarted
    /// container leads at once where the one before it led
    #[arg(long, env = "LANDFALL_POD_UID", value_name = "UID")]
    pub pod_uid: Option<String>,

    /// Controllers to run
    #[arg(
        long,
        env = "LANDFALL_CONTROLLERS",
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "services,migration,keepalived"
    )]
    pub controllers: Vec<Controller>,

    /// Image with landfall and keepalived in it, for the pods of `KeepalivedGroup`s
    #[arg(
        long,
        env = "LANDFALL_AGENT_IMAGE",
        value_name = "IMAGE",
        default_value = "landfall-agent:latest"
    )]
    pub agent_image: String,

    /// How long a claim waits for a Service or `VirtualIP` that was not there when the operator
    /// started, such as `90s` or `5m`: a restore may bring claims before their holders
    #[arg(
        long,
        env = "LANDFALL_ORPHAN_GRACE",
        value_name = "TIME",
        default_value = "5m",
        value_parser = duration
    )]
    pub orphan_grace: Duration,

    /// How to treat inconsistencies between ledger and Services: report and fix them, or only report
    /// them
    #[arg(long, env = "LANDFALL_REPAIR", value_name = "MODE", default_value = "fix")]
    pub repair: Repair,

    /// How often each watch is compared with a live list, to find one that misses events
    #[arg(
        long,
        env = "LANDFALL_WATCH_CHECK_INTERVAL",
        value_name = "TIME",
        default_value = "10m",
        value_parser = duration
    )]
    pub watch_check_interval: Duration,

    /// Namespace of the `ConfigMap` with kube-vip's pools; else `KUBEVIP_NAMESPACE`, else
    /// `kube-system`
    #[arg(long, env = "LANDFALL_KUBE_VIP_NAMESPACE", value_name = "NAME")]
    pub kube_vip_namespace: Option<String>,

    /// Name of that `ConfigMap`; else `KUBEVIP_CONFIG_MAP`, else `kubevip`
    #[arg(long, env = "LANDFALL_KUBE_VIP_CONFIG_MAP", value_name = "NAME")]
    pub kube_vip_config_map: Option<String>,

    /// Classes of the Services that get addresses from it, an empty one for those without a class,
    /// such as `,example.com/vip` for both; else `KUBEVIP_CUSTOM_LOADBALANCERCLASS_NAME` if
    /// `KUBEVIP_ENABLE_LOADBALANCERCLASS` is true, else those without a class
    #[arg(long, env = "LANDFALL_KUBE_VIP_CLASS", value_name = "CLASSES", value_delimiter = ',')]
    pub kube_vip_class: Option<Vec<String>>,

    /// Which addresses those Services may ask for: any that has no holder, or only those that a pool
    /// can give them
    #[arg(long, env = "LANDFALL_KUBE_VIP_REQUESTS", value_name = "WHICH", default_value = "any")]
    pub kube_vip_requests: Requests,

    /// Do not tell Services the names of holders in other namespaces
    #[arg(
        long,
        env = "LANDFALL_HIDE_HOLDERS",
        value_name = "BOOL",
        default_value_t = false,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        value_parser = boolean,
        action = ArgAction::Set
    )]
    pub hide_holders: bool,

    /// With which Services a Service shares by the sharing key of another program that had no other
    /// word for it, such as `metallb.io/allow-shared-ip`
    #[arg(
        long,
        env = "LANDFALL_INHERITED_SHARING",
        value_name = "WITH",
        default_value = "own-namespace"
    )]
    pub inherited_sharing: InheritedSharing,

    #[command(flatten)]
    pub original: Original,
}

/// With which Services those share that have a sharing key of another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InheritedSharing {
    /// With Services of their own namespace, and with those that they share an address with already.
    OwnNamespace,
    /// With Services of every namespace, as the other program did.
    EveryNamespace,
}

/// Addresses that may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Requests {
    /// Any that has no holder: kube-vip announces it.
    Any,
    /// Those that a pool can give to the Service that asks.
    FromPools,
}

/// The treatment of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Repair {
    /// Report them, then fix them.
    // The word of the first versions.
    #[value(alias = "mend")]
    Fix,
    /// Report them, and leave alone the objects concerned.
    Report,
}

/// Accepts what `retainFor` of a pool does.
fn duration(text: &str) -> Result<Duration, String> {
    landfall_api::hours_minutes_seconds(text)
        .ok_or_else(|| format!("`{text}` is not a time such as 1h30m or 45s"))
}

/// Accepts what Go does.
fn boolean(text: &str) -> Result<bool, String> {
    go_bool(text).ok_or_else(|| format!("`{text}` is neither `true` nor `false`"))
}

/// The parts of the operator that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Controller {
    /// Addresses for Services of type `LoadBalancer`.
    // The others are what kube-vip-cloud-provider calls all that it has.
    #[value(aliases = ["service", "service-lb-controller", "*"])]
    Services,
    /// The old kinds `VirtualIP` and `GroupSegmentMapping`, where they are installed.
    Migration,
    /// Addresses that float over nodes by VRRP: the kind `KeepalivedGroup`, where it is installed.
    Keepalived,
}

/// Accepts what [`EnvFilter`] does, except a lone word that is no level: it would be taken for the
/// name of a module and silence everything else.
fn log_filter(text: &str) -> Result<String, String> {
    for part in text.split(',').map(str::trim) {
        if !part.contains(['=', '[']) && LevelFilter::from_str(part).is_err() {
            return Err(format!(
                "`{part}` is not a level: use off, error, warn, info, debug, trace, or target=level"
            ));
        }
    }
    EnvFilter::try_new(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use clap::CommandFactory as _;

    use super::*;

    pub(crate) fn parse(flags: &[&str]) -> Result<(Global, Operator), clap::Error> {
        let line = ["landfall", "operator"].iter().chain(flags);
        let Cli { global, command } = Cli::try_parse_from(line)?;
        let Command::Operator(operator) = command else { panic!("{command:?}") };
        Ok((global, *operator))
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_has_a_variable_named_after_it() {
        let cli = Cli::command();
        let verbs = cli.get_subcommands().filter(|verb| !verb.is_hide_set());
        let verbs = verbs.flat_map(clap::Command::get_arguments);
        let mut checked = 0;
        for arg in cli.get_arguments().chain(verbs) {
            let flag = arg.get_long().expect("only long flags");
            if matches!(flag, "help" | "version") || arg.is_hide_set() {
                continue;
            }
            let variable = format!("LANDFALL_{}", flag.to_uppercase().replace('-', "_"));
            assert_eq!(arg.get_env().and_then(|env| env.to_str()), Some(&*variable), "--{flag}");
            checked += 1;
        }
        assert_eq!(checked, 24);
    }

    #[test]
    fn flags_override_defaults() {
        let (global, operator) = parse(&[]).unwrap();
        assert_eq!(global.kubeconfig, None);
        assert_eq!(global.log_format, LogFormat::Text);
        assert_eq!(global.log_level, "info");
        assert_eq!(operator.admin_addr.to_string(), "[::]:8080");
        assert!(operator.leader_elect);
        assert_eq!(operator.lease_name, "landfall-operator");
        assert_eq!(operator.namespace, None);
        assert_eq!(operator.pod_uid, None);
        let all = [Controller::Services, Controller::Migration, Controller::Keepalived];
        assert_eq!(operator.controllers, all);
        assert_eq!(operator.orphan_grace, Duration::from_mins(5));
        assert_eq!(operator.repair, Repair::Fix);

        let (global, operator) = parse(&[
            "--kubeconfig=/tmp/k",
            "--log-format=json",
            "--log-level=info,landfall=debug",
            "--admin-addr=127.0.0.1:0",
            "--leader-elect=false",
            "--lease-name=ours",
            "--namespace=net",
            "--pod-uid=5f0c",
            "--controllers=services,services",
            "--orphan-grace=90s",
            "--repair=report",
        ])
        .unwrap();
        assert_eq!(global.kubeconfig, Some("/tmp/k".into()));
        assert_eq!(global.log_format, LogFormat::Json);
        assert_eq!(global.log_level, "info,landfall=debug");
        assert_eq!(operator.admin_addr.to_string(), "127.0.0.1:0");
        assert!(!operator.leader_elect);
        assert_eq!(operator.lease_name, "ours");
        assert_eq!(operator.namespace.as_deref(), Some("net"));
        assert_eq!(operator.pod_uid.as_deref(), Some("5f0c"));
        assert_eq!(operator.controllers, [Controller::Services, Controller::Services]);
        assert_eq!(operator.orphan_grace, Duration::from_secs(90));
        assert_eq!(operator.repair, Repair::Report);
    }

    #[test]
    fn the_first_word_for_fixing_still_works_and_is_not_advertised() {
        for word in ["--repair=fix", "--repair=mend"] {
            assert_eq!(parse(&[word]).unwrap().1.repair, Repair::Fix, "{word}");
        }
        let help = parse(&["--help"]).unwrap_err().to_string();
        assert!(help.contains("fix") && !help.contains("mend"), "{help}");
    }

    #[test]
    fn leader_elect_needs_no_value_and_takes_one_only_with_an_equals_sign() {
        assert!(parse(&["--leader-elect"]).unwrap().1.leader_elect);
        assert!(parse(&["--leader-elect=true"]).unwrap().1.leader_elect);
        assert!(parse(&["--leader-elect", "false"]).is_err());
    }

    #[test]
    fn global_flags_work_before_or_after_the_verb() {
        let line = ["landfall", "--log-format", "json", "operator"];
        assert_eq!(Cli::try_parse_from(line).unwrap().global.log_format, LogFormat::Json);
    }

    #[test]
    fn mistakes_are_answered_with_what_would_be_right() {
        for (flag, expected) in [
            ("--controllers=services,egres", "possible values: services, migration, keepalived"),
            ("--log-level=verbose", "`verbose` is not a level"),
            ("--log-level=landfall=loud", "invalid"),
            ("--log-format=xml", "possible values: text, json"),
            ("--admin-addr=8080", "--admin-addr"),
            ("--leader-elect=perhaps", "neither `true` nor `false`"),
            ("--orphan-grace=soon", "`soon` is not a time such as 1h30m or 45s"),
        ] {
            let message = parse(&[flag]).unwrap_err().to_string();
            assert!(message.contains(expected), "{flag}: {message}");
        }
    }
}
