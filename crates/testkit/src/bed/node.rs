//! A node of a bed: a machine with one device, and everything that can happen to it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::answers::Answers;
use super::home::Home;
use super::netlink::{self, Address};
use super::program::Program;
use super::switch::{DEVICE, Frames, Switch};
use crate::process::Process;
use crate::wait;
use crate::{Error, Result};

/// How long the kernel may take to find that no other machine has a node's link-local address: it is a second
/// or two on an idle machine.
const SETTLE_DEADLINE: Duration = Duration::from_mins(1);
const LO: u32 = 1;

/// How fast the kernel finds out whether another machine has a new address: the longest time until it asks,
/// in seconds, and how long it then waits for an answer, in milliseconds.
#[derive(Clone, Copy, Debug)]
enum Pace {
    /// As the kernel does by itself.
    Usual,
    /// For a machine that no test watches yet.
    Fast,
}

impl Pace {
    fn settings(self) -> [(&'static str, &'static str); 2] {
        let [ask, wait] = match self {
            Self::Usual => ["1", "1000"],
            Self::Fast => ["0", "10"],
        };
        [("conf/eth0/router_solicitation_delay", ask), ("neigh/eth0/retrans_time_ms", wait)]
    }
}

/// A node, the client or `api`. Clones are the same node.
#[derive(Clone, Debug)]
pub struct Node(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    number: u8,
    dir: PathBuf,
    switch: Arc<Switch>,
    life: Mutex<Option<Arc<Life>>>,
    /// Counts the times it was switched on or off, or its programs were killed.
    lives: AtomicU64,
}

/// What ends when the node is switched off.
#[derive(Debug)]
struct Life {
    home: Home,
    answers: Arc<Answers>,
}

impl Node {
    /// A node that is on; [`Node::born`] has to follow.
    pub(super) fn new(name: &str, number: u8, dir: &Path, switch: &Arc<Switch>) -> Result<Self> {
        let dir = dir.join(name);
        fs::create_dir(&dir).map_err(Error::io(format!("making {}", dir.display())))?;
        let node = Self(Arc::new(Inner {
            name: name.to_owned(),
            number,
            dir,
            switch: Arc::clone(switch),
            life: Mutex::default(),
            lives: AtomicU64::new(0),
        }));
        node.boot(Pace::Fast)?;
        Ok(node)
    }

    /// Completes [`Node::new`].
    pub(super) async fn born(&self) -> Result<()> {
        self.settled().await?;
        set_pace(&self.life_now()?.home, Pace::Usual)
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The name of its device.
    pub fn device(&self) -> &'static str {
        DEVICE
    }

