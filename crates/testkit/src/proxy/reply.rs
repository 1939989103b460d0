//! Builds the reply to the operator: the real answer, half of it, a late one, or a made-up one.

use std::collections::VecDeque;
use std::error::Error;
use std::io;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use http::header::{
    CONNECTION, CONTENT_TYPE, HOST, HeaderMap, RETRY_AFTER, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, BodyStream, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::client::Body;
use serde_json::{Value, json};

type BoxError = Box<dyn Error + Send + Sync>;
pub(super) type Reply = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// More than any watch delivers in the seconds for which it is held back.
const HELD_FRAMES: usize = 4096;
/// Older lists are more than stale: their versions may be compacted by then.
const LISTS_REMEMBERED: usize = 3;

/// The answer as it came, streamed.
pub(super) fn whole(answer: Response<Body>) -> Reply {
    answer.map(|body| body.map_err(Into::into).boxed_unsync())
}

/// The answer with each piece delayed by this time, in order.
pub(super) fn held(answer: Response<Body>, time: Duration) -> Reply {
    answer.map(|body| {
        let late = BodyStream::new(body).map(move |frame| async move {
            tokio::time::sleep(time).await;
            frame.map_err(BoxError::from)
        });
        StreamBody::new(late.buffered(HELD_FRAMES)).boxed_unsync()
    })
}

/// The answer without the lines, such as events of a watch, that contain this text.
pub(super) fn without(answer: Response<Body>, text: String) -> Reply {
    answer.map(|body| {
        let mut begun = String::new();
        let kept = BodyStream::new(body).map(move |frame| {
            let data = frame.map_err(BoxError::from)?.into_data().unwrap_or_default();
            begun.push_str(&String::from_utf8_lossy(&data));
            let rest = begun.rfind('\n').map_or(0, |end| end + 1);
            let lines: String = begun
                .drain(..rest)
                .as_str()
                .split_inclusive('\n')
                .filter(|line| !line.contains(&text))
                .collect();
            Ok(Frame::data(Bytes::from(lines)))
        });
        StreamBody::new(kept).boxed_unsync()
    })
}

/// The answer up to the middle of its first piece; then the connection is cut.
pub(super) fn halved(answer: Response<Body>) -> Reply {
    answer.map(|body| {
        let half = BodyStream::new(body).take(1).flat_map(|frame| {
            let half = frame.map_err(BoxError::from).map(|frame| {
                let data = frame.into_data().unwrap_or_default();
                Frame::data(data.slice(..data.len() / 2))
            });
            let cut = io::Error::from(io::ErrorKind::ConnectionReset);
            stream::iter([half, Err(BoxError::from(cut))])
        });
        StreamBody::new(half).boxed_unsync()
    })
}

/// The body that an API server would send, because clients read it.
pub(super) fn refusal(status: StatusCode) -> Reply {
    of_json(status, &verdict(status))
}

/// The answer of flow control, which is not a `Status`.
pub(super) fn throttled(seconds: u32) -> Reply {
    let mut reply = of_bytes(Bytes::from("Too many requests, please try again later.\n"));
    *reply.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    reply
}

/// A watch that says at once that its version is too old, as an event and not as a status.
pub(super) fn expired() -> Reply {
    let event = json!({"type": "ERROR", "object": verdict(StatusCode::GONE)});
    of_json(StatusCode::OK, &event)
}

fn verdict(status: StatusCode) -> Value {
    let reason = match status {
        // The API server's reason, which differs from HTTP's.
        StatusCode::GONE => "Expired".to_owned(),
        other => other.canonical_reason().unwrap_or_default().replace(' ', ""),
    };
    json!({
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": status.as_u16(),
        "reason": reason,
        "message": "answered by the testkit's proxy",
    })
}

fn of_json(status: StatusCode, body: &Value) -> Reply {
    let mut reply = of_bytes(Bytes::from(format!("{body}\n")));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

fn of_bytes(body: Bytes) -> Reply {
    Response::new(Full::from(body).map_err(|never| match never {}).boxed_unsync())
}

/// These headers belong to one connection and not to the message; the client sets its own.
pub(super) fn strip(headers: &mut HeaderMap) {
    for name in [CONNECTION, HOST, TE, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    headers.remove("keep-alive");
}

/// Answers to one list, oldest first, to be replayed.
#[derive(Debug, Default)]
pub(super) struct Lists(VecDeque<(HeaderMap, Bytes)>);

impl Lists {
    pub(super) fn remember(&mut self, headers: HeaderMap, body: Bytes) {
        if self.0.len() == LISTS_REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((headers, body));
    }

    /// The oldest remembered answer.
    pub(super) fn stale(&self) -> Option<Reply> {
        let (headers, body) = self.0.front()?;
        let mut reply = of_bytes(body.clone());
        headers.clone_into(reply.headers_mut());
        Some(reply)
    }
}

/// Reads an answer to its end, and returns it together with a reply made of it.
pub(super) async fn read(answer: Response<Body>) -> Result<(HeaderMap, Bytes, Reply), kube::Error> {
    let (parts, body) = answer.into_parts();
    let body = body.collect().await?.to_bytes();
    let reply = Response::from_parts(parts, of_bytes(body.clone()).into_body());
    Ok((reply.headers().clone(), body, reply))
}
