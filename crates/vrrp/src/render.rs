//! Writes keepalived's configuration file for one node.
//!
//! The file must pass `keepalived -t` without a word: keepalived 2.2 warns about what it ignores, and a warning
//! would hide the one that matters. Nothing gets into it that was not checked: names come from Kubernetes, lines
//! from a closed list, addresses are addresses.

use alloc::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
};
use core::net::IpAddr;

use crate::order::priority;
use crate::plan::{Form, Instance, NodeIndex, Plan, Preempt, Transport, Version};

/// As much of a password as the protocol carries.
pub const PASSWORD_BYTES: usize = 8;

/// What a node knows of itself.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    /// Its place in the plan. A node that the plan does not name gets a file without instances, by which
    /// keepalived gives up all addresses.
    pub node: Option<NodeIndex>,
    /// The device of the instances.
    pub interface: &'a str,
    /// The folder of the files that keepalived and the agent share.
    pub run_dir: &'a str,
    /// The passwords that the node knows, each by the name that a [`Form`] has for it.
    pub passwords: &'a BTreeMap<String, String>,
}

/// Why a plan cannot be written for a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An instance without a rank for this node.
    #[error("the order of instance {0} does not have this node")]
    NodeUnknown(String),
    /// Text of the plan that would end its line or its word, and could say anything after it.
    #[error("the plan has a {0} that cannot be written into a configuration file")]
    Unsafe(&'static str),
    /// A password that the node has not read.
    #[error("the password of instance {0} is not known here")]
    PasswordUnknown(String),
    /// A password that cannot be written into a configuration file.
    #[error(
        "the password has a quote, a line break or another control character in its first 8 bytes"
    )]
    PasswordUnusable,
    /// A node without an address of the family that adverts are sent in.
    #[error("this node has no {1} address, which instance {0} sends its adverts from")]
    AddressMissing(String, &'static str),
}

/// The path of the file that keeps an instance in state FAULT as long as it holds another number than 0.
pub fn track_file(run_dir: &str, instance: &Instance) -> String {
    let mut path = run_dir.to_string();
    path.push_str("/track/");
    path.push_str(&instance.router_id.to_string());
    path
}

/// The path of the pipe on which keepalived tells of transitions.
pub fn notify_fifo(run_dir: &str) -> String {
    let mut path = run_dir.to_string();
    path.push_str("/notify");
    path
}

/// The configuration file of one node.
pub fn render(plan: &Plan, host: Host<'_>) -> Result<String, Error> {
    check(plan)?;
    let mut file = File::default();
    file.globals(plan, Some(host.run_dir));
    let Some(node) = host.node else {
        return Ok(file.text);
    };
    if !is_word(host.interface) {
        return Err(Error::Unsafe("device name"));
    }
    for instance in &plan.instances {
        file.open(&["track_file", &track_name(instance)]);
        file.line(&["file", &quoted(&track_file(host.run_dir, instance))]);
        file.line(&["weight", "0"]);
        file.close();
        file.instance(plan, instance, node, host)?;
    }
    Ok(file.text)
}

/// What a file of this group looks like without the differences between nodes, for people and for the pods of
/// a replaced operator.
pub fn render_for_all(plan: &Plan, password: Option<&str>) -> Result<String, Error> {
    check(plan)?;
    if !is_word(&plan.interface) {
        return Err(Error::Unsafe("device name"));
    }
    let mut file = File::default();
    file.globals(plan, None);
    for instance in &plan.instances {
        let form = instance.change.as_ref().map_or(&instance.form, |change| &change.before);
        file.open(&["vrrp_instance", &instance.name]);
        file.line(&["interface", &plan.interface]);
        file.line(&["virtual_router_id", &instance.router_id.to_string()]);
        file.timing(form);
        if let Some(password) = password.filter(|_| form.password.is_some()) {
            file.authentication(password)?;
        }
        if form.transport == Transport::Unicast {
            file.peers(plan.peers(form, None));
        }
        file.addresses(form, instance);
        file.lines(&instance.lines);
        file.close();
    }
    Ok(file.text)
}

