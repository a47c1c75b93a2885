//! Finds Pod templates in objects of any kind, by their shape, and images outside these templates.

use std::str::FromStr;

use serde_json::json;

use super::part::{Part, Step};
use tolerarch_core::image::LookupError;
use tolerarch_core::pod::Pod;
use tolerarch_text::yaml::{Data, Node};

/// Kinds of Kubernetes 1.37 and earlier versions, by group. Other kinds of these groups are custom kinds, and so are those
/// of add-ons below `k8s.io`, like `gateway.networking.k8s.io`. `e2e/conformance` compares the list with Kubernetes.
const OF_KUBERNETES: &[(&str, &str)] = &[
    (
        "",
        "Binding ComponentStatus ConfigMap Endpoints Event LimitRange List Namespace Node PersistentVolume PersistentVolumeClaim Pod PodStatusResult PodTemplate ReplicationController ResourceQuota Secret Service ServiceAccount Status",
    ),
    ("admission.k8s.io", "AdmissionReview"),
    (
        "admissionregistration.k8s.io",
        "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration",
    ),
    (
        "apiextensions.k8s.io",
        "ConversionReview CustomResourceDefinition",
    ),
    ("apiregistration.k8s.io", "APIService"),
    (
        "apps",
        "ControllerRevision DaemonSet Deployment DeploymentRollback ReplicaSet Scale StatefulSet",
    ),
    (
        "authentication.k8s.io",
        "SelfSubjectReview TokenRequest TokenReview",
    ),
    (
        "authorization.k8s.io",
        "LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview",
    ),
    ("autoscaling", "HorizontalPodAutoscaler Scale"),
    ("batch", "CronJob Job"),
    (
        "certificates.k8s.io",
        "CertificateSigningRequest ClusterTrustBundle PodCertificateRequest",
    ),
    ("coordination.k8s.io", "Lease LeaseCandidate"),
    ("discovery.k8s.io", "EndpointSlice"),
    ("events.k8s.io", "Event"),
    (
        "extensions",
        "DaemonSet Deployment DeploymentRollback Ingress NetworkPolicy ReplicaSet Scale",
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "FlowSchema PriorityLevelConfiguration",
    ),
    ("imagepolicy.k8s.io", "ImageReview"),
    ("internal.apiserver.k8s.io", "StorageVersion"),
    ("lifecycle.k8s.io", "Eviction EvictionRequest"),
    (
        "networking.k8s.io",
        "IPAddress Ingress IngressClass NetworkPolicy ServiceCIDR",
    ),
    ("node.k8s.io", "RuntimeClass"),
    ("policy", "Eviction PodDisruptionBudget PodSecurityPolicy"),
    (
        "rbac.authorization.k8s.io",
        "ClusterRole ClusterRoleBinding Role RoleBinding",
    ),
    (
        "resource.k8s.io",
        "DeviceClass DeviceTaintRule ResourceClaim ResourceClaimTemplate ResourcePoolStatusRequest ResourceSlice",
    ),
    (
        "scheduling.k8s.io",
        "CompositePodGroup PodGroup PriorityClass Workload",
    ),
    (
        "storage.k8s.io",
        "CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass",
    ),
    ("storagemigration.k8s.io", "StorageVersionMigration"),
];

pub(super) struct Pods<'n> {
    /// Description of the template that the object must have; `None` if objects of its kind may lack one.
    pub(super) required_template: Option<String>,
    pub(super) templates: Vec<Part<'n>>,
    /// Images outside the templates.
    pub(super) images: Vec<Part<'n>>,
}

/// Kind from the command line, with the path to its templates: `Job.batch.volcano.sh=.spec.tasks[].template`.
#[derive(Clone, Debug)]
pub struct CustomKind {
    group: String,
    kind: String,
    text: String,
    /// Steps to the templates: a member's name, `*` for every member, or `[]` for every item of a list.
    path: Vec<String>,
}

const FORM: &str = "write KIND.GROUP=.path.to.template, such as Rollout.argoproj.io=.spec.template";
const PATH: &str =
    "a path is .name.name, with [] after a list and * for each member: .spec.tasks[].template";

