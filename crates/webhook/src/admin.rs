//! Metrics and probes, on a separate port. Nothing here changes anything.

use axum::Router;
use axum::extract::{self, RawQuery};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::time::{Duration, Instant, sleep};

use tolerarch_support::health::{Health, State};
use tolerarch_support::metrics::Metrics;

/// Maximum time for which a probe is held while a component starts: the kubelet's first one comes before the pools have
/// been read, and a 503 would leave a warning at every Pod that starts. Less than the probe's `timeoutSeconds`, 5.
const HOLD: Duration = Duration::from_secs(4);
/// Interval of the checks whether the component has started.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Clone)]
pub struct Admin {
    pub metrics: Metrics,
    pub health: Health,
}

impl Admin {
    pub fn router(self) -> Router {
        Router::new()
            .route("/metrics", get(metrics))
            .route("/livez", get(async || "ok\n"))
            .route("/readyz", get(ready))
            .with_state(self)
    }

    /// Waits until no component is starting, or one has failed, and returns the state of each component.
    async fn started(&self) -> Vec<(&'static str, State)> {
        let end = Instant::now() + HOLD;
        loop {
            let components = self.health.check();
            if !matches!(worst(&components), State::Starting(_)) || Instant::now() >= end {
                return components;
            }
            sleep(LOOK).await;
        }
    }
}

fn worst(components: &[(&str, State)]) -> State {
    let states = components.iter().map(|(_, state)| *state);
    states.max().unwrap_or_default()
}

async fn metrics(extract::State(admin): extract::State<Admin>) -> Response {
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

/// Answers with a line for each component, as the probes of Kubernetes do; if all is well only on `?verbose`.
/// A degraded component has a line of failure, and the process is ready all the same. `?verbose` is answered at once.
async fn ready(
    extract::State(admin): extract::State<Admin>,
    RawQuery(query): RawQuery,
) -> Response {
    // `kubectl get --raw` writes `verbose=`; as in Kubernetes, the value means nothing.
    let mut parts = query.iter().flat_map(|query| query.split('&'));
    let verbose = parts.any(|part| part.split('=').next() == Some("verbose"));
    let components = if verbose {
        admin.health.check()
    } else {
        admin.started().await
    };
    let ready = !matches!(worst(&components), State::Starting(_) | State::Failed(_));
    if ready && !verbose {
        return (StatusCode::OK, "ok\n").into_response();
    }
    let line = |(name, state): &(&str, State)| match state {
        State::Healthy => format!("[+]{name} ok\n"),
        State::Failed("") => format!("[-]{name} failed\n"),
        State::Degraded(reason) | State::Starting(reason) | State::Failed(reason) => {
            format!("[-]{name} failed: {reason}\n")
        }
    };
    let (status, verdict) = if ready {
        (StatusCode::OK, "readyz check passed\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "readyz check failed\n")
    };
    let lines: String = components.iter().map(line).collect();
    (status, lines + verdict).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use tower_service::Service;

    use super::*;
    use tolerarch_support::health::{Component, Reported};

    struct Process {
        router: Router,
        certificate: Reported,
        serving: Reported,
    }

    impl Process {
        /// One that has no certificate yet.
        fn starting() -> Self {
            let metrics = Metrics::new([]).unwrap();
            let certificate = Reported::default();
            let serving = Reported::default();
            certificate.set(State::Starting("there is none yet"));
            let components = vec![
                Component::reported("certificate", certificate.clone()),
                Component::reported("serving", serving.clone()),
            ];
            let health = Health::register(&metrics, components).unwrap();
            Self {
                router: Admin { metrics, health }.router(),
                certificate,
                serving,
            }
        }

        /// The status, and after which time it was answered.
        async fn probe(&self, path: &str) -> (StatusCode, Duration) {
            let begun = Instant::now();
            let mut router = self.router.clone();
            let answer = router
                .call(Request::get(path).body(Body::empty()).unwrap())
                .await
                .unwrap();
            (answer.status(), begun.elapsed())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_probe_is_answered_when_the_process_is_ready() {
        let process = Process::starting();
        let issued = async {
            sleep(Duration::from_millis(400)).await;
            process.certificate.set(State::Healthy);
        };
        let ((status, took), ()) = tokio::join!(process.probe("/readyz"), issued);
        assert_eq!(status, StatusCode::OK);
        assert!(took < Duration::from_millis(450), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_is_not_held_for_long_nor_where_it_is_of_no_use() {
        let process = Process::starting();
        let (status, took) = process.probe("/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!((HOLD..HOLD + 2 * LOOK).contains(&took), "{took:?}");
        let at_once = (StatusCode::SERVICE_UNAVAILABLE, Duration::ZERO);
        assert_eq!(
            process.probe("/readyz?verbose").await,
            at_once,
            "people see why"
        );
        assert_eq!(
            process.probe("/livez").await,
            (StatusCode::OK, Duration::ZERO)
        );
        // It ends before it was ready.
        process.serving.set(State::Failed(""));
        assert_eq!(process.probe("/readyz").await, at_once);
    }
}
