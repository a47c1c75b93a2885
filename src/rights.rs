//! Rights of the processes in the cluster: the only declaration of the rights that each process needs, and of the setting
//! that needs them. `doctor` checks accounts by it. Tests compare the manifests, the documentation and the processes'
//! reports with it.

use crate::config::Config;
use tolerarch_kubernetes::cluster::ObjectName;
use tolerarch_webhook::tls::TlsMode;

/// Process with an account of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Process {
    Webhook,
    Certificates,
    Controller,
}

/// Right to one verb.
#[derive(Default)]
pub(crate) struct Right {
    /// Key of the configuration that needs it.
    pub(crate) key: &'static str,
    pub(crate) verb: &'static str,
    pub(crate) group: &'static str,
    /// Resource, with a subresource as in `pods/log`.
    pub(crate) resource: &'static str,
    /// Namespace; empty for all.
    pub(crate) namespace: String,
    /// Name; empty for any.
    pub(crate) name: String,
}

/// Access of a process to the cluster that one setting needs.
struct Need {
    process: Process,
    key: &'static str,
    is_on: fn(&Config) -> bool,
    access: &'static [Access],
}

type Names = fn(&Config) -> Vec<ObjectName>;

struct Access {
    /// Required verbs, separated by spaces.
    verbs: &'static str,
    group: &'static str,
    resource: &'static str,
    /// Names of the objects; `None` for all objects.
    names: Option<Names>,
}

const CORE: &str = "";
const ADMISSION: &str = "admissionregistration.k8s.io";
pub(crate) const WEBHOOKS: &str = "mutatingwebhookconfigurations";
pub(crate) const PULL_SECRETS: &str = "credentials.pullSecrets";

const NEEDS: [Need; 15] = [
    Need {
        process: Process::Webhook,
        key: "discover",
        is_on: |config| config.discover.nodes,
        access: &[to("get list watch", CORE, "nodes")],
    },
    Need {
        process: Process::Webhook,
        key: "discover",
        is_on: |config| config.discover.node_pools,
        access: &[to("get list watch", "karpenter.sh", "nodepools")],
    },
    Need {
        process: Process::Webhook,
        key: "cache.warm.fromPods",
        is_on: |config| config.warm.from_pods,
        access: &[to("list", CORE, "pods")],
    },
    Need {
        process: Process::Webhook,
        key: PULL_SECRETS,
        is_on: |config| config.credentials.pull_secrets,
        access: &[to("get", CORE, "secrets")],
    },
    Need {
        process: Process::Webhook,
        key: "server.failedImages",
        is_on: |config| config.server.failed_images && config.controller.learn,
        access: &[to("get list watch", CORE, "configmaps").only(failed_images)],
    },
    Need {
        process: Process::Certificates,
        key: "tls.mode",
        is_on: |config| config.tls.mode == TlsMode::Managed,
        access: &[
            to("get patch delete", CORE, "secrets").only(managed_secrets),
            to("get patch", ADMISSION, WEBHOOKS)
                .only(|config| config.tls.managed.webhook_configurations.clone()),
        ],
    },
    Need {
        process: Process::Controller,
        key: "controller",
        is_on: |_| true,
        access: &[
            to("list watch", CORE, "pods"),
            to("list watch", CORE, "namespaces"),
            to("get", ADMISSION, WEBHOOKS)
                .only(|config| config.controller.webhook_configurations.clone()),
            to("get patch", "coordination.k8s.io", "leases")
                .only(|config| vec![config.controller.lease.clone()]),
        ],
    },
    // The controller decides with the same credentials as the webhook.
    Need {
        process: Process::Controller,
        key: PULL_SECRETS,
        is_on: |config| config.credentials.pull_secrets,
        access: &[to("get", CORE, "secrets")],
    },
    Need {
        process: Process::Controller,
        key: "controller.repair",
        is_on: |config| config.controller.repair,
        access: &[to("patch", CORE, "pods")],
    },
    Need {
        process: Process::Controller,
        key: "controller.events",
        is_on: |config| config.controller.events,
        access: &[
            to("create", "events.k8s.io", "events"),
            to("get", CORE, "nodes"),
            to("get", CORE, "namespaces"),
        ],
    },
    Need {
        process: Process::Controller,
        key: "controller.learn",
        is_on: |config| config.controller.learn && !config.controller.events,
        access: &[to("get", CORE, "nodes"), to("get", CORE, "namespaces")],
    },
    Need {
        process: Process::Controller,
        key: "controller.podLogs",
        is_on: |config| {
            let examines_failures = config.controller.events || config.controller.learn;
            examines_failures && config.controller.pod_logs
        },
        access: &[to("get", CORE, "pods/log")],
    },
    Need {
        process: Process::Controller,
        key: "controller.learn",
        is_on: |config| config.controller.learn,
        access: &[to("get list watch patch", CORE, "configmaps").only(failed_images)],
    },
    Need {
        process: Process::Controller,
        key: "controller.evictFailed",
        is_on: |config| config.controller.learn && config.controller.evict_failed,
        access: &[to("create", CORE, "pods/eviction")],
    },
    Need {
        process: Process::Controller,
        key: "controller.nodeTaints",
        is_on: |config| !config.controller.node_taints.is_empty(),
        access: &[to("list watch patch", CORE, "nodes")],
    },
];

const fn to(verbs: &'static str, group: &'static str, resource: &'static str) -> Access {
    Access {
        verbs,
        group,
        resource,
        names: None,
    }
}

fn failed_images(config: &Config) -> Vec<ObjectName> {
    vec![config.controller.failed_images()]
}

fn managed_secrets(config: &Config) -> Vec<ObjectName> {
    let managed = &config.tls.managed;
    vec![managed.secret.clone(), managed.serving_secret.clone()]
}

impl Access {
    const fn only(self, names: Names) -> Self {
        Self {
            names: Some(names),
            ..self
        }
    }

    /// Returns namespace and name of the objects, each empty for any.
    fn objects(&self, config: &Config, namespace: &str) -> Vec<(String, String)> {
        let Some(names) = self.names else {
            return vec![(String::new(), String::new())];
        };
        // A webhook configuration has no namespace. All other named objects are in that of the installation.
        let namespace = if self.group == ADMISSION {
            ""
        } else {
            namespace
        };
        let names = names(config).into_iter();
        let object = |name: ObjectName| (namespace.to_owned(), name.as_str().to_owned());
        names.map(object).collect()
    }
}

impl Process {
    /// Returns the component in the labels of its Pods.
    pub(crate) const fn component(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Certificates => "certificates",
            Self::Controller => "controller",
        }
    }

    /// Returns the rights that the process needs with this configuration, if it is installed in this namespace.
    pub(crate) fn rights(self, config: &Config, namespace: &str) -> Vec<Right> {
        let mut rights = Vec::new();
        for Need {
            process,
            key,
            is_on,
            access,
        } in &NEEDS
        {
            if *process != self || !is_on(config) {
                continue;
            }
            for access in *access {
                for verb in access.verbs.split(' ') {
                    for (namespace, name) in access.objects(config, namespace) {
                        rights.push(Right {
                            key,
                            verb,
                            group: access.group,
                            resource: access.resource,
                            namespace,
                            name,
                        });
                    }
                }
            }
        }
        rights
    }
}

#[cfg(test)]
mod tests;
