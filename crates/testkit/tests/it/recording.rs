use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::{Api, ResourceExt as _};
use landfall_testkit::{Recording, shared};

const RECORDED: &str = r"
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Namespace
  metadata: {name: recorded, uid: 2167922f-231d-4fd9-a4fa-31a50381ca54, resourceVersion: '214'}
  spec: {finalizers: [kubernetes]}
  status: {phase: Active}
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: owner, namespace: recorded, uid: 8f5133bb-3779-4cf0-97c7-5b4308af5507}
  data: {key: value}
- apiVersion: v1
  kind: Service
  metadata:
    name: web
    namespace: recorded
    uid: 3bb78e49-f63f-415d-abe5-7513ea625c0f
    resourceVersion: '326'
    creationTimestamp: '2026-11-15T22:12:50Z'
    generation: 1
    deletionTimestamp: '2026-11-15T22:12:59Z'
    deletionGracePeriodSeconds: 0
    finalizers: [example.org/hold]
    ownerReferences:
    - {apiVersion: v1, kind: ConfigMap, name: owner, uid: 8f5133bb-3779-4cf0-97c7-5b4308af5507}
  spec:
    type: LoadBalancer
    clusterIP: 10.64.200.7
    clusterIPs: [10.64.200.7]
    ports: [{port: 80, protocol: TCP, targetPort: 80}]
  status:
    loadBalancer: {ingress: [{ip: 192.0.2.7, ipMode: VIP}]}
";

#[tokio::test]
async fn a_recording_is_played_back_with_status_owners_and_deletions() {
    let client = shared().await.unwrap().admin_client().await.unwrap();
    let recording = Recording::load(RECORDED).unwrap();
    assert_eq!(recording.items().len(), 3);
    recording.replay(&client).await.unwrap();

    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "recorded");
    let owner = maps.get("owner").await.unwrap();
    let services: Api<Service> = Api::namespaced(client, "recorded");
    let service = services.get("web").await.unwrap();
    assert_eq!(service.owner_references()[0].uid, owner.uid().unwrap());
    assert_eq!(service.finalizers(), ["example.org/hold"]);
    assert!(service.metadata.deletion_timestamp.is_some());
    assert_eq!(service.spec.as_ref().unwrap().cluster_ip.as_deref(), Some("10.64.200.7"));
    let ingress = service.status.unwrap().load_balancer.unwrap().ingress.unwrap();
    assert_eq!(ingress[0].ip.as_deref(), Some("192.0.2.7"));
}

#[test]
fn text_that_is_no_list_is_refused() {
    let error = Recording::load("items: 3").unwrap_err().to_string();
    assert!(error.contains("recording"), "{error}");
}
