//! The settings of kube-vip-cloud-provider: an administrator who replaces it need not rewrite them.
//!
//! A setting with a meaning here acts, unless ours says otherwise. The rest is accepted and named in the
//! log, because a Deployment must not fail over a flag that no longer matters.

use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use landfall_api::keys;
use landfall_controllers::services::{AnnotatedServices, Classes, KubeVip};

use super::{Operator, Requests};
use crate::elector::Timing;

/// Flags without effect here that may have no value.
const SWITCHES: &[&str] = &[
    "OutSideCluster",
    "allocate-node-cidrs",
    "allow-untagged-cloud",
    "authentication-skip-lookup",
    "authentication-tolerate-lookup-failure",
    "configure-cloud-routes",
    "contention-profiling",
    "disable-http2-serving",
    "enable-leader-migration",
    "log-json-split-stream",
    "log-text-split-stream",
    "permit-address-sharing",
    "permit-port-sharing",
    "profiling",
    "use-service-account-credentials",
];

/// Flags without effect here that take a value.
const VALUES: &[&str] = &[
    "authentication-kubeconfig",
    "authentication-token-webhook-cache-ttl",
    "authorization-always-allow-paths",
    "authorization-kubeconfig",
    "authorization-webhook-cache-authorized-ttl",
    "authorization-webhook-cache-unauthorized-ttl",
    "bind-address",
    "cert-dir",
    "cidr-allocator-type",
    "client-ca-file",
    "cloud-config",
    "cloud-provider",
    "cluster-cidr",
    "cluster-name",
    "concurrent-node-syncs",
    "concurrent-service-syncs",
    "controller-start-interval",
    "external-cloud-volume-plugin",
    "feature-gates",
    "http2-max-streams-per-connection",
    "kube-api-burst",
    "kube-api-content-type",
    "kube-api-qps",
    "leader-elect-resource-lock",
    "leader-migration-config",
    "log-flush-frequency",
    "log-json-info-buffer-size",
    "log-text-info-buffer-size",
    "master",
    "min-resync-period",
    "node-monitor-period",
    "node-status-update-frequency",
    "node-sync-period",
    "requestheader-allowed-names",
    "requestheader-client-ca-file",
    "requestheader-extra-headers-prefix",
    "requestheader-group-headers",
    "requestheader-uid-headers",
    "requestheader-username-headers",
    "route-reconciliation-period",
    "secure-port",
    "tls-cert-file",
    "tls-cipher-suites",
    "tls-min-version",
    "tls-private-key-file",
    "tls-sni-cert-key",
    "v",
    "vmodule",
    "webhook-bind-address",
    "webhook-cert-dir",
    "webhook-secure-port",
    "webhook-tls-cert-file",
    "webhook-tls-private-key-file",
    "webhooks",
];

/// What is set in the words of kube-vip-cloud-provider. A variable is a hidden flag of the same name,
/// because clap reads no variable without one.
#[derive(Args, Debug)]
pub struct Original {
    /// Namespace of the `ConfigMap`, unless `--kube-vip-namespace` is set
    #[arg(
        id = "KUBEVIP_NAMESPACE",
        long = "KUBEVIP_NAMESPACE",
        env = "KUBEVIP_NAMESPACE",
        hide = true
    )]
    namespace: Option<String>,

    /// Name of the `ConfigMap`, unless `--kube-vip-config-map` is set
    #[arg(long = "KUBEVIP_CONFIG_MAP", env = "KUBEVIP_CONFIG_MAP", hide = true)]
    config_map: Option<String>,

    /// If true, Services of a class are served instead of those without one, unless
    /// `--kube-vip-class` is set
    #[arg(
        long = "KUBEVIP_ENABLE_LOADBALANCERCLASS",
        env = "KUBEVIP_ENABLE_LOADBALANCERCLASS",
        hide = true,
        default_value = "",
        value_parser = switch,
        action = ArgAction::Set
    )]
    of_a_class: bool,

    /// That class, if it is not `kube-vip.io/kube-vip-class`
    #[arg(
        long = "KUBEVIP_CUSTOM_LOADBALANCERCLASS_NAME",
        env = "KUBEVIP_CUSTOM_LOADBALANCERCLASS_NAME",
        hide = true
    )]
    class: Option<String>,

    /// How long others leave the lease alone that was not renewed; 5s unless set,
    /// 15s if only others of the three are
    #[arg(long = "leader-elect-lease-duration", hide = true, value_parser = super::duration)]
    lease_duration: Option<Duration>,

    /// How long a leader tries to renew the lease before it stops; 4s unless set,
    /// 10s if only others of the three are
    #[arg(long = "leader-elect-renew-deadline", hide = true, value_parser = super::duration)]
    renew_deadline: Option<Duration>,

    /// From one try to take or renew the lease to the next; 1s unless set, 2s if
    /// only others of the three are
    #[arg(long = "leader-elect-retry-period", hide = true, value_parser = super::duration)]
    retry_period: Option<Duration>,

    #[command(flatten)]
    pub ignored: Ignored,
}

