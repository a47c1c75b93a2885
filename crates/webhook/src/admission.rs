//! The webhook: from the bytes of a review to the bytes of its answer, in time.
//!
//! An answer that admits needs nothing but the review's uid. Whatever fails once the uid is known, even by a panic,
//! ends in such an answer.

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
use tolerarch_core::pod::Retain;
use tolerarch_core::policy::{Policy, UNKNOWN_PROFILE};
use tolerarch_core::reason::{LookupError, Reason};
use tolerarch_core::review::{self, Review, ReviewError, Subject};
use tolerarch_engine::decide::{CurrentSnapshot, Snapshot, Wait, caught};
use tolerarch_support::body::{Budget, FREE, Pace, Read, ReadError};
use tolerarch_text::escape::shortened;
use tolerarch_text::go_duration;

/// Maximum bytes of a review, which may hold a Pod of at most 3 MiB twice (k8s.io/apiserver `MaxRequestBodyBytes`).
pub const BODY_LIMIT: usize = 8 << 20;
/// Maximum bytes of all bodies that are arriving, except bodies in one piece. They suffice for four of the largest, or
/// for 300 of 64 KiB, each with 32 KiB for the buffers of its connection.
const UPLOADS: usize = 32 << 20;
/// Maximum bytes of all reviews that wait for registries and have more than [`FREE`]. Uploads have a separate budget.
const WAITING: usize = 16 << 20;
// The worst case within the shipped memory limit of 512 MiB:
//
// - 164 MiB: 4,096 connections of 41 KiB each: 25 while idle (measured), a head or a body in one piece (8), and a
//   decoded review that waits (8);
// - 48 MiB: uploads, and larger reviews that wait;
// - 48 MiB: answers of registries (`registry::net::transport`), 16 MiB: tokens, some 60 MiB: a full cache;
// - 25 MiB: the program.
//
// The other 150 MiB are for memory that the allocator retains, and for what a poll needs on each of the runtime's
// threads. A poll needs the old buffer of a body that grows (4 MiB), or a review while it is decoded (3 MiB of marks, 2
// of lists, and texts).
const _: () = assert!(HEAD_BYTES <= FREE);
/// Minimum pace of a body. API servers send a body within milliseconds.
const PACE: Pace = Pace {
    grace: Duration::from_secs(2),
    rate: 1 << 20,
};
/// Maximum bytes of an oversized body to read and discard.
const DISCARDED: usize = 16 << 20;
/// Maximum time for that.
const DISCARD_TIME: Duration = Duration::from_secs(1);
/// Part of the API server's timeout that is reserved for the way back.
const MARGIN: Duration = Duration::from_secs(1);
const JSON: &str = "application/json";

pub struct Webhook {
    current: CurrentSnapshot,
    metrics: ReviewMetrics,
    uploads: Budget,
    waiting: Budget,
}

impl Webhook {
    pub fn new(current: CurrentSnapshot, metrics: ReviewMetrics) -> Arc<Self> {
        Arc::new(Self {
            current,
            metrics,
            uploads: Budget::new(UPLOADS),
            waiting: Budget::new(WAITING),
        })
    }

    /// Returns the routes `POST /mutate` and `/mutate/<profile>`; anything else is 404 or 405.
    pub fn router(self: Arc<Self>) -> Router {
        let router = Router::new().route("/mutate", post(mutate));
        router
            .route("/mutate/{*profile}", post(mutate))
            .with_state(self)
    }

    /// Answers the review in `body`, for a profile. `begun`: when the request arrived. `timeout`: the API server's
    /// timeout. Frees the memory of a large body before the Pod waits. Fails only if the body has no uid.
    async fn answer(
        &self,
        body: Read,
        profile: Option<&str>,
        begun: Instant,
        timeout: Option<Duration>,
    ) -> Result<Vec<u8>, ReviewError> {
        let Read { bytes, reservation } = body;
        // A small review borrows from its body. A large one is copied, so that its body can be freed.
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
        let held = review.held_bytes();
        if held > FREE {
            // If the review does not fit, `evicted` ends at once, and the Pod stays unchanged.
            let _ = self.waiting.resize(&mut reservation, held);
        }
        // The guard changes no reference count that all threads share, unless many reviews of this thread hold guards
        // while they wait.
        let snapshot = self.current.load();
        let policy = snapshot.policy_for(profile);
        let mut budget = snapshot.budget;
        if let Some(timeout) = timeout {
            budget = budget.min(timeout.saturating_sub(MARGIN));
        }
        let decision = async {
            let Some(policy) = policy else {
                return Decision::unchanged(Reason::ProfileUnknown);
            };
            tokio::select! {
                biased;
                decision = decide(&snapshot, policy, &review, begun + budget) => decision,
                () = reservation.evicted() => Decision::unchanged(Reason::Unknown(LookupError::Overloaded)),
            }
        };
        // A client may send any path, so only names of profiles that exist are counted and logged.
        let label = match profile {
            Some(_) if policy.is_none() => Some(UNKNOWN_PROFILE),
            profile => profile,
        };
        Ok(self.answer_with(&review, label, begun, decision).await)
    }

