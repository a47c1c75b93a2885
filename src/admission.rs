//! The webhook: from the bytes of a review to the bytes of its answer, in time.
//!
//! The allowing answer needs nothing but the review's uid; whatever fails after that, a panic included, ends in it.

mod batch;
pub mod listener;
mod metrics;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::FutureExt;
use http_body_util::BodyExt;
use tokio::time::{Duration, Instant, timeout, timeout_at};

pub use batch::BatchLimits;
pub use metrics::ReviewMetrics;

use crate::body::{Bounds, ReadError};
use crate::credentials::{Credentials, Keyring};
use crate::image::{ImageRef, LookupError};
use crate::patch;
use crate::pod::{Pod, Usage};
use crate::policy::{Decision, ImageSupport, Policy};
use crate::reason::Reason;
use crate::resolver::{Outcome, Resolver};
use crate::review::{self, Audit, Review, ReviewError, Subject};

/// Bytes of a review. A Pod has at most 3 MiB and a review may hold it twice (k8s.io/apiserver `MaxRequestBodyBytes`).
pub const BODY_LIMIT: usize = 8 << 20;
/// Bytes above which a review counts as large, and how many large ones are read at a time: the memory of a small Pod has
/// to do, whoever sends them.
const BODY_SMALL: usize = 64 << 10;
const BODIES_LARGE: usize = 16;
/// How much of a body that is too large is taken and thrown away, and for how long.
const DISCARDED: usize = 16 << 20;
const DISCARD_TIME: Duration = Duration::from_secs(1);
/// How long a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(10);
/// Different images of one Pod that are looked up.
const IMAGES: usize = 64;
/// What of the API server's own timeout is kept for the way back.
const MARGIN: Duration = Duration::from_secs(1);
/// Characters of an image that are shown in logs and audit annotations.
const SHOWN: usize = 300;

/// How reviews and answers are written.
const JSON: &str = "application/json";

/// What answers reviews. Clones are the same webhook.
#[derive(Clone)]
pub struct Webhook(Arc<Inner>);

/// How long a Pod waits for its images.
#[derive(Clone, Copy)]
enum Wait<'a> {
    /// Until one of them settles the case, and no longer than this.
    Until(Instant),
    /// For all of them.
    ForAll(&'a BatchLimits),
}

impl Wait<'_> {
    fn deadline(self) -> Instant {
        match self {
            Self::Until(deadline) => deadline,
            Self::ForAll(limits) => Instant::now() + limits.time,
        }
    }
}

struct Inner {
    rules: ArcSwap<Rules>,
    metrics: ReviewMetrics,
    bounds: Bounds,
}

/// What of the configuration decides over one review, from its beginning to its end.
struct Rules {
    policy: Policy,
    budget: Duration,
    credentials: Credentials,
    resolver: Resolver,
}

impl Webhook {
    /// A webhook with this policy. A Pod waits for `budget` at most.
    pub fn new(
        policy: Policy,
        budget: Duration,
        credentials: Credentials,
        resolver: Resolver,
        metrics: ReviewMetrics,
    ) -> Self {
        let bounds = Bounds::new(BODY_SMALL, BODIES_LARGE);
        let rules = ArcSwap::from_pointee(Rules { policy, budget, credentials, resolver });
        Self(Arc::new(Inner { rules, metrics, bounds }))
    }

    /// Decides by this from the next review on.
    pub fn reconfigure(
        &self,
        policy: Policy,
        budget: Duration,
        credentials: Credentials,
        resolver: Resolver,
    ) {
        self.0.rules.store(Arc::new(Rules { policy, budget, credentials, resolver }));
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
        let review = review::decode(body)?;
        let rules = self.0.rules.load_full();
        let budget = timeout.map_or(rules.budget, |timeout| rules.budget.min(timeout.saturating_sub(MARGIN)));
        let decided = self.decide(&rules, &review, Wait::Until(begun + budget));
        Ok(self.answer_with(&review, begun, decided).await)
    }

