//! The kinds that bring Pods, and where in them the Pods' templates stand.

use std::str::FromStr;

use tolerarch_text::yaml::{Data, Node};

const TEMPLATE: &[&str] = &[".spec.template"];

/// Group, kind, the kind of the Pods' controller (empty where they have none), and the paths of their templates.
type Known = (&'static str, &'static str, &'static str, &'static [&'static str]);

const KNOWN: &[Known] = &[
    ("", "Pod", "", &["."]),
    ("", "PodTemplate", "", &[".template"]),
    ("", "ReplicationController", "ReplicationController", TEMPLATE),
    ("apps", "Deployment", "ReplicaSet", TEMPLATE),
    ("apps", "ReplicaSet", "ReplicaSet", TEMPLATE),
    ("apps", "DaemonSet", "DaemonSet", TEMPLATE),
    ("apps", "StatefulSet", "StatefulSet", TEMPLATE),
    ("extensions", "Deployment", "ReplicaSet", TEMPLATE),
    ("extensions", "ReplicaSet", "ReplicaSet", TEMPLATE),
    ("extensions", "DaemonSet", "DaemonSet", TEMPLATE),
    ("batch", "Job", "Job", TEMPLATE),
    ("batch", "CronJob", "Job", &[".spec.jobTemplate.spec.template"]),
    ("agones.dev", "Fleet", "GameServer", &[".spec.template.spec.template"]),
    ("agones.dev", "GameServer", "GameServer", TEMPLATE),
    ("agones.dev", "GameServerSet", "GameServer", &[".spec.template.spec.template"]),
    ("apps.kruise.io", "BroadcastJob", "BroadcastJob", TEMPLATE),
    ("apps.kruise.io", "CloneSet", "CloneSet", TEMPLATE),
    ("apps.kruise.io", "DaemonSet", "DaemonSet", TEMPLATE),
    ("apps.kruise.io", "StatefulSet", "StatefulSet", TEMPLATE),
    ("apps.openshift.io", "DeploymentConfig", "ReplicationController", TEMPLATE),
    ("argoproj.io", "Rollout", "ReplicaSet", TEMPLATE),
    ("batch.volcano.sh", "Job", "Job", &[".spec.tasks[].template"]),
    ("core.strimzi.io", "StrimziPodSet", "StrimziPodSet", &[".spec.pods[]"]),
    ("jobset.x-k8s.io", "JobSet", "Job", &[".spec.replicatedJobs[].template.spec.template"]),
    ("keda.sh", "ScaledJob", "Job", &[".spec.jobTargetRef.template"]),
    ("kubeflow.org", "JAXJob", "JAXJob", &[".spec.jaxReplicaSpecs.*.template"]),
    ("kubeflow.org", "MPIJob", "MPIJob", &[".spec.mpiReplicaSpecs.*.template"]),
    ("kubeflow.org", "PaddleJob", "PaddleJob", &[".spec.paddleReplicaSpecs.*.template"]),
    ("kubeflow.org", "PyTorchJob", "PyTorchJob", &[".spec.pytorchReplicaSpecs.*.template"]),
    ("kubeflow.org", "TFJob", "TFJob", &[".spec.tfReplicaSpecs.*.template"]),
    ("kubeflow.org", "XGBoostJob", "XGBoostJob", &[".spec.xgbReplicaSpecs.*.template"]),
    (
        "leaderworkerset.x-k8s.io",
        "LeaderWorkerSet",
        "StatefulSet",
        &[".spec.leaderWorkerTemplate.leaderTemplate", ".spec.leaderWorkerTemplate.workerTemplate"],
    ),
    (
        "ray.io",
        "RayCluster",
        "RayCluster",
        &[".spec.headGroupSpec.template", ".spec.workerGroupSpecs[].template"],
    ),
    (
        "ray.io",
        "RayJob",
        "RayCluster",
        &[".spec.rayClusterSpec.headGroupSpec.template", ".spec.rayClusterSpec.workerGroupSpecs[].template"],
    ),
    (
        "ray.io",
        "RayService",
        "RayCluster",
        &[
            ".spec.rayClusterConfig.headGroupSpec.template",
            ".spec.rayClusterConfig.workerGroupSpecs[].template",
        ],
    ),
    ("serving.knative.dev", "Configuration", "ReplicaSet", TEMPLATE),
    ("serving.knative.dev", "Revision", "ReplicaSet", &["."]),
    ("serving.knative.dev", "Service", "ReplicaSet", TEMPLATE),
    ("sources.knative.dev", "ContainerSource", "ReplicaSet", TEMPLATE),
];

/// What creates Pods, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Workload {
    /// The kind of the Pod's controller; empty where it has none.
    pub(super) owner: String,
    /// Where the templates of the Pods are.
    pub(super) paths: Vec<TemplatePath>,
}

/// A kind that the command line names: `Rollout.argoproj.io=.spec.template`.
#[derive(Clone, Debug)]
pub struct CustomKind {
    group: String,
    kind: String,
    path: TemplatePath,
}

/// Where templates stand: `.spec.tasks[].template`, with `[]` for each item of a list and `*` for each member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TemplatePath(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Member(String),
    EachMember,
    EachItem,
}

