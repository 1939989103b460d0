use alloc::{string::ToString, vec, vec::Vec};

use proptest::prelude::*;

use super::*;

/// In the manner of the replaced operator: spread and plain Services, conditional lines, blank lines.
const REPLACED: &str = "\
global_defs {
    router_id edge

    script_user root

}
vrrp_script shop/local {
  script \"/usr/bin/curl --fail --max-time 1 http://127.0.0.1:30585/health\"
  timeout 10
}

vrrp_instance shop/spread/192.0.2.152 {
    @edge-7jx8p state MASTER
    @^edge-7jx8p state BACKUP
    @edge-7jx8p priority 200
    interface ens4

    virtual_router_id 6

    virtual_ipaddress {
      192.0.2.152
    }
    unicast_peer {

      192.0.2.11
      192.0.2.13
    }
    authentication {
      auth_type PASS
      auth_pass s3cr3tpw
    }


}

vrrp_instance shop/mixed {
    interface ens4
    virtual_router_id 2
    virtual_ipaddress {

      2001:db8::120

      192.0.2.120

      2001:db8::121

    }
    track_script {
      shop/local
    }
    track_src_ip
}

vrrp_instance shop/waiting {
    interface ens4
    virtual_router_id 0
    virtual_ipaddress {
    }
    unicast_peer {
    }
}
";

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn found(text: &str) -> Vec<FoundInstance> {
    instances(&parse(text).unwrap()).collect()
}

#[test]
fn files_of_the_replaced_operator_are_read() {
    let nothing = || FoundInstance {
        name: String::new(),
        router_id: None,
        version: None,
        advert_millis: None,
        advertised: vec![],
        excluded: vec![],
        ignored: vec![],
        peers: vec![],
        password: None,
    };
    let expected = vec![
        FoundInstance {
            name: "shop/spread/192.0.2.152".to_string(),
            router_id: Some(6),
            advertised: addresses(&["192.0.2.152"]),
            peers: addresses(&["192.0.2.11", "192.0.2.13"]),
            password: Some("s3cr3tpw".to_string()),
            ..nothing()
        },
        FoundInstance {
            name: "shop/mixed".to_string(),
            router_id: Some(2),
            // Those of the other family were never advertised.
            advertised: addresses(&["2001:db8::120", "2001:db8::121"]),
            ignored: addresses(&["192.0.2.120"]),
            ..nothing()
        },
        FoundInstance { name: "shop/waiting".to_string(), ..nothing() },
    ];
    assert_eq!(found(REPLACED), expected);
}

#[test]
fn statements_are_read_as_keepalived_reads_them() {
    for (case, inside, expected) in [
        ("one line", "virtual_ipaddress { 192.0.2.1 }", &["192.0.2.1"][..]),
        (
            "prefix and device",
            "virtual_ipaddress {\n192.0.2.1/24 dev eth1 scope link\n}",
            &["192.0.2.1"],
        ),
        ("comments", "virtual_ipaddress { # one {\n192.0.2.1 ! }\n#192.0.2.2\n}", &["192.0.2.1"]),
        (
            "two blocks",
            "virtual_ipaddress {\n192.0.2.1\n}\nvirtual_ipaddress {\n192.0.2.2\n}",
            &["192.0.2.1", "192.0.2.2"],
        ),
        ("no address", "virtual_ipaddress {\nfrobnicate\n}", &[]),
        ("quotes", "virtual_ipaddress {\n\"192.0.2.1\"\n}", &["192.0.2.1"]),
        ("brace on the next line", "virtual_ipaddress\n{\n192.0.2.1\n}", &["192.0.2.1"]),
    ] {
        let text = alloc::format!("vrrp_instance a {{\n{inside}\n}}\n");
        assert_eq!(found(&text)[0].advertised, addresses(expected), "{case}");
    }
}

#[test]
fn a_password_may_be_quoted() {
    for (line, expected) in [
        ("auth_pass plain", Some("plain")),
        ("auth_pass \"a# !c{}\"", Some("a# !c{}")),
        ("auth_pass cut#off", Some("cut")),
        ("auth_type PASS", None),
    ] {
        let text = alloc::format!("vrrp_instance a {{\nauthentication {{\n{line}\n}}\n}}\n");
        assert_eq!(found(&text)[0].password.as_deref(), expected, "{line}");
    }
}

#[test]
fn a_text_that_is_no_configuration_is_refused_with_its_line() {
    for (text, expected) in [
        ("a {\n}\n}\n", ParseError::NothingToClose(3)),
        ("a {\nb {\n}\n", ParseError::NotClosed),
        ("a\nb \"c\n", ParseError::OpenQuote(2)),
        (&"a {\n".repeat(17), ParseError::TooDeep(17)),
    ] {
        assert_eq!(parse(text), Err(expected), "{text}");
    }
    assert!(parse(&["a {\n".repeat(16), "}\n".repeat(16)].concat()).is_ok());
}

proptest! {
    #[test]
    fn no_text_is_too_strange_to_be_read_or_refused(text in "[a-c{}\"#! \n]{0,60}") {
        if let Ok(file) = parse(&text) {
            prop_assert!(file.iter().all(|statement| !statement.words.is_empty()));
        }
    }
}