    /// Counts and logs what is decided, and gives the answer that says so; a panic in `decided` changes nothing in the Pod.
    fn answer_with(
        &self,
        review: &Review<'_>,
        begun: Instant,
        decided: impl Future<Output = Decided>,
    ) -> impl Future<Output = Vec<u8>> {
        unless_it_panics(decided).map(move |decided| {
            let took = begun.elapsed();
            self.0.metrics.reviewed(decided.reason, took);
            log(review, &decided, took);
            let audit = Audit {
                decision: decided.done,
                reason: decided.reason.as_str(),
                image: decided.image.as_deref(),
            };
            review::encode(review.uid.as_str(), &decided.patch, &audit)
        })
    }

    /// What becomes of the object in the review in `body`: the same as in its answer, for whoever wants to know without
    /// an API server, and can wait.
    ///
    /// # Errors
    /// See [`Webhook::answer`].
    pub async fn decided(&self, body: &[u8], limits: &BatchLimits) -> Result<Decided, ReviewError> {
        let review = review::decode(body)?;
        let rules = self.0.rules.load_full();
        Ok(unless_it_panics(self.decide(&rules, &review, Wait::ForAll(limits))).await)
    }

    /// Does nothing before it is waited for: there its panics are caught.
    async fn decide(&self, rules: &Rules, review: &Review<'_>, wait: Wait<'_>) -> Decided {
        let pod = match &review.subject {
            Subject::Other => return Decided::unchanged(Reason::NotApplicable, None),
            Subject::Malformed => return Decided::unchanged(Reason::Malformed, None),
            Subject::Pod(pod) => pod,
        };
        let policy = &rules.policy;
        if let Some(decision) = policy.decide_unseen(pod) {
            return Decided::of(pod, &decision);
        }
        let usages = pod.images();
        let keyring = self.keyring(rules, review.namespace.as_str(), pod, &usages, wait.deadline()).await;
        let answers = self.look_up(rules, &usages, &keyring, wait).await;
        Decided::of(pod, &policy.decide(pod, &answers))
    }

    /// The credentials that the Pod may use. Its pull secrets are looked at only if some image is not known without them, and
    /// where they cannot be read in time, those of the operator are all there is: what is known by then answers the Pod,
    /// and the secrets are there for the next one.
    async fn keyring(
        &self,
        rules: &Rules,
        namespace: &str,
        pod: &Pod<'_>,
        usages: &[Usage<'_>],
        deadline: Instant,
    ) -> Keyring {
        let credentials = &rules.credentials;
        let shared = credentials.shared_keyring();
        if !credentials.reads_pull_secrets() || pod.pull_secrets().next().is_none() {
            return shared;
        }
        let settled = |image| rules.resolver.is_settled(image, &shared.candidates(image));
        if usages.iter().all(|usage| usage.image.as_ref().map_or(true, settled)) {
            return shared;
        }
        let keyring = Box::pin(credentials.keyring(namespace, pod.pull_secrets()));
        timeout_at(deadline, keyring).await.unwrap_or(shared)
    }

    /// An answer for each image; fewer where one of them settles the case.
    async fn look_up<'a>(
        &self,
        rules: &Rules,
        usages: &'a [Usage<'a>],
        keyring: &Keyring,
        wait: Wait<'_>,
    ) -> Vec<ImageSupport<'a>> {
        let answer =
            |usage: &Usage<'a>, support| ImageSupport { given: usage.given, purpose: usage.purpose, support };
        let mut images: Vec<&ImageRef> = Vec::with_capacity(usages.len());
        let mut unasked = Vec::new();
        for usage in usages {
            let unknown = match &usage.image {
                Ok(image) if images.contains(&image) => continue,
                Ok(image) if images.len() < IMAGES => {
                    images.push(image);
                    continue;
                }
                Ok(_) => LookupError::TooMany,
                Err(unknown) => *unknown,
            };
            unasked.push(answer(usage, Err(unknown)));
            if matches!(wait, Wait::Until(_)) {
                return unasked;
            }
        }
        let uses =
            |usage: &&Usage<'a>, image: &ImageRef| usage.image.as_ref().is_ok_and(|used| used == image);
        let enough = |image: &ImageRef, outcome: Outcome| {
            usages
                .iter()
                .filter(|usage| uses(usage, image))
                .any(|usage| rules.policy.is_settled_by(&answer(usage, outcome)))
        };
        let candidates = |image: &ImageRef| keyring.candidates(image);
        let resolver = &rules.resolver;
        let outcomes = match wait {
            Wait::Until(deadline) => resolver.resolve(&images, candidates, deadline, enough).await,
            Wait::ForAll(limits) => Box::pin(limits.resolve(resolver, &images, candidates)).await,
        };
        let outcome = |usage: &'a Usage<'a>| outcomes[images.iter().position(|image| uses(&usage, image))?];
        let asked = usages.iter().filter_map(|usage| Some(answer(usage, outcome(usage)?)));
        asked.chain(unasked).collect()
    }
}

