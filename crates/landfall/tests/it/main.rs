//! Landfall as a whole, on real servers and as a real process.

mod cli;
mod election;
mod leadership;