    /// Counts and logs the decision, and returns the answer. After a panic in `decision`, or while its patch is
    /// rendered, the Pod stays unchanged.
    fn answer_with<'a>(
        &self,
        review: &Review<'_>,
        profile: Option<&str>,
        begun: Instant,
        decision: impl Future<Output = Decision<'a>>,
    ) -> impl Future<Output = Vec<u8>> {
        let rendered = decision.map(|decision| {
            let patch = match review.subject.pod() {
                Some((root, pod)) => patch::build(root, pod, &decision.edits),
                None => String::new(),
            };
            (decision, patch)
        });
        caught(rendered).map(move |rendered| {
            let (decision, patch) = rendered.unwrap_or_else(|| {
                let reason = Reason::Unknown(LookupError::Internal);
                (Decision::unchanged(reason), String::new())
            });
            let duration = begun.elapsed();
            self.metrics.count_review(&decision, profile, duration);
            log(review, profile, &decision, duration);
            review::encode(review.uid.as_str(), &patch, &decision)
        })
    }
}

/// Decides on the subject of a review.
async fn decide<'a>(
    snapshot: &'a Snapshot,
    policy: &'a Policy,
    review: &'a Review<'_>,
    deadline: Instant,
) -> Decision<'a> {
    let namespace = review.namespace.as_str();
    let wait = Wait::Until {
        deadline,
        review: Some(review.uid.as_str()),
    };
    match &review.subject {
        Subject::Skipped(reason) => Decision::unchanged(*reason),
        Subject::Pod(pod) => snapshot.decide(policy, namespace, pod, wait).await,
        Subject::Template(change) => {
            // Boxed: unboxed, this future would make the futures of all Pods' reviews larger.
            Box::pin(snapshot.decide_template(policy, namespace, change, wait)).await
        }
    }
}

fn log(review: &Review<'_>, profile: Option<&str>, decision: &Decision<'_>, duration: Duration) {
    let pod = match review.subject.pod() {
        Some((_, pod)) => pod.described(),
        None => String::new(),
    };
    let unused_secrets = decision.unused_secrets.join("; ");
    tracing::info!(
        namespace = shortened(review.namespace.as_str()),
        profile,
        pod = shortened(&pod),
        uid = shortened(review.uid.as_str()),
        reason = decision.reason.as_str(),
        image = decision.image.map(shortened),
        blockers = decision.blocker_list().map(tracing::field::display),
        unused_secrets = (!unused_secrets.is_empty()).then_some(unused_secrets),
        pools = &*decision.pools(),
        // Whole microseconds: more digits would be noise.
        milliseconds = duration.as_micros() as f64 / 1000.0,
        "reviewed"
    );
}

fn mutate(State(webhook): State<Arc<Webhook>>, request: Request) -> impl Future<Output = Response> {
    let begun = Instant::now();
    let (head, mut body) = request.into_parts();
    let is_json = is_json(&head.headers);
    let timeout = timeout_of(head.uri.query());
    let profile = head.uri.path().strip_prefix("/mutate/").map(str::to_owned);
    // Boxed, so that the router's layers move only a pointer.
    Box::pin(async move {
        if !is_json {
            return refuse(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "a review is application/json",
            );
        }
        let uploads = &webhook.uploads;
        let review = match uploads.read(&mut body, BODY_LIMIT, begun, Some(PACE)).await {
            Ok(review) => review,
            Err(error) => return refuse_body(body, error).await,
        };
        drop(body);
        let profile = profile.as_deref();
        match webhook.answer(review, profile, begun, timeout).await {
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

/// Refuses a request whose body could not be read, and closes the connection.
async fn refuse_body<E>(body: Body, error: ReadError<E>) -> Response {
    let (status, reason) = match error {
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
    ([(CONNECTION, "close")], refuse(status, reason)).into_response()
}

/// Reads more of a body that is too large: if the connection were closed now, the client would lose the answer (RFC
/// 9112 section 9.6).
async fn discard(body: Body) {
    let mut body = Limited::new(body, DISCARDED);
    // The rest of a longer or slower body is not read.
    let _ = timeout(DISCARD_TIME, async {
        while let Some(Ok(_)) = body.frame().await {}
    })
    .await;
}

/// Refuses a request, never with `Retry-After`: client-go would wait and retry, and the Pod would wait as well
/// (`rest/with_retry.go`).
fn refuse(status: StatusCode, reason: &str) -> Response {
    (status, format!("{reason}\n")).into_response()
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(Ok(text)) = headers.get(CONTENT_TYPE).map(HeaderValue::to_str) else {
        return false;
    };
    let media_type = text.split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case(JSON)
}

/// Returns the API server's timeout, which it sends as `?timeout=10s`; `None` if it cannot be parsed.
fn timeout_of(query: Option<&str>) -> Option<Duration> {
    let mut pairs = query?.split('&');
    let value = pairs.find_map(|pair| pair.strip_prefix("timeout="))?;
    go_duration::parse(value)
}

#[cfg(test)]
mod tests;
