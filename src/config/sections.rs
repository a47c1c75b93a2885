//! Keys of the configuration, each declared once, in the order of the documentation.

use super::duration::or_never;
use super::hosts::{host_name, is_host, prefix};
use super::shape::{Describe, Description, NameRules, NamedEntry, key, section};
use super::values::choice;
use super::{Config, Tls};
use tolerarch_controller::ControllerSettings;
use tolerarch_core::image::canonical_host;
use tolerarch_core::policy::Override;
use tolerarch_images::credentials::CredentialSettings;
use tolerarch_images::registry::{HostSettings, Mirror};
use tolerarch_webhook::tls::{Lifetimes, TlsMode};

impl Describe for Config {
    #[expect(clippy::too_many_lines, reason = "the table of the configuration")]
    fn describe(&mut self) -> Description<'_> {
        Description::section(vec![
            key("mode", &mut self.policy.mode).means("enforce, or observe: decide, count and log, but change nothing"),
            section("server", "the webhook's listener").with_keys_at_start(vec![
                key("listen", &mut self.server.listen).means("address for reviews, with TLS"),
                key("certFile", &mut self.server.files.certificate)
                    .means("the certificate and its chain, PEM; the file may be replaced at any time"),
                key("keyFile", &mut self.server.files.key).means("the certificate's private key, PEM"),
                key("drain", &mut self.server.drain).means("how long the webhook continues to serve after SIGTERM"),
                key("maxConnections", &mut self.server.max_connections).means("maximum number of connections at a time"),
                key("failedImages", &mut self.server.failed_images).means(
                    "whether to decide by the images that the controller has recorded (controller.learn); needs \
                     the right to get, list and watch their ConfigMap",
                ),
            ]),
            self.tls.describe(),
            section("admin", "/metrics, /livez, /readyz").with_keys_at_start(vec![
                key("listen", &mut self.server.admin).means("address for these, without TLS"),
            ]),
            key("pools", &mut self.policy.pools)
                .means("a Pod gets the tolerations of every pool that all its images can run on"),
            section("discover", "what to read from the cluster to find pools and their platforms").with_keys_at_start(
                vec![
                    key("nodePools", &mut self.discover.node_pools)
                        .means("Karpenter's NodePools; needs the right to get, list and watch nodepools"),
                    key("nodes", &mut self.discover.nodes)
                        .means("the nodes; needs the right to get, list and watch nodes"),
                ],
            ),
            key("placement", &mut self.policy.placement)
                .means("which nodes a Pod may run on, and which it prefers"),
            key("overrides", Description::list(&mut self.policy.overrides)).means(
                "platforms of images whose registry is then not asked; the first match counts; takes precedence \
                 over registries",
            ),
            key("explain", &mut self.policy.explain).means(
                "whether a Pod that no pool is opened to gets the annotation tolerarch.io/reason, which says why",
            ),
            key("daemonSets", &mut self.policy.daemon_sets).means(
                "whether templates of DaemonSets are changed as their Pods would be; needs a separate entry in \
                 the webhook configuration",
            ),
            key("podTemplates", &mut self.policy.pod_templates).means(
                "whether PodTemplates, from which autoscalers prepare nodes, are changed as Pods would be; \
                 needs a separate entry in the webhook configuration",
            ),
            key("verify", choice().of(&mut self.verify)).means(
                "how far to trust an index, for each platform of pools and placement: index (every entry), \
                 manifests (entries whose manifests exist) or config (entries whose configs name the same \
                 platform)",
            ),
            key("profiles", &mut self.profiles).means(
                "settings that differ for reviews at /mutate/<name>, from namespaces with the label \
                 tolerarch.io/profile",
            ),
            section("lookup", "how the platforms of images are looked up").with_keys(vec![
                key("budget", &mut self.lookup.budget)
                    .means("maximum wait for one Pod; less if the API server's own timeout ends earlier"),
                key("timeout", &mut self.lookup.timeout).means(
                    "maximum time of one lookup after its start; it continues after the Pod has been answered",
                ),
                key("concurrency", &mut self.lookup.concurrency)
                    .means("maximum number of lookups at a time; three eighths of it for one namespace")
                    .at_start(),
                key("perRegistry", &mut self.lookup.per_registry)
                    .means("maximum number of lookups at a time at one registry; half of it for one namespace")
                    .at_start(),
            ]),
            section("cache", "how long results of lookups count").with_keys(vec![
                key("capacity", &mut self.cache.capacity).means("maximum number of images").at_start(),
                key("tagTtl", &mut self.cache.tag)
                    .means("how long a tag counts before the registry is asked again"),
                key("staleWhileRevalidate", &mut self.cache.stale_while_revalidate)
                    .means("after that: how long the old result is used while one refresh runs"),
                key("staleIfError", &mut self.cache.stale_if_error)
                    .means("after that: how long the old result is used while the registry fails"),
                section("negative", "how long failures count").with_keys(vec![
                    key("notFound", &mut self.cache.not_found).means("the image does not exist"),
                    key("denied", &mut self.cache.denied).means("access is denied"),
                    key("throttled", &mut self.cache.throttled)
                        .means("429: at least this long; Retry-After counts if it is longer"),
                    key("timeout", &mut self.cache.timeout).means("no answer in time"),
                    key("unreachable", &mut self.cache.unreachable)
                        .means("no connection, or a status of 500 and more"),
                    key("badManifest", &mut self.cache.bad_manifest).means("the answer is not an image"),
                ]),
                section("shared", "a Valkey or Redis in which replicas share results").with_keys_at_start(vec![
                    key("url", &mut self.shared_cache.url).means(
                        "redis:// or rediss://host:port/database, redis+cluster://hosts; empty: nothing is shared",
                    ),
                    key("usernameFile", &mut self.shared_cache.username_file)
                        .means("a file with the user's name"),
                    key("passwordFile", &mut self.shared_cache.password_file)
                        .means("a file with the password; read at each connection"),
                    key("caFile", &mut self.shared_cache.ca_file)
                        .means("certificate authorities, PEM, instead of the system's"),
                    key("keyFile", &mut self.shared_cache.key_file).means(
                        "a secret of all replicas, 32 random bytes, that proves what they wrote; without it, \
                         nothing is shared that needed a credential",
                    ),
                    key("timeout", &mut self.shared_cache.timeout)
                        .means("maximum time of one operation; a slow or broken server is treated as absent"),
                    key("prefix", prefix().of(&mut self.shared_cache.prefix)).means(
                        "prefix of all keys; clusters that share a server need different ones",
                    ),
                ]),
                section("warm", "images that are looked up at the start, with the lowest priority").with_keys_at_start(
                    vec![
                        key("fromPods", &mut self.warm.from_pods)
                            .means("those of running Pods; needs the right to list Pods"),
                        key("perSecond", &mut self.warm.per_second).means("maximum number per second"),
                    ],
                ),
            ]),
            section("registries", "which registries are asked, and how").with_keys(vec![
                key("allow", &mut self.registries.allowed.allow).means(
                    "globs of host[/path] that may be asked, with everything below them; empty: every registry",
                ),
                key("deny", &mut self.registries.allowed.deny)
                    .means("globs that are never asked; takes precedence over allow"),
                key("private", &mut self.registries.private).means(
                    "images that are never looked up without a credential; patterns as in kubelet's matchImages",
                ),
                key("hostsDir", &mut self.registries.hosts_dir)
                    .means("a containerd certs.d directory of hosts.toml files"),
                key("hosts", &mut self.registries.hosts)
                    .means("settings of single hosts, as images name them or as they are contacted"),
            ]),
            key("credentials", &mut self.credentials)
                .means("sources of credentials for registries, tried in this order; then no credential"),
            section(
                "network",
                "addresses that may be contacted; loopback, link-local and metadata addresses may not",
            )
            .with_keys(vec![
                key("allow", &mut self.network.allow).means("networks (CIDR) that may be contacted nevertheless"),
                key("deny", &mut self.network.deny).means("networks that are never contacted"),
            ]),
            key("controller", &mut self.controller).means("settings of `tolerarch controller`"),
            section("log", "what is logged").with_keys(vec![
                key("level", choice().of(&mut self.log.level))
                    .means("lowest level that is logged: error, warn, info, debug or trace"),
                key("format", choice().of(&mut self.log.format)).means("json, or text for people").at_start(),
            ]),
        ])
    }
}

