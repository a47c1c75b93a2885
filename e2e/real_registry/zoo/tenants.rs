//! Three namespaces that share a registry. Repositories of two of them are throttled, fail, or redirect to another host.

use super::nginx::Nginx;
use super::tools::are_installed;
use crate::real_registry::distribution::{Distribution, REPO};
use crate::real_registry::images;
use crate::real_registry::webhook::Webhook;

/// A registry behind nginx. Every repository whose name has two levels has the same images.
struct Front {
    webhook: Webhook,
    address: String,
    /// Processes that end with the test.
    _running: (Distribution, [Nginx; 2]),
}

impl Front {
    async fn start() -> Option<Self> {
        if !are_installed(&["nginx"]) {
            return None;
        }
        let distribution = Distribution::start().await?;
        images::push(&distribution).await;
        let home = distribution.directory.path();
        let directory = |name: &str| {
            let directory = home.join(name);
            std::fs::create_dir(&directory).unwrap();
            directory
        };
        let failing = "location /busy { add_header Retry-After 3600 always; return 429; } location / { return 503; }";
        let files = directory("elsewhere");
        let elsewhere = Nginx::start(home, &distribution.pki, "127.0.0.2", &files, |_| {
            failing.to_owned()
        })
        .await;
        let backend = format!(
            "rewrite ^/v2/[^/]+/[^/]+/(.*)$ /v2/{REPO}/$1 break; proxy_pass https://{};",
            distribution.address
        );
        let locations = format!(
            "location ^~ /v2/limited/ {{ add_header Retry-After 3600 always; limit_req zone=minute; {backend} }}
             location ^~ /v2/busy/ {{ add_header Retry-After 3600 always; return 429; }}
             location ^~ /v2/fails/ {{ return 503; }}
             location ^~ /v2/moved/ {{ return 307 https://{0}/v2/app/manifests/v1; }}
             location ^~ /v2/sent/ {{ return 307 https://{0}/busy; }}
             location / {{ {backend} }}",
            elsewhere.address
        );
        let nginx = Nginx::start(home, &distribution.pki, "127.0.0.1", &files, |_| locations).await;
        let addresses = [&*nginx.address, &*elsewhere.address];
        let webhook = Webhook::start_with(&distribution, &addresses).await;
        let address = nginx.address.clone();
        Some(Self {
            webhook,
            address,
            _running: (distribution, [nginx, elsewhere]),
        })
    }

    /// Returns the reason for a Pod of this namespace with an image of this repository.
    async fn reason(&self, namespace: &str, repository: &str) -> String {
        let image = format!("{}/{repository}:buildkit", self.address);
        self.webhook.review_in(namespace, &image).await.reason
    }
}

#[tokio::test]
async fn throttled_repository_pauses_no_other() {
    let Some(front) = Front::start().await else {
        return;
    };
    // nginx lets the first request pass, which is for the index. It throttles the requests for its manifests.
    assert_eq!(front.reason("a", "limited/app").await, "throttled");
    assert_eq!(front.reason("a", "sent/app").await, "throttled");
    for number in 0..20 {
        assert_eq!(
            front.reason("c", &format!("good/new{number}")).await,
            "tolerated",
            "{number}"
        );
    }
}

#[tokio::test]
async fn throttled_namespaces_do_not_affect_another() {
    let Some(front) = Front::start().await else {
        return;
    };
    assert_eq!(front.reason("a", "busy/first").await, "throttled");
    assert_eq!(front.reason("c", "good/first").await, "tolerated");
    for number in 0..20 {
        for namespace in ["a", "b"] {
            assert_eq!(
                front
                    .reason(namespace, &format!("busy/{namespace}{number}"))
                    .await,
                "throttled"
            );
        }
        assert_eq!(
            front.reason("c", &format!("good/new{number}")).await,
            "tolerated",
            "{number}"
        );
    }
}

#[tokio::test]
async fn failing_namespaces_do_not_affect_another() {
    for project in ["fails", "moved"] {
        let Some(front) = Front::start().await else {
            return;
        };
        for number in 0..40 {
            for namespace in ["a", "b"] {
                for part in 0..3 {
                    let repository = format!("{project}/{namespace}{number}-{part}");
                    let reason = front.reason(namespace, &repository).await;
                    assert!(
                        ["unreachable", "circuit-open"].contains(&&*reason),
                        "{repository}: {reason}"
                    );
                }
            }
            assert_eq!(
                front.reason("c", &format!("good/new{number}")).await,
                "tolerated",
                "{project} {number}"
            );
        }
    }
}
