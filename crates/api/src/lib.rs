//! Landfall's public face: its kinds, their names, conditions and fixed words.
//!
//! Types and text only: nothing here talks to a cluster or reads a clock. Field documentation is
//! written for users, because it becomes the CRDs' text and `docs/reference`.
#![warn(missing_docs)]

pub mod announce;
pub mod condition;
pub mod convert;
pub mod crd;
pub mod finding;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod group_segment_mapping;
pub mod holder;
pub mod ip;
pub mod ipgroup;
pub mod keepalived_group;
pub mod keys;
pub mod kube_vip;
pub mod name;
pub mod problem;
mod schema;
pub mod text;
pub mod verbatim;
pub mod virtualip;

pub use crd::{crds, legacy_crds};
pub use finding::Finding;
pub use group_segment_mapping::{GroupSegmentMapping, GroupSegmentMappingSpec};
pub use holder::HolderKind;
pub use ip::{Holder, IP, IPSpec, IPStatus, ReservedFor, Use};
pub use ipgroup::{
    Announce, FamilyCount, IPGroup, IPGroupSpec, IPGroupStatus, Quota, WaitingService,
    hours_minutes_seconds,
};
pub use keepalived_group::{
    GroupName, GroupSettings, KeepalivedGroup, KeepalivedGroupSpec, KeepalivedGroupStatus,
};
pub use problem::Problem;
pub use virtualip::{VirtualIP, VirtualIPSpec, VirtualIPStatus};
