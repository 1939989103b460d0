//! Compares the file of a node with the plan, line by line.

use alloc::{
    collections::BTreeSet,
    format,
    string::{String, ToString as _},
    vec,
    vec::Vec,
};

use super::{arbitrary::passwords, *};
use crate::conf::{self, Statement};

/// The lines of a block without those that open a block of their own, in order of their words.
fn plain(block: &[Statement]) -> Vec<String> {
    let plain = block.iter().filter(|statement| statement.block.is_empty());
    let mut plain: Vec<_> = plain.map(|statement| statement.words.join(" ")).collect();
    plain.sort();
    plain
}

/// The words of the lines in the only block of this name.
fn block(of: &Statement, name: &str) -> Vec<String> {
    let mut found = of.block.iter().filter(|inner| inner.keyword() == name);
    let block = found.next().unwrap_or_else(|| panic!("no {name} in {of:?}"));
    assert_eq!(found.next(), None, "{name}");
    block.block.iter().map(|line| line.words.join(" ")).collect()
}

/// Every instance of a file is what the plan says for the node, and has nothing besides.
pub(super) fn reads_back(plan: &Plan, node: NodeIndex, text: &str) {
    let file = conf::parse(text).unwrap();
    let found: Vec<_> = conf::instances(&file).collect();
    let of = |keyword: &str| -> Vec<_> {
        file.iter().filter(|statement| statement.keyword() == keyword).collect()
    };
    let (statements, tracks) = (of("vrrp_instance"), of("track_file"));
    assert_eq!((found.len(), statements.len()), (plan.instances.len(), plan.instances.len()));
    assert_eq!(tracks.len(), plan.instances.len());
    assert_eq!(file.len(), 1 + 2 * plan.instances.len(), "{text}");
    for (index, planned) in plan.instances.iter().enumerate() {
        let form = planned.form_on(node);
        let (found, statement) = (&found[index], statements[index]);
        assert_eq!(found.name, planned.name);
        assert_eq!(found.router_id, Some(planned.router_id));
        assert_eq!(found.version, Some(form.version));
        assert_eq!(found.advert_millis, Some(form.advert_millis), "{text}");
        assert_eq!(found.advertised, form.advertised);
        let held: BTreeSet<_> = found.advertised.iter().chain(&found.excluded).copied().collect();
        assert_eq!(held.len(), found.advertised.len() + found.excluded.len(), "{text}");
        assert_eq!(held, planned.addresses_on(node).collect());
        let password = form.password.as_ref().map(|name| passwords()[name].clone());
        assert_eq!(found.password, password);

        let own = plan.node(node).unwrap();
        let others = plan.nodes.iter().filter(|other| *other != own);
        let peers: Vec<_> =
            others.filter_map(|other| other.address_like(form.advertised[0])).collect();
        let is_unicast = form.transport == Transport::Unicast;
        assert_eq!(found.peers, if is_unicast { peers } else { vec![] });

        // What has no place in a found instance is compared as it is written.
        let priority = block_value(statement, "priority");
        let mut expected = vec![
            "state BACKUP".to_string(),
            "interface eth0".to_string(),
            format!("virtual_router_id {}", planned.router_id),
            format!("priority {priority}"),
            format!("version {}", if form.version == Version::V2 { 2 } else { 3 }),
            format!("advert_int {}", block_value(statement, "advert_int")),
        ];
        match planned.preempt {
            Preempt::Never => expected.push("nopreempt".to_string()),
            Preempt::AtOnce => {}
            Preempt::AfterSeconds(wait) => expected.push(format!("preempt_delay {wait}")),
        }
        if is_unicast {
            let source = own.address_like(form.advertised[0]).unwrap();
            expected.push(format!("unicast_src_ip {source}"));
            expected.push("unicast_fault_no_peer".to_string());
            let listed = found.peers.len();
            expected.extend((listed == 0).then(|| "unicast_peer".to_string()));
        }
        expected.extend(planned.lines.iter().cloned());
        expected.sort();
        assert_eq!(plain(&statement.block), expected, "{text}");

        let track = format!("mute-{}", planned.router_id);
        assert_eq!(block(statement, "track_file"), core::slice::from_ref(&track));
        assert_eq!(tracks[index].words, ["track_file".to_string(), track]);
        let path = format!("file {RUN_DIR}/track/{}", planned.router_id);
        assert_eq!(plain(&tracks[index].block), [path, "weight 0".to_string()]);
    }
}

/// The value of a keyword that an instance has once.
fn block_value(instance: &Statement, keyword: &str) -> String {
    let mut found = instance.block.iter().filter(|line| line.keyword() == keyword);
    let line = found.next().unwrap_or_else(|| panic!("no {keyword} in {instance:?}"));
    assert_eq!(found.next(), None, "{keyword}");
    line.words[1].clone()
}

/// The priorities of the nodes fall in the order of the plan, and none of them is an owner's or a goodbye's.
pub(super) fn prefers_nodes_in_order(plan: &Plan) {
    for (place, planned) in plan.instances.iter().enumerate() {
        let priority = |node: &NodeIndex| -> u8 {
            let file = conf::parse(&render_on(plan, *node).unwrap()).unwrap();
            let mut instances =
                file.iter().filter(|statement| statement.keyword() == "vrrp_instance");
            block_value(instances.nth(place).unwrap(), "priority").parse().unwrap()
        };
        let priorities: Vec<_> = planned.order.iter().map(priority).collect();
        assert!(priorities.is_sorted_by(|a, b| a > b), "{priorities:?}");
        assert!(priorities.iter().all(|priority| (1..=254).contains(priority)), "{priorities:?}");
    }
}
