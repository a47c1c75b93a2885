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
use http_body_util::{BodyExt, Limited};
use tokio::time::{Duration, Instant, timeout};

pub use metrics::ReviewMetrics;

use crate::listener::HEAD_BYTES;
use tolerarch_core::decision::Decision;
use tolerarch_core::patch;
use tolerarch_core::pod::Kept;
use tolerarch_core::policy::UNKNOWN_PROFILE;
use tolerarch_core::reason::{LookupError, Reason};
use tolerarch_core::review::{self, Review, ReviewError, Subject};
use tolerarch_engine::decide::{self, Current, Wait};
use tolerarch_support::body::{Budget, FREE, Pace, Read, ReadError};
use tolerarch_text::escape::shortened;
use tolerarch_text::go_duration;

/// Maximal bytes of a review, which may hold a Pod of at most 3 MiB twice (k8s.io/apiserver `MaxRequestBodyBytes`).
pub const BODY_LIMIT: usize = 8 << 20;
/// Maximal bytes of all bodies that arrive at a time, except those in one piece: four of the largest, or 300 of 64 KiB,
/// each with 32 KiB for the buffers of its connection.
const UPLOADS: usize = 32 << 20;
/// Maximal bytes of all reviews that wait for registries and have more than [`FREE`]. Uploads have a separate budget.
const WAITING: usize = 16 << 20;
// What the shipped memory limit of 512 MiB is made of, at the worst:
//
// - 164 MiB: 4,096 connections of 41 KiB each: 25 at rest (measured), a head or a body in one piece (8), and a decoded review
//   that waits (8);
// - 48 MiB: uploads, and larger reviews that wait;
// - 48 MiB: answers of registries (`registry::net::transport`), 16 MiB: tokens, some 60 MiB: a full cache;
// - 25 MiB: the program.
//
// The rest, 150 MiB, is for what the allocator keeps, and for what lasts no longer than a poll on each of the runtime's
// threads: a body that grows (its old buffer, 4 MiB), and a review that is read (3 MiB of marks, 2 of lists, and texts).
const _: () = assert!(HEAD_BYTES <= FREE);
/// Minimal pace of a body. API servers send it within milliseconds, in one go.
const PACE: Pace = Pace {
    grace: Duration::from_secs(2),
    rate: 1 << 20,
};
/// Maximal bytes of a body that is too large that are read and discarded, and the maximal time for that.
const DISCARDED: usize = 16 << 20;
const DISCARD_TIME: Duration = Duration::from_secs(1);
/// Part of the API server's timeout that is left for the way back.
const MARGIN: Duration = Duration::from_secs(1);
const JSON: &str = "application/json";

pub struct Webhook {
    current: Current,
    metrics: ReviewMetrics,
    uploads: Budget,
    waiting: Budget,
}

impl Webhook {
    pub fn new(current: Current, metrics: ReviewMetrics) -> Arc<Self> {
        let (uploads, waiting) = (Budget::new(UPLOADS), Budget::new(WAITING));
        Arc::new(Self {
            current,
            metrics,
            uploads,
            waiting,
        })
    }

    /// Returns the routes `POST /mutate` and `/mutate/<profile>`; anything else is 404 or 405.
    pub fn router(self: Arc<Self>) -> Router {
        let router = Router::new().route("/mutate", post(mutate));
        router
            .route("/mutate/{*profile}", post(mutate))
            .with_state(self)
    }

    /// Answers the review in a body, which has been arriving since `begun`, for a profile; `timeout` is the API
    /// server's. The memory of a large body is freed before the Pod waits. Fails only if the body has no uid.
    async fn answer(
        &self,
        body: Read,
        profile: Option<&str>,
        begun: Instant,
        timeout: Option<Duration>,
    ) -> Result<Vec<u8>, ReviewError> {
        let Read { bytes, reservation } = body;
        let small;
        let review = if bytes.len() <= FREE {
            small = bytes;
            review::decode(&small)?
        } else {
            let review = review::decode(&bytes)?.into_owned();
            drop(bytes);
            review
        };
        drop(reservation);
        let mut reservation = self.waiting.reserve(begun);
        let held = review.held();
        if held > FREE {
            // Where it does not fit, `evicted` ends at once, and the Pod is left unchanged.
            let _ = reservation.resize(held);
        }
        let snapshot = self.current.load_full();
        let policy = snapshot.policy_for(profile);
        let budget = timeout.map_or(snapshot.budget, |timeout| {
            snapshot.budget.min(timeout.saturating_sub(MARGIN))
        });
        let decision = async {
            let Some(policy) = policy else {
                return Decision::unchanged(Reason::ProfileUnknown);
            };
            let namespace = review.namespace.as_str();
            let wait = Wait::Until {
                deadline: begun + budget,
                review: Some(review.uid.as_str()),
            };
            let decision = async {
                match &review.subject {
                    Subject::Skipped(reason) => Decision::unchanged(*reason),
                    Subject::Pod(pod) => snapshot.decide(policy, namespace, pod, wait).await,
                    Subject::DaemonSet(set) => {
                        // Boxed: in the future of this review it would make those of all Pods larger.
                        Box::pin(snapshot.decide_daemon_set(policy, namespace, set, wait)).await
                    }
                }
            };
            tokio::select! {
                biased;
                decision = decision => decision,
                () = reservation.evicted() => Decision::unchanged(Reason::Unknown(LookupError::Overloaded)),
            }
        };
        let profile = profile.map(|name| {
            if policy.is_some() {
                name
            } else {
                UNKNOWN_PROFILE
            }
        });
        Ok(self.answer_with(&review, profile, begun, decision).await)
    }

