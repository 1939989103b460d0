//! Short attacks of the kind that `cargo xtask chaos` runs for any length of time.

use std::path::{Path, PathBuf};

use landfall_testkit::chaos::{Attack, Chaos, Crew, Round, Setting};
use landfall_testkit::proxy::faults::Rates;

const SEED: u64 = 20_260;

/// Plays these rounds on a control plane of its own.
async fn play(rounds: &[(Crew, Attack)]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut chaos = Chaos::start(Setting {
        binary: PathBuf::from(env!("CARGO_BIN_EXE_landfall")),
        deploy: root.join("deploy"),
        seed: SEED,
        stories: Path::new(env!("CARGO_TARGET_TMPDIR")).join("chaos"),
    })
    .await
    .unwrap();
    for (number, (crew, attack)) in (0..).zip(rounds) {
        let round = Round { number, crew: *crew, attack: *attack, rates: Rates::BAD };
        chaos.round(round).await.unwrap();
    }
    let report = chaos.report();
    assert!(report.is_clean(), "{report}");
    assert!(report.writes > 50 && report.harm.len() > 8, "was that an attack?\n{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_that_crash_sleep_and_work_at_once_keep_every_promise() {
    play(&[
        (Crew::Pair, Attack::Crashes),
        (Crew::Elected, Attack::Sleep),
        (Crew::Installs, Attack::Partition),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_that_crashes_hangs_and_forgets_breaks_no_promise() {
    play(&[
        (Crew::Lone, Attack::ApiServer),
        (Crew::Pair, Attack::Compaction),
        (Crew::Lone, Attack::SlowStore),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_and_claims_that_are_unavailable_for_a_while_cost_no_service_its_address() {
    play(&[(Crew::Trio, Attack::PoolsGone), (Crew::Lone, Attack::Policy)]).await;
}
