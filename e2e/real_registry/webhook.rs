//! tolerarch in front of a real registry: its registry client alone, and the whole of it over HTTPS.

use tolerarch::config::Config;
use tolerarch::serve::Server;
use tolerarch_images::registry::{AddressGuard, HostSettings, Registry, RegistryMetrics};
use tolerarch_support::environment::Environment;
use tolerarch_support::metrics::Metrics;

use super::distribution::Distribution;
use crate::support::https::{Client, NAME};
use crate::support::review::{Verdict, pod, post, review};

/// Counts what no test looks at.
pub(crate) fn registry_metrics() -> RegistryMetrics {
    RegistryMetrics::register(&Metrics::new([]).unwrap()).unwrap()
}

/// A client of this registry.
pub(crate) fn registry(of: &Distribution) -> Registry {
    let settings =
        HostSettings { ca_file: Some(of.directory.path().join("ca.crt")), ..HostSettings::default() };
    let guard = AddressGuard { allow: vec!["127.0.0.0/8".parse().unwrap()], ..AddressGuard::default() };
    Registry::new([(of.address.clone(), settings)], guard, registry_metrics()).unwrap()
}

/// A webhook that asks this registry, in this process, until the test ends.
pub(crate) struct Webhook(Client);

impl Webhook {
    pub(crate) async fn start(before: &Distribution) -> Self {
        let directory = before.directory.path();
        let certificates = tempfile::tempdir_in(directory).unwrap().keep();
        before.pki.leaf(&[NAME]).write(&certificates).unwrap();
        let config = format!(
            r#"
server:
  listen: 127.0.0.1:0
  certFile: {certificates}/tls.crt
  keyFile: {certificates}/tls.key
admin:
  listen: 127.0.0.1:0
registries:
  hosts:
    "{registry}":
      caFile: {directory}/ca.crt
network:
  allow: [127.0.0.0/8]
lookup:
  budget: 25s
  timeout: 60s
"#,
            certificates = certificates.display(),
            directory = directory.display(),
            registry = before.address,
        );
        let server = Server::bind(Config::parse(&config).unwrap(), &Environment::of_process()).await.unwrap();
        let client = Client::secure(server.address().unwrap(), &before.pki);
        tokio::spawn(server.run(std::future::pending()));
        Self(client)
    }

    /// The verdict over a Pod with this image.
    pub(crate) async fn review(&self, image: &str) -> Verdict {
        Verdict::of(&self.0.ask(&post("/mutate?timeout=30s", &review("u-1", &pod(&[image])))).await)
    }
}
