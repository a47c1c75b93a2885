//! The keys of the configuration: each section names its own once, in the order of the documentation.

use super::cache::CacheSection;
use super::hosts::{host_name, is_host};
use super::shape::{Named, Section, Sections, Shape, Slot, Visit, holding, key, key_as};
use super::values::choice;
use super::{Admin, Config, Log, Registries, Server, Tls};
use tolerarch_core::image::canonical_host;
use tolerarch_images::credentials::CredentialSettings;
use tolerarch_images::registry::{AddressGuard, HostSettings, Mirror};
use tolerarch_images::resolver::LookupSettings;
use tolerarch_webhook::tls::{Lifetimes, TlsMode};

impl Slot for Config {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key("mode", "or observe: decide, count and log, but change nothing", &mut self.policy.mode),
            key("server", "the webhook's listener", &mut self.server),
            key("tls", "where the serving certificate comes from", &mut self.tls),
            key("admin", "/metrics, /livez, /readyz", &mut self.admin),
            key(
                "pools",
                "a Pod gets the tolerations of every pool that all its images can run on",
                &mut self.policy.pools,
            ),
            key(
                "discover",
                "what is read of the cluster to know its pools and their platforms",
                &mut self.discover,
            ),
            key(
                "placement",
                "which nodes a Pod may run on, and which it prefers",
                &mut self.policy.placement,
            ),
            key_as(
                "overrides",
                "what is believed of images instead of asking their registry: the first that matches; beats registries",
                Sections(&mut self.policy.overrides),
            ),
            key(
                "explain",
                "whether a Pod that stays closed gets the annotation tolerarch.io/reason, which says why",
                &mut self.policy.explain,
            ),
            key(
                "daemonSets",
                "whether the templates of DaemonSets get what their Pods would get; needs an entry of its own in the webhook configuration",
                &mut self.policy.daemon_sets,
            ),
            key_as(
                "verify",
                "index or config: whether the config of each platform of pools and placement is read, too, as indexes can be wrong",
                choice().of(&mut self.verify),
            ),
            key(
                "profiles",
                "what differs for reviews at /mutate/<name>: of namespaces with the label tolerarch.io/profile",
                &mut self.profiles,
            ),
            key("lookup", "how the platforms of images are looked up", &mut self.lookup),
            key_as(
                "cache",
                "how long what was looked up counts",
                CacheSection { own: &mut self.cache, shared: &mut self.shared_cache, warm: &mut self.warm },
            ),
            key("registries", "which registries are asked, and how", &mut self.registries),
            key(
                "credentials",
                "where credentials for registries come from; tried in this order, then no credential",
                &mut self.credentials,
            ),
            key(
                "network",
                "which addresses are dialled; loopback, link-local and metadata addresses are not",
                &mut self.network,
            ),
            key("controller", "what `tolerarch controller` does", &mut self.controller),
            key("log", "what is logged", &mut self.log),
        ])
    }
}

impl Slot for Server {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key("listen", "where reviews are answered, with TLS", &mut self.listen).at_start(),
            key(
                "certFile",
                "the certificate and its chain, PEM; what it holds may change at any time",
                &mut self.files.certificate,
            )
            .at_start(),
            key("keyFile", "the certificate's private key, PEM", &mut self.files.key).at_start(),
            key("drain", "how long it goes on serving after SIGTERM", &mut self.drain).at_start(),
            key("maxConnections", "connections at a time", &mut self.max_connections).at_start(),
        ])
    }
}

impl Slot for Tls {
    fn shape(&mut self) -> Shape<'_> {
        let Self { mode, server_name, managed } = self;
        Shape::Section(vec![
            key_as(
                "mode",
                "files: server.certFile and keyFile; managed: a CA of its own, kept in a Secret and in the caBundle of its webhooks",
                choice().of(mode),
            )
            .at_start(),
            key(
                "serverName",
                "files: by which name API servers call it, <service>.<namespace>.svc; a certificate without it is reported",
                server_name,
            )
            .at_start(),
            key("secret", "managed: the Secret with the CA, in its own namespace", &mut managed.secret).at_start(),
            key(
                "servingSecret",
                "managed: the Secret with the certificate that replicas serve, there as well",
                &mut managed.serving_secret,
            )
            .at_start(),
            key(
                "webhookConfigurations",
                "managed: the MutatingWebhookConfigurations that get the CA",
                &mut managed.webhook_configurations,
            )
            .at_start(),
            key(
                "caLifetime",
                "managed: how long a CA is valid; it is replaced after two thirds of that",
                &mut managed.lifetimes.ca,
            )
            .at_start(),
            key(
                "leafLifetime",
                "managed: how long the serving certificate is valid; it is replaced after half of that",
                &mut managed.lifetimes.leaf,
            )
            .at_start(),
        ])
    }

    fn validate(&self) -> Vec<String> {
        let Lifetimes { ca, leaf } = self.managed.lifetimes;
        let none = self.mode == TlsMode::Managed && self.managed.webhook_configurations.is_empty();
        let short = format!("leafLifetime must be at least {}s", Lifetimes::LEAST.as_secs());
        holding([
            (none, "mode managed needs a name in webhookConfigurations"),
            (leaf < Lifetimes::LEAST, &short),
            (ca < leaf.saturating_mul(3), "caLifetime must be at least three times leafLifetime"),
        ])
    }
}

