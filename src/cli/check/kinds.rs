//! The kinds that bring Pods. Where in them the Pods' templates stand, their shape tells.

use std::str::FromStr;

use super::part::{Part, Step};
use tolerarch_text::yaml::{Data, Node};

/// Group, kind, and the kind of the Pods' controller: empty where they have none.
const KNOWN: &[(&str, &str, &str)] = &[
    ("", "Pod", ""),
    ("", "PodTemplate", ""),
    ("", "ReplicationController", "ReplicationController"),
    ("apps", "DaemonSet", "DaemonSet"),
    ("apps", "Deployment", "ReplicaSet"),
    ("apps", "ReplicaSet", "ReplicaSet"),
    ("apps", "StatefulSet", "StatefulSet"),
    ("extensions", "DaemonSet", "DaemonSet"),
    ("extensions", "Deployment", "ReplicaSet"),
    ("extensions", "ReplicaSet", "ReplicaSet"),
    ("batch", "CronJob", "Job"),
    ("batch", "Job", "Job"),
    ("agones.dev", "Fleet", "GameServer"),
    ("agones.dev", "GameServer", "GameServer"),
    ("agones.dev", "GameServerSet", "GameServer"),
    ("apps.kruise.io", "BroadcastJob", "BroadcastJob"),
    ("apps.kruise.io", "CloneSet", "CloneSet"),
    ("apps.kruise.io", "DaemonSet", "DaemonSet"),
    ("apps.kruise.io", "StatefulSet", "StatefulSet"),
    ("apps.openshift.io", "DeploymentConfig", "ReplicationController"),
    ("argoproj.io", "Rollout", "ReplicaSet"),
    ("batch.volcano.sh", "Job", "Job"),
    ("core.strimzi.io", "StrimziPodSet", "StrimziPodSet"),
    ("jobset.x-k8s.io", "JobSet", "Job"),
    ("keda.sh", "ScaledJob", "Job"),
    ("kubeflow.org", "JAXJob", "JAXJob"),
    ("kubeflow.org", "MPIJob", "MPIJob"),
    ("kubeflow.org", "PaddleJob", "PaddleJob"),
    ("kubeflow.org", "PyTorchJob", "PyTorchJob"),
    ("kubeflow.org", "TFJob", "TFJob"),
    ("kubeflow.org", "XGBoostJob", "XGBoostJob"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet", "StatefulSet"),
    ("ray.io", "RayCluster", "RayCluster"),
    ("ray.io", "RayJob", "RayCluster"),
    ("ray.io", "RayService", "RayCluster"),
    ("serving.knative.dev", "Configuration", "ReplicaSet"),
    ("serving.knative.dev", "Revision", "ReplicaSet"),
    ("serving.knative.dev", "Service", "ReplicaSet"),
    ("sources.knative.dev", "ContainerSource", "ReplicaSet"),
];

/// What an object that creates Pods says of them.
pub(super) struct Templates<'n> {
    /// The kind of the Pods' controller; empty where they have none.
    pub(super) owner: &'n str,
    pub(super) sought: String,
    pub(super) found: Vec<Part<'n>>,
}

/// A kind that the command line names, and where its templates stand: `Job.batch.volcano.sh=.spec.tasks[].template`.
#[derive(Clone, Debug)]
pub struct CustomKind {
    group: String,
    kind: String,
    text: String,
    /// Names of members, `*` for each member, and `[]` for each item of a list.
    path: Vec<String>,
}

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
        let (name, text) = text.split_once('=').ok_or(ParseKindError::Form)?;
        let (kind, group) = name.split_once('.').unwrap_or((name, ""));
        if kind.is_empty() {
            return Err(ParseKindError::Form);
        }
        let names = text.strip_prefix('.').ok_or(ParseKindError::Path)?;
        let mut path = Vec::new();
        for part in names.split('.').filter(|_| !names.is_empty()) {
            let of_list = part.strip_suffix("[]").or_else(|| part.strip_suffix("[*]"));
            let name = of_list.unwrap_or(part);
            if name.is_empty() || name.contains(['[', ']']) {
                return Err(ParseKindError::Path);
            }
            path.push(name.to_owned());
            path.extend(of_list.map(|_| "[]".to_owned()));
        }
        Ok(Self { group: group.to_owned(), kind: kind.to_owned(), text: text.to_owned(), path })
    }
}