    /// Counts and logs the decision, and returns the answer. After a panic in `decision` the Pod is left unchanged.
    fn answer_with<'a>(
        &self,
        review: &Review<'_>,
        profile: Option<&str>,
        begun: Instant,
        decision: impl Future<Output = Decision<'a>>,
    ) -> impl Future<Output = Vec<u8>> {
        let rendered = decision.map(|decision| {
            let patch = review
                .subject
                .pod()
                .map(|(root, pod)| patch::build(root, pod, &decision.edits));
            (decision, patch.unwrap_or_default())
        });
        decide::caught(rendered).map(move |rendered| {
            let (decision, patch) = rendered.unwrap_or_else(|| {
                (
                    Decision::unchanged(Reason::Unknown(LookupError::Internal)),
                    String::new(),
                )
            });
            let took = begun.elapsed();
            self.metrics.reviewed(&decision, profile, took);
            log(review, profile, &decision, took);
            review::encode(review.uid.as_str(), &patch, &decision)
        })
    }
}

fn log(review: &Review<'_>, profile: Option<&str>, decision: &Decision<'_>, took: Duration) {
    let pod = review
        .subject
        .pod()
        .map(|(_, pod)| pod.described())
        .unwrap_or_default();
    let pod = shortened(&pod);
    let namespace = shortened(review.namespace.as_str());
    let uid = shortened(review.uid.as_str());
    // Whole microseconds: more digits would be noise.
    let milliseconds = took.as_micros() as f64 / 1000.0;
    let (reason, image) = (decision.reason.as_str(), decision.image.map(shortened));
    let pools = decision.pools();
    let pools = &*pools;
    let blockers = decision.blocker_list().map(tracing::field::display);
    let unused_secrets = Some(decision.unused_secrets.join("; ")).filter(|text| !text.is_empty());
    tracing::info!(
        namespace,
        profile,
        pod,
        uid,
        reason,
        image,
        blockers,
        unused_secrets,
        pools,
        milliseconds,
        "reviewed"
    );
}

fn mutate(State(webhook): State<Arc<Webhook>>, request: Request) -> impl Future<Output = Response> {
    let begun = Instant::now();
    let (head, mut body) = request.into_parts();
    let is_json = is_json(&head.headers);
    let timeout = timeout_of(head.uri.query());
    let profile = head.uri.path().strip_prefix("/mutate/").map(str::to_owned);
    // What is passed through the router's layers stays small.
    Box::pin(async move {
        if !is_json {
            return refuse(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "a review is application/json",
            );
        }
        let body = match webhook
            .uploads
            .read(&mut body, BODY_LIMIT, begun, Some(PACE))
            .await
        {
            Ok(read) => {
                drop(body);
                read
            }
            Err(error) => {
                let (status, why) = match error {
                    ReadError::TooLarge => {
                        discard(body).await;
                        (StatusCode::PAYLOAD_TOO_LARGE, "a review has at most 8 MiB")
                    }
                    ReadError::TooSlow => (
                        StatusCode::REQUEST_TIMEOUT,
                        "the body did not arrive in time",
                    ),
                    ReadError::BudgetExhausted => (
                        StatusCode::TOO_MANY_REQUESTS,
                        "no memory for a body so large or slow",
                    ),
                    ReadError::Broken(_) => (StatusCode::BAD_REQUEST, "the body broke off"),
                };
                return ([(CONNECTION, "close")], refuse(status, why)).into_response();
            }
        };
        match webhook
            .answer(body, profile.as_deref(), begun, timeout)
            .await
        {
            Ok(answer) => {
                ([(CONTENT_TYPE, HeaderValue::from_static(JSON))], answer).into_response()
            }
            Err(error) => {
                tracing::warn!(%error, "not a review");
                refuse(StatusCode::BAD_REQUEST, &error.to_string())
            }
        }
    })
}

/// Reads more of a body that is too large: closing now costs the client the answer (RFC 9112 section 9.6).
async fn discard(body: Body) {
    let mut body = Limited::new(body, DISCARDED);
    // What is not taken by then is cut off.
    let _ = timeout(DISCARD_TIME, async {
        while let Some(Ok(_)) = body.frame().await {}
    })
    .await;
}

/// Refuses a request, never with `Retry-After`: client-go would wait and retry, and the Pod too (`rest/with_retry.go`).
fn refuse(status: StatusCode, why: &str) -> Response {
    (status, format!("{why}\n")).into_response()
}

fn is_json(headers: &HeaderMap) -> bool {
    let text = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    text.split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .eq_ignore_ascii_case(JSON)
}

/// Returns the API server's timeout, which it sends as `?timeout=10s`; `None` if it cannot be parsed.
fn timeout_of(query: Option<&str>) -> Option<Duration> {
    let value = query?
        .split('&')
        .find_map(|pair| pair.strip_prefix("timeout="))?;
    go_duration::parse(value)
}

#[cfg(test)]
mod tests;
