//! The webhook: from the bytes of a review to the bytes of its answer, in time.
//!
//! The allowing answer needs nothing but the review's uid; whatever fails after that, a panic included, ends in it.

mod metrics;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::FutureExt;
use http_body_util::BodyExt;
use tokio::time::{Duration, Instant, timeout};

pub use metrics::ReviewMetrics;

use crate::body::{Budget, Pace, ReadError};
use crate::decide::{self, Current, Decision, Wait, shortened};
use crate::patch;
use crate::reason::Reason;
use crate::review::{self, Audit, Review, ReviewError, Subject};

/// Bytes of a review. A Pod has at most 3 MiB and a review may hold it twice (k8s.io/apiserver `MaxRequestBodyBytes`).
pub const BODY_LIMIT: usize = 8 << 20;
/// Bytes of all reviews that are in memory at a time, but for those that come in one piece: five of the largest, or five
/// hundred of 64 KiB, each with 32 KiB for the buffers of its connection.
///
/// What the shipped memory limit of 512 MiB is made of, at the worst: these 48 MiB; 4,096 connections of 40 KiB (25 at
/// rest, measured, and a head or a small review), 160 MiB; 48 MiB of registries' answers (`registry::limits`);
/// 16 MiB of tokens; some 60 MiB of a full cache; 25 MiB of the program. The rest is for what the allocator keeps.
const BODIES: usize = 48 << 20;
/// How fast a body has to arrive. API servers send it within milliseconds, in one go.
const PACE: Pace = Pace { grace: Duration::from_secs(2), rate: 1 << 20 };
/// How much of a body that is too large is taken and thrown away, and for how long.
const DISCARDED: usize = 16 << 20;
const DISCARD_TIME: Duration = Duration::from_secs(1);
/// What of the API server's own timeout is kept for the way back.
const MARGIN: Duration = Duration::from_secs(1);
/// How reviews and answers are written.
const JSON: &str = "application/json";

/// What answers reviews. Clones are the same webhook.
#[derive(Clone)]
pub struct Webhook(Arc<Inner>);

struct Inner {
    current: Current,
    metrics: ReviewMetrics,
    bodies: Budget,
}

impl Webhook {
    /// A webhook that decides by what `current` is at each time.
    pub fn new(current: Current, metrics: ReviewMetrics) -> Self {
        Self(Arc::new(Inner { current, metrics, bodies: Budget::new(BODIES) }))
    }

    /// `POST /mutate`; anything else is 404 or 405.
    pub fn router(self) -> Router {
        Router::new().route("/mutate", post(mutate)).with_state(self)
    }

    /// Answers the review in `body`, which arrived at `begun`; `timeout` is how long the API server will wait.
    ///
    /// # Errors
    /// Only what has no uid cannot be answered.
    pub async fn answer(
        &self,
        body: &[u8],
        begun: Instant,
        timeout: Option<Duration>,
    ) -> Result<Vec<u8>, ReviewError> {
        self.answer_before(body, begun, timeout, std::future::pending()).await
    }

    /// The same; when `end` comes first the Pod is answered at once, and unchanged.
    async fn answer_before(
        &self,
        body: &[u8],
        begun: Instant,
        timeout: Option<Duration>,
        end: impl Future<Output = ()>,
    ) -> Result<Vec<u8>, ReviewError> {
        let review = review::decode(body)?;
        let snapshot = self.0.current.get();
        let budget =
            timeout.map_or(snapshot.budget, |timeout| snapshot.budget.min(timeout.saturating_sub(MARGIN)));
        let decision = async {
            match &review.subject {
                Subject::Other => Decision::unchanged(Reason::NotApplicable),
                Subject::Malformed => Decision::unchanged(Reason::Malformed),
                Subject::Pod(pod) => {
                    let wait = Wait::Until(begun + budget);
                    tokio::select! {
                        biased;
                        decision = snapshot.decide(review.namespace.as_str(), pod, wait) => decision,
                        () = end => Decision::unchanged(Reason::Overloaded),
                    }
                }
            }
        };
        Ok(self.answer_with(&review, begun, decision).await)
    }

