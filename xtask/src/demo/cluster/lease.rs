//! Whether an operator leads in a cluster already.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use landfall::elector::LEASE_NAME;
use tokio::time::sleep;

use super::Error;
use crate::output::{Output, seconds};

/// The longest time that a lease is believed to be held without a sign of life.
const MOST_PATIENCE: Duration = Duration::from_secs(20);
/// From one look at the leases to the next.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The operator that leads, in words, if one does.
///
/// A lease that names a holder may be that of a dead one, and the clocks of two machines do not
/// compare: a leader is alive if it is seen to renew its lease.
pub(super) async fn leader(client: &Client, output: &Output) -> Result<Option<String>, Error> {
    let leases: Api<Lease> = Api::all(client.clone());
    let ours = ListParams::default().fields(&format!("metadata.name={LEASE_NAME}"));
    let list =
        async || leases.list(&ours).await.map_err(Error::call("listing the leases of operators"));
    let before = list().await?.items;
    let Some(patience) = patience(&before) else { return Ok(None) };
    let held: Vec<_> = before.iter().filter_map(words).collect();
    output.say(held.join("\n"));
    output.say(format_args!("looking for up to {} whether it is renewed", seconds(patience)));
    let end = Instant::now() + patience;
    while Instant::now() < end {
        sleep(LOOK_EVERY).await;
        let now = list().await?.items;
        if let Some(lease) = renewed(&before, &now) {
            return Ok(words(lease));
        }
    }
    output.say("it is not renewed: that operator runs no more");
    Ok(None)
}

/// The lease and its holder, unless it was given back.
fn words(lease: &Lease) -> Option<String> {
    let namespace = lease.namespace().unwrap_or_default();
    let holder = holder(lease)?;
    Some(format!("lease {namespace}/{} is held by {holder}", lease.name_any()))
}

fn holder(lease: &Lease) -> Option<&str> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
    (!holder.is_empty()).then_some(holder)
}

/// How long to look before all leases count as those of dead operators; `None` if none has a holder.
fn patience(leases: &[Lease]) -> Option<Duration> {
    let held = leases.iter().filter(|lease| holder(lease).is_some());
    let durations = held.map(|lease| {
        let told = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        let told = told.and_then(|told| u64::try_from(told).ok());
        // One more than it says, so that a renewal on its way is seen.
        told.map_or(MOST_PATIENCE, |told| Duration::from_secs(told.saturating_add(1)))
    });
    durations.max().map(|longest| longest.min(MOST_PATIENCE))
}

/// A lease that was written since then and has a holder now.
fn renewed<'a>(before: &[Lease], now: &'a [Lease]) -> Option<&'a Lease> {
    let is_known = |lease: &Lease| {
        let version = lease.resource_version();
        before.iter().any(|old| old.uid() == lease.uid() && old.resource_version() == version)
    };
    now.iter().find(|lease| holder(lease).is_some() && !is_known(lease))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(uid: &str, version: &str, holder: &str, seconds: Option<i32>) -> Lease {
        let lease = json!({
            "metadata": {
                "name": LEASE_NAME, "namespace": "net", "uid": uid, "resourceVersion": version,
            },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": seconds },
        });
        serde_json::from_value(lease).unwrap()
    }

    #[test]
    fn an_operator_leads_if_its_lease_is_written_again() {
        let before = [lease("a", "1", "one", Some(5)), lease("b", "2", "", Some(5))];
        for (case, now, leads) in [
            ("nothing new", vec![lease("a", "1", "one", Some(5))], false),
            ("renewed", vec![lease("a", "3", "one", Some(5))], true),
            ("given back", vec![lease("a", "3", "", Some(5))], false),
            ("taken by another", vec![lease("b", "3", "two", Some(5))], true),
            ("deleted and made again", vec![lease("c", "3", "one", Some(5))], true),
            ("deleted", vec![], false),
        ] {
            assert_eq!(renewed(&before, &now).is_some(), leads, "{case}");
        }
        assert_eq!(words(&before[0]).unwrap(), "lease net/landfall-operator is held by one");
    }

    #[test]
    fn a_dead_holder_is_waited_for_as_long_as_its_lease_lasts_and_not_for_years() {
        let of = |leases: &[Lease]| patience(leases).map(|patience| patience.as_secs());
        for (case, leases, expected) in [
            ("no lease", vec![], None),
            ("given back", vec![lease("a", "1", "", Some(5))], None),
            ("ours", vec![lease("a", "1", "one", Some(5))], Some(6)),
            ("edited", vec![lease("a", "1", "one", Some(i32::MAX))], Some(20)),
            ("without a duration", vec![lease("a", "1", "one", None)], Some(20)),
            (
                "several",
                vec![lease("a", "1", "one", Some(5)), lease("b", "1", "two", Some(15))],
                Some(16),
            ),
        ] {
            assert_eq!(of(&leases), expected, "{case}");
        }
    }
}
