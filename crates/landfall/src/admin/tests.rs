use std::time::Duration;

use landfall_controllers::leadership::{Leadership, leadership};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::*;
use crate::metrics;

struct Server {
    addr: SocketAddr,
    readiness: Readiness,
    stop: CancellationToken,
    task: JoinSet<Result<(), Error>>,
}

async fn serve(leadership: &Leadership) -> Server {
    let admin = Admin::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let addr = admin.addr();
    let (readiness, stop) = (Readiness::default(), CancellationToken::new());
    let mut registry = Registry::default();
    metrics::register(&mut registry, leadership);
    let mut task = JoinSet::new();
    task.spawn(admin.serve(readiness.clone(), registry, stop.clone()));
    Server { addr, readiness, stop, task }
}

/// The whole answer, head and body; no client library, to see the bytes a probe sees.
async fn ask(addr: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn readiness_names_what_has_not_listed() {
    let server = serve(&Leadership::always()).await;
    let services = server.readiness.register("services");
    let pools = server.readiness.register("ipgroups");
    server.readiness.seal();
    let answer = ask(server.addr, "/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.ends_with("not listed yet: ipgroups, services\n"), "{answer}");
    // Alive all the while: a restart would not make the list come sooner.
    assert!(ask(server.addr, "/healthz").await.starts_with("HTTP/1.1 200 "));
    services.done();
    pools.done();
    assert!(ask(server.addr, "/readyz").await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_standby_is_ready_too() {
    let (_setter, standby) = leadership();
    let server = serve(&standby).await;
    server.readiness.seal();
    assert!(ask(server.addr, "/readyz").await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn metrics_are_openmetrics_and_tell_who_leads() {
    let (mut setter, leadership) = leadership();
    let server = serve(&leadership).await;
    let answer = ask(server.addr, "/metrics").await;
    assert!(answer.contains(&format!("content-type: {OPENMETRICS}\r\n")), "{answer}");
    assert!(answer.contains("landfall_build_info{version=\"0.1.0\"} 1\n"), "{answer}");
    assert!(answer.contains("\nlandfall_leader 0\n"), "{answer}");
    assert!(answer.ends_with("# EOF\n"), "{answer}");
    setter.lead_until(Instant::now() + Duration::from_mins(10));
    assert!(ask(server.addr, "/metrics").await.contains("\nlandfall_leader 1\n"));
}

#[tokio::test]
async fn a_taken_port_is_an_error_that_names_it() {
    let first = Admin::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let error = Admin::bind(first.addr()).await.unwrap_err();
    assert!(error.to_string().contains(&first.addr().to_string()), "{error}");
}

#[tokio::test]
async fn stop_ends_it_in_peace() {
    let mut server = serve(&Leadership::always()).await;
    server.stop.cancel();
    server.task.join_next().await.unwrap().unwrap().unwrap();
}
