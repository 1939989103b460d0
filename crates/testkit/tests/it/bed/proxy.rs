use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use landfall_testkit::bed::{Node, Program};
use landfall_testkit::proxy::Upstream;
use landfall_testkit::{Program as Binary, Proxy, shared, wait};

use super::{DEADLINE, bed};

/// Something on the host's loopback that answers every request alike, for as long as the test runs.
fn loopback_server() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            drop(stream.read(&mut request));
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nhost";
            drop(stream.write_all(answer.as_bytes()));
        }
    });
    addr
}

/// One request from a node, and the answer if it comes within `patience`.
fn get(node: &Node, proxy: &Proxy, patience: Duration) -> Option<String> {
    let addr: SocketAddr = proxy.url().trim_start_matches("http://").parse().unwrap();
    let get = move || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&addr, DEADLINE)?;
        stream.set_read_timeout(Some(patience))?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: api\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    node.inside(get).unwrap().ok().filter(|answer| !answer.is_empty())
}

#[tokio::test]
async fn a_node_reaches_the_hosts_loopback_through_api_with_every_fault_of_a_proxy() {
    let Some(bed) = bed().await else { return };
    let server = loopback_server();
    let node = bed.node("n1");
    let direct = node.inside(move || TcpStream::connect(server).is_ok()).unwrap();
    assert!(!direct, "the loopback of a node is its own");

    let proxy = bed.proxy_to(Upstream::http(server).unwrap()).await.unwrap();
    assert!(proxy.url().contains(&bed.api().ipv4().to_string()));
    let answer = get(node, &proxy, DEADLINE).unwrap();
    assert!(answer.ends_with("host"), "{answer}");
    assert_eq!(proxy.requests().len(), 1);

    proxy.freeze_all();
    assert_eq!(get(node, &proxy, Duration::from_millis(200)), None);
    proxy.thaw();
    get(node, &proxy, DEADLINE).unwrap();
    proxy.stop();
    assert_eq!(get(node, &proxy, DEADLINE), None);
    proxy.resume();
    get(node, &proxy, DEADLINE).unwrap();
}

#[tokio::test]
async fn a_program_on_a_node_talks_to_the_control_plane_by_a_kubeconfig() {
    let Some(bed) = bed().await else { return };
    let plane = shared().await.unwrap();
    let proxy = bed.proxy(plane).await.unwrap();
    let path =
        plane.service_account_kubeconfig_via("bed-proxy", "agent", &proxy.url()).await.unwrap();
    let mut command = Command::new("sh");
    // Until the authorizer of a new API server has learnt the rights that everyone has. By plain HTTP, kubectl
    // sends no token.
    command.args(["-c", r#"until "$@"; do sleep 0.1; done"#, "kubectl"]);
    let kubectl = plane.assets().path(Binary::Kubectl);
    command.arg(&kubectl).arg("--kubeconfig").arg(&path);
    command.args(["--cache-dir", "/tmp/cache", "get", "--raw", "/version"]);
    let program =
        Program::new(command).sees(plane.dir()).sees(kubectl.parent().unwrap()).confined();
    let process = bed.node("n3").run(program, "kubectl.log").unwrap();
    let said = wait::until("kubectl's answer", DEADLINE, async || {
        if process.is_running() { None } else { Some(process.log_tail(50)) }
    })
    .await
    .unwrap();
    let requests: Vec<_> = proxy.requests().iter().map(ToString::to_string).collect();
    assert!(said.contains("gitVersion"), "{said}{requests:#?}");
}
