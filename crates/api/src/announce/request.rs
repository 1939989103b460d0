//! What a Service asks for by the annotations of keepalived-operator, read.

use std::collections::BTreeMap;

use crate::{
    keepalived_group::GroupName,
    keys,
    problem::Problem,
    verbatim::{self, ReadLines},
};

/// What a Service asks for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AnnounceRequest {
    /// The group that is to announce the Service, if it asks for one, or why that cannot be read.
    pub group: Option<Result<GroupName, Problem>>,
    /// Whether each of its addresses is to have an instance and a preferred node of its own.
    pub spread: bool,
    /// Lines for its instances, and those that are refused. A refused line does not keep the Service from
    /// being announced.
    pub lines: ReadLines,
}

impl AnnounceRequest {
    /// Reads the annotations of a Service.
    pub fn read(annotations: &BTreeMap<String, String>) -> Self {
        let text = |key| annotations.get(key).map(String::as_str);
        Self {
            group: text(keys::ANNOTATION_KEEPALIVED_GROUP).map(group),
            spread: text(keys::ANNOTATION_SPREAD_VIPS) == Some("true"),
            lines: text(keys::ANNOTATION_VERBATIM_CONFIG)
                .map(verbatim::of_service)
                .unwrap_or_default(),
        }
    }
}

fn group(text: &str) -> Result<GroupName, Problem> {
    text.parse().map_err(|_| Problem {
        field: keys::ANNOTATION_KEEPALIVED_GROUP,
        fault: format!("{:?} is not the namespace/name of a KeepalivedGroup", keys::excerpt(text)),
        fix: "Write the group's namespace, a slash and its name, or remove the annotation"
            .to_owned(),
    })
}
