//! The plan as it comes: in a `ConfigMap`, or from the disk.

use k8s_openapi::api::core::v1::ConfigMap;
use landfall_vrrp::{FORMAT, Plan};
use serde::Deserialize;

/// The key of the plan in the `ConfigMap` of the group.
pub const PLAN_KEY: &str = "plan.json";

/// Why a text is no plan to be carried out here.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the ConfigMap has no key {PLAN_KEY}")]
    Missing,
    #[error("the plan cannot be understood: {0}")]
    Malformed(serde_json::Error),
    #[error(
        "the plan has format {0}, and this agent knows formats up to {FORMAT}: update the agent"
    )]
    Later(u32),
    #[error("the plan is that of group {0}")]
    OtherGroup(String),
}

#[derive(Deserialize)]
struct Head {
    format: u32,
}

pub(super) fn from_config_map(map: &ConfigMap, group: &str) -> Result<Plan, Refusal> {
    let text = map.data.as_ref().and_then(|data| data.get(PLAN_KEY)).ok_or(Refusal::Missing)?;
    read(text.as_bytes(), group)
}

pub(super) fn read(text: &[u8], group: &str) -> Result<Plan, Refusal> {
    // A later format need not be readable as this one.
    let head: Head = serde_json::from_slice(text).map_err(Refusal::Malformed)?;
    if head.format > FORMAT {
        return Err(Refusal::Later(head.format));
    }
    let plan: Plan = serde_json::from_slice(text).map_err(Refusal::Malformed)?;
    if plan.group == group { Ok(plan) } else { Err(Refusal::OtherGroup(plan.group)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::samples::{form, instance, plan};

    #[test]
    fn a_plan_is_taken_as_it_was_written_and_anything_else_is_refused() {
        let written = plan(vec![instance("ns/a", 1, form(&["192.0.2.9"]))]);
        let text = serde_json::to_string(&written).unwrap();
        assert_eq!(read(text.as_bytes(), "net/edge").unwrap(), written);
        let later = text.replace("\"format\":1", "\"format\":2");
        for (case, text, expected) in [
            ("another group's", text.replace("net/edge", "net/other"), "that of group net/other"),
            ("a later format", later.replace("\"nodes\"", "\"hosts\""), "has format 2"),
            ("no plan", "[]".to_owned(), "cannot be understood"),
            ("half a plan", text[..text.len() / 2].to_owned(), "cannot be understood"),
        ] {
            let refusal = read(text.as_bytes(), "net/edge").unwrap_err().to_string();
            assert!(refusal.contains(expected), "{case}: {refusal}");
        }
        let refusal = from_config_map(&ConfigMap::default(), "net/edge").unwrap_err().to_string();
        assert!(refusal.contains("plan.json"), "{refusal}");
    }
}
