//! What the outside sees besides reviews, on a port of its own: metrics and probes. Nothing here changes anything.

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::watch;

use crate::listener::Phase;
use crate::metrics::Metrics;
use crate::tls::ServingCertificate;

/// What the endpoints look at.
#[derive(Clone)]
pub struct Admin {
    /// All metrics.
    pub metrics: Metrics,
    /// The certificate that is served.
    pub certificate: ServingCertificate,
    /// How far the process is from its end.
    pub phase: watch::Receiver<Phase>,
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
    match admin.metrics.render() {
        Ok(text) => ([(CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "metrics cannot be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// A line for each part, as the probes of Kubernetes itself write them; with success only if asked for (`?verbose`).
async fn ready(State(admin): State<Admin>, RawQuery(query): RawQuery) -> Response {
    let serving = *admin.phase.borrow() == Phase::Serving;
    // So from the start: without a configuration the process does not get as far as answering here.
    let parts =
        [("configuration", true), ("certificate", admin.certificate.is_ready()), ("serving", serving)];
    let ready = parts.iter().all(|(_, ok)| *ok);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let verbose =
        query.is_some_and(|query| query.split('&').any(|part| part == "verbose" || part == "verbose=true"));
    if ready && !verbose {
        return (status, "ok\n").into_response();
    }
    let line = |(part, ok): &(&str, bool)| {
        format!("[{}]{part} {}\n", if *ok { '+' } else { '-' }, if *ok { "ok" } else { "failed" })
    };
    let verdict = if ready { "readyz check passed\n" } else { "readyz check failed\n" };
    (status, parts.iter().map(line).collect::<String>() + verdict).into_response()
}
