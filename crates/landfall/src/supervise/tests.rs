use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex};

use futures::stream::{BoxStream, empty, iter, once};
use tokio::time::sleep;

use super::*;

type Never = Infallible;

#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<&'static str>>>);

impl Diary {
    fn note(&self, line: &'static str) {
        self.0.lock().unwrap().push(line);
    }

    fn lines(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().clone()
    }
}

/// A task that ends `after` it was told to, and records that.
fn obedient(
    diary: &Diary,
    line: &'static str,
    after: Duration,
) -> impl FnOnce(CancellationToken) -> futures::future::BoxFuture<'static, Result<(), Never>> {
    let diary = diary.clone();
    move |stop| {
        Box::pin(async move {
            stop.cancelled().await;
            sleep(after).await;
            diary.note(line);
            Ok(())
        })
    }
}

fn one_signal() -> BoxStream<'static, &'static str> {
    once(async { "SIGTERM" }).chain(stream::pending()).boxed()
}

#[tokio::test(start_paused = true)]
async fn a_graceful_stop_ends_work_then_lease_then_admin() {
    let diary = Diary::default();
    let mut supervisor = Supervisor::default();
    supervisor.add(Stage::Admin, "admin", obedient(&diary, "admin", Duration::ZERO));
    supervisor.add(Stage::Lease, "lease", obedient(&diary, "lease", Duration::ZERO));
    supervisor.add(Stage::Work, "fast", obedient(&diary, "fast", Duration::from_secs(1)));
    supervisor.add(Stage::Work, "slow", obedient(&diary, "slow", Duration::from_secs(4)));
    supervisor.run(one_signal(), stream::pending(), |_| {}).await.unwrap();
    assert_eq!(diary.lines(), ["fast", "slow", "lease", "admin"]);
}

#[tokio::test(start_paused = true)]
async fn work_that_does_not_end_is_gone_before_the_lease_is_given_back() {
    struct Gone(Diary);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.note("work");
        }
    }
    let diary = Diary::default();
    let mut supervisor = Supervisor::default();
    let gone = Gone(diary.clone());
    supervisor.add(Stage::Work, "stuck", |_| async move {
        let _gone = gone;
        pending::<Result<(), Never>>().await
    });
    supervisor.add(Stage::Lease, "lease", obedient(&diary, "lease", Duration::ZERO));
    let began = Instant::now();
    supervisor.run(one_signal(), stream::pending(), |_| {}).await.unwrap();
    assert_eq!(diary.lines(), ["work", "lease"]);
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ends_by_itself_stops_the_others_and_is_a_failure() {
    #[derive(Debug, thiserror::Error)]
    #[error("out of luck")]
    struct Luck;
    type Start = fn(&mut Supervisor);
    let cases: [(&str, Start, &str); 3] = [
        (
            "a panic",
            |all| {
                all.add(Stage::Work, "services", |_| async {
                    panic!("no such {}", "thing") as Result<(), Never>
                });
            },
            "task services panicked: no such thing",
        ),
        (
            "an error",
            |all| all.add(Stage::Work, "services", |_| async { Err(Luck) }),
            "task services failed: out of luck",
        ),
        (
            "an end",
            |all| all.add(Stage::Work, "services", |_| async { Ok::<_, Never>(()) }),
            "task services ended without being asked to",
        ),
    ];
    for (case, start, expected) in cases {
        let diary = Diary::default();
        let mut supervisor = Supervisor::default();
        supervisor.add(Stage::Lease, "lease", obedient(&diary, "lease", Duration::ZERO));
        start(&mut supervisor);
        let failure = supervisor.run(empty(), stream::pending(), |_| {}).await.unwrap_err();
        assert_eq!(report::chain(&failure), expected, "{case}");
        assert_eq!(diary.lines(), ["lease"], "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_stopping_is_a_failure_but_the_lease_is_still_given_back() {
    let diary = Diary::default();
    let mut supervisor = Supervisor::default();
    supervisor.add(Stage::Work, "services", |stop| async move {
        stop.cancelled().await;
        panic!("on the way out") as Result<(), Never>
    });
    supervisor.add(Stage::Lease, "lease", obedient(&diary, "lease", Duration::ZERO));
    let failure = supervisor.run(one_signal(), stream::pending(), |_| {}).await.unwrap_err();
    assert!(matches!(failure, Failure::Panicked { task: "services", .. }), "{failure}");
    assert_eq!(diary.lines(), ["lease"]);
}

#[tokio::test(start_paused = true)]
async fn a_second_signal_ends_everything_at_once() {
    let mut supervisor = Supervisor::default();
    supervisor.add(Stage::Work, "stuck", |_| pending::<Result<(), Never>>());
    let began = Instant::now();
    let failure =
        supervisor.run(iter(["SIGTERM", "SIGINT"]), stream::pending(), |_| {}).await.unwrap_err();
    assert!(matches!(failure, Failure::Aborted { signal: "SIGINT" }), "{failure}");
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn work_that_begins_afresh_has_ended_before_while_the_rest_goes_on() {
    let diary = Diary::default();
    let mut supervisor = Supervisor::default();
    supervisor.add(Stage::Lease, "lease", obedient(&diary, "lease", Duration::ZERO));
    supervisor.add(Stage::Admin, "admin", obedient(&diary, "admin", Duration::ZERO));
    let afresh = once(sleep(Duration::from_secs(1))).chain(once(sleep(Duration::from_secs(2))));
    let signal = once(async {
        sleep(Duration::from_mins(1)).await;
        "SIGTERM"
    });
    let begun = diary.clone();
    let begin = |all: &mut Supervisor| {
        begun.note("begin");
        all.add(Stage::Work, "slow", obedient(&begun, "end", Duration::from_secs(3)));
    };
    let signal = signal.chain(stream::pending()).boxed();
    supervisor.run(signal, afresh.chain(stream::pending()), begin).await.unwrap();
    let lines = ["begin", "end", "begin", "end", "begin", "end", "lease", "admin"];
    assert_eq!(diary.lines(), lines);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ends_while_work_begins_afresh_is_a_failure() {
    let mut supervisor = Supervisor::default();
    supervisor.add(Stage::Lease, "lease", |_| async {
        sleep(Duration::from_secs(2)).await;
        Ok::<_, Never>(())
    });
    let afresh = once(sleep(Duration::from_secs(1))).chain(stream::pending());
    let diary = Diary::default();
    let begin = |all: &mut Supervisor| {
        all.add(Stage::Work, "slow", obedient(&diary, "end", Duration::from_secs(3)));
    };
    let failure = supervisor.run(stream::pending(), afresh, begin).await.unwrap_err();
    assert!(matches!(failure, Failure::Ended { task: "lease" }), "{failure}");
}
