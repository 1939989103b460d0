//! The API server accepts everything that users copy: every YAML block of the documents and every manifest.

use std::fs;
use std::path::{Path, PathBuf};

use landfall_testkit::ControlPlane;
use rstest::rstest;
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files below `folder` with this extension, in order.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|name| name == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The text of each fenced block that is marked as YAML.
fn yaml_blocks(markdown: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<Vec<&str>> = None;
    for line in markdown.lines() {
        match &mut open {
            None if line.trim() == "```yaml" => open = Some(Vec::new()),
            None => {}
            Some(block) if line.trim() == "```" => {
                blocks.push(block.join("\n") + "\n");
                open = None;
            }
            Some(block) => block.push(line),
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

/// Every block and example, named so that a refusal says where to look.
///
/// Design documents are history; their examples need not work any more.
fn manifests() -> Vec<(String, String)> {
    let root = root();
    let mut documents = files(&root.join("docs"), "md");
    documents.retain(|path| !path.starts_with(root.join("docs/design")));
    documents.push(root.join("README.md"));
    let mut manifests = Vec::new();
    for path in documents {
        let name = path.strip_prefix(&root).unwrap().to_string_lossy().replace('/', "_");
        let blocks = yaml_blocks(&fs::read_to_string(&path).unwrap());
        let numbered = blocks.into_iter().enumerate();
        manifests.extend(numbered.map(|(index, text)| (format!("{name}-{}", index + 1), text)));
    }
    assert!(manifests.len() >= 5, "the documents show how to use it: {}", manifests.len());
    let examples = files(&root.join("examples"), "yaml");
    assert!(!examples.is_empty());
    for path in examples {
        let name = path.strip_prefix(&root).unwrap().to_string_lossy().replace('/', "_");
        manifests.push((name, fs::read_to_string(&path).unwrap()));
    }
    manifests
}

async fn plane() -> &'static ControlPlane {
    let plane = landfall_testkit::shared().await.unwrap();
    plane.install_crds(&root().join("deploy/crds")).await.unwrap();
    plane
}

#[tokio::test]
async fn every_yaml_block_and_example_is_accepted() {
    let plane = plane().await;
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in manifests() {
        // A dry run creates no namespaces, and a dry run in a missing namespace fails.
        for line in text.lines() {
            if let Some(namespace) = line.trim().strip_prefix("namespace: ") {
                plane.ensure_namespace(namespace).await.unwrap();
            }
        }
        fs::write(folder.path().join(format!("{name}.yaml")), text).unwrap();
    }
    let folder = folder.path().to_string_lossy();
    plane
        .kubectl(&["apply", "--dry-run=server", "--validate=strict", "-f", &folder])
        .await
        .unwrap();
}

/// The objects of a manifest as the API server would store them.
async fn rehearsed(plane: &ControlPlane, path: &str) -> Vec<Value> {
    let dry_run = ["apply", "--dry-run=server", "--validate=strict", "-o", "json", "-f", path];
    let mut answer: Value = serde_json::from_str(&plane.kubectl(&dry_run).await.unwrap()).unwrap();
    if let Value::Array(items) = answer["items"].take() { items } else { vec![answer] }
}

#[tokio::test]
async fn every_manifest_is_accepted_and_carries_the_recommended_labels() {
    let plane = plane().await;
    let rbac = root().join("deploy/rbac.yaml");
    plane.kubectl(&["apply", "--server-side", "-f", &rbac.to_string_lossy()]).await.unwrap();
    // Alerts are read by Prometheus, not by the API server.
    let alerts = root().join("deploy/prometheus");
    let mut manifests = files(&root().join("deploy"), "yaml");
    manifests.retain(|path| !path.starts_with(&alerts));
    assert!(manifests.len() >= 14, "{manifests:?}");
    for path in manifests {
        for object in rehearsed(plane, &path.to_string_lossy()).await {
            let template = object.pointer("/spec/template/metadata/labels");
            for labels in object.pointer("/metadata/labels").into_iter().chain(template) {
                assert_eq!(labels["app.kubernetes.io/name"], "landfall", "{object}");
                assert_eq!(labels["app.kubernetes.io/part-of"], "landfall", "{object}");
                assert!(labels["app.kubernetes.io/component"].is_string(), "{object}");
            }
            assert!(object["metadata"]["labels"].is_object(), "{}: {object}", path.display());
        }
    }
}

#[rstest]
#[case::operator("rbac.yaml", "operator.yaml")]
#[case::kube_vip("kube-vip/rbac.yaml", "kube-vip/deployment.yaml")]
#[tokio::test]
async fn the_deployment_is_admitted_where_only_restricted_pods_are(
    #[case] rbac: &str,
    #[case] operator: &str,
) {
    let plane = plane().await;
    let deploy = |file: &str| root().join("deploy").join(file).to_string_lossy().into_owned();
    for rbac in ["rbac.yaml", rbac] {
        plane.kubectl(&["apply", "--server-side", "-f", &deploy(rbac)]).await.unwrap();
    }
    let objects = rehearsed(plane, &deploy(operator)).await;
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let pods = &deployment["spec"]["template"]["spec"];
    assert_eq!(pods["priorityClassName"], "system-cluster-critical");
    assert_eq!(pods["nodeSelector"]["kubernetes.io/os"], "linux");
    // Objects that protect the operator's Pods must select those Pods and no others.
    for (kind, selector) in [
        ("PodDisruptionBudget", "/spec/selector/matchLabels"),
        ("NetworkPolicy", "/spec/podSelector/matchLabels"),
    ] {
        let object = objects.iter().find(|object| object["kind"] == kind).unwrap();
        let selected = object.pointer(selector).unwrap();
        assert_eq!(selected, &deployment["spec"]["selector"]["matchLabels"], "{kind}");
        assert_eq!(object["metadata"]["namespace"], deployment["metadata"]["namespace"], "{kind}");
    }

    // A Deployment that asks for too much is accepted while its Pods are not; so a Pod is tried.
    let namespace = plane.kubectl(&["get", "namespace", "landfall-system", "-o", "json"]).await;
    assert!(namespace.unwrap().contains(r#""pod-security.kubernetes.io/enforce": "restricted""#));
    let mut pod = deployment["spec"]["template"].clone();
    let account = pod["spec"]["serviceAccountName"].as_str().unwrap();
    plane.service_account_kubeconfig("landfall-system", account).await.unwrap();
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = "landfall-operator".into();
    pod["metadata"]["namespace"] = "landfall-system".into();
    let file = tempfile::NamedTempFile::with_suffix(".json").unwrap();
    fs::write(file.path(), pod.to_string()).unwrap();
    let file = file.path().to_string_lossy();
    plane.kubectl(&["create", "--dry-run=server", "-f", &file]).await.unwrap();
}

#[rstest]
fn a_deployment_tells_the_operator_in_which_pod_it_runs(
    #[values("operator.yaml", "kube-vip/deployment.yaml")] file: &str,
) {
    let text = fs::read_to_string(root().join("deploy").join(file)).unwrap();
    let words: Vec<_> = text.split_whitespace().collect();
    let variable = "- name: LANDFALL_POD_UID valueFrom: fieldRef: fieldPath: metadata.uid";
    assert!(words.join(" ").contains(variable), "{file}");
}

#[test]
fn links_between_documents_lead_somewhere() {
    let root = root();
    let mut documents = files(&root.join("docs"), "md");
    documents.extend(
        ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"].map(|name| root.join(name)),
    );
    let mut checked = 0;
    for path in documents {
        let text = fs::read_to_string(&path).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            assert!(path.parent().unwrap().join(target).exists(), "{}: {link}", path.display());
            checked += 1;
        }
    }
    assert!(checked > 10, "{checked}");
}

#[test]
fn every_reason_has_its_place_in_the_troubleshooting_page() {
    let reasons = fs::read_to_string(root().join("docs/reference/reasons.md")).unwrap();
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let rows = reasons.lines().filter_map(|line| line.strip_prefix("| `"));
    let words: Vec<_> = rows.filter_map(|row| row.split('`').next()).collect();
    assert!(!words.is_empty());
    for word in words {
        assert!(page.contains(&format!("\n## {word}\n")), "{word}");
    }
    let (_, groups) = reasons.split_once("\n## Conditions of keepalived groups\n").unwrap();
    let rows = groups.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").nth(1));
    let words: Vec<_> = rows.filter(|cell| cell.starts_with('`')).collect();
    assert!(words.len() > 5, "{words:?}");
    let section = page.split("\n## ").find(|part| part.starts_with("What a KeepalivedGroup says"));
    let section = section.unwrap();
    for word in words {
        assert!(section.contains(word), "{word}");
    }
}
