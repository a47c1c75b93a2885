//! Metrics and probes, on a separate port. Nothing here changes anything.

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::time::{Duration, Instant, sleep};

use tolerarch_support::health::{Health, State as Component};
use tolerarch_support::metrics::Metrics;

/// Maximal time for which a probe is held while a component starts: the kubelet's first one comes before the pools have
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
    async fn started(&self) -> Vec<(&'static str, Component)> {
        let end = Instant::now() + HOLD;
        loop {
            let components = self.health.check();
            if !matches!(worst(&components), Component::Starting(_)) || Instant::now() >= end {
                return components;
            }
            sleep(LOOK).await;
        }
    }
}

fn worst(components: &[(&str, Component)]) -> Component {
    components
        .iter()
        .map(|(_, state)| *state)
        .max()
        .unwrap_or_default()
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

/// Answers with a line for each component, as the probes of Kubernetes do; if all is well only on `?verbose`.
/// A degraded component has a line of failure, and the process is ready all the same. `?verbose` is answered at once.
async fn ready(State(admin): State<Admin>, RawQuery(query): RawQuery) -> Response {
    // `kubectl get --raw` writes `verbose=`; as in Kubernetes, the value means nothing.
    let verbose = query.is_some_and(|query| {
        query
            .split('&')
            .any(|part| part.split('=').next() == Some("verbose"))
    });
    let components = if verbose {
        admin.health.check()
    } else {
        admin.started().await
    };
    let ready = !matches!(
        worst(&components),
        Component::Starting(_) | Component::Failed(_)
    );
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    if ready && !verbose {
        return (status, "ok\n").into_response();
    }
    let line = |(name, state): &(&str, Component)| match state {
        Component::Healthy => format!("[+]{name} ok\n"),
        Component::Failed("") => format!("[-]{name} failed\n"),
        Component::Degraded(reason) | Component::Starting(reason) | Component::Failed(reason) => {
            format!("[-]{name} failed: {reason}\n")
        }
    };
    let verdict = if ready {
        "readyz check passed\n"
    } else {
        "readyz check failed\n"
    };
    (
        status,
        components.iter().map(line).collect::<String>() + verdict,
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use tower_service::Service;

    use super::*;
    use tolerarch_support::health::{Component as Part, Reported};

    struct Process {
        router: Router,
        certificate: Reported,
        serving: Reported,
    }

    impl Process {
        /// One that has no certificate yet.
        fn starting() -> Self {
            let metrics = Metrics::new([]).unwrap();
            let (certificate, serving) = (Reported::default(), Reported::default());
            certificate.set(Component::Starting("there is none yet"));
            let parts = vec![
                Part::reported("certificate", certificate.clone()),
                Part::reported("serving", serving.clone()),
            ];
            let health = Health::register(&metrics, parts).unwrap();
            Self {
                router: Admin { metrics, health }.router(),
                certificate,
                serving,
            }
        }

        /// The status, and after which time it was answered.
        async fn probe(&self, path: &str) -> (StatusCode, Duration) {
            let (begun, mut router) = (Instant::now(), self.router.clone());
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
            process.certificate.set(Component::Healthy);
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
        process.serving.set(Component::Failed(""));
        assert_eq!(process.probe("/readyz").await, at_once);
    }
}
