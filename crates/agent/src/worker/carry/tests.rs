use std::{
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use landfall_vrrp::{Change, Step};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream},
    task::JoinSet,
    time::sleep_until,
};

use super::*;
use crate::{
    call::{Counts, InstanceReport, Request},
    worker::samples::{form, instance, plan},
};

/// A line with which keepalived does not run, although it takes it.
const FATAL: &str = "fatal yes";

/// A folder with a keeper whose keepalived runs every configuration that it is given but fatal ones.
struct Site {
    dir: tempfile::TempDir,
    run_dir: RunDir,
    uses: Arc<AtomicUsize>,
    _keeper: JoinSet<()>,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(dir.path());
        let program = dir.path().join("keepalived");
        fs::write(&program, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let listener = UnixListener::bind(run_dir.socket()).unwrap();
        let (uses, configuration) = (Arc::new(AtomicUsize::new(0)), run_dir.configuration());
        let counted = Arc::clone(&uses);
        let mut keeper = JoinSet::new();
        keeper.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                answer(stream, &configuration, &counted).await;
            }
        });
        Self { dir, run_dir, uses, _keeper: keeper }
    }

    fn carrier(&self) -> Carrier {
        let keepalived = Keepalived::new(self.dir.path().join("keepalived"));
        Carrier::new("n1".to_owned(), self.run_dir.clone(), keepalived, None).unwrap()
    }

    fn uses(&self) -> usize {
        self.uses.load(Ordering::Relaxed)
    }

    fn configuration(&self) -> String {
        fs::read_to_string(self.run_dir.configuration()).unwrap()
    }

    fn said(&self) -> Vec<String> {
        let said: Vec<crate::Farewell> = RunDir::read(&self.run_dir.farewells()).unwrap().unwrap();
        said.into_iter().map(|it| it.instance).collect()
    }
}

async fn answer(mut stream: UnixStream, configuration: &Path, uses: &AtomicUsize) {
    let (reader, mut writer) = stream.split();
    let mut line = String::new();
    BufReader::new(reader).read_line(&mut line).await.unwrap();
    if serde_json::from_str::<Request>(&line).unwrap() == Request::Use {
        uses.fetch_add(1, Ordering::Relaxed);
    }
    let text = fs::read_to_string(configuration).unwrap();
    let counts = Counts::default();
    let answer = if text.contains(FATAL) {
        Answer::Down { error: "it died".to_owned(), counts }
    } else {
        let file = landfall_vrrp::conf::parse(&text).unwrap();
        let report = |it: landfall_vrrp::conf::FoundInstance| InstanceReport {
            name: it.name,
            router_id: it.router_id.unwrap(),
            addresses: it.advertised.iter().map(ToString::to_string).collect(),
            ..InstanceReport::default()
        };
        let instances = landfall_vrrp::conf::instances(&file).map(report).collect();
        Answer::Runs { starts: 1, instances, counts }
    };
    let mut text = serde_json::to_vec(&answer).unwrap();
    text.push(b'\n');
    writer.write_all(&text).await.unwrap();
}

fn plan_with(name: &str) -> Arc<Plan> {
    let mut plan = plan(vec![instance(name, 1, form(&["192.0.2.9"]))]);
    plan.interface = "lo".to_owned();
    plan.into()
}

fn fatal_plan() -> Arc<Plan> {
    let mut plan = plan_with("ns/fatal").as_ref().clone();
    plan.global_lines = vec![FATAL.to_owned()];
    plan.into()
}

/// Carries a plan out as soon as the throttle lets it.
async fn carry(carrier: &mut Carrier, plan: &Arc<Plan>, site: &Site) -> Result<Done, Trouble> {
    loop {
        let done = carrier.carry(plan, &Passwords::none(&site.run_dir), &[]).await?;
        match done.again {
            Some(again) => sleep_until(again).await,
            None => return Ok(done),
        }
    }
}

