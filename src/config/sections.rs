//! The keys of the configuration: each section names its own once, in the order of the documentation.

use super::cache::cache;
use super::duration::or_never;
use super::hosts::{host_name, is_host};
use super::shape::{Named, Shape, Slot, at_start, holding, key, key_as};
use super::values::choice;
use super::{Admin, Config, Discover, Log, Registries, Server, Tls};
use tolerarch_controller::ControllerSettings;
use tolerarch_core::image::canonical_host;
use tolerarch_core::policy::Override;
use tolerarch_images::credentials::CredentialSettings;
use tolerarch_images::registry::{AddressGuard, HostSettings, Mirror};
use tolerarch_images::resolver::LookupSettings;
use tolerarch_webhook::tls::{Lifetimes, TlsMode};

impl Slot for Config {
    fn shape(&mut self) -> Shape<'_> {
        Shape::section(vec![
            key("mode", &mut self.policy.mode).means("or observe: decide, count and log, but change nothing"),
            key("server", &mut self.server).means("the webhook's listener"),
            key("tls", &mut self.tls).means("where the serving certificate comes from"),
            key("admin", &mut self.admin).means("/metrics, /livez, /readyz"),
            key("pools", &mut self.policy.pools)
                .means("a Pod gets the tolerations of every pool that all its images can run on"),
            key("discover", &mut self.discover)
                .means("what is read of the cluster to know its pools and their platforms"),
            key("placement", &mut self.policy.placement)
                .means("which nodes a Pod may run on, and which it prefers"),
            key_as("overrides", Shape::entries(&mut self.policy.overrides)).means(
                "what is believed of images instead of asking their registry: the first that matches; \
                 beats registries",
            ),
            key("explain", &mut self.policy.explain).means(
                "whether a Pod that stays closed gets the annotation tolerarch.io/reason, which says why",
            ),
            key("daemonSets", &mut self.policy.daemon_sets).means(
                "whether the templates of DaemonSets get what their Pods would get; needs an entry of its \
                 own in the webhook configuration",
            ),
            key_as("verify", choice().of(&mut self.verify)).means(
                "what is believed of an index, for each platform of pools and placement: index (what it \
                 says), manifests (of entries whose manifests are there) or config (if their configs say the same, too)",
            ),
            key("profiles", &mut self.profiles).means(
                "what differs for reviews at /mutate/<name>: of namespaces with the label \
                 tolerarch.io/profile",
            ),
            key("lookup", &mut self.lookup).means("how the platforms of images are looked up"),
            key_as("cache", cache(&mut self.cache, &mut self.shared_cache, &mut self.warm))
                .means("how long what was looked up counts"),
            key("registries", &mut self.registries).means("which registries are asked, and how"),
            key("credentials", &mut self.credentials)
                .means("where credentials for registries come from; tried in this order, then no credential"),
            key("network", &mut self.network)
                .means("which addresses are dialled; loopback, link-local and metadata addresses are not"),
            key("controller", &mut self.controller).means("what `tolerarch controller` does"),
            key("log", &mut self.log).means("what is logged"),
        ])
    }
}

impl Slot for Server {
    fn shape(&mut self) -> Shape<'_> {
        Shape::section(at_start(vec![
            key("listen", &mut self.listen).means("where reviews are answered, with TLS"),
            key("certFile", &mut self.files.certificate)
                .means("the certificate and its chain, PEM; what it holds may change at any time"),
            key("keyFile", &mut self.files.key).means("the certificate's private key, PEM"),
            key("drain", &mut self.drain).means("how long it goes on serving after SIGTERM"),
            key("maxConnections", &mut self.max_connections).means("connections at a time"),
            key("failedImages", &mut self.failed_images).means(
                "whether it decides by the images that the controller has recorded (controller.learn): takes \
                 the right to get, list and watch their ConfigMap",
            ),
        ]))
    }
}