impl FromStr for CustomKind {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (name, text) = text.split_once('=').ok_or(FORM)?;
        let (kind, group) = name.split_once('.').unwrap_or((name, ""));
        if kind.is_empty() {
            return Err(FORM);
        }
        let steps = text.replace("[*]", "[]").replace("[]", ".[]");
        let steps = steps.strip_prefix('.').ok_or(PATH)?;
        let path: Vec<String> = match steps {
            "" => Vec::new(),
            steps => steps.split('.').map(ToOwned::to_owned).collect(),
        };
        for step in &path {
            if step.is_empty() || step != "[]" && step.contains(['[', ']']) {
                return Err(PATH);
            }
        }
        Ok(Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
            text: text.to_owned(),
            path,
        })
    }
}

impl CustomKind {
    /// Returns whether the path to the templates matches this path in an object.
    fn matches(&self, path: &[Step<'_>]) -> bool {
        let is_equal = |(part, step): (&String, &Step<'_>)| match step {
            Step::Member(name) => part == "*" || part == name,
            Step::Item(_) => part == "[]",
        };
        self.path.len() == path.len() && self.path.iter().zip(path).all(is_equal)
    }
}

/// Finds the Pod templates of an object: at the paths that the command line names for its kind, otherwise by their shape.
pub(super) fn pods<'n>(
    object: &'n Node,
    group: &str,
    kind: &str,
    custom: &[CustomKind],
) -> Pods<'n> {
    let whole = Part::whole(object);
    let custom: Vec<&CustomKind> = custom
        .iter()
        .filter(|custom| custom.group == group && custom.kind == kind)
        .collect();
    if !custom.is_empty() {
        let paths: Vec<&str> = custom.iter().map(|custom| &*custom.text).collect();
        let templates = whole.within(&|node, path| {
            matches!(node.data, Data::Map(_)) && custom.iter().any(|custom| custom.matches(path))
        });
        return Pods {
            required_template: Some(paths.join(" and no ")),
            templates,
            images: Vec::new(),
        };
    }
    let is_template_itself = matches!(
        (group, kind),
        ("", "Pod") | ("admission.k8s.io", "AdmissionReview") | ("serving.knative.dev", "Revision")
    );
    let is_custom = !is_of_kubernetes(group, kind);
    let has_controller = controller(group, kind).is_some();
    let templates = whole.clone().within(&|node, path| match path {
        [] if is_template_itself => true,
        // An object with `spec.containers` is no template as a whole: its metadata is not that of its Pods.
        [] => is_custom && is_spec(node),
        _ if !may_hold_workloads(path) => false,
        _ if has_controller => node.at(&["spec", "containers"]).is_some(),
        _ => is_custom && (is_spec(node) || node.get("spec").is_some_and(is_spec)),
    });
    let mut images =
        whole.within(&|node, path| is_custom && may_hold_workloads(path) && is_image(node, path));
    images.retain(|image| !templates.iter().any(|template| image.is_run_by(template)));
    let required_template = if has_controller && !is_custom {
        Some("Pod template with containers, such as spec.template".to_owned())
    } else {
        None
    };
    Pods {
        required_template,
        templates,
        images,
    }
}

/// Returns the kind that controls the Pods of objects of this kind, empty if no kind does; `None` for a kind that is not
/// known to create Pods. A pool's share depends on the returned kind.
pub(super) fn controller<'k>(group: &str, kind: &'k str) -> Option<&'k str> {
    match (group, kind) {
        ("", "Pod") => Some(""),
        ("apps" | "extensions", "Deployment") | ("argoproj.io", "Rollout") => Some("ReplicaSet"),
        ("batch", "CronJob") => Some("Job"),
        ("leaderworkerset.x-k8s.io", _) => Some("StatefulSet"),
        // A PodTemplate is a workload by itself, as in the webhook.
        ("", "PodTemplate" | "ReplicationController")
        | ("apps" | "extensions", "DaemonSet" | "ReplicaSet" | "StatefulSet")
        | ("batch", "Job") => Some(kind),
        _ => None,
    }
}

/// Returns whether a template or an image may stand at a path: not in metadata, status or a custom resource's schema.
fn may_hold_workloads(path: &[Step<'_>]) -> bool {
    !matches!(path, [Step::Member("metadata" | "status"), ..])
        && !path.contains(&Step::Member("openAPIV3Schema"))
}

/// Returns whether the spec has containers, each of which names an image.
fn names_images(spec: &Node) -> bool {
    let Some(Data::List(containers)) = spec.get("containers").map(|list| &list.data) else {
        return false;
    };
    !containers.is_empty()
        && containers
            .iter()
            .all(|container| !container.text("image").is_empty())
}

/// Returns whether a YAML node is the spec of a Pod: each of its containers names a valid image.
fn is_spec(node: &Node) -> bool {
    let has_references = |pod: Pod<'_>| {
        let usages = pod.images();
        let mut images = usages.iter().map(|usage| &usage.image);
        images.all(|image| *image != Err(LookupError::Invalid))
    };
    names_images(node) && Pod::of_value(&json!({"spec": node.value()})).is_ok_and(has_references)
}

