//! Metrics of requests to registries and token servers.

use std::ops::DerefMut;
use std::sync::Arc;

use prometheus::{HistogramVec, IntCounterVec, IntGaugeVec};
use scopeguard::guard;
use tokio::time::Instant;

use super::manifest;
use tolerarch_core::image::DOCKER_HUB;
use tolerarch_support::families;
use tolerarch_support::metrics::{Metrics, OTHER, PerHost, Registered};

/// Upper bounds of the buckets for the duration of one request, in seconds.
const BUCKETS: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0, 10.0];

#[derive(Clone)]
pub struct RegistryMetrics {
    labels: Arc<PerHost<String>>,
    families: Requests,
}

families! {
    struct Requests {
        /// Requests to registries and token servers, by status class or kind of failure.
        requests: IntCounterVec["registry", "kind", "code"] = "tolerarch_registry_requests_total",
        /// Time of a request to a registry or token server, its body included.
        durations: HistogramVec["registry", "kind", "code"] = "tolerarch_registry_request_duration_seconds" in BUCKETS,
        /// Requests that a registry's limit leaves, as it last said.
        left: IntGaugeVec["registry"] = "tolerarch_registry_ratelimit_remaining",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    Token,
    /// Request for the digest to which a tag points, or for whether a manifest exists.
    Head,
    Manifest,
    Config,
    /// Request for a page of a repository's tags, which only a command sends.
    Tags,
}

impl RequestKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Head => "head",
            Self::Manifest => "manifest",
            Self::Config => "config",
            Self::Tags => "tags",
        }
    }

    pub(super) const fn accept(self) -> &'static str {
        match self {
            Self::Token | Self::Tags => "application/json",
            Self::Head | Self::Manifest => manifest::ACCEPT,
            Self::Config => "*/*",
        }
    }

    /// Returns the maximum bytes of the body of a successful answer.
    pub(super) const fn limit(self) -> usize {
        match self {
            // As in go-containerregistry.
            Self::Token => 64 << 10,
            // About as large as containerd's `MaxManifestSize`.
            Self::Head | Self::Manifest => 4 << 20,
            // Real configs have a few kilobytes.
            Self::Config => 1 << 20,
            // Google's registries send all tags on one page, with the digests and times of all manifests.
            Self::Tags => 8 << 20,
        }
    }
}

impl RegistryMetrics {
    pub fn register(metrics: &Metrics) -> Registered<Self> {
        let labels = Arc::new(metrics.per_host(str::to_owned));
        Ok(Self {
            labels,
            families: Requests::families(metrics)?,
        })
    }

    /// Begins a request to `host`. Returns a guard that holds the request's status class or kind of failure:
    /// `abandoned` until the caller sets another. Dropping the guard counts and measures the request, however it ended.
    pub fn request(&self, host: &str, kind: RequestKind) -> impl DerefMut<Target = &'static str> {
        let registry = self.labels.get(host);
        let begun = Instant::now();
        guard("abandoned", move |code| {
            let labels = [registry.as_str(), kind.as_str(), code];
            self.families.requests.with_label_values(&labels).inc();
            let durations = self.families.durations.with_label_values(&labels);
            durations.observe(begun.elapsed().as_secs_f64());
        })
    }

    /// Records how many requests the rate limit of the registry `host` leaves. The value is exported only for hosts
    /// that the configuration names and for Docker Hub, for whose limit the metric was made. All other hosts share one
    /// label, where their values would overwrite each other.
    pub fn requests_left(&self, host: &str, left: i64) {
        let label = if host == DOCKER_HUB {
            DOCKER_HUB
        } else {
            self.labels.get(host)
        };
        if label != OTHER {
            let remaining = self.families.left.with_label_values(&[label]);
            remaining.set(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unconfigured_hosts_share_one_label() {
        let metrics = Metrics::new(["docker.io"]).unwrap();
        let counts = RegistryMetrics::register(&metrics).unwrap();
        *counts.request("docker.io", RequestKind::Manifest) = "2xx";
        *counts.request("evil-3.test", RequestKind::Token) = "unreachable";
        drop(counts.request("evil-3.test", RequestKind::Config));
        counts.requests_left("docker.io", 99);
        counts.requests_left("evil-4.test", 5);
        let text = metrics.render().unwrap();
        for line in [
            r#"tolerarch_registry_requests_total{code="2xx",kind="manifest",registry="docker.io"} 1"#,
            r#"tolerarch_registry_requests_total{code="unreachable",kind="token",registry="other"} 1"#,
            r#"tolerarch_registry_ratelimit_remaining{registry="docker.io"} 99"#,
            r#"tolerarch_registry_requests_total{code="abandoned",kind="config",registry="other"} 1"#,
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        assert!(!text.contains("evil"));
    }
}