/// A password as the protocol carries it, if a configuration file can hold it.
pub fn usable_password(text: &str) -> Result<&str, Error> {
    let text = text.trim_end_matches(['\r', '\n']);
    let mut end = text.len().min(PASSWORD_BYTES);
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    let text = text.get(..end).unwrap_or_default();
    let unusable = |c: char| c == '"' || c == '\\' || c.is_control();
    if text.is_empty() || text.contains(unusable) { Err(Error::PasswordUnusable) } else { Ok(text) }
}

/// The last look at text that was checked where it came from.
fn check(plan: &Plan) -> Result<(), Error> {
    let is_line = |line: &String| line.split(' ').all(is_word) && !reaches_beyond(line);
    if !is_word(plan.group_name()) {
        return Err(Error::Unsafe("group name"));
    }
    if !plan.instances.iter().all(|instance| is_word(&instance.name)) {
        return Err(Error::Unsafe("name of an instance"));
    }
    let mut lines = plan.instances.iter().flat_map(|instance| &instance.lines);
    if !plan.global_lines.iter().all(is_line) || !lines.all(is_line) {
        return Err(Error::Unsafe("line"));
    }
    Ok(())
}

/// Whether a line makes keepalived run programs, read other files or write to them. No list of keywords has such a
/// line, so that it can only be in a plan that somebody else has written.
fn reaches_beyond(line: &str) -> bool {
    let keyword = line.split(' ').next().unwrap_or_default();
    ["script", "notify", "include", "fifo", "process", "file", "smtp", "directory", "reload"]
        .iter()
        .any(|part| keyword.contains(part))
}

/// Whether keepalived reads this as one word, as it is.
fn is_word(text: &str) -> bool {
    let is_plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/' | '+');
    !text.is_empty() && text.chars().all(is_plain)
}

fn track_name(instance: &Instance) -> String {
    let mut name = String::from("mute-");
    name.push_str(&instance.router_id.to_string());
    name
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    quoted.push_str(text);
    quoted.push('"');
    quoted
}

/// A number of milliseconds as seconds, with as many decimals as it needs.
fn seconds(millis: u32) -> String {
    let (whole, rest) = (millis / 1000, millis % 1000);
    if rest == 0 {
        return whole.to_string();
    }
    format!("{whole}.{rest:03}").trim_end_matches('0').to_string()
}

#[derive(Default)]
struct File {
    text: String,
    depth: usize,
}

impl File {
    fn line(&mut self, words: &[&str]) {
        for _ in 0..self.depth {
            self.text.push_str("    ");
        }
        let mut words = words.iter();
        self.text.push_str(words.next().copied().unwrap_or_default());
        for word in words {
            self.text.push(' ');
            self.text.push_str(word);
        }
        self.text.push('\n');
    }

    fn lines(&mut self, lines: &[String]) {
        for line in lines {
            self.line(&[line]);
        }
    }