impl Describe for Tls {
    fn describe(&mut self) -> Description<'_> {
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
        section("tls", "source of the serving certificate").with_keys_at_start(vec![
            key("mode", choice().of(mode)).means(
                "files: server.certFile and keyFile; managed: a private CA, kept in a Secret and in the \
                 caBundle of the webhooks",
            ),
            key("serverName", server_name).means(
                "files: name by which API servers call the webhook, <service>.<namespace>.svc; a certificate \
                 without it is reported",
            ),
            key("secret", &mut managed.secret).means("managed: the Secret with the CA, in the namespace of the installation"),
            key("servingSecret", &mut managed.serving_secret).means(
                "managed: the Secret in that namespace with the serving certificate; replicas mount it at \
                 server.certFile and keyFile",
            ),
            key("webhookConfigurations", &mut managed.webhook_configurations)
                .means("managed: the MutatingWebhookConfigurations that get the CA"),
            key("caLifetime", &mut managed.lifetimes.ca)
                .means("managed: how long a CA is valid; it is replaced after two thirds of that time"),
            key("leafLifetime", &mut managed.lifetimes.leaf).means(
                "managed: how long the serving certificate is valid; it is replaced after half of that time",
            ),
        ])
        .with_faults(faults)
    }
}

impl Describe for Override {
    fn describe(&mut self) -> Description<'_> {
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
        Description::section(vec![
            key("match", &mut self.images).means("a glob as in registries.allow"),
            key("platforms", &mut self.platforms).means("platforms on which these images run"),
        ])
        .with_faults(faults)
    }
}

