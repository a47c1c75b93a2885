//! What the outside sees besides reviews, on a port of its own: metrics and probes. Nothing here changes anything.

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use tolerarch_support::health::{Health, State as Component};
use tolerarch_support::metrics::Metrics;

/// What the endpoints look at.
#[derive(Clone)]
pub struct Admin {
    /// All metrics.
    pub metrics: Metrics,
    /// What probes are answered by.
    pub health: Health,
}

impl Admin {
    /// `/metrics`, `/livez` and `/readyz`.
    pub fn router(self) -> Router {
        Router::new()
            .route("/metrics", get(metrics))
            .route("/livez", get(async || "ok\n"))
            .route("/readyz", get(ready))
            .with_state(self)
    }
}

async fn metrics(State(admin): State<Admin>) -> Response {
    // So that the metric of health is as of now.
    admin.health.check();
    match admin.metrics.render() {
        Ok(text) => ([(CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "metrics cannot be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// A line for each component, as the probes of Kubernetes itself write them; with success only if asked for (`?verbose`).
/// A degraded component has a line of failure, and the process is ready all the same.
async fn ready(State(admin): State<Admin>, RawQuery(query): RawQuery) -> Response {
    let components = admin.health.check();
    let ready = !components.iter().any(|(_, state)| matches!(state, Component::Failed(_)));
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let verbose =
        query.is_some_and(|query| query.split('&').any(|part| part == "verbose" || part == "verbose=true"));
    if ready && !verbose {
        return (status, "ok\n").into_response();
    }
    let line = |(name, state): &(&str, Component)| match state {
        Component::Healthy => format!("[+]{name} ok\n"),
        Component::Degraded("") | Component::Failed("") => format!("[-]{name} failed\n"),
        Component::Degraded(reason) | Component::Failed(reason) => format!("[-]{name} failed: {reason}\n"),
    };
    let verdict = if ready { "readyz check passed\n" } else { "readyz check failed\n" };
    (status, components.iter().map(line).collect::<String>() + verdict).into_response()
}
