//! What the cluster keeps of the objects that it is told of, and what it tells of them.

use serde_json::{Value, json};

use super::*;
use crate::object::Version;

fn service(version: u64, spec: &Value) -> News {
    let object = serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": "web", "resourceVersion": version.to_string()},
        "spec": spec,
    }));
    let view = service::read(&object.unwrap());
    News::Services(Watched::Present(view.key.clone(), view.version, view))
}

fn web() -> ObjectKey {
    ObjectKey::new("shop", "web")
}

fn ranges(text: &str) -> News {
    let block: landfall_ipam::AddrBlock = text.parse().unwrap();
    let ranges = [block.range()].into_iter().collect();
    News::ServiceRanges(Watched::Present("kubernetes".to_owned(), Version(1), ranges))
}

#[test]
fn a_service_is_kept_while_any_planner_needs_something_of_it() {
    let mut cluster = Cluster::default();
    cluster.observe(ranges("10.96.0.0/12"));
    let plain = json!({"type": "ClusterIP", "clusterIPs": ["10.96.0.7"]});
    let balancer = json!({"type": "LoadBalancer", "clusterIPs": ["10.96.0.7"]});
    let listing = json!({"type": "ClusterIP", "externalIPs": ["192.0.2.1"]});
    let outside = json!({"type": "ClusterIP", "clusterIPs": ["10.1.0.7"]});
    for (version, spec, kept) in
        [(1, &plain, false), (2, &balancer, true), (3, &listing, true), (4, &outside, true)]
    {
        let changes = cluster.observe(service(version, spec));
        assert_eq!(cluster.services.get(&web()).is_some(), kept, "{spec}");
        let told = matches!(changes[..], [Change::Service(..)]);
        assert_eq!(told, kept, "{spec}: {changes:?}");
    }
    let Some(Change::Service(_, Some(old))) = cluster.observe(service(5, &plain)).pop() else {
        panic!("it is no longer kept")
    };
    assert_eq!(old.cluster_ips.len(), 1);
    assert_eq!(cluster.observe(service(6, &plain)), [Change::OtherService(web())]);
}

#[test]
fn an_answer_that_shows_nothing_of_use_is_not_undone_by_older_news() {
    let mut cluster = Cluster::default();
    cluster.observe(service(2, &json!({"type": "LoadBalancer"})));
    let object = serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": "web", "resourceVersion": "5"},
        "spec": {"type": "ClusterIP"},
    }));
    let view = service::read(&object.unwrap());
    let changes = cluster.learn(Seen::Service(Box::new(view)));
    assert!(matches!(changes[..], [Change::Service(_, Some(_))]), "{changes:?}");
    cluster.observe(service(4, &json!({"type": "LoadBalancer"})));
    assert!(cluster.balancer(&web()).is_none(), "the watch is behind");
    cluster.observe(service(5, &json!({"type": "ClusterIP"})));
    cluster.observe(service(6, &json!({"type": "LoadBalancer"})));
    assert!(cluster.balancer(&web()).is_some());
}

#[test]
fn an_answer_does_not_bring_back_an_object_that_the_watch_has_removed() {
    let mut cluster = Cluster::default();
    cluster.observe(service(2, &json!({"type": "LoadBalancer"})));
    let view = cluster.services.get(&web()).cloned().unwrap();
    cluster.observe(News::Services(Watched::Gone(web(), Version(4))));
    let late = ServiceView { version: Version(3), ..view };
    assert_eq!(cluster.learn(Seen::Service(Box::new(late))), []);
    assert!(cluster.services.get(&web()).is_none());
}