impl Slot for Tls {
    fn shape(&mut self) -> Shape<'_> {
        let Lifetimes { ca, leaf } = self.managed.lifetimes;
        let none = self.mode == TlsMode::Managed && self.managed.webhook_configurations.is_empty();
        let short = format!("leafLifetime must be at least {}s", Lifetimes::LEAST.as_secs());
        let faults = holding([
            (none, "mode managed needs a name in webhookConfigurations"),
            (leaf < Lifetimes::LEAST, &short),
            (ca < leaf.saturating_mul(3), "caLifetime must be at least three times leafLifetime"),
        ]);
        let Self { mode, server_name, managed } = self;
        Shape::section(at_start(vec![
            key_as("mode", choice().of(mode)).means(
                "files: server.certFile and keyFile; managed: a CA of its own, kept in a Secret and in the \
                 caBundle of its webhooks",
            ),
            key("serverName", server_name).means(
                "files: by which name API servers call it, <service>.<namespace>.svc; a certificate \
                 without it is reported",
            ),
            key("secret", &mut managed.secret).means("managed: the Secret with the CA, in its own namespace"),
            key("servingSecret", &mut managed.serving_secret)
                .means("managed: the Secret with the certificate that replicas serve, there as well"),
            key("webhookConfigurations", &mut managed.webhook_configurations)
                .means("managed: the MutatingWebhookConfigurations that get the CA"),
            key("caLifetime", &mut managed.lifetimes.ca)
                .means("managed: how long a CA is valid; it is replaced after two thirds of that"),
            key("leafLifetime", &mut managed.lifetimes.leaf).means(
                "managed: how long the serving certificate is valid; it is replaced after half of that",
            ),
        ]))
        .faulty(faults)
    }
}

impl Slot for Admin {
    fn shape(&mut self) -> Shape<'_> {
        Shape::section(at_start(vec![
            key("listen", &mut self.listen).means("where they are answered, without TLS"),
        ]))
    }
}

impl Slot for Discover {
    fn shape(&mut self) -> Shape<'_> {
        Shape::section(at_start(vec![
            key("nodePools", &mut self.node_pools)
                .means("Karpenter's NodePools: takes the right to get, list and watch nodepools"),
            key("nodes", &mut self.nodes).means("the nodes: takes the right to get, list and watch nodes"),
        ]))
    }
}

impl Slot for Override {
    fn shape(&mut self) -> Shape<'_> {
        let faults = holding([
            (
                self.images == Default::default(),
                "the override has no match; write for example ghcr.io/my-org/*",
            ),
            (self.platforms.is_empty(), "the override has no platforms; write for example [linux/amd64]"),
        ]);
        Shape::section(vec![
            key("match", &mut self.images).means("a glob as in registries.allow"),
            key("platforms", &mut self.platforms).means("those that these images run on"),
        ])
        .faulty(faults)
    }
}

impl Slot for LookupSettings {
    fn shape(&mut self) -> Shape<'_> {
        Shape::section(vec![
            key("budget", &mut self.budget)
                .means("how long one Pod may wait; less when the API server's own timeout is near"),
            key("timeout", &mut self.timeout)
                .means("how long one lookup may take once it is its turn; it goes on behind an answered Pod"),
            key("concurrency", &mut self.concurrency)
                .means("lookups at a time, in all; three eighths for one namespace")
                .at_start(),
            key("perRegistry", &mut self.per_registry)
                .means("lookups at a time, of one registry; half for one namespace")
                .at_start(),
        ])
    }
}

impl Slot for Registries {
    fn shape(&mut self) -> Shape<'_> {
        Shape::section(vec![
            key("allow", &mut self.allowed.allow)
                .means("globs of host[/path] that are asked, and all below them; none means every registry"),
            key("deny", &mut self.allowed.deny).means("globs that are never asked; beats allow"),
            key("private", &mut self.private).means(
                "images that are never asked for without a credential; patterns as kubelet's matchImages",
            ),
            key("hostsDir", &mut self.hosts_dir).means("a containerd certs.d directory of hosts.toml files"),
            key("hosts", &mut self.hosts)
                .means("what is special about one host: as an image names it, or as it is dialled"),
        ])
    }
}

