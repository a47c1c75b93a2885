//! Keys of the configuration: each section names its own once, in the order of the documentation.

use super::duration::or_never;
use super::hosts::{host_name, is_host, prefix};
use super::shape::{Named, Names, Shape, Slot, key, section};
use super::values::choice;
use super::{Config, Tls};
use tolerarch_controller::ControllerSettings;
use tolerarch_core::image::canonical_host;
use tolerarch_core::policy::Override;
use tolerarch_images::credentials::CredentialSettings;
use tolerarch_images::registry::{HostSettings, Mirror};
use tolerarch_webhook::tls::{Lifetimes, TlsMode};

impl Slot for Config {
    #[expect(clippy::too_many_lines, reason = "the table of the configuration")]
    fn shape(&mut self) -> Shape<'_> {
        Shape::section(vec![
            key("mode", &mut self.policy.mode).means("or observe: decide, count and log, but change nothing"),
            section("server", "the webhook's listener").fixed(vec![
                key("listen", &mut self.server.listen).means("where reviews are answered, with TLS"),
                key("certFile", &mut self.server.files.certificate)
                    .means("the certificate and its chain, PEM; what it holds may change at any time"),
                key("keyFile", &mut self.server.files.key).means("the certificate's private key, PEM"),
                key("drain", &mut self.server.drain).means("how long it goes on serving after SIGTERM"),
                key("maxConnections", &mut self.server.max_connections).means("connections at a time"),
                key("failedImages", &mut self.server.failed_images).means(
                    "whether it decides by the images that the controller has recorded (controller.learn): \
                     takes the right to get, list and watch their ConfigMap",
                ),
            ]),
            self.tls.shape(),
            section("admin", "/metrics, /livez, /readyz").fixed(vec![
                key("listen", &mut self.server.admin).means("where they are answered, without TLS"),
            ]),
            key("pools", &mut self.policy.pools)
                .means("a Pod gets the tolerations of every pool that all its images can run on"),
            section("discover", "what is read of the cluster to know its pools and their platforms").fixed(
                vec![
                    key("nodePools", &mut self.discover.node_pools)
                        .means("Karpenter's NodePools: takes the right to get, list and watch nodepools"),
                    key("nodes", &mut self.discover.nodes)
                        .means("the nodes: takes the right to get, list and watch nodes"),
                ],
            ),
            key("placement", &mut self.policy.placement)
                .means("which nodes a Pod may run on, and which it prefers"),
            key("overrides", Shape::list(&mut self.policy.overrides)).means(
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
            key("podTemplates", &mut self.policy.pod_templates).means(
                "whether PodTemplates, from which autoscalers prepare nodes, get what Pods would get; needs an \
                 entry of its own in the webhook configuration",
            ),
            key("verify", choice().of(&mut self.verify)).means(
                "what is believed of an index, for each platform of pools and placement: index (what it \
                 says), manifests (of entries whose manifests are there) or config (if their configs say \
                 the same, too)",
            ),
            key("profiles", &mut self.profiles).means(
                "what differs for reviews at /mutate/<name>: of namespaces with the label \
                 tolerarch.io/profile",
            ),
            section("lookup", "how the platforms of images are looked up").of(vec![
                key("budget", &mut self.lookup.budget)
                    .means("how long one Pod may wait; less when the API server's own timeout is near"),
                key("timeout", &mut self.lookup.timeout).means(
                    "how long one lookup may take once it is its turn; it goes on behind an answered Pod",
                ),
                key("concurrency", &mut self.lookup.concurrency)
                    .means("lookups at a time, in all; three eighths for one namespace")
                    .at_start(),
                key("perRegistry", &mut self.lookup.per_registry)
                    .means("lookups at a time, of one registry; half for one namespace")
                    .at_start(),
            ]),
            section("cache", "how long what was looked up counts").of(vec![
                key("capacity", &mut self.cache.capacity).means("images").at_start(),
                key("tagTtl", &mut self.cache.tag)
                    .means("how long a tag counts before the registry is asked again"),
                key("staleWhileRevalidate", &mut self.cache.stale_while_revalidate)
                    .means("after that: answers at once, while one refresh runs"),
                key("staleIfError", &mut self.cache.stale_if_error)
                    .means("after that: answers while the registry fails"),
                section("negative", "how long failures count").of(vec![
                    key("notFound", &mut self.cache.not_found).means("no such image"),
                    key("denied", &mut self.cache.denied).means("access is denied"),
                    key("throttled", &mut self.cache.throttled)
                        .means("429: at least so long; Retry-After counts if longer"),
                    key("timeout", &mut self.cache.timeout).means("no answer in time"),
                    key("unreachable", &mut self.cache.unreachable)
                        .means("no connection, or a status of 500 and more"),
                    key("badManifest", &mut self.cache.bad_manifest).means("what came is no image"),
                ]),
                section("shared", "a Valkey or Redis in which replicas share what they know").fixed(vec![
                    key("url", &mut self.shared_cache.url).means(
                        "redis:// or rediss://host:port/database, redis+cluster://hosts; none: nothing is \
                         shared",
                    ),
                    key("usernameFile", &mut self.shared_cache.username_file)
                        .means("a file with the user's name"),
                    key("passwordFile", &mut self.shared_cache.password_file)
                        .means("a file with the password; read at each connection"),
                    key("caFile", &mut self.shared_cache.ca_file)
                        .means("certificate authorities, PEM, instead of the system's"),
                    key("keyFile", &mut self.shared_cache.key_file).means(
                        "a secret of all replicas, 32 random bytes: proves what they wrote; without it \
                         nothing is shared that a credential gave",
                    ),
                    key("timeout", &mut self.shared_cache.timeout)
                        .means("how long one operation may take; slower or broken: as if it were not there"),
                    key("prefix", prefix().of(&mut self.shared_cache.prefix)).means(
                        "what every key there begins with; clusters that share a server need one each",
                    ),
                ]),
                section("warm", "which images are looked up at the start, behind everything else").fixed(
                    vec![
                        key("fromPods", &mut self.warm.from_pods)
                            .means("those of running Pods, which takes the right to list Pods"),
                        key("perSecond", &mut self.warm.per_second).means("how many a second, at most"),
                    ],
                ),
            ]),
            section("registries", "which registries are asked, and how").of(vec![
                key("allow", &mut self.registries.allowed.allow).means(
                    "globs of host[/path] that are asked, and all below them; none means every registry",
                ),
                key("deny", &mut self.registries.allowed.deny)
                    .means("globs that are never asked; beats allow"),
                key("private", &mut self.registries.private).means(
                    "images that are never asked for without a credential; patterns as kubelet's matchImages",
                ),
                key("hostsDir", &mut self.registries.hosts_dir)
                    .means("a containerd certs.d directory of hosts.toml files"),
                key("hosts", &mut self.registries.hosts)
                    .means("what is special about one host: as an image names it, or as it is dialled"),
            ]),
            key("credentials", &mut self.credentials)
                .means("where credentials for registries come from; tried in this order, then no credential"),
            section(
                "network",
                "which addresses are dialled; loopback, link-local and metadata addresses are not",
            )
            .of(vec![
                key("allow", &mut self.network.allow).means("networks (CIDR) that are dialled nevertheless"),
                key("deny", &mut self.network.deny).means("networks that are never dialled"),
            ]),
            key("controller", &mut self.controller).means("what `tolerarch controller` does"),
            section("log", "what is logged").of(vec![
                key("level", choice().of(&mut self.log.level))
                    .means("from which level on: error, warn, info, debug or trace"),
                key("format", choice().of(&mut self.log.format)).means("json, or text for people").at_start(),
            ]),
        ])
    }
}

