//! Waits for a condition with a deadline, and says what was missing when the deadline passes.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

/// Short enough not to be felt, long enough not to burden the cores that do the real work.
const INTERVAL: Duration = Duration::from_millis(25);

/// A condition that did not come true in time.
#[derive(Debug, thiserror::Error)]
#[error("waited {after:?} for {what}; last seen: {seen}")]
pub struct TimedOut {
    pub what: String,
    pub after: Duration,
    pub seen: String,
}

/// The result of one look: the awaited thing, or what was there instead.
pub trait Look {
    type Value;

    fn verdict(self) -> std::result::Result<Self::Value, String>;
}

impl Look for bool {
    type Value = ();

    fn verdict(self) -> std::result::Result<(), String> {
        if self { Ok(()) } else { Err("false".into()) }
    }
}

impl<T> Look for Option<T> {
    type Value = T;

    fn verdict(self) -> std::result::Result<T, String> {
        self.ok_or_else(|| "nothing".into())
    }
}

impl<T, E: Display> Look for std::result::Result<T, E> {
    type Value = T;

    fn verdict(self) -> std::result::Result<T, String> {
        self.map_err(|error| error.to_string())
    }
}

/// Looks again and again until the look succeeds, at most for `deadline`.
///
/// A look that hangs is cut off at the deadline as well, so that a frozen connection fails the test with this
/// message and not with the harness's.
pub async fn until<L: Look>(
    what: impl Into<String>,
    deadline: Duration,
    mut look: impl AsyncFnMut() -> L,
) -> std::result::Result<L::Value, TimedOut> {
    let end = Instant::now() + deadline;
    let mut seen = None;
    loop {
        match timeout_at(end, look()).await.map(Look::verdict) {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(instead)) if Instant::now() < end => seen = Some(instead),
            Ok(Err(instead)) => {
                return Err(TimedOut { what: what.into(), after: deadline, seen: instead });
            }
            Err(_elapsed) => {
                let seen = seen.unwrap_or_else(|| "no answer at all".into());
                return Err(TimedOut { what: what.into(), after: deadline, seen });
            }
        }
        sleep(INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failure_names_the_condition_and_the_last_thing_seen() {
        let mut looks = 0;
        let error = until("the third address", Duration::from_secs(2), async || {
            looks += 1;
            Err::<(), _>(format!("{} addresses", looks.min(2)))
        })
        .await
        .unwrap_err();
        assert_eq!(error.to_string(), "waited 2s for the third address; last seen: 2 addresses");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_hangs_is_cut_off() {
        let error = until("an answer", Duration::from_secs(1), async || {
            std::future::pending::<Option<()>>().await
        })
        .await
        .unwrap_err();
        assert_eq!(error.seen, "no answer at all");
    }
}
