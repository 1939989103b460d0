//! [`Leadership`] on paused time.

use std::time::Duration;

use landfall_controllers::leadership::{Leadership, leadership};
use tokio::time::{Instant, advance, timeout};

const SECOND: Duration = Duration::from_secs(1);

async fn is_told(leadership: &mut Leadership) -> bool {
    timeout(Duration::ZERO, leadership.changed()).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn leadership_ends_at_its_deadline_without_a_signal() {
    let (mut setter, leadership) = leadership();
    assert!(!leadership.is_leader());
    setter.lead_until(Instant::now() + 10 * SECOND);
    assert!(leadership.is_leader());
    // Moves the clock without running any task, as a stopped process sees it when it wakes up.
    advance(10 * SECOND).await;
    assert!(!leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn gain_and_loss_are_told_once_each() {
    let (mut setter, mut leadership) = leadership();
    assert!(!is_told(&mut leadership).await);
    setter.lead_until(Instant::now() + 10 * SECOND);
    assert!(is_told(&mut leadership).await);
    assert!(!is_told(&mut leadership).await);
    setter.stand_down();
    assert!(is_told(&mut leadership).await);
    assert!(!is_told(&mut leadership).await);
}

#[tokio::test(start_paused = true)]
async fn a_passed_deadline_is_told_on_time() {
    let (mut setter, mut leadership) = leadership();
    let start = Instant::now();
    setter.lead_until(start + 10 * SECOND);
    leadership.changed().await;
    leadership.changed().await;
    assert_eq!(start.elapsed(), 10 * SECOND);
    assert!(!leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_is_no_change() {
    let (mut setter, mut leadership) = leadership();
    let start = Instant::now();
    setter.lead_until(start + 10 * SECOND);
    leadership.changed().await;
    let renew = async {
        tokio::time::sleep(4 * SECOND).await;
        setter.lead_until(start + 14 * SECOND);
    };
    tokio::join!(renew, leadership.changed());
    assert_eq!(start.elapsed(), 14 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_loss_and_a_new_gain_between_two_looks_are_told() {
    let (mut setter, mut leadership) = leadership();
    setter.lead_until(Instant::now() + 10 * SECOND);
    leadership.changed().await;
    advance(60 * SECOND).await;
    setter.lead_until(Instant::now() + 10 * SECOND);
    assert!(is_told(&mut leadership).await);
    assert!(leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_dead_elector_stands_down() {
    let (mut setter, mut leadership) = leadership();
    setter.lead_until(Instant::now() + 10 * SECOND);
    leadership.changed().await;
    drop(setter);
    assert!(is_told(&mut leadership).await);
    assert!(!leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn without_an_election_it_never_ends() {
    let mut leadership = Leadership::always();
    advance(1_000_000 * SECOND).await;
    assert!(leadership.is_leader());
    assert!(!is_told(&mut leadership).await);
}