    /// Counts and logs the decision, and gives the answer that says so; a panic on the way to it changes nothing in the Pod.
    fn answer_with<'a>(
        &self,
        review: &Review<'_>,
        begun: Instant,
        decision: impl Future<Output = Decision<'a>>,
    ) -> impl Future<Output = Vec<u8>> {
        let rendered = decision.map(|decision| {
            let patch = match &review.subject {
                Subject::Pod(pod) => patch::build("", pod, &decision.edits),
                Subject::Malformed | Subject::Other => String::new(),
            };
            (decision, patch)
        });
        decide::caught(rendered).map(move |rendered| {
            let (decision, patch) =
                rendered.unwrap_or_else(|| (Decision::unchanged(Reason::Internal), String::new()));
            let took = begun.elapsed();
            self.0.metrics.reviewed(decision.reason, took);
            log(review, &decision, took);
            let audit = Audit {
                decision: decision.done(),
                reason: decision.reason.as_str(),
                image: decision.image.map(shortened),
            };
            review::encode(review.uid.as_str(), &patch, &audit)
        })
    }
}

/// One line for each decision.
fn log(review: &Review<'_>, decision: &Decision<'_>, took: Duration) {
    let pod = match &review.subject {
        Subject::Pod(pod) => pod.described(),
        Subject::Malformed | Subject::Other => String::new(),
    };
    let pod = shortened(&pod);
    let namespace = shortened(review.namespace.as_str());
    // Whole microseconds: more digits would be noise.
    let milliseconds = took.as_micros() as f64 / 1000.0;
    let (reason, image) = (decision.reason.as_str(), decision.image.map(shortened));
    let pools = decision.pools();
    tracing::info!(namespace, pod, reason, image, pools, milliseconds, "reviewed");
}

fn mutate(State(webhook): State<Webhook>, request: Request) -> impl Future<Output = Response> {
    let begun = Instant::now();
    let (head, mut body) = request.into_parts();
    let is_json = is_json(&head.headers);
    let timeout = timeout_of(head.uri.query());
    // What is passed through the router's layers stays small.
    Box::pin(async move {
        if !is_json {
            return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a review is application/json");
        }
        let body = match webhook.0.bodies.read(&mut body, BODY_LIMIT, Some(PACE)).await {
            Ok(body) => body,
            Err(error) => {
                let (status, why) = match error {
                    ReadError::TooLarge => {
                        discard(body).await;
                        (StatusCode::PAYLOAD_TOO_LARGE, "a review has at most 8 MiB")
                    }
                    ReadError::TooSlow => (StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"),
                    ReadError::Crowded => {
                        (StatusCode::TOO_MANY_REQUESTS, "no memory for a body so large or slow")
                    }
                    ReadError::Broken(_) => (StatusCode::BAD_REQUEST, "the body broke off"),
                };
                return closing(refuse(status, why));
            }
        };
        match webhook.answer_before(&body.bytes, begun, timeout, body.room.lost()).await {
            Ok(answer) => ([(CONTENT_TYPE, HeaderValue::from_static(JSON))], answer).into_response(),
            Err(error) => {
                tracing::warn!(%error, "not a review");
                refuse(StatusCode::BAD_REQUEST, &error.to_string())
            }
        }
    })
}

/// Takes some more of a body that is too large: a connection that is closed while the client still sends costs it the
/// answer (RFC 9112 section 9.6).
async fn discard(mut body: Body) {
    let mut left = DISCARDED;
    let all = async {
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, |data| data.len());
            left = left.saturating_sub(length);
            if left == 0 {
                return;
            }
        }
    };
    // What is not taken by then is cut off.
    let _ = timeout(DISCARD_TIME, all).await;
}

/// Never with `Retry-After`: client-go would wait and ask again, while the Pod waits (`rest/with_retry.go`).
fn refuse(status: StatusCode, why: &str) -> Response {
    (status, format!("{why}\n")).into_response()
}

fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

fn is_json(headers: &HeaderMap) -> bool {
    let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = || text.split(';').next().unwrap_or_default().trim();
    text == JSON || essence().eq_ignore_ascii_case(JSON)
}

/// How long the API server will wait, which it tells as `?timeout=10s`; what cannot be read is not told.
fn timeout_of(query: Option<&str>) -> Option<Duration> {
    let value = query?.split('&').find_map(|pair| pair.strip_prefix("timeout="))?;
    humantime::parse_duration(value).ok()
}

#[cfg(test)]
mod tests;
