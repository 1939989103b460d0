use std::time::Duration;

use landfall_controllers::history::History;
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
    task: JoinSet<()>,
}

async fn serve(leadership: &Leadership) -> Server {
    serve_within(LIMITS, leadership).await
}

async fn serve_within(limits: Limits, leadership: &Leadership) -> Server {
    let mut admin = Admin::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    admin.limits = limits;
    let addr = admin.addr();
    let (readiness, stop) = (Readiness::default(), CancellationToken::new());
    let mut registry = Registry::default();
    metrics::register(&mut registry, leadership, &History::default());
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
async fn readiness_names_the_watches_that_have_not_listed() {
    let server = serve(&Leadership::always()).await;
    let services = server.readiness.register("services");
    let pools = server.readiness.register("ipgroups");
    server.readiness.seal();
    let answer = ask(server.addr, "/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.ends_with("not listed yet: ipgroups, services\n"), "{answer}");
    // Alive the whole time: a restart would not make the list come sooner.
    assert!(ask(server.addr, "/healthz").await.starts_with("HTTP/1.1 200 "));
    services.done();
    pools.done();
    assert!(ask(server.addr, "/readyz").await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_standby_is_ready() {
    let (_setter, standby) = leadership();
    let server = serve(&standby).await;
    server.readiness.seal();
    assert!(ask(server.addr, "/readyz").await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn metrics_are_openmetrics_and_tell_whether_the_process_leads() {
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
    server.task.join_next().await.unwrap().unwrap();
}

/// A connection on which this text was sent and nothing follows.
async fn unfinished(addr: SocketAddr, sent: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(sent.as_bytes()).await.unwrap();
    stream
}

/// Everything the server still sends until it ends the connection; does not return before.
async fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    // A reset ends the connection as well.
    stream.read_to_end(&mut answer).await.ok();
    String::from_utf8(answer).unwrap()
}

const HALF_A_REQUEST: &str = "GET /healthz HTTP/1.1\r\nhost: x\r\n";

#[tokio::test]
async fn requests_that_never_end_keep_no_other_request_out() {
    // So long that no connection is closed because of its age.
    let limits = Limits { time: Duration::from_hours(1), ..LIMITS };
    let server = serve_within(limits, &Leadership::always()).await;
    let mut held = Vec::new();
    for _ in 0..256 {
        held.push(unfinished(server.addr, HALF_A_REQUEST).await);
    }
    // The probe is one of the connections that may be open.
    assert!(ask(server.addr, "/healthz").await.ends_with("ok\n"));
    let (ended, open) = held.split_at_mut(256 + 1 - LIMITS.connections);
    for stream in ended {
        assert_eq!(rest(stream).await, "", "the oldest gave way");
    }
    for stream in open {
        stream.write_all(b"\r\n").await.unwrap();
        assert!(rest(stream).await.ends_with("ok\n"), "the newest may go on");
    }
}

#[tokio::test]
async fn a_connection_ends_when_its_time_is_over_however_far_the_request_is() {
    let limits = Limits { time: Duration::from_millis(200), ..LIMITS };
    let server = serve_within(limits, &Leadership::always()).await;
    for sent in ["", "GET /hea", HALF_A_REQUEST] {
        let mut stream = unfinished(server.addr, sent).await;
        assert_eq!(rest(&mut stream).await, "", "{sent:?}");
    }
}

#[tokio::test]
async fn no_body_is_waited_for_and_a_connection_serves_one_request() {
    let limits = Limits { time: Duration::from_hours(1), ..LIMITS };
    let server = serve_within(limits, &Leadership::always()).await;
    let half_a_body = format!("{HALF_A_REQUEST}content-length: 1000000\r\n\r\nhalf");
    let two = format!("{HALF_A_REQUEST}\r\n{HALF_A_REQUEST}\r\n");
    for sent in [half_a_body, two] {
        let mut stream = unfinished(server.addr, &sent).await;
        let answer = rest(&mut stream).await;
        assert_eq!(answer.matches("HTTP/1.1 200 ").count(), 1, "{sent}: {answer}");
        assert!(answer.contains("connection: close\r\n"), "{sent}: {answer}");
    }
}
