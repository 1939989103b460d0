//! Tests of the engine, on paused time, with a planner that asks for the effects each test names.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::client::Body;
use prometheus_client::registry::Registry;
use tokio::sync::Notify;

use super::*;
use crate::leadership::{LeadershipSetter, leadership};

const CLOUD: Lane = Lane::Provider("cloud");
/// Longer than anything here takes.
const LONG: Duration = Duration::from_hours(24);

/// What a call does.
#[derive(Clone, Debug)]
enum Does {
    Answers,
    /// Never ends by itself.
    Hangs,
    /// Ends after this time.
    Takes(Duration),
    Panics,
    Fails(Failure),
}

#[derive(Clone, Debug)]
struct Effect {
    name: &'static str,
    lane: Lane,
    does: Does,
    /// The calls that were sent, in order.
    sent: Arc<Mutex<Vec<&'static str>>>,
}

impl Call for Effect {
    type Answer = ();

    fn rank(&self) -> u8 {
        0
    }

    fn label(&self) -> &'static str {
        self.name
    }

    fn object(&self) -> String {
        "an object".to_owned()
    }

    fn lane(&self) -> Lane {
        self.lane
    }

    fn deadline(&self) -> Duration {
        if self.lane == CLOUD { Duration::from_mins(5) } else { call::DEADLINE }
    }

    async fn perform(&self, _: &Client) -> Result<(), Failure> {
        self.sent.lock().unwrap().push(self.name);
        match &self.does {
            Does::Answers => Ok(()),
            Does::Hangs => std::future::pending().await,
            Does::Takes(time) => {
                tokio::time::sleep(*time).await;
                Ok(())
            }
            Does::Panics => panic!("a call panics"),
            Does::Fails(failure) => Err(failure.clone()),
        }
    }
}

