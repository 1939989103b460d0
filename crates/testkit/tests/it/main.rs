//! The kit is tested on the real thing, for everything else is tested on the kit.

// The attribute tells clippy that the helpers in there are tests.
#[cfg(test)]
mod bed;
#[cfg(test)]
mod control_plane;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod recording;