#[tokio::test]
async fn the_last_good_configuration_comes_back_if_keepalived_dies_of_a_new_one() {
    let site = Site::new();
    let mut carrier = site.carrier();
    carry(&mut carrier, &plan_with("ns/good"), &site).await.unwrap();
    let good = site.configuration();
    assert_eq!((site.uses(), site.said()), (1, vec!["ns/good".to_owned()]));
    let trouble = carry(&mut carrier, &fatal_plan(), &site).await.unwrap_err();
    assert!(matches!(trouble, Trouble::Down(_)), "{trouble}");
    assert_eq!(site.configuration(), good);
    assert_eq!((site.uses(), site.said()), (3, vec!["ns/good".to_owned()]));
    assert_eq!((carrier.reloads, carrier.failures), (1, 1));
    // It is known to run again.
    carry(&mut carrier, &plan_with("ns/good"), &site).await.unwrap();
    assert_eq!(site.uses(), 3);
}

#[tokio::test]
async fn a_first_configuration_that_fails_has_nothing_to_go_back_to() {
    let site = Site::new();
    let mut carrier = site.carrier();
    carry(&mut carrier, &fatal_plan(), &site).await.unwrap_err();
    assert_eq!((site.uses(), carrier.running.is_none()), (1, true));
    carry(&mut carrier, &plan_with("ns/good"), &site).await.unwrap();
    assert_eq!(site.said(), ["ns/good"]);
}

#[tokio::test]
async fn a_disk_that_takes_nothing_leaves_keepalived_as_it_is() {
    let site = Site::new();
    let mut carrier = site.carrier();
    carry(&mut carrier, &plan_with("ns/good"), &site).await.unwrap();
    let good = site.configuration();
    // Not even root can write these.
    for path in [site.run_dir.draft_configuration(), site.run_dir.farewells()] {
        let draft = path.with_extension("draft");
        fs::create_dir(&draft).unwrap();
        let trouble = carry(&mut carrier, &plan_with("ns/next"), &site).await.unwrap_err();
        assert!(matches!(trouble, Trouble::File(_)), "{trouble}");
        assert_eq!((site.configuration(), site.uses()), (good.clone(), 1));
        fs::remove_dir(&draft).unwrap();
    }
    carry(&mut carrier, &plan_with("ns/next"), &site).await.unwrap();
    assert_eq!((site.said(), site.uses()), (vec!["ns/next".to_owned()], 2));
}

#[tokio::test]
async fn a_configuration_that_keepalived_was_not_told_of_is_used_by_the_next_worker() {
    let site = Site::new();
    let mut carrier = site.carrier();
    carry(&mut carrier, &plan_with("ns/good"), &site).await.unwrap();
    let mut next = site.carrier();
    assert!(next.recognise().await);
    // The worker was killed when it had put the new configuration in its place.
    carry(&mut carrier, &plan_with("ns/next"), &site).await.unwrap();
    let new = site.configuration();
    fs::write(site.run_dir.good_configuration(), "the one before").unwrap();
    let mut next = site.carrier();
    assert!(!next.recognise().await);
    carry(&mut next, &plan_with("ns/next"), &site).await.unwrap();
    assert_eq!((site.configuration(), site.uses()), (new, 3));
}

#[tokio::test]
async fn an_instance_is_muted_even_if_its_password_is_not_known() {
    let site = Site::new();
    let mut carrier = site.carrier();
    let mut plan = plan_with("ns/a").as_ref().clone();
    let before = Form { password: Some("uid/2".to_owned()), ..form(&["192.0.2.9"]) };
    plan.instances[0].change = Some(Change { before, holder: 1, step: Step::Mute, since: 1 });
    let trouble = carry(&mut carrier, &plan.into(), &site).await.unwrap_err();
    assert!(matches!(trouble, Trouble::Plan(render::Error::PasswordUnknown(_))), "{trouble}");
    assert_eq!(fs::read_to_string(site.run_dir.track().join("1")).unwrap(), "1\n");
}