/// The flags that were given and have no effect.
#[derive(Debug, Default)]
pub struct Ignored(pub Vec<&'static str>);

impl Ignored {
    /// All flags of the kind, without their dashes.
    pub fn all() -> impl Iterator<Item = &'static str> {
        SWITCHES.iter().chain(VALUES).copied()
    }
}

impl Args for Ignored {
    fn augment_args(command: Command) -> Command {
        // Given twice is no error: nothing comes of it either time.
        let hidden = |flag: &&'static str| {
            Arg::new(*flag).long(*flag).hide(true).action(ArgAction::Append).value_name("VALUE")
        };
        let switches =
            SWITCHES.iter().map(|flag| hidden(flag).num_args(0..=1).require_equals(true));
        let values = VALUES.iter().map(|flag| {
            let arg = hidden(flag).num_args(1).allow_hyphen_values(true);
            if *flag == "v" { arg.short('v') } else { arg }
        });
        command.args(switches.chain(values))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Ignored {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |flag: &&str| matches.value_source(flag) == Some(ValueSource::CommandLine);
        Ok(Self(Self::all().filter(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Operator {
    /// Where kube-vip's pools are and which class they serve: as our flags say, else as the original's
    /// variables do. An empty word says nothing, but for our class, where it says "none".
    pub fn kube_vip(&self) -> KubeVip {
        let Original { namespace, config_map, of_a_class, class, .. } = &self.original;
        let word = |ours: &Option<String>, original: &Option<String>| {
            let mut words = [ours, original].into_iter().flatten();
            words.find(|word| !word.is_empty()).cloned()
        };
        let default = KubeVip::default();
        let named = |class: &str| !class.is_empty();
        let theirs = || {
            let class = class.as_deref().filter(|class| named(class));
            of_a_class.then(|| class.unwrap_or(keys::CLASS_KUBE_VIP))
        };
        let classes = self.kube_vip_class.as_ref().map_or_else(
            || Classes::only(theirs()),
            |ours| {
                ours.iter().map(|class| Some(class.trim()).filter(|class| named(class))).collect()
            },
        );
        KubeVip {
            namespace: word(&self.kube_vip_namespace, namespace).unwrap_or(default.namespace),
            config_map: word(&self.kube_vip_config_map, config_map).unwrap_or(default.config_map),
            services: AnnotatedServices {
                classes,
                named: self.kube_vip_class.is_some() || *of_a_class,
                only_from_pools: self.kube_vip_requests == Requests::FromPools,
            },
        }
    }

    /// How long things take in the election.
    pub fn timing(&self) -> Result<Timing, clap::Error> {
        let Original { lease_duration, renew_deadline, retry_period, .. } = &self.original;
        // An administrator who set one of them knew the original's values of the others.
        let some_set = [lease_duration, renew_deadline, retry_period].iter().any(|it| it.is_some());
        let usual = if some_set { Timing::client_go() } else { Timing::default() };
        let lease = lease_duration.unwrap_or_else(|| usual.lease());
        let renew_deadline = renew_deadline.unwrap_or_else(|| usual.renew_deadline());
        let retry_period = retry_period.unwrap_or_else(|| usual.retry_period());
        let seconds = u16::try_from(lease.as_secs()).ok();
        seconds.and_then(|seconds| Timing::new(seconds, renew_deadline, retry_period)).ok_or_else(
            || {
                let text = format!(
                    "--leader-elect-lease-duration ({lease:?}, at most {}s) must be longer than \
                     --leader-elect-renew-deadline ({renew_deadline:?}), and that longer than \
                     --leader-elect-retry-period ({retry_period:?})\n",
                    u16::MAX
                );
                clap::Error::raw(ErrorKind::ValueValidation, text)
            },
        )
    }
}

/// Accepts what Go takes for a boolean; nothing at all is `false`.
fn switch(text: &str) -> Result<bool, String> {
    if text.is_empty() { Ok(false) } else { super::boolean(text) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::tests::parse;
    use super::super::{Cli, Controller, LogFormat};
    use super::*;

    const ON: &str = "--KUBEVIP_ENABLE_LOADBALANCERCLASS=true";
    const NAMED: &str = "--KUBEVIP_CUSTOM_LOADBALANCERCLASS_NAME=example.com/vip";

    #[test]
    fn settings_of_either_program_name_the_place_of_pools_and_the_class_they_serve() {
        let class = Some(keys::CLASS_KUBE_VIP);
        for (flags, namespace, map, expected) in [
            (&[][..], "kube-system", "kubevip", None),
            (&["--KUBEVIP_NAMESPACE=net"], "net", "kubevip", None),
            (&["--KUBEVIP_CONFIG_MAP=pools"], "kube-system", "pools", None),
            (&["--KUBEVIP_NAMESPACE=", "--KUBEVIP_CONFIG_MAP="], "kube-system", "kubevip", None),
            (&[ON], "kube-system", "kubevip", class),
            (&["--KUBEVIP_ENABLE_LOADBALANCERCLASS=T"], "kube-system", "kubevip", class),
            (&["--KUBEVIP_ENABLE_LOADBALANCERCLASS=0", NAMED], "kube-system", "kubevip", None),
            (&["--KUBEVIP_ENABLE_LOADBALANCERCLASS="], "kube-system", "kubevip", None),
            (&[NAMED], "kube-system", "kubevip", None),
            (&[ON, NAMED], "kube-system", "kubevip", Some("example.com/vip")),
            (&[ON, "--KUBEVIP_CUSTOM_LOADBALANCERCLASS_NAME="], "kube-system", "kubevip", class),
            // Ours alone, and over the original's.
            (&["--kube-vip-class=example.com/a"], "kube-system", "kubevip", Some("example.com/a")),
            (&[ON, NAMED, "--kube-vip-class=a/b"], "kube-system", "kubevip", Some("a/b")),
            (&[ON, NAMED, "--kube-vip-class="], "kube-system", "kubevip", None),
            (&["--KUBEVIP_NAMESPACE=x", "--kube-vip-namespace=net"], "net", "kubevip", None),
            (
                &["--KUBEVIP_CONFIG_MAP=x", "--kube-vip-config-map=pools"],
                "kube-system",
                "pools",
                None,
            ),
        ] {
            let KubeVip { namespace: said, config_map, services } =
                parse(flags).unwrap().1.kube_vip();
            let seen = (said.as_str(), config_map.as_str(), services.classes);
            assert_eq!(seen, (namespace, map, Classes::only(expected)), "{flags:?}");
        }
    }

    #[test]
    fn several_classes_are_served_even_beside_services_without_one() {
        for (classes, expected) in [
            ("a/b,c/d", &[Some("a/b"), Some("c/d")][..]),
            (",a/b", &[None, Some("a/b")]),
            (" a/b, ", &[Some("a/b"), None]),
        ] {
            let (_, operator) = parse(&[&format!("--kube-vip-class={classes}")]).unwrap();
            let expected: Classes = expected.iter().copied().collect();
            assert_eq!(operator.kube_vip().services.classes, expected, "{classes:?}");
        }
    }

    #[test]
    fn services_may_ask_for_any_address_unless_only_pools_may_give() {
        for (flags, only_from_pools) in
            [(&[][..], false), (&["--kube-vip-requests=from-pools"], true)]
        {
            let (_, operator) = parse(flags).unwrap();
            assert_eq!(operator.kube_vip().services.only_from_pools, only_from_pools, "{flags:?}");
        }
    }

    #[test]
    fn a_boolean_that_is_none_is_refused() {
        for text in ["yes", "on", "TrUe", " true", "2"] {
            let flag = format!("--KUBEVIP_ENABLE_LOADBALANCERCLASS={text}");
            let message = parse(&[&flag]).unwrap_err().to_string();
            assert!(message.contains("KUBEVIP_ENABLE_LOADBALANCERCLASS"), "{message}");
            assert!(message.contains("neither `true` nor `false`"), "{message}");
        }
    }

    #[test]
    fn variables_bear_the_names_of_their_hidden_flags() {
        let cli = Cli::command();
        let operator = cli.find_subcommand("operator").unwrap();
        let variables: Vec<_> = operator
            .get_arguments()
            .filter(|arg| arg.get_long().is_some_and(|flag| flag.starts_with("KUBEVIP_")))
            .map(|arg| (arg.get_long().unwrap(), arg.get_env().and_then(|env| env.to_str())))
            .collect();
        assert_eq!(variables.len(), 4);
        assert!(variables.iter().all(|(flag, env)| Some(*flag) == *env), "{variables:?}");
    }

    #[test]
    fn flags_of_the_original_that_mean_something_act() {
        let (global, operator) = parse(&[
            "--leader-elect=T",
            "--leader-elect-resource-name=kube-vip-cloud-controller",
            "--leader-elect-resource-namespace=kube-system",
            "--leader-elect-lease-duration=1m0s",
            "--leader-elect-renew-deadline",
            "40s",
            "--leader-elect-retry-period=5s",
            "--kubeconfig=/tmp/k",
            "--logging-format=json",
            "--controllers=*",
        ])
        .unwrap();
        assert!(operator.leader_elect);
        assert_eq!(operator.lease_name, "kube-vip-cloud-controller");
        assert_eq!(operator.namespace.as_deref(), Some("kube-system"));
        let timing = Timing::new(60, Duration::from_secs(40), Duration::from_secs(5));
        assert_eq!(operator.timing().ok(), timing);
        assert_eq!(global.kubeconfig, Some("/tmp/k".into()));
        assert_eq!(global.log_format, LogFormat::Json);
        assert_eq!(operator.controllers, [Controller::Services]);
        assert_eq!(operator.original.ignored.0, [""; 0]);
        for name in ["service", "service-lb-controller"] {
            let flags = parse(&["--controllers", name]).unwrap().1;
            assert_eq!(flags.controllers, [Controller::Services], "{name}");
        }
    }

    #[test]
    fn a_timing_that_is_set_in_part_is_the_originals_in_the_rest() {
        let seconds = Duration::from_secs;
        for (flag, lease, renew, retry) in [
            ("--leader-elect-lease-duration=30s", 30, 10, 2),
            ("--leader-elect-renew-deadline=12s", 15, 12, 2),
            ("--leader-elect-retry-period=4s", 15, 10, 4),
        ] {
            let timing = parse(&[flag]).unwrap().1.timing().ok();
            assert_eq!(timing, Timing::new(lease, seconds(renew), seconds(retry)), "{flag}");
        }
    }

    #[test]
    fn a_timing_with_two_leaders_is_refused() {
        assert_eq!(parse(&[]).unwrap().1.timing().ok(), Some(Timing::default()));
        for flags in [
            &["--leader-elect-lease-duration=10s"][..],
            &["--leader-elect-retry-period=10s"],
            &["--leader-elect-retry-period=0s"],
            &["--leader-elect-lease-duration=19h"],
        ] {
            let error = parse(flags).unwrap().1.timing().unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains("must be longer than"), "{error}");
        }
    }

    #[test]
    fn other_flags_of_the_original_are_accepted_and_named() {
        let (_, operator) = parse(&[
            "--cloud-provider=kubevip",
            "--allow-untagged-cloud",
            "--authentication-skip-lookup=true",
            "--concurrent-service-syncs",
            "3",
            "--OutSideCluster",
            "--kube-api-qps=20",
            "--kube-api-qps=30",
            "-v=4",
        ])
        .unwrap();
        let mut named = operator.original.ignored.0;
        named.sort_unstable();
        let expected = [
            "OutSideCluster",
            "allow-untagged-cloud",
            "authentication-skip-lookup",
            "cloud-provider",
            "concurrent-service-syncs",
            "kube-api-qps",
            "v",
        ];
        assert_eq!(named, expected);
        for spelled in [&["-v", "2"][..], &["-v2"], &["--v=2"], &["--v", "2"]] {
            assert_eq!(parse(spelled).unwrap().1.original.ignored.0, ["v"], "{spelled:?}");
        }
        for flag in Ignored::all() {
            let flag = format!("--{flag}=x");
            assert_eq!(parse(&[&flag]).unwrap().1.original.ignored.0.len(), 1, "{flag}");
        }
        for unknown in ["--cloud-providers=x", "--leader-elect-resource=x", "kubevip"] {
            assert!(parse(&[unknown]).is_err(), "{unknown}");
        }
    }

    #[test]
    fn none_of_them_is_in_the_help() {
        let mut cli = Cli::command();
        let operator = cli.find_subcommand_mut("operator").unwrap();
        let help = operator.render_long_help().to_string();
        for flag in Ignored::all() {
            assert!(!help.contains(&format!("--{flag} ")), "{flag}");
        }
        assert!(!help.contains("--leader-elect-"), "{help}");
        assert!(!help.contains("--KUBEVIP"), "{help}");
        // But which variable of the original counts where ours is not set.
        for flag in ["KUBEVIP_NAMESPACE", "KUBEVIP_CONFIG_MAP", "KUBEVIP_ENABLE_LOADBALANCERCLASS"]
        {
            assert!(help.contains(flag), "{flag}");
        }
    }
}