#[test]
fn objects_whose_kind_is_gone_are_lost_and_not_deleted() {
    let mut cluster = Cluster::default();
    let vip = crate::sim::fixtures::virtual_ip("shop", "web", "10.0.0.1");
    let present = || News::VirtualIps(Watched::Present(vip.key.clone(), vip.version, vip.clone()));
    for (case, gone, expected) in [
        ("deleted", News::VirtualIps(Watched::Gone(vip.key.clone(), Version(9))), false),
        ("its kind is gone", News::VirtualIps(Watched::Unserved), true),
    ] {
        cluster.observe(present());
        let changes = cluster.observe(gone);
        let Some(Change::VirtualIp { lost, old: Some(_), .. }) = changes.first() else {
            panic!("{case}: {changes:?}")
        };
        assert_eq!(*lost, expected, "{case}");
        cluster = Cluster::default();
    }
    cluster.observe(News::VirtualIps(Watched::Unserved));
    assert!(cluster.has_listed(Kind::VirtualIps), "there is nothing to wait for");
}

fn group() -> News {
    let object: landfall_api::KeepalivedGroup = serde_json::from_value(json!({
        "apiVersion": "redhatcop.redhat.io/v1alpha1",
        "kind": "KeepalivedGroup",
        "metadata": {"namespace": "net", "name": "edge", "resourceVersion": "1"},
        "spec": {"image": "", "interface": "eth0"},
    }))
    .unwrap();
    let view = keepalived::read(kube::core::DeserializeGuard(Ok(object)));
    News::KeepalivedGroups(Watched::Present(view.key.clone(), view.version, Box::new(view)))
}

#[test]
fn kinds_that_only_groups_need_are_waited_for_while_there_is_a_group() {
    let maps = ChildKind::ConfigMap;
    let on_demand = [Kind::Endpoints, Kind::Children(maps), Kind::Children(ChildKind::PodMonitor)];
    let listed = |cluster: &Cluster| on_demand.map(|kind| cluster.has_listed(kind));
    let mut cluster = Cluster::default();
    assert_eq!(listed(&cluster), [true; 3], "there is no group");
    cluster.observe(group());
    assert_eq!(listed(&cluster), [false; 3]);
    cluster.observe(News::Endpoints(Watched::Unserved));
    cluster.observe(News::Children(maps, Watched::Unserved));
    assert_eq!(listed(&cluster), [false; 3], "their watches have not begun");
    cluster.observe(News::Endpoints(Watched::ListEnds));
    cluster.observe(News::Children(maps, Watched::ListEnds));
    assert_eq!(listed(&cluster), [true, true, false]);
    cluster.observe(News::Children(ChildKind::PodMonitor, Watched::Unserved));
    assert_eq!(listed(&cluster), [true; 3], "the kind is not installed");
    cluster.observe(News::Children(ChildKind::PodMonitor, Watched::ListBegins));
    assert_eq!(listed(&cluster), [true, true, false], "now it is");
}

fn slice(name: &str, version: u64, service: &str, nodes: &[&str]) -> News {
    let key = ObjectKey::new("shop", name);
    let version = Version(version);
    let service = Some(ObjectKey::new("shop", service));
    let nodes = nodes.iter().map(|node| Arc::from(*node)).collect();
    let view = SliceView { key: key.clone(), version, service, nodes };
    News::Endpoints(Watched::Present(key, version, view))
}

#[test]
fn the_nodes_of_all_slices_of_a_service_have_an_endpoint() {
    let mut cluster = Cluster::default();
    let changed = [Change::Endpoints(web())];
    assert_eq!(cluster.observe(slice("a", 1, "web", &["n1"])), changed);
    assert_eq!(cluster.observe(slice("b", 2, "web", &["n2"])), changed);
    assert_eq!(cluster.nodes_with_endpoint(&web()), ["n1", "n2"].into());
    assert_eq!(cluster.observe(slice("b", 3, "web", &["n2"])), [], "nothing that matters");
    let mail = ObjectKey::new("shop", "mail");
    let both = [Change::Endpoints(mail.clone()), Change::Endpoints(web())];
    assert_eq!(cluster.observe(slice("b", 4, "mail", &["n2"])), both);
    assert_eq!(cluster.nodes_with_endpoint(&web()), ["n1"].into());
    let gone = News::Endpoints(Watched::Gone(ObjectKey::new("shop", "b"), Version(5)));
    assert_eq!(cluster.observe(gone), [Change::Endpoints(mail.clone())]);
    assert_eq!(cluster.nodes_with_endpoint(&mail), BTreeSet::new());
}