/// Why a text of the command line names no kind or path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseKindError {
    #[error("write KIND.GROUP=.path.to.template, such as Rollout.argoproj.io=.spec.template")]
    Form,
    #[error("a path is .name.name, with [] after a list and * for each member: .spec.tasks[].template")]
    Path,
}

impl FromStr for CustomKind {
    type Err = ParseKindError;

    fn from_str(text: &str) -> Result<Self, ParseKindError> {
        let (name, path) = text.split_once('=').ok_or(ParseKindError::Form)?;
        let (kind, group) = name.split_once('.').unwrap_or((name, ""));
        if kind.is_empty() {
            return Err(ParseKindError::Form);
        }
        Ok(Self { group: group.to_owned(), kind: kind.to_owned(), path: path.parse()? })
    }
}

impl FromStr for TemplatePath {
    type Err = ParseKindError;

    fn from_str(text: &str) -> Result<Self, ParseKindError> {
        let mut steps = Vec::new();
        let rest = text.strip_prefix('.').ok_or(ParseKindError::Path)?;
        for part in rest.split('.').filter(|_| !rest.is_empty()) {
            let (name, is_list) = match part.strip_suffix("[]").or_else(|| part.strip_suffix("[*]")) {
                Some(name) => (name, true),
                None => (part, false),
            };
            if name.is_empty() || name.contains(['[', ']']) {
                return Err(ParseKindError::Path);
            }
            steps.push(if name == "*" { Step::EachMember } else { Step::Member(name.to_owned()) });
            if is_list {
                steps.push(Step::EachItem);
            }
        }
        Ok(Self(steps))
    }
}

/// A template, and where it stands.
pub(super) struct Found<'n> {
    pub(super) node: &'n Node,
    /// As a JSON pointer: what the paths of a patch begin with.
    pub(super) pointer: String,
    /// As people write it: `.spec.tasks[0].template`.
    pub(super) path: String,
}

impl TemplatePath {
    /// All that stands there.
    pub(super) fn find<'n>(&self, node: &'n Node) -> Vec<Found<'n>> {
        let mut found = vec![Found { node, pointer: String::new(), path: String::new() }];
        for step in &self.0 {
            let mut next = Vec::new();
            for Found { node, pointer, path } in found {
                let mut add = |node, name: &str, shown: String| {
                    let name = name.replace('~', "~0").replace('/', "~1");
                    next.push(Found {
                        node,
                        pointer: format!("{pointer}/{name}"),
                        path: format!("{path}{shown}"),
                    });
                };
                match (step, &node.data) {
                    (Step::Member(name), Data::Map(_)) => {
                        if let Some(member) = node.get(name) {
                            add(member, name, format!(".{name}"));
                        }
                    }
                    (Step::EachMember, Data::Map(members)) => {
                        for (key, member) in members {
                            add(member, &key.text, format!(".{}", key.text));
                        }
                    }
                    (Step::EachItem, Data::List(items)) => {
                        for (at, item) in items.iter().enumerate() {
                            add(item, &at.to_string(), format!("[{at}]"));
                        }
                    }
                    _ => {}
                }
            }
            found = next;
        }
        found.retain(|found| matches!(found.node.data, Data::Map(_)));
        found
    }

    /// As people write it.
    pub(super) fn text(&self) -> String {
        let steps = self.0.iter().map(|step| match step {
            Step::Member(name) => format!(".{name}"),
            Step::EachMember => ".*".to_owned(),
            Step::EachItem => "[]".to_owned(),
        });
        steps.collect()
    }
}