impl Slot for Tls {
    fn shape(&mut self) -> Shape<'_> {
        let Lifetimes { ca, leaf } = self.managed.lifetimes;
        let none = self.mode == TlsMode::Managed && self.managed.webhook_configurations.is_empty();
        let short = format!(
            "leafLifetime must be at least {}s",
            Lifetimes::LEAST.as_secs()
        );
        let faults = [
            (none, "mode managed needs a name in webhookConfigurations"),
            (leaf < Lifetimes::LEAST, &*short),
            (
                ca < leaf.saturating_mul(3),
                "caLifetime must be at least three times leafLifetime",
            ),
        ];
        let Self {
            mode,
            server_name,
            managed,
        } = self;
        section("tls", "where the serving certificate comes from").fixed(vec![
            key("mode", choice().of(mode)).means(
                "files: server.certFile and keyFile; managed: a CA of its own, kept in a Secret and in the \
                 caBundle of its webhooks",
            ),
            key("serverName", server_name).means(
                "files: by which name API servers call it, <service>.<namespace>.svc; a certificate \
                 without it is reported",
            ),
            key("secret", &mut managed.secret).means("managed: the Secret with the CA, in its own namespace"),
            key("servingSecret", &mut managed.serving_secret).means(
                "managed: the Secret there with the serving certificate; replicas mount it at server.certFile and \
                 keyFile",
            ),
            key("webhookConfigurations", &mut managed.webhook_configurations)
                .means("managed: the MutatingWebhookConfigurations that get the CA"),
            key("caLifetime", &mut managed.lifetimes.ca)
                .means("managed: how long a CA is valid; it is replaced after two thirds of that"),
            key("leafLifetime", &mut managed.lifetimes.leaf).means(
                "managed: how long the serving certificate is valid; it is replaced after half of that",
            ),
        ])
        .faulty(faults)
    }
}

