//! tolerarch with a real registry: the registry client alone, and the whole webhook over HTTPS.

use serde_json::json;
use tolerarch::config::Config;
use tolerarch::serve::Server;
use tolerarch_images::registry::{AddressGuard, HostSettings, Registry, RegistryMetrics};
use tolerarch_support::environment::Environment;
use tolerarch_support::metrics::Metrics;

use super::distribution::Distribution;
use crate::support::https::{Client, NAME};
use crate::support::review::{Verdict, pod, post, review};

/// Returns metrics that no test reads.
pub(crate) fn registry_metrics() -> RegistryMetrics {
    RegistryMetrics::register(&Metrics::new([]).unwrap()).unwrap()
}

/// Returns a client of this registry.
pub(crate) fn registry(of: &Distribution) -> Registry {
    let settings = HostSettings {
        ca_file: Some(of.directory.path().join("ca.crt")),
        ..HostSettings::default()
    };
    let guard = AddressGuard {
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        ..AddressGuard::default()
    };
    Registry::new([(of.address.clone(), settings)], guard, registry_metrics()).unwrap()
}

/// A webhook in this process, which runs until the test ends.
pub(crate) struct Webhook(Client);

impl Webhook {
    /// Starts a webhook that trusts this registry.
    pub(crate) async fn start(registry: &Distribution) -> Self {
        Self::start_with(registry, &[&registry.address]).await
    }

    /// Starts a webhook that trusts servers at these addresses. Their certificates are of the registry's authority.
    pub(crate) async fn start_with(registry: &Distribution, addresses: &[&str]) -> Self {
        let directory = registry.directory.path();
        let certificates = tempfile::tempdir_in(directory).unwrap().keep();
        registry.pki.leaf(&[NAME]).write(&certificates).unwrap();
        let mut hosts = json!({});
        for address in addresses {
            hosts[address] = json!({"caFile": directory.join("ca.crt")});
        }
        let config = json!({
            "server": {
                "listen": "127.0.0.1:0",
                "certFile": certificates.join("tls.crt"),
                "keyFile": certificates.join("tls.key"),
            },
            "admin": {"listen": "127.0.0.1:0"},
            "registries": {"hosts": hosts},
            "network": {"allow": ["127.0.0.0/8"]},
            "lookup": {"budget": "25s", "timeout": "60s"},
        });
        // JSON is YAML.
        let config = Config::parse(&config.to_string()).unwrap();
        let server = Server::bind(config, &Environment::of_process())
            .await
            .unwrap();
        let client = Client::secure(server.address().unwrap(), &registry.pki);
        tokio::spawn(server.run(std::future::pending()));
        Self(client)
    }

    /// Returns the verdict on a Pod with this image.
    pub(crate) async fn review(&self, image: &str) -> Verdict {
        self.review_in("shop", image).await
    }

    /// Returns the verdict on a Pod of this namespace with this image.
    pub(crate) async fn review_in(&self, namespace: &str, image: &str) -> Verdict {
        let mut review = review("u-1", &pod(&[image]));
        review["request"]["namespace"] = namespace.into();
        Verdict::of(&self.0.exchange(&post("/mutate?timeout=30s", &review)).await)
    }
}
