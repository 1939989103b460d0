//! Services that are announced by a `KeepalivedGroup`: what their annotations ask for, and what is said about them.

mod obstacle;
mod reason;
mod request;
#[cfg(test)]
mod tests;

pub use self::{
    obstacle::{Obstacle, announced, not_announced},
    reason::NotAnnounced,
    request::AnnounceRequest,
};
