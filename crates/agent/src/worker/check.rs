//! Lets keepalived check a configuration before it is used.

use std::{
    io,
    path::{Path, PathBuf},
    process::{ExitStatus, Output, Stdio},
    time::Duration,
};

use tokio::{process::Command, time::timeout};

const DEADLINE: Duration = Duration::from_secs(20);
/// How much of keepalived's complaint is shown.
const SHOWN_LINES: usize = 3;

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("keepalived cannot be started: {0}")]
    Start(#[source] io::Error),
    #[error("keepalived did not finish checking the configuration in {DEADLINE:?}")]
    Late,
    #[error("keepalived refuses the configuration ({status}): {complaint}")]
    Refused { status: ExitStatus, complaint: String },
}

#[derive(Clone, Debug)]
pub(super) struct Keepalived {
    program: PathBuf,
}

impl Keepalived {
    pub(super) fn new(program: PathBuf) -> Self {
        Self { program }
    }

    /// Whether keepalived takes a file without a word. A warning counts as a refusal, or it would be lost.
    pub(super) async fn check(&self, path: &Path) -> Result<(), Error> {
        let mut command = Command::new(&self.program);
        command.args(["--config-test", "--vrrp", "--use-file"]).arg(path);
        let output = run(command).await?;
        let words = [output.stdout, output.stderr].concat();
        if output.status.success() && words.is_empty() {
            return Ok(());
        }
        let complaint = shown(&String::from_utf8_lossy(&words), path);
        Err(Error::Refused { status: output.status, complaint })
    }

    /// The version, such as `2.2.7`.
    pub(super) async fn version(&self) -> Result<Option<String>, Error> {
        let mut command = Command::new(&self.program);
        command.arg("--version");
        let output = run(command).await?;
        Ok(version_in(&String::from_utf8_lossy(&[output.stderr, output.stdout].concat())))
    }
}

async fn run(mut command: Command) -> Result<Output, Error> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(DEADLINE, command.output()).await;
    output.map_err(|_| Error::Late)?.map_err(Error::Start)
}

fn version_in(text: &str) -> Option<String> {
    let mut words = text.split_whitespace().skip_while(|word| *word != "Keepalived").skip(1);
    Some(words.next()?.trim_start_matches('v').to_owned())
}

/// The first lines of a complaint, without the path of the file.
fn shown(words: &str, path: &Path) -> String {
    let path = format!("{}: ", path.display());
    let lines: Vec<_> = words.lines().filter(|line| !line.is_empty()).collect();
    let mut shown = lines.iter().take(SHOWN_LINES).copied().collect::<Vec<_>>().join("; ");
    if lines.len() > SHOWN_LINES {
        shown.push_str("; …");
    }
    shown.replace(&path, "")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_version_is_found_in_what_keepalived_prints() {
        let printed = "Keepalived v2.2.7 (01/16,2022)\n\nCopyright(C) 2001-2022\n";
        assert_eq!(version_in(printed).as_deref(), Some("2.2.7"));
        assert_eq!(version_in("sh: not found"), None);
    }

    #[test]
    fn a_complaint_is_cut_to_its_first_lines() {
        let words = "(/r/k.conf: Line 1) a\n\n(/r/k.conf: Line 2) b\nc\nd\n";
        let shown = shown(words, Path::new("/r/k.conf"));
        assert_eq!(shown, "(Line 1) a; (Line 2) b; c; …");
    }

    #[tokio::test]
    async fn keepalived_says_what_it_does_not_like() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keepalived.conf.new");
        let keepalived = Keepalived::new("keepalived".into());
        for (text, expected) in [
            ("global_defs {\n    router_id a\n}\n", None),
            ("global_defs {\n    router_ib a\n}\n", Some("router_ib")),
        ] {
            fs::write(&path, text).unwrap();
            match (keepalived.check(&path).await, expected) {
                (Ok(()), None) => {}
                (Err(Error::Refused { complaint, .. }), Some(word)) => {
                    assert!(complaint.contains(word), "{complaint}");
                }
                (outcome, _) => panic!("{text}: {outcome:?}"),
            }
        }
        assert!(keepalived.version().await.unwrap().unwrap().starts_with("2."));
        let missing = Keepalived::new("/nonexistent/keepalived".into());
        assert!(matches!(missing.check(&path).await, Err(Error::Start(_))));
    }
}
