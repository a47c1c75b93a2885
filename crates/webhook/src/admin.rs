//! Metrics and probes, on a separate port. All requests are read-only.

use axum::Router;
use axum::extract::{self, RawQuery};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::time::{Duration, Instant, sleep};

use tolerarch_support::health::{Health, State};
use tolerarch_support::metrics::Metrics;

/// Maximum time for which a probe is held while a component starts. The kubelet's first probe arrives before the pools
/// have been read, and a 503 would leave a warning event on every Pod that starts. Less than the probe's
/// `timeoutSeconds`, 5.
const HOLD: Duration = Duration::from_secs(4);
/// Interval of the checks whether the component has started.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

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

    /// Waits until no component is starting, or until one has failed. Returns the state of each component.
    async fn started(&self) -> Vec<(&'static str, State)> {
        let end = Instant::now() + HOLD;
        loop {
            let components = self.health.check();
            let is_starting = matches!(worst(&components), State::Starting(_));
            if !is_starting || Instant::now() >= end {
                return components;
            }
            sleep(CHECK_INTERVAL).await;
        }
    }
}

fn worst(components: &[(&str, State)]) -> State {
    let states = components.iter().map(|(_, state)| *state);
    states.max().unwrap_or_default()
}

async fn metrics(extract::State(admin): extract::State<Admin>) -> Response {
    // The check updates the metric of health.
    admin.health.check();
    match admin.metrics.render() {
        Ok(text) => ([(CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "metrics cannot be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Answers with a line for each component, as the probes of Kubernetes do. If the process is ready, the lines are there
/// only with `?verbose`. A degraded component has a line of failure, although the process is ready. `?verbose` is
/// answered at once.
async fn ready(
    extract::State(admin): extract::State<Admin>,
    RawQuery(query): RawQuery,
) -> Response {
    // `kubectl get --raw` writes `verbose=`; as in Kubernetes, the value means nothing.
    let query = query.unwrap_or_default();
    let mut keys = query.split('&').map(|pair| pair.split('=').next());
    let verbose = keys.any(|key| key == Some("verbose"));
    let components = if verbose {
        admin.health.check()
    } else {
        admin.started().await
    };
    let ready = !matches!(worst(&components), State::Starting(_) | State::Failed(_));
    if ready && !verbose {
        return (StatusCode::OK, "ok\n").into_response();
    }
    let mut text = String::new();
    for (name, state) in components {
        text += &match state {
            State::Healthy => format!("[+]{name} ok\n"),
            State::Failed("") => format!("[-]{name} failed\n"),
            State::Degraded(reason) | State::Starting(reason) | State::Failed(reason) => {
                format!("[-]{name} failed: {reason}\n")
            }
        };
    }
    if ready {
        text += "readyz check passed\n";
        (StatusCode::OK, text).into_response()
    } else {
        text += "readyz check failed\n";
        (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
    }
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
        /// Makes a process that has no certificate yet.
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

        /// Returns the status, and the time until the answer.
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
    async fn first_probe_is_answered_once_the_process_is_ready() {
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
    async fn only_readyz_is_held_and_not_for_long() {
        let process = Process::starting();
        let (status, took) = process.probe("/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        let longest = HOLD + 2 * CHECK_INTERVAL;
        assert!((HOLD..longest).contains(&took), "{took:?}");
        let at_once = (StatusCode::SERVICE_UNAVAILABLE, Duration::ZERO);
        assert_eq!(process.probe("/readyz?verbose").await, at_once);
        assert_eq!(
            process.probe("/livez").await,
            (StatusCode::OK, Duration::ZERO)
        );
        // The process ends before it was ready.
        process.serving.set(State::Failed(""));
        assert_eq!(process.probe("/readyz").await, at_once);
    }
}
