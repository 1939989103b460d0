//! Health, readiness and metrics over HTTP, for the kubelet and the scraper.

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::sync::watch;

use super::{
    metrics,
    view::{Health, View},
};

const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn router(views: watch::Receiver<View>) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(page))
        .with_state(views)
}

type Views = State<watch::Receiver<View>>;

async fn healthz(State(views): Views) -> Response {
    // A node without a plan has nothing to run, and a new container would not help it.
    let health = views.borrow().keepalived.clone();
    match health {
        Health::Runs | Health::NotNeeded => "ok\n".into_response(),
        Health::Down(error) => unavailable(&error),
    }
}

async fn readyz(State(views): Views) -> Response {
    let unready = views.borrow().unready();
    unready.map_or_else(|| "ok\n".into_response(), |reason| unavailable(&reason))
}

async fn page(State(views): Views) -> Response {
    let page = metrics::page(&views.borrow());
    ([(header::CONTENT_TYPE, TEXT_FORMAT)], page).into_response()
}

fn unavailable(reason: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response()
}

#[cfg(test)]
mod tests {
    use axum::{
        body::{Body, to_bytes},
        http::Request,
    };
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn pages_tell_the_latest_state() {
        let (views, receiver) = watch::channel(View::default());
        let router = router(receiver);
        let get = async |path: &str| {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let response = router.clone().oneshot(request).await.unwrap();
            let status = response.status().as_u16();
            let body = to_bytes(response.into_body(), 100_000).await.unwrap();
            (status, String::from_utf8(body.to_vec()).unwrap())
        };
        assert_eq!(get("/healthz").await, (200, "ok\n".to_owned()));
        assert_eq!(get("/readyz").await, (503, "there is no plan yet\n".to_owned()));
        views.send_modify(|view| view.keepalived = Health::Runs);
        assert_eq!((get("/healthz").await.0, get("/readyz").await.0), (200, 200));
        assert!(get("/metrics").await.1.contains("keepalived_up 1"));
        views.send_modify(|view| view.keepalived = Health::Down("it died".to_owned()));
        assert_eq!(get("/healthz").await, (503, "it died\n".to_owned()));
        assert_eq!(get("/readyz").await, (503, "it died\n".to_owned()));
        assert!(get("/metrics").await.1.contains("keepalived_up 0"));
    }
}