/// Returns whether a YAML node names a container image, as a text or as a map with a `repository`. A URL is a picture.
fn is_image(node: &Node, path: &[Step<'_>]) -> bool {
    let Some(Step::Member(name)) = path.last() else {
        return false;
    };
    let text = image(node);
    (matches!(*name, "image" | "imageName") || name.ends_with("Image"))
        && !text.is_empty()
        && !["http://", "https://"]
            .iter()
            .any(|scheme| text.starts_with(scheme))
}

/// Returns the image that a YAML node names, or only the `repository` if it is a map; empty if there is none.
pub(super) fn image(node: &Node) -> &str {
    if let Data::Text(text) = &node.data {
        text
    } else {
        node.text("repository")
    }
}

/// Returns whether the kind is one of Kubernetes itself. [`controller`] lists those that create Pods.
pub(super) fn is_of_kubernetes(group: &str, kind: &str) -> bool {
    let kinds = OF_KUBERNETES.iter().find(|(name, _)| *name == group);
    kinds.is_some_and(|(_, kinds)| kinds.split(' ').any(|name| name == kind))
}

/// Returns whether this object's Pods have their template in another object, or in the code of an operator.
pub(super) fn is_templateless(object: &Node, group: &str, kind: &str) -> bool {
    match (group, kind) {
        ("argoproj.io", "Rollout") => object.at(&["spec", "workloadRef"]).is_some(),
        ("kafka.strimzi.io", _) => !matches!(
            kind,
            "KafkaTopic" | "KafkaUser" | "KafkaRebalance" | "KafkaConnector"
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use tolerarch_text::yaml::{self, Dialect};

    /// Kind listed by `e2e/conformance/ownkinds.go`.
    #[derive(Deserialize)]
    struct UpstreamKind {
        group: String,
        kind: String,
    }

    #[test]
    fn kinds_match_upstream() {
        let upstream: Vec<UpstreamKind> = conformance::cases("ownkinds");
        let missing: Vec<String> = upstream
            .iter()
            .filter(|listed| !is_of_kubernetes(&listed.group, &listed.kind))
            .map(|listed| format!("{}.{}", listed.kind, listed.group))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
        // Kinds of other upstream modules, and kinds that upstream has removed.
        let not_upstream = [
            ("", "List"),
            ("", "PodStatusResult"),
            ("admission.k8s.io", "AdmissionReview"),
            ("apiextensions.k8s.io", "ConversionReview"),
            ("apiextensions.k8s.io", "CustomResourceDefinition"),
            ("apiregistration.k8s.io", "APIService"),
            ("imagepolicy.k8s.io", "ImageReview"),
            ("policy", "PodSecurityPolicy"),
        ];
        for (group, kinds) in OF_KUBERNETES {
            for kind in kinds.split(' ') {
                let is_upstream = upstream
                    .iter()
                    .any(|listed| (&*listed.group, &*listed.kind) == (*group, kind));
                assert!(
                    is_upstream || not_upstream.contains(&(*group, kind)),
                    "{kind}.{group}"
                );
            }
        }
    }

    #[test]
    fn custom_kinds_are_parsed() {
        for (text, error) in [
            ("Rollout.argoproj.io", FORM),
            ("=.spec", FORM),
            (".argoproj.io=.spec", FORM),
            ("A.b=spec", PATH),
            ("A.b=.spec..x", PATH),
            ("A.b=.spec[0]", PATH),
            ("A.b=", PATH),
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
        let document = &yaml::read(text, Dialect::Kubernetes).unwrap()[0];
        let paths = |group, kind| {
            let pods = pods(document, group, kind, &custom);
            pods.templates.iter().map(Part::path).collect::<Vec<_>>()
        };
        assert_eq!(
            paths("argoproj.io", "Rollout"),
            [".spec.a[0].b", ".spec.a[1].b", ".spec.c.x"]
        );
        assert_eq!(paths("", "Thing"), [".template"]);
        assert_eq!(paths("", "Whole"), [""]);
        assert_eq!(paths("apps", "Deployment"), [".spec.template"]);
        assert_eq!(paths("x.y", "Thing"), [""; 0]);
    }
}