    pub fn ipv4(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, self.0.number)
    }

    pub fn ipv6(&self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, self.0.number.into())
    }

    /// Its link-local address, which follows from the hardware address.
    pub fn link_local(&self) -> Ipv6Addr {
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0x77ff, 0xfe00, self.0.number.into())
    }

    /// The hardware address of its device.
    pub fn mac(&self) -> [u8; 6] {
        [2, 0, 0x77, 0, 0, self.0.number]
    }

    /// Gives it one more device, at a port of its own of the same switch and with addresses of its own, and waits until
    /// they can be used. The device is gone when the node is switched off.
    pub async fn add_device(&self, device: &str) -> Result<()> {
        let number = self.0.number;
        let (v4, v6) = (
            Ipv4Addr::new(10, 78, 0, number),
            Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, number.into()),
        );
        let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0x78ff, 0xfe00, number.into());
        let (port, mac) =
            (format!("{}-{device}", self.name()), format!("02:00:78:00:00:{number:02x}"));
        let life = self.life_now()?;
        self.0.switch.attach(&port, device, &mac, life.home.pid())?;
        for setup in [
            format!("link set {device} up"),
            format!("address add {v4}/16 broadcast + dev {device}"),
            format!("address add {v6}/64 dev {device} nodad"),
        ] {
            self.ip(&setup)?;
        }
        self.usable(&[v4.into(), v6.into(), link_local.into()]).await
    }

    /// A directory of its own that outlives being switched off, as a disk does.
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// A process in its namespaces, for `nsenter --target PID --all`.
    pub fn pid(&self) -> Result<u32> {
        Ok(self.life_now()?.home.pid())
    }

    pub fn is_on(&self) -> bool {
        self.slot().is_some()
    }

    /// Changes whenever it is switched on or off.
    pub(super) fn life(&self) -> u64 {
        self.0.lives.load(Ordering::Acquire)
    }

    /// Starts a program in its network and among its processes, with both outputs appended to a file in its
    /// directory.
    ///
    /// It sees a `/tmp` and a `/run` of its own: see [`Program`]. Like every other process of the node it ends
    /// with the node, and at the latest with the test.
    pub fn run(&self, program: impl Into<Program>, log: &str) -> Result<Arc<Process>> {
        self.life_now()?.home.spawn(&program.into().sees(self.dir()), self.dir(), log)
    }

    /// Runs a command that ends soon and returns its output; its failure is an error.
    ///
    /// It shares `/tmp` and `/run` with the host.
    pub fn output(&self, command: Command) -> Result<String> {
        self.life_now()?.home.output(command, "")
    }

    /// Runs `ip` with arguments that are separated by spaces.
    pub fn ip(&self, args: &str) -> Result<String> {
        let mut ip = Command::new("ip");
        ip.args(args.split_whitespace());
        self.output(ip)
    }

    /// Runs a short job on a thread that is in its namespaces. A socket that it makes belongs to this node for
    /// good, on whichever thread it is used.
    pub fn inside<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        self.life_now()?.home.inside(job)
    }

    /// Starts a thread that is in its network, but among the host's files and processes.
    pub fn thread(&self, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
        self.life_now()?.home.thread(work)
    }

    /// All its addresses but those of `lo`.
    pub fn addresses(&self) -> Result<Vec<Address>> {
        let mut all = self
            .inside(netlink::addresses)?
            .map_err(Error::io(format!("listing the addresses of {}", self.name())))?;
        all.retain(|address| address.device != LO);
        Ok(all)
    }

    pub fn holds(&self, address: IpAddr) -> Result<bool> {
        Ok(self.addresses()?.iter().any(|it| it.ip == address))
    }

    /// Waits until it has all its own addresses and none is tentative.
    pub async fn settled(&self) -> Result<()> {
        self.usable(&[self.ipv4().into(), self.ipv6().into(), self.link_local().into()]).await
    }

    async fn usable(&self, own: &[IpAddr]) -> Result<()> {
        let what = format!("{} to have its addresses", self.name());
        wait::until(what, SETTLE_DEADLINE, async || {
            let all = self.addresses().map_err(|error| error.to_string())?;
            let is_usable = |ip: &IpAddr| all.iter().any(|it| it.ip == *ip && !it.tentative);
            if own.iter().all(is_usable) { Ok(()) } else { Err(format!("{all:?}")) }
        })
        .await?;
        Ok(())
    }

    /// Cuts the link at the node's end: it sees that its device is down. Returns the moment just before.
    pub fn cut_link(&self) -> Result<Instant> {
        let at = Instant::now();
        self.ip(&format!("link set {DEVICE} down"))?;
        Ok(at)
    }

    /// Cuts the link at the switch's end: the node sees that it has lost its carrier. Returns the moment just
    /// before.
    pub fn cut_port(&self) -> Result<Instant> {
        let at = Instant::now();
        self.0.switch.set_link(self.name(), false)?;
        Ok(at)
    }

    /// Makes the switch drop all frames from and to the node, which sees no difference. Returns the moment just
    /// before.
    pub fn silence_port(&self) -> Result<Instant> {
        let at = Instant::now();
        self.0.switch.set_frames(self.name(), Frames::Drop)?;
        Ok(at)
    }

    /// Undoes all of these, gives the node the addresses back that its kernel removed, and waits until it has
    /// settled. Returns the moment just before.
    pub async fn restore(&self) -> Result<Instant> {
        let at = Instant::now();
        self.0.switch.set_link(self.name(), true)?;
        self.configure(&self.life_now()?.home)?;
        // It can be told so only once the kernel has noticed that the link is up.
        let what = format!("the port of {} to pass frames", self.name());
        wait::until(what, SETTLE_DEADLINE, async || {
            self.0.switch.set_frames(self.name(), Frames::Pass)
        })
        .await?;
        self.settled().await?;
        Ok(at)
    }

    /// Kills every process on it at the same instant, so that none can say goodbye, and nothing else: the kernel
    /// keeps all addresses. Returns the moment just before.
    pub fn kill_programs(&self) -> Result<Instant> {
        let life = self.life_now()?;
        let at = Instant::now();
        life.home.kill()?;
        let home = Home::new(self.dir(), Some(life.home.net()))?;
        let answers = Arc::clone(&life.answers);
        self.set_life(Some(Life { home, answers }));
        Ok(at)
    }

    /// Takes its power away: every process dies at the same instant, and its network is gone. Returns the
    /// moment just before.
    pub fn power_off(&self) -> Result<Instant> {
        let life = self.life_now()?;
        let at = Instant::now();
        // Its processes must not see that the device goes; until it has gone, a kernel answers that has no
        // programs left, for some milliseconds.
        life.home.kill()?;
        self.0.switch.detach(self.name())?;
        self.set_life(None);
        Ok(at)
    }

    /// Switches it on again, with nothing but its own addresses and its directory, and waits until it has
    /// settled. Returns the moment just before.
    pub async fn power_on(&self) -> Result<Instant> {
        let at = Instant::now();
        if !self.is_on() {
            self.boot(Pace::Usual)?;
        }
        self.settled().await?;
        Ok(at)
    }

    fn boot(&self, pace: Pace) -> Result<()> {
        let home = Home::new(self.dir(), None)?;
        let mac = self.mac().map(|byte| format!("{byte:02x}")).join(":");
        self.0.switch.attach(self.name(), DEVICE, &mac, home.pid())?;
        set_pace(&home, pace)?;
        self.configure(&home)?;
        let answers = Arc::new(Answers::start(&home, self.name())?);
        self.set_life(Some(Life { home, answers }));
        Ok(())
    }

    fn configure(&self, home: &Home) -> Result<()> {
        let (v4, v6) = (self.ipv4(), self.ipv6());
        // The kernel need not ask whether another machine has them, since no test gives them to one.
        let batch = format!(
            "link set lo up\n\
             link set {DEVICE} up\n\
             address replace {v4}/16 broadcast + dev {DEVICE}\n\
             address replace {v6}/64 dev {DEVICE} nodad\n"
        );
        let mut ip = Command::new("ip");
        ip.args(["-batch", "-"]);
        home.output(ip, &batch).map(drop)
    }

    fn set_life(&self, life: Option<Life>) {
        let previous = std::mem::replace(&mut *self.slot(), life.map(Arc::new));
        self.0.lives.fetch_add(1, Ordering::AcqRel);
        // Outside the lock, because threads of it have to end.
        drop(previous);
    }

    fn life_now(&self) -> Result<Arc<Life>> {
        self.slot().clone().ok_or_else(|| Error::NodeOff(self.name().to_owned()))
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<Life>>> {
        // After a panic elsewhere the handle is still valid.
        self.0.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Possible as soon as there is the device, before it is up.
fn set_pace(home: &Home, pace: Pace) -> Result<()> {
    let write = move || {
        pace.settings().into_iter().try_for_each(|(setting, value)| {
            fs::write(format!("/proc/sys/net/ipv6/{setting}"), value)
        })
    };
    home.inside(write)?.map_err(Error::io("setting the pace of IPv6"))
}