impl Describe for CredentialSettings {
    fn describe(&mut self) -> Description<'_> {
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
        let providers = Description::section(vec![
            key("config", &mut self.providers.config)
                .means("a CredentialProviderConfig, or a directory of them"),
            key("binDir", &mut self.providers.bin_dir).means("the directory of the plugins"),
        ]);
        Description::section(vec![
            key("pullSecrets", &mut self.pull_secrets).means(
                "whether to read the Pods' imagePullSecrets through the Kubernetes API; needs the right to get them",
            ),
            key("dockerConfigs", &mut self.docker_configs)
                .means("files in the format of docker's config.json"),
            key("directory", &mut self.directory)
                .means("directory with one TOML file for each registry, <host>.toml: user, secret"),
            key("providers", providers).means("kubelet's image credential provider plugins"),
        ])
        .with_faults(faults)
    }
}

impl NamedEntry for HostSettings {
    const NAME_RULES: NameRules = NameRules {
        what: "host",
        example: "registry.example.com:5000",
        fault: "no registry host; write host or host:port, without https://",
        read: |name| is_host(name).then(|| canonical_host(name)),
    };
}

impl Describe for HostSettings {
    fn describe(&mut self) -> Description<'_> {
        let key_alone = self.client_key_file.is_some() && self.client_cert_file.is_none();
        let many = format!(
            "at most {} mirrors are asked; remove the others",
            Mirror::MOST
        );
        let faults = [
            (key_alone, "clientKeyFile needs clientCertFile"),
            (self.mirrors.len() > Mirror::MOST, &*many),
        ];
        Description::section(vec![
            key("caFile", &mut self.ca_file)
                .means("certificate authorities, PEM, that are trusted in addition to the system's"),
            key("clientCertFile", &mut self.client_cert_file)
                .means("the client certificate, PEM"),
            key("clientKeyFile", &mut self.client_key_file)
                .means("its key, PEM, if it is in another file"),
            key("plainHttp", &mut self.plain_http).means("without TLS"),
            key("skipVerify", &mut self.skip_verify)
                .means("accept any certificate, which allows a man in the middle"),
            key("mirrors", &mut self.mirrors)
                .means("hosts or https://host/prefix, asked in this order before the host itself"),
            key("tokenHosts", host_name().list(&mut self.token_hosts))
                .means("other hosts that this registry's realm may name, and that then get its credentials"),
        ])
        .with_faults(faults)
    }
}

impl Describe for ControllerSettings {
    fn describe(&mut self) -> Description<'_> {
        let none = self.webhook_configurations.is_empty();
        let faults = [(
            none,
            "webhookConfigurations is empty; write for example [zz-tolerarch]",
        )];
        Description::section(vec![
            key("repair", &mut self.repair).means(
                "whether to add the pools' tolerations to Pods without a node that the webhook could not \
                 decide, or never saw",
            ),
            key("events", &mut self.events).means(
                "whether to report on Pods, by events, why their pools stay closed, which pools were opened, \
                 and images that are not for their node",
            ),
            key("podLogs", &mut self.pod_logs).means(
                "whether to read, for these events, the last log line of a container that ended at once",
            ),
            key("learn", &mut self.learn)
                .means("whether to record images that fail on an architecture, and owners that delete changed \
                        Pods, and to keep them from pools")
                .at_start(),
            key("evictFailed", &mut self.evict_failed).means(
                "whether to evict Pods that failed this way, as far as their disruption budgets allow; needs \
                 the right to create pods/eviction",
            ),
            key("census", or_never().of(&mut self.census))
                .means("how often all Pods are counted for the metrics of the cluster; 0: never"),
            key("nodeTaints", &mut self.node_taints).means("taints that nodes get, by their labels"),
            key("webhookConfigurations", &mut self.webhook_configurations)
                .means("the MutatingWebhookConfigurations that select the Pods it acts on"),
            key("lease", &mut self.lease)
                .means("the Lease that elects the leading replica, in the namespace of the installation")
                .at_start(),
        ])
        .with_faults(faults)
    }
}