    fn open(&mut self, words: &[&str]) {
        self.line(words);
        self.text.truncate(self.text.trim_end_matches('\n').len());
        self.text.push_str(" {\n");
        self.depth = self.depth.saturating_add(1);
    }

    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.line(&["}"]);
    }

    /// `run_dir` is that of the node, or `None` in a file for all nodes.
    fn globals(&mut self, plan: &Plan, run_dir: Option<&str>) {
        let is_set = |keyword: &str| {
            plan.global_lines.iter().any(|line| line.split(' ').next() == Some(keyword))
        };
        self.open(&["global_defs"]);
        self.line(&["router_id", plan.group_name()]);
        if let Some(run_dir) = run_dir {
            let mut defaults = alloc::vec![
                ("dynamic_interfaces", ""),
                ("vrrp_check_unicast_src", ""),
                // A holder that comes back from a partition announces its addresses again.
                ("vrrp_higher_prio_send_advert", "true"),
                ("vrrp_garp_master_refresh", "30"),
                ("vrrp_garp_master_refresh_repeat", "1"),
            ];
            if plan.instances.iter().any(|instance| instance.form.advert_millis < 1000) {
                // All addresses are announced in one go, and five times by default: with hundreds of
                // addresses the adverts between them would come too late for the other nodes.
                defaults.push(("vrrp_garp_master_repeat", "1"));
                defaults.push(("vrrp_garp_master_delay", "1"));
            }
            for (keyword, value) in defaults.into_iter().filter(|(keyword, _)| !is_set(keyword)) {
                let words = [keyword, value];
                self.line(if value.is_empty() { &words[..1] } else { &words });
            }
            self.line(&["vrrp_notify_fifo", &quoted(&notify_fifo(run_dir))]);
            self.line(&["fifo_write_vrrp_states_on_reload"]);
        }
        self.lines(&plan.global_lines);
        self.close();
    }

    fn instance(
        &mut self,
        plan: &Plan,
        instance: &Instance,
        node: NodeIndex,
        host: Host<'_>,
    ) -> Result<(), Error> {
        let form = instance.form_on(node);
        self.open(&["vrrp_instance", &instance.name]);
        self.line(&["state", "BACKUP"]);
        self.line(&["interface", host.interface]);
        self.line(&["virtual_router_id", &instance.router_id.to_string()]);
        let rank = instance.order.iter().position(|index| *index == node);
        let rank = rank.ok_or_else(|| Error::NodeUnknown(instance.name.clone()))?;
        self.line(&["priority", &priority(rank, instance.order.len()).to_string()]);
        self.timing(form);
        match instance.preempt {
            Preempt::Never => self.line(&["nopreempt"]),
            Preempt::AtOnce => {}
            Preempt::AfterSeconds(wait) => self.line(&["preempt_delay", &wait.to_string()]),
        }
        if let Some(name) = &form.password {
            let password = host.passwords.get(name);
            let password = password.ok_or_else(|| Error::PasswordUnknown(instance.name.clone()))?;
            self.authentication(password)?;
        }
        if form.transport == Transport::Unicast {
            let own = plan.node(node).ok_or_else(|| Error::NodeUnknown(instance.name.clone()))?;
            let source = form
                .address_of(own)
                .ok_or_else(|| Error::AddressMissing(instance.name.clone(), family_name(form)))?;
            self.line(&["unicast_src_ip", &source.to_string()]);
            // Without peers keepalived would fall back to multicast.
            self.line(&["unicast_fault_no_peer"]);
            self.peers(plan.peers(form, Some(own)));
        }
        self.open(&["track_file"]);
        self.line(&[&track_name(instance)]);
        self.close();
        self.addresses(form, instance);
        self.lines(&instance.lines);
        self.close();
        Ok(())
    }

    fn timing(&mut self, form: &Form) {
        self.line(&["version", if form.version == Version::V2 { "2" } else { "3" }]);
        self.line(&["advert_int", &seconds(form.advert_millis)]);
    }

    fn authentication(&mut self, password: &str) -> Result<(), Error> {
        self.open(&["authentication"]);
        self.line(&["auth_type", "PASS"]);
        self.line(&["auth_pass", &quoted(usable_password(password)?)]);
        self.close();
        Ok(())
    }

    fn peers(&mut self, peers: impl Iterator<Item = IpAddr>) {
        self.open(&["unicast_peer"]);
        for address in peers {
            self.line(&[&address.to_string()]);
        }
        self.close();
    }

    fn addresses(&mut self, form: &Form, instance: &Instance) {
        self.open(&["virtual_ipaddress"]);
        for address in &form.advertised {
            // In IPv6 the address itself says that it is of the link, and keepalived warns about more words.
            if form.anchor && address.is_ipv4() {
                self.line(&[&format!("{address}/32"), "scope", "link"]);
            } else {
                self.line(&[&address.to_string()]);
            }
        }
        self.close();
        let mut excluded = instance
            .excluded
            .iter()
            .filter(|address| !form.advertised.contains(address))
            .peekable();
        if excluded.peek().is_some() {
            self.open(&["virtual_ipaddress_excluded"]);
            for address in excluded {
                self.line(&[&address.to_string()]);
            }
            self.close();
        }
    }
}

fn family_name(form: &Form) -> &'static str {
    if form.advertised.first().is_some_and(IpAddr::is_ipv4) { "IPv4" } else { "IPv6" }
}

#[cfg(test)]
mod tests;
