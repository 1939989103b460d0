//! The flags of the agent.

use std::ffi::OsString;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, ValueEnum as _};

use super::Global;

/// The agent's own flags.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Namespace and name of the `KeepalivedGroup` whose addresses this node may hold
    #[arg(long, env = "LANDFALL_GROUP", value_name = "NAMESPACE/NAME", value_parser = group)]
    pub group: String,

    /// Name of the Node that the agent runs on
    #[arg(long, env = "LANDFALL_NODE", value_name = "NAME")]
    pub node: String,

    /// Directory for the agent's state, used by no other program and kept across restarts
    #[arg(long, env = "LANDFALL_RUN_DIR", value_name = "DIR", default_value = "/run/landfall")]
    pub run_dir: PathBuf,

    /// Where to serve /healthz, /readyz and /metrics
    #[arg(
        long,
        env = "LANDFALL_METRICS_ADDR",
        value_name = "ADDR",
        default_value_t = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 9650))
    )]
    pub metrics_addr: SocketAddr,
}

/// The flags of the question whether an agent is alive.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct AgentProbe {
    /// Folder of the agent
    #[arg(long, env = "LANDFALL_RUN_DIR", value_name = "DIR", default_value = "/run/landfall")]
    pub run_dir: PathBuf,
}

/// What a part of the agent that is started in a session of its own runs.
#[derive(Args, Debug)]
pub struct Session {
    /// Kill it when the process that started it dies
    #[arg(long)]
    pub needs_parent: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub line: Vec<OsString>,
}

impl Agent {
    /// The arguments that say the same again, after the verb.
    pub fn line(&self, global: &Global) -> Vec<OsString> {
        let mut line = vec![
            "--group".into(),
            self.group.clone().into(),
            "--node".into(),
            self.node.clone().into(),
            "--run-dir".into(),
            self.run_dir.clone().into(),
            "--metrics-addr".into(),
            self.metrics_addr.to_string().into(),
            "--log-level".into(),
            global.log_level.clone().into(),
        ];
        if let Some(format) = global.log_format.to_possible_value() {
            line.extend(["--log-format".into(), format.get_name().into()]);
        }
        if let Some(kubeconfig) = &global.kubeconfig {
            line.extend(["--kubeconfig".into(), kubeconfig.clone().into()]);
        }
        line
    }
}

fn group(text: &str) -> Result<String, String> {
    let is_name = |name: &str| !name.is_empty() && !name.contains('/');
    match text.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => Ok(text.to_owned()),
        _ => Err(format!("`{text}` is not a namespace and a name with a slash between them")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command, LogFormat};

    fn parse(line: &[OsString]) -> Result<(Global, Agent), clap::Error> {
        let line = ["landfall".into(), "agent".into()].into_iter().chain(line.iter().cloned());
        let cli = Cli::try_parse_from(line)?;
        let Command::Agent(agent) = cli.command else { panic!("{:?}", cli.command) };
        Ok((cli.global, agent))
    }

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(Into::into).collect()
    }

    #[test]
    fn flags_override_defaults() {
        let (_, agent) = parse(&words("--group=net/edge --node n1")).unwrap();
        assert_eq!((agent.group.as_str(), agent.node.as_str()), ("net/edge", "n1"));
        assert_eq!(agent.run_dir, PathBuf::from("/run/landfall"));
        assert_eq!(agent.metrics_addr.to_string(), "[::]:9650");
        let all = "--group=net/edge --node n1 --run-dir=/r --metrics-addr=127.0.0.1:9651";
        let (_, agent) = parse(&words(all)).unwrap();
        assert_eq!(agent.run_dir, PathBuf::from("/r"));
        assert_eq!(agent.metrics_addr.to_string(), "127.0.0.1:9651");
    }

    #[test]
    fn a_line_made_from_flags_says_the_same() {
        for line in [
            "--group=net/edge --node n1",
            "--group=net/edge --node n1 --kubeconfig=/k --log-format=json --log-level=warn,landfall=debug",
        ] {
            let (global, agent) = parse(&words(line)).unwrap();
            let (global_again, again) = parse(&agent.line(&global)).unwrap();
            assert_eq!(again, agent, "{line}");
            assert_eq!(global_again.kubeconfig, global.kubeconfig, "{line}");
            assert_eq!(global_again.log_level, global.log_level, "{line}");
            assert_eq!(global_again.log_format, global.log_format, "{line}");
        }
        let (global, _) = parse(&words("--group=a/b --node=n --log-format=json")).unwrap();
        assert_eq!(global.log_format, LogFormat::Json);
    }

    #[test]
    fn mistakes_are_answered_with_what_would_be_right() {
        for (line, expected) in [
            ("--node n1", "--group"),
            ("--group=a/b", "--node"),
            ("--group=edge --node n1", "with a slash between them"),
            ("--group=a/b/c --node n1", "with a slash between them"),
            ("--group=/b --node n1", "with a slash between them"),
            ("--group=a/b --node n1 --metrics-addr=9650", "--metrics-addr"),
        ] {
            let message = parse(&words(line)).unwrap_err().to_string();
            assert!(message.contains(expected), "{line}: {message}");
        }
    }

    #[test]
    fn a_program_in_a_session_keeps_its_own_flags() {
        let line = ["landfall", "agent-session", "--needs-parent", "prog", "--node", "-x"];
        let Command::AgentSession(session) = Cli::try_parse_from(line).unwrap().command else {
            panic!("another verb")
        };
        assert!(session.needs_parent);
        assert_eq!(session.line, ["prog", "--node", "-x"]);
    }
}