/// How this kind creates Pods, if it is known to. What the command line says beats what is built in.
pub(super) fn workload(group: &str, kind: &str, custom: &[CustomKind]) -> Option<Workload> {
    let named: Vec<&CustomKind> =
        custom.iter().filter(|custom| custom.group == group && custom.kind == kind).collect();
    if !named.is_empty() {
        let paths = named.iter().map(|custom| custom.path.clone()).collect();
        return Some(Workload { owner: kind.to_owned(), paths });
    }
    let (_, _, owner, paths) = KNOWN.iter().find(|known| known.0 == group && known.1 == kind)?;
    Some(Workload {
        owner: (*owner).to_owned(),
        paths: paths.iter().filter_map(|path| path.parse().ok()).collect(),
    })
}

/// The group of a kind that is known, by the kind's name or its plural in any case.
pub(in crate::cli) fn group_of_kind(name: &str) -> Option<&'static str> {
    let is_it = |kind: &str| {
        let (own, name) = (kind.to_ascii_lowercase(), name.to_ascii_lowercase());
        name == own || name.strip_suffix('s').is_some_and(|one| one == own)
    };
    KNOWN.iter().find(|known| is_it(known.1)).map(|known| known.0)
}

/// Whether Kubernetes itself serves this group: all its kinds that bring Pods are known. `*.x-k8s.io` are its projects'.
pub(super) fn is_of_kubernetes(group: &str) -> bool {
    matches!(group, "" | "apps" | "autoscaling" | "batch" | "extensions" | "policy")
        || group.ends_with(".k8s.io")
}

/// Whether the operator of this kind makes Pods for which it has no template.
pub(super) fn is_templateless(group: &str, kind: &str) -> bool {
    group == "kafka.strimzi.io"
        && !matches!(kind, "KafkaTopic" | "KafkaUser" | "KafkaRebalance" | "KafkaConnector")
}

/// Whether it holds something like a Pod template: a container with an image.
pub(super) fn holds_template(node: &Node) -> bool {
    match &node.data {
        Data::List(items) => items.iter().any(holds_template),
        Data::Map(members) => members.iter().any(|(key, member)| {
            let has_image = |node: &Node| !node.text("image").is_empty();
            let is_container = match (&*key.text, &member.data) {
                ("containers" | "initContainers", Data::List(items)) => items.iter().any(has_image),
                ("container", Data::Map(_)) => has_image(member),
                _ => false,
            };
            is_container || holds_template(member)
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_path_is_one() {
        for (group, kind, _, paths) in KNOWN {
            let workload = workload(group, kind, &[]).unwrap();
            assert_eq!(workload.paths.len(), paths.len(), "{kind}.{group}");
            for (path, text) in workload.paths.iter().zip(*paths) {
                assert_eq!(path.text(), text.strip_suffix('.').unwrap_or(text), "{kind}.{group}");
            }
        }
    }

    #[test]
    fn the_command_line_names_kinds() {
        for (text, error) in [
            ("Rollout.argoproj.io", ParseKindError::Form),
            ("=.spec", ParseKindError::Form),
            (".argoproj.io=.spec", ParseKindError::Form),
            ("A.b=spec", ParseKindError::Path),
            ("A.b=.spec..x", ParseKindError::Path),
            ("A.b=.spec[0]", ParseKindError::Path),
            ("A.b=", ParseKindError::Path),
        ] {
            assert_eq!(text.parse::<CustomKind>().map(|_| ()), Err(error), "{text}");
        }
        let custom = ["Rollout.argoproj.io=.spec.a[*].b", "Rollout.argoproj.io=.spec.c.*", "Thing=.template"]
            .map(|text| text.parse().unwrap());
        let paths = |group, kind| {
            let found = workload(group, kind, &custom).unwrap();
            found.paths.iter().map(TemplatePath::text).collect::<Vec<_>>()
        };
        assert_eq!(paths("argoproj.io", "Rollout"), [".spec.a[].b", ".spec.c.*"]);
        assert_eq!(paths("", "Thing"), [".template"]);
        assert_eq!(paths("apps", "Deployment"), [".spec.template"]);
        assert_eq!(workload("x.y", "Thing", &custom), None);
    }
}