impl Slot for Override {
    fn shape(&mut self) -> Shape<'_> {
        let faults = [
            (
                self.images == Default::default(),
                "the override has no match; write for example ghcr.io/my-org/*",
            ),
            (
                self.platforms.is_empty(),
                "the override has no platforms; write for example [linux/amd64]",
            ),
        ];
        Shape::section(vec![
            key("match", &mut self.images).means("a glob as in registries.allow"),
            key("platforms", &mut self.platforms).means("those that these images run on"),
        ])
        .faulty(faults)
    }
}

impl Slot for CredentialSettings {
    fn shape(&mut self) -> Shape<'_> {
        let config = self.providers.config.is_some();
        let plugins = self.providers.bin_dir.is_some();
        let faults = [
            (
                config && !plugins,
                "providers.config needs providers.binDir, the directory of the plugins",
            ),
            (
                plugins && !config,
                "providers.binDir needs providers.config, a CredentialProviderConfig",
            ),
        ];
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
            key("providers", providers).means("kubelet's image credential provider plugins"),
        ])
        .faulty(faults)
    }
}

impl Named for HostSettings {
    const NAMES: Names = Names {
        what: "host",
        example: "registry.example.com:5000",
        fault: "no registry host; write host or host:port, without https://",
        read: |name| is_host(name).then(|| canonical_host(name)),
    };
}

impl Slot for HostSettings {
    fn shape(&mut self) -> Shape<'_> {
        let key_alone = self.client_key_file.is_some() && self.client_cert_file.is_none();
        let many = format!(
            "at most {} mirrors are asked; remove the others",
            Mirror::MOST
        );
        let faults = [
            (key_alone, "clientKeyFile needs clientCertFile"),
            (self.mirrors.len() > Mirror::MOST, &*many),
        ];
        Shape::section(vec![
            key("caFile", &mut self.ca_file)
                .means("certificate authorities, PEM, that are trusted beside the system's"),
            key("clientCertFile", &mut self.client_cert_file)
                .means("the certificate, PEM, that is shown to the host"),
            key("clientKeyFile", &mut self.client_key_file)
                .means("its key, PEM, where it is another file"),
            key("plainHttp", &mut self.plain_http).means("without TLS"),
            key("skipVerify", &mut self.skip_verify)
                .means("take any certificate, which allows a man in the middle"),
            key("mirrors", &mut self.mirrors)
                .means("hosts or https://host/prefix, asked in this order before the host itself"),
            key("tokenHosts", host_name().list(&mut self.token_hosts))
                .means("other hosts that this registry's realm may name and get its credentials"),
        ])
        .faulty(faults)
    }
}

impl Slot for ControllerSettings {
    fn shape(&mut self) -> Shape<'_> {
        let none = self.webhook_configurations.is_empty();
        let faults = [(
            none,
            "webhookConfigurations is empty; write for example [zz-tolerarch]",
        )];
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
                .means("whether images that fail on an architecture, and owners that delete changed Pods, are recorded and kept from pools")
                .at_start(),
            key("evictFailed", &mut self.evict_failed).means(
                "whether Pods that failed so are evicted, as far as their disruption budgets allow it: takes \
                 the right to create pods/eviction",
            ),
            key("census", or_never().of(&mut self.census))
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
