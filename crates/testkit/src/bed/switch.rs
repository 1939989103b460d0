//! The switch of a bed: a bridge in a network namespace of its own, with one port per node.

use std::process::Command;

use nix::sched::{CloneFlags, unshare};

use crate::worker::Worker;
use crate::{Error, Result};

/// The device of every node.
pub(super) const DEVICE: &str = "eth0";

/// Ports forward at once, and every multicast frame goes to every port.
const BRIDGE: &str = "\
link set lo up
link add bridge type bridge stp_state 0 forward_delay 0 mcast_snooping 0
link set bridge up
";

/// Whether a port passes frames. One that does not drops them in both directions, and its node sees no
/// difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frames {
    Pass,
    Drop,
}

/// Its thread is in no process namespace of its own, so that it can name nodes by their process.
#[derive(Debug)]
pub(super) struct Switch {
    worker: Worker,
}

impl Switch {
    pub(super) fn new() -> Result<Self> {
        let worker = Worker::start("switch of a bed");
        worker
            .run(|| unshare(CloneFlags::CLONE_NEWNET))?
            .map_err(|errno| Error::io("making the switch's network namespace")(errno.into()))?;
        let switch = Self { worker };
        // The switch itself talks to no node.
        let off = "net/ipv6/conf/default/disable_ipv6";
        switch
            .worker
            .run(move || std::fs::write(format!("/proc/sys/{off}"), "1"))?
            .map_err(Error::io(format!("writing {off}")))?;
        switch.ip(BRIDGE)?;
        Ok(switch)
    }

    /// Joins the network of a process to a new port, by a new device of that name.
    pub(super) fn attach(&self, port: &str, device: &str, mac: &str, pid: u32) -> Result<()> {
        self.ip(&format!(
            "link add {port} type veth peer name {device} address {mac} netns {pid}\n\
             link set {port} master bridge up\n"
        ))
    }

    /// Removes a port with the cable and the device at its other end.
    pub(super) fn detach(&self, port: &str) -> Result<()> {
        self.ip(&format!("link del {port}\n"))
    }

    pub(super) fn set_link(&self, port: &str, up: bool) -> Result<()> {
        self.ip(&format!("link set {port} {}\n", if up { "up" } else { "down" }))
    }

    pub(super) fn set_frames(&self, port: &str, frames: Frames) -> Result<()> {
        // As the kernel numbers the states of spanning tree.
        let state = match frames {
            Frames::Pass => "3",
            Frames::Drop => "0",
        };
        let mut bridge = Command::new("bridge");
        bridge.args(["link", "set", "dev", port, "state", state]);
        self.worker.output(bridge, "").map(drop)
    }

    fn ip(&self, batch: &str) -> Result<()> {
        let mut ip = Command::new("ip");
        ip.args(["-batch", "-"]);
        self.worker.output(ip, batch).map(drop)
    }
}