fn unless_it_panics(decide: impl Future<Output = Decided>) -> impl Future<Output = Decided> {
    let decided = AssertUnwindSafe(decide).catch_unwind();
    decided.map(|decided| decided.unwrap_or_else(|_| Decided::unchanged(Reason::Internal, None)))
}

/// A decision that is ready to be sent, and to be told.
#[derive(Debug)]
pub struct Decided {
    /// What became of the Pod, in one word.
    pub reason: Reason,
    /// What was done: `tolerated`, `retracted` or `unchanged`.
    pub done: &'static str,
    /// The image that decided, as the Pod names it, shortened; `None` where none did.
    pub image: Option<String>,
    /// The pools that are open to the Pod through tolerarch, comma-separated.
    pub pools: String,
    /// The JSON patch; empty where nothing changes.
    pub patch: String,
}

impl Decided {
    fn unchanged(reason: Reason, image: Option<&str>) -> Self {
        let image = image.map(|image| shortened(image).to_owned());
        Self { reason, done: "unchanged", image, pools: String::new(), patch: String::new() }
    }

    fn of(pod: &Pod<'_>, decision: &Decision<'_>) -> Self {
        let mut decided = Self::unchanged(decision.reason, decision.image);
        decided.pools = decision.pools.join(",");
        if let Some(change) = &decision.change {
            decided.patch = patch::build(pod, change);
            decided.done = if change.add.is_empty() { "retracted" } else { "tolerated" };
        }
        decided
    }
}

/// Enough of a text to recognise it: what stands in a Pod has no limit yet, as it is validated later.
fn shortened(text: &str) -> &str {
    if text.len() <= SHOWN {
        return text;
    }
    text.char_indices().nth(SHOWN).map_or(text, |(end, _)| &text[..end])
}

/// One line for each decision.
fn log(review: &Review<'_>, decided: &Decided, took: Duration) {
    let pod = match &review.subject {
        Subject::Pod(pod) => pod.described(),
        Subject::Malformed | Subject::Other => String::new(),
    };
    let pod = shortened(&pod);
    let namespace = shortened(review.namespace.as_str());
    // Whole microseconds: more digits would be noise.
    let milliseconds = took.as_micros() as f64 / 1000.0;
    let Decided { reason, image, pools, .. } = decided;
    tracing::info!(namespace, pod, reason = reason.as_str(), image, pools, milliseconds, "reviewed");
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
        let body = match timeout_at(begun + BODY_TIME, webhook.0.bounds.read(&mut body, BODY_LIMIT)).await {
            Ok(Ok(body)) => body,
            Ok(Err(ReadError::TooLarge)) => {
                discard(body).await;
                return closing(refuse(StatusCode::PAYLOAD_TOO_LARGE, "a review has at most 8 MiB"));
            }
            Ok(Err(ReadError::Broken(_))) => {
                return closing(refuse(StatusCode::BAD_REQUEST, "the body broke off"));
            }
            Err(_) => return closing(refuse(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")),
        };
        match webhook.answer(&body.bytes, begun, timeout).await {
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