impl Slot for Admin {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key("listen", "where they are answered, without TLS", &mut self.listen).at_start(),
        ])
    }
}

impl Slot for LookupSettings {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key(
                "budget",
                "how long one Pod may wait; less when the API server's own timeout is near",
                &mut self.budget,
            ),
            key(
                "timeout",
                "how long one lookup may take in all; it goes on behind an answered Pod",
                &mut self.timeout,
            ),
            key("concurrency", "lookups at a time, in all", &mut self.concurrency).at_start(),
            key("perRegistry", "lookups at a time, of one registry", &mut self.per_registry).at_start(),
        ])
    }
}

impl Slot for Registries {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key(
                "allow",
                "globs of host[/path] that are asked, and all below them; none means every registry",
                &mut self.allowed.allow,
            ),
            key("deny", "globs that are never asked; beats allow", &mut self.allowed.deny),
            key(
                "private",
                "images that are never asked for without a credential; patterns as kubelet's matchImages",
                &mut self.private,
            ),
            key("hostsDir", "a containerd certs.d directory of hosts.toml files", &mut self.hosts_dir),
            key(
                "hosts",
                "what is special about one host: as an image names it, or as it is dialled",
                &mut self.hosts,
            ),
        ])
    }
}

impl Slot for CredentialSettings {
    fn shape(&mut self) -> Shape<'_> {
        let providers = Section(vec![
            key("config", "a CredentialProviderConfig, or a directory of them", &mut self.providers.config),
            key("binDir", "the directory of the plugins", &mut self.providers.bin_dir),
        ]);
        Shape::Section(vec![
            key(
                "pullSecrets",
                "read the Pod's imagePullSecrets through the Kubernetes API, which takes the right to get them",
                &mut self.pull_secrets,
            ),
            key("dockerConfigs", "files in the format of docker's config.json", &mut self.docker_configs),
            key("directory", "one TOML file a registry, <host>.toml: user, secret", &mut self.directory),
            key_as("providers", "kubelet's image credential provider plugins", providers),
        ])
    }

    fn validate(&self) -> Vec<String> {
        let (config, plugins) = (self.providers.config.is_some(), self.providers.bin_dir.is_some());
        holding([
            (config && !plugins, "providers.config needs providers.binDir, the directory of the plugins"),
            (plugins && !config, "providers.binDir needs providers.config, a CredentialProviderConfig"),
        ])
    }
}

impl Named for HostSettings {
    const KEY: (&'static str, &'static str) = ("host", "registry.example.com:5000");

    fn normal(name: &str) -> String {
        canonical_host(name)
    }

    fn check(name: &str) -> Result<(), String> {
        let wrong = || "no registry host; write host or host:port, without https://".to_owned();
        is_host(name).then_some(()).ok_or_else(wrong)
    }

    fn show(&mut self, visit: Visit<'_>) {
        visit(self);
    }
}

impl Slot for HostSettings {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key(
                "caFile",
                "certificate authorities, PEM, that are trusted beside the system's",
                &mut self.ca_file,
            ),
            key(
                "clientCertFile",
                "the certificate, PEM, that is shown to the host",
                &mut self.client_cert_file,
            ),
            key("clientKeyFile", "its key, PEM, where it is another file", &mut self.client_key_file),
            key("plainHttp", "without TLS", &mut self.plain_http),
            key(
                "skipVerify",
                "take any certificate, which allows a man in the middle",
                &mut self.skip_verify,
            ),
            key(
                "mirrors",
                "hosts or https://host/prefix, asked in this order before the host itself",
                &mut self.mirrors,
            ),
            key_as(
                "tokenHosts",
                "other hosts that this registry's realm may name and get its credentials",
                host_name().set(&mut self.token_hosts),
            ),
        ])
    }

    fn validate(&self) -> Vec<String> {
        let key_alone = self.client_key_file.is_some() && self.client_cert_file.is_none();
        let many = format!("at most {} mirrors are asked; remove the others", Mirror::MOST);
        holding([
            (key_alone, "clientKeyFile needs clientCertFile"),
            (self.mirrors.len() > Mirror::MOST, &many),
        ])
    }
}

impl Slot for AddressGuard {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key("allow", "networks (CIDR) that are dialled nevertheless", &mut self.allow),
            key("deny", "networks that are never dialled", &mut self.deny),
        ])
    }
}

impl Slot for Log {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key_as(
                "level",
                "from which level on: error, warn, info, debug or trace",
                choice().of(&mut self.level),
            ),
            key_as("format", "json, or text for people", choice().of(&mut self.format)).at_start(),
        ])
    }
}