impl CustomKind {
    fn is_led_to_by(&self, way: &[Step<'_>]) -> bool {
        let is_it = |(part, step): (&String, &Step<'_>)| match step {
            Step::Member(name) => part == "*" || part == name,
            Step::Item(_) => part == "[]",
        };
        self.path.len() == way.len() && self.path.iter().zip(way).all(is_it)
    }
}

/// The templates of an object; `None` where its kind is not known to create Pods. What the command line says beats what is
/// built in.
pub(super) fn templates<'n>(
    object: &'n Node,
    group: &str,
    kind: &'n str,
    custom: &[CustomKind],
) -> Option<Templates<'n>> {
    let custom: Vec<&CustomKind> =
        custom.iter().filter(|custom| custom.group == group && custom.kind == kind).collect();
    if !custom.is_empty() {
        let is_template = |node: &Node, way: &[Step<'_>]| {
            matches!(node.data, Data::Map(_)) && custom.iter().any(|custom| custom.is_led_to_by(way))
        };
        let sought: Vec<&str> = custom.iter().map(|custom| &*custom.text).collect();
        let found = Part::whole(object).within(&is_template);
        return Some(Templates { owner: kind, sought: sought.join(" and no "), found });
    }
    let (.., owner) = KNOWN.iter().find(|known| known.0 == group && known.1 == kind)?;
    let is_pod = matches!((group, kind), ("", "Pod") | ("serving.knative.dev", "Revision"));
    let is_template = |node: &Node, way: &[Step<'_>]| {
        if way.is_empty() { is_pod } else { node.at(&["spec", "containers"]).is_some() }
    };
    let sought = "Pod template with containers, such as spec.template".to_owned();
    Some(Templates { owner, sought, found: Part::whole(object).within(&is_template) })
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
pub(super) fn holds_template(object: &Node) -> bool {
    let is_container = |node: &Node, way: &[Step<'_>]| {
        let stands_there = matches!(
            way,
            [.., Step::Member("containers" | "initContainers"), Step::Item(_)]
                | [.., Step::Member("container")]
        );
        stands_there && !node.text("image").is_empty()
    };
    !Part::whole(object).within(&is_container).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tolerarch_text::yaml::{self, Copies, Dialect};

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
        let custom = [
            "Rollout.argoproj.io=.spec.a[*].b",
            "Rollout.argoproj.io=.spec.c.*",
            "Thing=.template",
            "Whole=.",
        ]
        .map(|text| text.parse().unwrap());
        let text = "{spec: {a: [{b: {}}, {b: {}}], c: {x: {}, y: 1}, template: {spec: {containers: []}}}, template: {}}";
        let document = &yaml::read(text, Dialect::Kubernetes, &mut Copies::default()).unwrap()[0];
        let paths = |group, kind| {
            let templates = templates(document, group, kind, &custom)?;
            Some(templates.found.iter().map(Part::path).collect::<Vec<_>>())
        };
        assert_eq!(paths("argoproj.io", "Rollout").unwrap(), [".spec.a[0].b", ".spec.a[1].b", ".spec.c.x"]);
        assert_eq!(paths("", "Thing").unwrap(), [".template"]);
        assert_eq!(paths("", "Whole").unwrap(), [""]);
        assert_eq!(paths("apps", "Deployment").unwrap(), [".spec.template"]);
        assert_eq!(paths("x.y", "Thing"), None);
    }
}
