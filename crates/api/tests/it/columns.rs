use crate::cluster;

/// What a person sees: the words of each line, without the age.
fn lines(printed: &str) -> Vec<Vec<&str>> {
    printed.lines().map(|line| line.split_whitespace().collect()).collect()
}

const OBJECTS: &str = r"
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
";

const GROUP_STATUS: &str = r#"{"status": {"capacity": "256", "used": "1", "free": "255", "waiting": 3, "conditions": [
    {"type": "Other", "status": "Unknown", "reason": "None", "message": "", "lastTransitionTime": "2026-11-15T22:10:44Z"},
    {"type": "Ready", "status": "True", "reason": "Serving", "message": "", "lastTransitionTime": "2026-11-15T22:10:44Z"}]}}"#;

#[tokio::test]
async fn kubectl_get_answers_who_has_what() {
    let cluster = cluster().await;
    cluster.apply_yaml(OBJECTS).await.unwrap();
    for (resource, name, status) in
        [("ipg", "columns", GROUP_STATUS), ("ips", "10.88.0.5", r#"{"status": {"node": "n1"}}"#)]
    {
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

    for (args, header, row) in [
        (
            &["get", "ipg", "columns"][..],
            "NAME SEGMENT FREE USED WAITING READY AGE",
            "columns 10.88.0.0/24 255 1 3 True",
        ),
        (
            &["get", "ips", "10.88.0.5"],
            "NAME ADDRESS USE POOL HOLDER NODE AGE",
            "10.88.0.5 10.88.0.5 LoadBalancer IPGroup/columns shop/web n1",
        ),
        (
            &["get", "ips", "10.88.0.5", "-o", "wide"],
            "NAME ADDRESS USE POOL HOLDER NODE IPGROUP AGE",
            "10.88.0.5 10.88.0.5 LoadBalancer IPGroup/columns shop/web n1 columns",
        ),
        (
            &["get", "ips", "--field-selector", "spec.pool=IPGroup/columns,spec.use=LoadBalancer"],
            "NAME ADDRESS USE POOL HOLDER NODE AGE",
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
