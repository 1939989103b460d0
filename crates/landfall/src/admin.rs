//! Health, readiness and metrics over HTTP, for the kubelet and the scraper.

mod connections;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use landfall_controllers::readiness::Readiness;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

use self::connections::Limits;

const LIMITS: Limits = Limits { connections: 64, time: Duration::from_secs(10) };
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What can go wrong with the admin server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("listening on {addr} for health and metrics")]
    Bind { addr: SocketAddr, source: io::Error },
}

/// A bound but not yet serving admin server; binding first makes a taken port an error at start.
#[derive(Debug)]
pub struct Admin {
    listener: TcpListener,
    addr: SocketAddr,
    limits: Limits,
}

impl Admin {
    /// Binds and logs the real address, which tests and people need if they asked for port 0.
    pub async fn bind(addr: SocketAddr) -> Result<Self, Error> {
        let bound = match TcpListener::bind(addr).await {
            // `[::]` means "everywhere", even on a machine without IPv6.
            Err(error) if addr.ip().is_unspecified() && addr.is_ipv6() && is_no_ipv6(&error) => {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, addr.port())).await
            }
            bound => bound,
        };
        let named = |source| Error::Bind { addr, source };
        let listener = bound.map_err(named)?;
        let addr = listener.local_addr().map_err(named)?;
        info!(admin_addr = %addr, "serving health and metrics");
        Ok(Self { listener, addr, limits: LIMITS })
    }

    /// Where it really listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves the operator's pages until `stop`.
    pub async fn serve(self, readiness: Readiness, registry: Registry, stop: CancellationToken) {
        let router = Router::new()
            // To answer is to be alive: a dead task ends the whole process (supervise.rs).
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(readyz).with_state(readiness))
            .route("/metrics", get(metrics).with_state(Arc::new(registry)));
        self.serve_pages(router, stop).await;
    }

    /// Serves these pages until `stop`.
    pub async fn serve_pages(self, pages: Router, stop: CancellationToken) {
        connections::serve(self.listener, pages, self.limits, stop).await;
    }
}

fn is_no_ipv6(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied)
}

async fn readyz(State(readiness): State<Readiness>) -> Response {
    let pending = readiness.pending();
    if pending.is_empty() {
        return "ok\n".into_response();
    }
    let body = format!("not listed yet: {}\n", pending.join(", "));
    (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
}

async fn metrics(State(registry): State<Arc<Registry>>) -> Response {
    let mut body = String::new();
    match text::encode(&mut body, &registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPENMETRICS)], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests;
