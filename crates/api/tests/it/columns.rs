use crate::cluster;

/// What a person sees: the words of each line, without the age.
fn lines(printed: &str) -> Vec<Vec<&str>> {
    printed.lines().map(|line| line.split_whitespace().collect()).collect()
}

const OBJECTS: &str = r#"
apiVersion: paas.org/v1
kind: IPGroup
metadata: {name: columns}
spec: {segment: 10.88.0.0/24}
---
apiVersion: paas.org/v1
kind: IP
metadata:
  name: 10.88.0.5
  labels: {ipgroup: columns}
  annotations: {virtualips.paas.il/owner: shop/web}
spec:
  address: 10.88.0.5
  use: LoadBalancer
  pool: IPGroup/columns
  holders: [{kind: Service, namespace: shop, name: web}]
---
apiVersion: paas.org/v1
kind: IPGroup
metadata: {name: columns-ranges}
spec: {ranges: [10.88.1.0/24, 10.88.2.5-10.88.2.9, "fd00:88::/64"]}
---
apiVersion: paas.org/v1
kind: IP
metadata:
  name: 10.88.0.6
  annotations: {virtualips.paas.il/owner: shop/web, landfall.dev/holders: shop/web +2}
---
apiVersion: paas.org/v1
kind: IP
metadata: {name: 10.88.0.7}
spec:
  address: 10.88.0.7
  use: Reserved
  reservedFor: {namespace: shop, name: mail, expires: "2031-01-02T03:04:05Z"}
"#;

const GROUP_STATUS: &str = r#"{"status": {"capacity": "256", "used": "1", "free": "255", "freeShort": "255", "waiting": 3, "conditions": [
    {"type": "Other", "status": "Unknown", "reason": "None", "message": "", "lastTransitionTime": "2026-11-15T22:10:44Z"},
    {"type": "Ready", "status": "True", "reason": "Serving", "message": "", "lastTransitionTime": "2026-11-15T22:10:44Z"}]}}"#;

#[tokio::test]
async fn kubectl_get_shows_the_holder_of_each_address() {
    let cluster = cluster().await;
    cluster.apply_yaml(OBJECTS).await.unwrap();
    let wide = r#"{"status": {"ranges": "10.88.1.0/24,10.88.2.5-10.88.2.9 +1", "used": "0",
        "free": "18446744073709551877", "freeShort": "1.8e19", "waiting": 0}}"#;
    for (resource, name, status) in [
        ("ipg", "columns", GROUP_STATUS),
        ("ipg", "columns-ranges", wide),
        ("ips", "10.88.0.5", r#"{"status": {"node": "n1"}}"#),
    ] {
        cluster
            .kubectl(&[
                "patch",
                resource,
                name,
                "--subresource=status",
                "--type=merge",
                "-p",
                status,
            ])
            .await
            .unwrap();
    }

    let of_pool = "NAME SEGMENT RANGES FREE USED WAITING READY AGE";
    let of_ip = "NAME ADDRESS USE POOL HOLDER RESERVED FOR SERVICE UNTIL NODE AGE";
    for (args, header, row) in [
        (&["get", "ipg", "columns"][..], of_pool, "columns 10.88.0.0/24 255 1 3 True"),
        (
            &["get", "ipg", "columns-ranges"],
            of_pool,
            "columns-ranges 10.88.1.0/24,10.88.2.5-10.88.2.9 +1 1.8e19 0 0",
        ),
        (
            &["get", "ips", "10.88.0.5"],
            of_ip,
            "10.88.0.5 10.88.0.5 LoadBalancer IPGroup/columns shop/web n1",
        ),
        (&["get", "ips", "10.88.0.6"], of_ip, "10.88.0.6 shop/web +2"),
        (
            &["get", "ips", "10.88.0.7"],
            of_ip,
            "10.88.0.7 10.88.0.7 Reserved shop mail 2031-01-02T03:04:05Z",
        ),
        (
            &["get", "ips", "10.88.0.5", "-o", "wide"],
            "NAME ADDRESS USE POOL HOLDER RESERVED FOR SERVICE UNTIL NODE IPGROUP AGE",
            "10.88.0.5 10.88.0.5 LoadBalancer IPGroup/columns shop/web n1 columns",
        ),
        (
            &["get", "ips", "--field-selector", "spec.pool=IPGroup/columns,spec.use=LoadBalancer"],
            of_ip,
            "10.88.0.5 10.88.0.5 LoadBalancer IPGroup/columns shop/web n1",
        ),
    ] {
        let printed = cluster.kubectl(args).await.unwrap();
        let lines = lines(&printed);
        assert_eq!(lines[0].join(" "), header, "{args:?}");
        let (_age, shown) = lines[1].split_last().unwrap();
        assert_eq!(shown.join(" "), row, "{args:?}");
        assert_eq!(lines.len(), 2, "{args:?}: {printed}");
    }
    let all = cluster.kubectl(&["get", "landfall", "-o", "name"]).await.unwrap();
    for name in ["ipgroup.paas.org/columns", "ip.paas.org/10.88.0.5"] {
        assert!(all.lines().any(|line| line == name), "{name} in {all}");
    }
}