/// The name of a call, its result, and when it was reported.
type Reported = (&'static str, Result<(), Failure>, Duration);

/// The planner's state that a test observes and sets.
#[derive(Clone, Default)]
struct Script {
    /// Effects that the planner asks for in its next round.
    to_ask: Arc<Mutex<Vec<Effect>>>,
    sent: Arc<Mutex<Vec<&'static str>>>,
    reports: Arc<Mutex<Vec<Reported>>>,
    rounds: Arc<Mutex<u32>>,
    reported: Arc<Notify>,
}

impl Script {
    fn ask(&self, effects: &[(&'static str, Lane, Does)]) {
        let effect = |(name, lane, does): &(&'static str, Lane, Does)| Effect {
            name,
            lane: *lane,
            does: does.clone(),
            sent: self.sent.clone(),
        };
        self.to_ask.lock().unwrap().extend(effects.iter().map(effect));
    }

    fn reports(&self) -> Vec<Reported> {
        self.reports.lock().unwrap().clone()
    }

    /// Waits until this many calls have been reported.
    async fn wait_for_reports(&self, count: usize) {
        while self.reports().len() < count {
            self.reported.notified().await;
        }
    }

    fn sent(&self) -> Vec<&'static str> {
        self.sent.lock().unwrap().clone()
    }

    fn rounds(&self) -> u32 {
        *self.rounds.lock().unwrap()
    }
}

impl Planner for Script {
    const NAME: &'static str = "script";
    const KINDS: &'static [Kind] = &[];
    type Effect = Effect;

    fn reported(&mut self, lent: Lent<'_>, report: Report<Effect>, _: &mut Plan<Effect>) {
        let entry = (report.effect.name, report.result, lent.now.uptime);
        self.reports.lock().unwrap().push(entry);
        self.reported.notify_one();
    }

    fn plan(&mut self, _: Lent<'_>, out: &mut Plan<Effect>) {
        *self.rounds.lock().unwrap() += 1;
        out.effects.append(&mut self.to_ask.lock().unwrap());
    }

    fn next_due(&self, _: &Cluster, _: &Ledger) -> Option<Duration> {
        None
    }
}

/// An event of a watch that changes nothing, but makes the engine plan.
fn nothing() -> News {
    News::Namespaces(Watched::ListBegins)
}

/// A client that reaches nothing: the effects of these tests do not use it.
fn client() -> Client {
    let service = tower::service_fn(|_: http::Request<Body>| async {
        std::future::pending::<Result<http::Response<Body>, tower::BoxError>>().await
    });
    Client::new(service, "default")
}

fn tools(leadership: Leadership) -> Tools {
    Tools {
        client: client(),
        instance: "test".into(),
        leadership,
        history: History::default(),
        metrics: Metrics::register(&mut Registry::default()),
    }
}

struct Running {
    script: Script,
    news: mpsc::Sender<News>,
    stop: CancellationToken,
    engine: tokio::task::JoinHandle<()>,
}

#[expect(clippy::disallowed_methods, reason = "the test itself waits for the task")]
fn start(leadership: Leadership) -> Running {
    let script = Script::default();
    let (news, received) = mpsc::channel(NEWS);
    let stop = CancellationToken::new();
    let tools = tools(leadership);
    let engine = tokio::spawn(run(
        vec![Box::new(script.clone())],
        Shared::default(),
        tools,
        received,
        stop.clone(),
    ));
    Running { script, news, stop, engine }
}

impl Running {
    /// Lets the planner ask for these in its next round.
    async fn ask(&self, effects: &[(&'static str, Lane, Does)]) {
        self.script.ask(effects);
        self.news.send(nothing()).await.unwrap();
    }
}

fn leading() -> (LeadershipSetter, Leadership) {
    let (mut setter, leadership) = leadership();
    setter.lead_until(Instant::now() + LONG);
    (setter, leadership)
}

#[tokio::test(start_paused = true)]
async fn calls_in_flight_may_end_when_the_engine_is_told_to_stop_but_not_for_ever() {
    for (does, waits) in [
        (Does::Answers, Duration::ZERO),
        (Does::Takes(Duration::from_secs(3)), Duration::from_secs(3)),
        (Does::Hangs, STOP_GRACE),
    ] {
        let running = start(Leadership::always());
        running.ask(&[("write", Lane::Kube, does.clone())]).await;
        while running.script.sent().is_empty() {
            tokio::task::yield_now().await;
        }
        let began = Instant::now();
        running.stop.cancel();
        running.engine.await.unwrap();
        assert_eq!(began.elapsed().as_secs(), waits.as_secs(), "{does:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_call_ends_the_engine() {
    let running = start(Leadership::always());
    running.ask(&[("write", Lane::Kube, Does::Panics)]).await;
    assert!(running.engine.await.unwrap_err().is_panic(), "nothing goes on half broken");
}

#[tokio::test(start_paused = true)]
async fn a_standby_plans_nothing_and_a_deposed_leader_sends_nothing() {
    let (mut setter, leadership) = leadership();
    let running = start(leadership);
    running.ask(&[("write", Lane::Kube, Does::Answers)]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(running.script.rounds(), 0, "a standby");

    setter.lead_until(Instant::now() + LONG);
    running.script.wait_for_reports(1).await;
    assert_eq!(running.script.sent(), ["write"]);

    setter.stand_down();
    running.news.send(nothing()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let rounds = running.script.rounds();
    running.ask(&[("late", Lane::Kube, Does::Answers)]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((running.script.rounds(), running.script.sent()), (rounds, vec!["write"]));
}

#[tokio::test(start_paused = true)]
async fn leadership_is_asked_at_the_write() {
    let (mut setter, leadership) = leading();
    let running = start(leadership);
    let width = 64;
    let slow = ("slow", Lane::Kube, Does::Takes(Duration::from_secs(5)));
    let mut effects = vec![slow; width];
    effects.push(("queued", Lane::Kube, Does::Answers));
    running.ask(&effects).await;
    while running.script.sent().len() < width {
        tokio::task::yield_now().await;
    }
    setter.stand_down();
    running.script.wait_for_reports(width + 1).await;
    assert!(!running.script.sent().contains(&"queued"));
    let reports = running.script.reports();
    let queued = reports.iter().find(|(name, ..)| *name == "queued").unwrap();
    assert_eq!(queued.1, Err(Failure::NotSent));
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_hangs_holds_up_no_other() {
    let running = start(Leadership::always());
    running.ask(&vec![("cloud", CLOUD, Does::Hangs); 20]).await;
    for _ in 0..3 {
        running.ask(&[("write", Lane::Kube, Does::Answers)]).await;
    }
    running.script.wait_for_reports(3).await;
    assert!(running.script.reports().iter().all(|(name, ..)| *name == "write"));
    let of_cloud = running.script.sent().iter().filter(|name| **name == "cloud").count();
    assert_eq!(of_cloud, 8, "no more than the lane is wide");
}

#[tokio::test(start_paused = true)]
async fn each_effect_has_a_deadline_of_its_own() {
    let running = start(Leadership::always());
    running.ask(&[("write", Lane::Kube, Does::Hangs), ("cloud", CLOUD, Does::Hangs)]).await;
    running.script.wait_for_reports(2).await;
    let reports = running.script.reports();
    let ended: Vec<_> = reports.iter().map(|(name, _, at)| (*name, at.as_secs())).collect();
    assert_eq!(ended, [("write", 10), ("cloud", 300)]);
    for (name, result, _) in reports {
        assert!(matches!(result, Err(Failure::Unknown(_))), "{name} may have happened");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_reported_and_nothing_is_tried_twice() {
    let running = start(Leadership::always());
    running.ask(&[("write", Lane::Kube, Does::Fails(Failure::Conflict))]).await;
    running.script.wait_for_reports(1).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(running.script.sent(), ["write"]);
    assert_eq!(running.script.reports()[0].1, Err(Failure::Conflict));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_not_taken_holds_up_no_write() {
    struct Teller(Script);
    impl Planner for Teller {
        const NAME: &'static str = "teller";
        const KINDS: &'static [Kind] = &[];
        type Effect = Effect;

        fn reported(&mut self, lent: Lent<'_>, report: Report<Effect>, out: &mut Plan<Effect>) {
            Planner::reported(&mut self.0, lent, report, out);
        }

        fn plan(&mut self, lent: Lent<'_>, out: &mut Plan<Effect>) {
            Planner::plan(&mut self.0, lent, out);
            out.events.extend((0..10).map(|_| Event {
                about: ObjectReference::default(),
                action: "Test",
                reason: "Test".to_owned(),
                message: String::new(),
                warning: false,
            }));
        }

        fn next_due(&self, _: &Cluster, _: &Ledger) -> Option<Duration> {
            None
        }
    }
    let script = Script::default();
    let (news, received) = mpsc::channel(NEWS);
    let stop = CancellationToken::new();
    let tools = tools(Leadership::always()); // with a client on which every event hangs
    let teller = Box::new(Teller(script.clone()));
    let engine = run(vec![teller], Shared::default(), tools, received, stop.clone());
    let test = async {
        for _ in 0..3 {
            script.ask(&[("write", Lane::Kube, Does::Answers)]);
            news.send(nothing()).await.unwrap();
        }
        script.wait_for_reports(3).await;
        stop.cancel();
    };
    tokio::join!(engine, test);
    assert_eq!(script.sent(), ["write"; 3]);
}

/// A planner that waits for a kind.
struct Waiter(Script);

impl Planner for Waiter {
    const NAME: &'static str = "waiter";
    const KINDS: &'static [Kind] = &[Kind::Nodes];
    type Effect = Effect;

    fn reported(&mut self, _: Lent<'_>, _: Report<Effect>, _: &mut Plan<Effect>) {}

    fn plan(&mut self, lent: Lent<'_>, out: &mut Plan<Effect>) {
        Planner::plan(&mut self.0, lent, out);
    }

    fn next_due(&self, _: &Cluster, _: &Ledger) -> Option<Duration> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_listed_stops_only_the_planners_that_need_it() {
    let (script, waiter) = (Script::default(), Waiter(Script::default()));
    let rounds_of_waiter = waiter.0.clone();
    let planners: Vec<Box<dyn AnyPlanner>> = vec![Box::new(waiter), Box::new(script.clone())];
    let (news, received) = mpsc::channel(NEWS);
    let stop = CancellationToken::new();
    let engine =
        run(planners, Shared::default(), tools(Leadership::always()), received, stop.clone());
    let test = async {
        script.ask(&[("write", Lane::Kube, Does::Answers)]);
        news.send(nothing()).await.unwrap();
        script.wait_for_reports(1).await;
        assert_eq!(rounds_of_waiter.rounds(), 0);
        news.send(News::Nodes(Watched::ListEnds)).await.unwrap();
        script.ask(&[("write", Lane::Kube, Does::Answers)]);
        script.wait_for_reports(2).await;
        assert!(rounds_of_waiter.rounds() > 0);
        stop.cancel();
    };
    tokio::join!(engine, test);
}