impl Slot for CredentialSettings {
    fn shape(&mut self) -> Shape<'_> {
        let (config, plugins) = (self.providers.config.is_some(), self.providers.bin_dir.is_some());
        let faults = holding([
            (config && !plugins, "providers.config needs providers.binDir, the directory of the plugins"),
            (plugins && !config, "providers.binDir needs providers.config, a CredentialProviderConfig"),
        ]);
        let providers = Shape::section(vec![
            key("config", &mut self.providers.config)
                .means("a CredentialProviderConfig, or a directory of them"),
            key("binDir", &mut self.providers.bin_dir).means("the directory of the plugins"),
        ]);
        Shape::section(vec![
            key("pullSecrets", &mut self.pull_secrets).means(
                "read the Pod's imagePullSecrets through the Kubernetes API, which takes the right to get \
                 them",
            ),
            key("dockerConfigs", &mut self.docker_configs)
                .means("files in the format of docker's config.json"),
            key("directory", &mut self.directory)
                .means("one TOML file a registry, <host>.toml: user, secret"),
            key_as("providers", providers).means("kubelet's image credential provider plugins"),
        ])
        .faulty(faults)
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
}

impl Slot for HostSettings {
    fn shape(&mut self) -> Shape<'_> {
        let key_alone = self.client_key_file.is_some() && self.client_cert_file.is_none();
        let many = format!("at most {} mirrors are asked; remove the others", Mirror::MOST);
        let faults = holding([
            (key_alone, "clientKeyFile needs clientCertFile"),
            (self.mirrors.len() > Mirror::MOST, &many),
        ]);
        Shape::section(vec![
            key("caFile", &mut self.ca_file)
                .means("certificate authorities, PEM, that are trusted beside the system's"),
            key("clientCertFile", &mut self.client_cert_file)
                .means("the certificate, PEM, that is shown to the host"),
            key("clientKeyFile", &mut self.client_key_file).means("its key, PEM, where it is another file"),
            key("plainHttp", &mut self.plain_http).means("without TLS"),
            key("skipVerify", &mut self.skip_verify)
                .means("take any certificate, which allows a man in the middle"),
            key("mirrors", &mut self.mirrors)
                .means("hosts or https://host/prefix, asked in this order before the host itself"),
            key_as("tokenHosts", host_name().set(&mut self.token_hosts))
                .means("other hosts that this registry's realm may name and get its credentials"),
        ])
        .faulty(faults)
    }
}

impl Slot for AddressGuard {
    fn shape(&mut self) -> Shape<'_> {
        Shape::section(vec![
            key("allow", &mut self.allow).means("networks (CIDR) that are dialled nevertheless"),
            key("deny", &mut self.deny).means("networks that are never dialled"),
        ])
    }
}

impl Slot for ControllerSettings {
    fn shape(&mut self) -> Shape<'_> {
        let none = self.webhook_configurations.is_empty();
        let faults = holding([(none, "webhookConfigurations is empty; write for example [zz-tolerarch]")]);
        Shape::section(vec![
            key("repair", &mut self.repair).means(
                "whether pools are opened to Pods without a node that the webhook could not decide, or \
                 never saw",
            ),
            key("events", &mut self.events).means(
                "whether Pods show by events why their pools stay closed, which were opened, and images \
                 that are not for their node",
            ),
            key("podLogs", &mut self.pod_logs).means(
                "whether, for these events, the last line is read that a container has written which ended \
                 at once",
            ),
            key("learn", &mut self.learn)
                .means("whether images that fail on an architecture are recorded, and kept from its pools")
                .at_start(),
            key_as("census", or_never().of(&mut self.census))
                .means("how often all Pods are counted for the metrics of the cluster; 0 for never"),
            key("nodeTaints", &mut self.node_taints).means("taints that nodes get, by their labels"),
            key("webhookConfigurations", &mut self.webhook_configurations)
                .means("the MutatingWebhookConfigurations that say which Pods it is about"),
            key("lease", &mut self.lease)
                .means("the Lease by which one replica leads, in its own namespace")
                .at_start(),
        ])
        .faulty(faults)
    }
}

impl Slot for Log {
    fn shape(&mut self) -> Shape<'_> {
        Shape::section(vec![
            key_as("level", choice().of(&mut self.level))
                .means("from which level on: error, warn, info, debug or trace"),
            key_as("format", choice().of(&mut self.format)).means("json, or text for people").at_start(),
        ])
    }
}
