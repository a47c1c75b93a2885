//! A webhook with the configuration that it stands in: whose it is, what it calls, and for what.

use std::collections::HashSet;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;

use tolerarch_kubernetes::cluster::Selector;

pub(super) struct Entry {
    /// The name of its configuration.
    pub(super) configuration: String,
    pub(super) webhook: MutatingWebhook,
    pub(super) namespaces: Selector,
    pub(super) objects: Selector,
}

impl Entry {
    pub(super) fn all(configurations: Vec<MutatingWebhookConfiguration>) -> Vec<Self> {
        let entries = |configuration: MutatingWebhookConfiguration| {
            let name = configuration.metadata.name.unwrap_or_default();
            configuration.webhooks.into_iter().flatten().map(move |webhook| Self::new(name.clone(), webhook))
        };
        configurations.into_iter().flat_map(entries).collect()
    }

    pub(super) fn new(configuration: String, mut webhook: MutatingWebhook) -> Self {
        let namespaces = Selector(webhook.namespace_selector.take().unwrap_or_default());
        let objects = Selector(webhook.object_selector.take().unwrap_or_default());
        Self { configuration, webhook, namespaces, objects }
    }

    /// Whether it is one of tolerarch: they are named below its domain.
    pub(super) fn is_ours(&self) -> bool {
        self.webhook.name.ends_with(".tolerarch.io")
    }

    /// As people see it in the API server's log.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.configuration, self.webhook.name)
    }

    pub(super) fn path(&self) -> Option<String> {
        let config = &self.webhook.client_config;
        match (&config.service, &config.url) {
            (Some(service), _) => service.path.clone(),
            (None, Some(url)) => Some(url::Url::parse(url).ok()?.path().to_owned()),
            (None, None) => None,
        }
    }

    pub(super) fn profile(&self) -> Option<String> {
        self.path()?.strip_prefix("/mutate/").filter(|profile| !profile.is_empty()).map(ToOwned::to_owned)
    }

    /// The Service that it calls: namespace, name and port.
    pub(super) fn service(&self) -> Option<(&str, &str, i32)> {
        let service = self.webhook.client_config.service.as_ref()?;
        Some((&service.namespace, &service.name, service.port.unwrap_or(443)))
    }

    /// Whether a rule of it covers the creation of Pods.
    pub(super) fn has_pods(&self) -> bool {
        let rules = self.webhook.rules.iter().flatten();
        let mut rules = rules.map(|rule| [&rule.operations, &rule.api_groups, &rule.resources]);
        rules.any(|rule| covers(rule, ["CREATE", "", "pods"]))
    }

    /// Whether it is not only there for DaemonSets.
    pub(super) fn is_for_pods(&self) -> bool {
        let mut resources = self.webhook.rules.iter().flatten().filter_map(|rule| rule.resources.as_ref());
        self.has_pods() || !resources.any(|resources| resources.iter().any(|one| one == "daemonsets"))
    }

    pub(super) fn selects(&self, namespace: &Namespace) -> bool {
        self.namespaces.matches(namespace.labels())
    }
}

/// Whether the operations, API groups and resources of a rule have these.
pub(super) fn covers(rule: [&Option<Vec<String>>; 3], wanted: [&str; 3]) -> bool {
    rule.iter().zip(wanted).all(|(listed, wanted)| {
        listed.iter().flatten().any(|one| one == wanted || one == "*" || one == "*/*")
    })
}

/// One for each Service that is called: profiles are entries of one installation.
pub(super) fn by_service<'a>(entries: &[&'a Entry]) -> Vec<&'a Entry> {
    let mut seen = HashSet::new();
    entries.iter().filter(|entry| seen.insert(entry.service())).copied().collect()
}
