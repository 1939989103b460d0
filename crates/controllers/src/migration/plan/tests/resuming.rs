//! Migrations resumed from every state in which the original operator or Landfall may have been interrupted.

use landfall_api::virtualip::State;
use serde_json::{Value, json};

use super::{MIGRATED, service, vip, with};
use crate::{
    migration::{tests::sim::Cluster, world::shows},
    object::ObjectKey,
};

const CLAIMS: [&str; 6] =
    ["virtualip's, old", "virtualip's", "service's, old", "service's", "kept", "gone"];
const SERVICES: [&str; 3] = ["plain", "asking", "showing"];

fn claim(cluster: &mut Cluster, which: &str) {
    let holder = |kind: &str, uid: &str| json!([{"kind": kind, "namespace": "shop", "name": "web", "uid": uid}]);
    let kept = json!({"namespace": "shop", "name": "web"});
    let (labels, owner, spec) = match which {
        "virtualip's, old" => (json!({"gsm": "g1"}), "shop/web", json!({})),
        "virtualip's" => (
            json!({"gsm": "g1"}),
            "shop/web",
            json!({"holders": holder("VirtualIP", "uid-of-vip-web")}),
        ),
        "service's, old" => (json!({"ipgroup": "p"}), "shop/web", json!({})),
        "service's" => (
            json!({"ipgroup": "p"}),
            "shop/web",
            json!({"holders": holder("Service", "uid-of-shop/web"), "reservedFor": kept}),
        ),
        "kept" => (json!({"ipgroup": "p"}), "", json!({"use": "Reserved", "reservedFor": kept})),
        _ => return,
    };
    cluster.claim("10.0.0.1", &labels, owner, &spec);
}

fn target(which: &str) -> Value {
    let asking = with(service("web"), "/spec/type", json!("LoadBalancer"));
    let asking = with(asking, "/spec/loadBalancerIP", json!("10.0.0.1"));
    match which {
        "plain" => service("web"),
        "asking" => asking,
        _ => {
            let shown = json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}});
            with(asking, "/status", shown)
        }
    }
}

fn left_behind(
    state: Option<State>,
    claimed: &str,
    exposed: &str,
    copied: bool,
    held: bool,
    wanted: bool,
) -> Cluster {
    let mut cluster = Cluster::default();
    cluster.mapping("g1", "10.0.0.0/29", &[]).group("p", "10.0.0.0/29", &[]);
    cluster.service(target(exposed));
    let ip = if wanted { json!("10.0.0.1") } else { Value::Null };
    let object = vip("web", &json!({"service": "web", "ip": ip}));
    let object = with(object, "/metadata/annotations", json!({"virtualips.paas.org/migrate": ""}));
    let finalizers: &[_] = if held {
        &["ip.finalizers.virtualips.paas.org", "service.finalizers.virtualips.paas.org"]
    } else {
        &[]
    };
    let object = with(object, "/metadata/finalizers", json!(finalizers));
    let status = json!({"ip": "10.0.0.1", "service": "web", "state": state.map(State::as_str)});
    cluster.virtual_ip(with(object, "/status", status));
    claim(&mut cluster, claimed);
    if copied {
        let vip = cluster.vip("shop/web").clone();
        let addr = "10.0.0.1".parse().unwrap();
        let original = cluster.get_service("shop/web").unwrap();
        let copy = crate::migration::clone::make(&vip, original, addr);
        cluster.put_service(copy);
    }
    cluster
}

#[test]
fn every_state_leads_to_the_same_end_and_the_address_is_never_lost() {
    let addr = "10.0.0.1".parse().unwrap();
    let key = ObjectKey::new("shop", "web");
    let states = State::ALL.into_iter().map(Some).chain([None]);
    let mut followed = 0;
    for state in states {
        for claimed in CLAIMS {
            for exposed in SERVICES {
                for bits in 0..8_u8 {
                    let (copied, held, wanted) = (bits & 1 > 0, bits & 2 > 0, bits & 4 > 0);
                    let case = format!("{state:?}, {claimed}, {exposed}, {copied} {held} {wanted}");
                    let mut cluster = left_behind(state, claimed, exposed, copied, held, wanted);
                    let of_vip = claimed.starts_with("virtualip");
                    // The original gave up before the Service became a LoadBalancer.
                    let given_up = claimed == "service's, old" && exposed == "plain";
                    let over =
                        state == Some(State::Migrated) && !(held || copied || of_vip || given_up);
                    cluster.settle();
                    assert_eq!(cluster.gaps, [], "{case}");
                    let vip = cluster.vip("shop/web");
                    assert!(!vip.is_held(), "{case}");
                    assert_eq!(vip.status.ip.as_deref(), Some("10.0.0.1"), "{case}");
                    assert!(cluster.get_service("shop/web-keepalived-clone").is_none(), "{case}");
                    if over {
                        assert_eq!(cluster.trace, Vec::<&str>::new(), "{case}: it is terminal");
                        continue;
                    }
                    assert_eq!(cluster.state("shop/web"), MIGRATED, "{case}");
                    let service = cluster.get_service("shop/web").unwrap();
                    assert!(shows(service).eq([addr]), "{case}");
                    let asked = service.spec.as_ref().unwrap().load_balancer_ip.is_some();
                    assert_eq!(asked, wanted, "{case}");
                    let claim = cluster.claim_on(addr).unwrap();
                    assert!(claim.names(&key, Some("uid-of-shop/web")), "{case}");
                    assert!(!claim.is_kept_for(&key), "{case}");
                    followed += 1;
                }
            }
        }
    }
    assert!(followed > 1000, "{followed}");
}
