use serde_json::json;

use super::*;
use tolerarch_text::yaml::{self, Copies, Dialect};

fn contents_of(text: &str) -> Vec<Content> {
    contents(&yaml::read(text, Dialect::Kubernetes, &mut Copies::default()).unwrap()[0], &[])
}

fn object_of(text: &str) -> Object {
    let mut contents = contents_of(text);
    assert_eq!(contents.len(), 1);
    match contents.remove(0) {
        Content::Object(object) => object,
        other => panic!("{other:?}"),
    }
}

fn pod_of(object: &Object) -> &Value {
    match &object.given {
        Given::Pod(value) | Given::Template { value, .. } => value,
        Given::Review(_) => panic!("no Pod"),
    }
}

#[test]
fn takes_the_template_of_each_kind() {
    let spec = "{template: {metadata: {labels: {a: b}}, spec: {containers: [{image: x}]}}}";
    let cron = format!("{{jobTemplate: {{spec: {spec}}}}}");
    for (version, kind, spec, template, owner) in [
        ("apps/v1", "Deployment", spec, "/spec/template", "ReplicaSet"),
        ("extensions/v1beta1", "Deployment", spec, "/spec/template", "ReplicaSet"),
        ("apps/v1", "ReplicaSet", spec, "/spec/template", "ReplicaSet"),
        ("apps/v1", "StatefulSet", spec, "/spec/template", "StatefulSet"),
        ("apps/v1", "DaemonSet", spec, "/spec/template", "DaemonSet"),
        ("v1", "ReplicationController", spec, "/spec/template", "ReplicationController"),
        ("batch/v1", "Job", spec, "/spec/template", "Job"),
        ("batch/v1beta1", "CronJob", &cron, "/spec/jobTemplate/spec/template", "Job"),
    ] {
        let text = format!(
            "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: web, namespace: shop}}\nspec: {spec}\n"
        );
        let object = object_of(&text);
        assert_eq!((&*object.kind, &*object.namespace, &*object.name), (kind, "shop", "web"));
        assert_eq!(object.template, template);
        assert!(matches!(&object.given, Given::Template { owner: kind, .. } if *kind == owner));
        let pod = pod_of(&object);
        assert_eq!(pod["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(pod["spec"]["containers"][0]["image"], "x");
    }
    let template =
        "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: web}\ntemplate: {spec: {containers: []}}";
    let object = object_of(template);
    assert_eq!((&*object.template, pod_of(&object).get("metadata")), ("/template", None));
}

#[test]
fn other_kinds_bring_no_pods_and_other_groups_may() {
    let of = |version: &str, kind: &str| {
        contents_of(&format!("apiVersion: {version}\nkind: {kind}\nspec: {{template: {{}}}}"))
    };
    for (version, kind) in
        [("v1", "Service"), ("policy/v1", "PodDisruptionBudget"), ("rbac.authorization.k8s.io/v1", "Role")]
    {
        let contents = of(version, kind);
        assert!(matches!(&contents[..], [Content::Skipped(skipped)] if skipped == kind), "{contents:?}");
    }
    // Of kinds that are not known, those that hold something like a template.
    for (spec, is_foreign) in [
        ("{template: {spec: {containers: [{image: x}]}}}", true),
        ("{templates: [{container: {image: x}}]}", true),
        ("{podTemplate: {containers: [{name: x}]}}", false),
        ("{template: {}}", false),
    ] {
        let contents = contents_of(&format!("apiVersion: example.com/v1\nkind: Thing\nspec: {spec}"));
        match &contents[..] {
            [Content::Foreign(name)] if is_foreign => assert_eq!(name, "Thing.example.com"),
            [Content::Skipped(name)] if !is_foreign => assert_eq!(name, "Thing.example.com"),
            other => panic!("{spec}: {other:?}"),
        }
    }
    let data = "apiVersion: v1\nkind: ConfigMap\ndata: {containers: [{image: x}]}";
    assert!(matches!(&contents_of(data)[..], [Content::Skipped(_)]));
    for (version, kind, spec) in [
        ("kafka.strimzi.io/v1beta2", "Kafka", "{}"),
        ("argoproj.io/v1alpha1", "Rollout", "{workloadRef: {kind: Deployment, name: web}}"),
    ] {
        let contents = contents_of(&format!("apiVersion: {version}\nkind: {kind}\nspec: {spec}"));
        assert!(matches!(&contents[..], [Content::Templateless(_)]), "{contents:?}");
    }
}

#[test]
fn takes_every_template_of_a_kind_with_several() {
    let template = "{spec: {containers: [{image: x}]}}";
    for (version, kind, spec, paths) in [
        ("argoproj.io/v1alpha1", "Rollout", format!("{{template: {template}}}"), &[".spec.template"][..]),
        (
            "ray.io/v1",
            "RayCluster",
            format!(
                "{{headGroupSpec: {{template: {template}}}, workerGroupSpecs: [{{template: {template}}}, {{template: {template}}}]}}"
            ),
            &[
                ".spec.headGroupSpec.template",
                ".spec.workerGroupSpecs[0].template",
                ".spec.workerGroupSpecs[1].template",
            ],
        ),
        (
            "kubeflow.org/v1",
            "PyTorchJob",
            format!(
                "{{pytorchReplicaSpecs: {{Master: {{template: {template}}}, a/b: {{template: {template}}}}}}}"
            ),
            &[".spec.pytorchReplicaSpecs.Master.template", ".spec.pytorchReplicaSpecs[\"a/b\"].template"],
        ),
        ("core.strimzi.io/v1beta2", "StrimziPodSet", format!("{{pods: [{template}]}}"), &[".spec.pods[0]"]),
        ("serving.knative.dev/v1", "Revision", "{containers: [{image: x}]}".to_owned(), &[""]),
    ] {
        let text = format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {spec}");
        let document = &yaml::read(&text, Dialect::Kubernetes, &mut Copies::default()).unwrap()[0];
        let objects: Vec<Object> = contents_of(&text)
            .into_iter()
            .map(|content| if let Content::Object(object) = content { object } else { panic!("{content:?}") })
            .collect();
        let found: Vec<&str> = objects.iter().map(|object| &*object.path).collect();
        assert_eq!(found, paths, "{kind}");
        for object in &objects {
            assert_eq!(document.value().pointer(&object.template), Some(pod_of(object)), "{}", object.path);
            assert_eq!(object.label() == format!("{kind}/a"), paths.len() == 1);
        }
    }
    let contents = contents_of("apiVersion: ray.io/v1\nkind: RayCluster\nspec: {}");
    let [Content::Invalid { message, .. }] = &contents[..] else { panic!("{contents:?}") };
    let told = "the RayCluster has no Pod template with containers, such as spec.template";
    assert_eq!(message, told);
}

#[test]
fn takes_lists_apart() {
    let pods = "apiVersion: v1\nkind: PodList\nitems: [{spec: {}}, {metadata: {name: b}, spec: {}}]";
    assert_eq!(contents_of(pods).len(), 2);
    let nested = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Secret}]}\n- 7\n- {kind: Pod}";
    let contents = contents_of(nested);
    assert!(
        matches!(
            &contents[..],
            [Content::Skipped(_), Content::Invalid { line: 5, .. }, Content::Invalid { line: 6, .. }]
        ),
        "{contents:?}"
    );
    assert!(contents_of("apiVersion: v1\nkind: List\nitems: []").is_empty());
}

#[test]
fn a_pod_of_a_cluster_is_on_no_node_yet() {
    let pod = |uid: &str| {
        let object = object_of(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: a{uid}}}\nspec: {{nodeName: node-1}}"
        ));
        pod_of(&object).clone()
    };
    assert_eq!(pod("")["spec"]["nodeName"], "node-1");
    assert_eq!(pod(", uid: u")["spec"], json!({}));
}

#[test]
fn names_values_that_need_quotes() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata:\n  labels:\n    tolerarch.io/mode: off\nspec: {}";
    let contents = contents_of(text);
    let [Content::Invalid { line: 5, message }] = &contents[..] else { panic!("{contents:?}") };
    assert!(message.contains("tolerarch.io/mode") && message.contains("quotes"), "{message}");
}

#[test]
fn names_whatever_is_no_text() {
    for (text, place) in [
        ("kind: Pod\nmetadata: {name: 1e3}\nspec: {}", "metadata.name"),
        ("kind: Pod\nmetadata: {name: off}\nspec: {}", "metadata.name"),
        ("kind: Pod\nmetadata: {namespace: 7}\nspec: {}", "metadata.namespace"),
        ("kind: Pod\nspec: {containers: [{image: a}, {image: 7}]}", "spec.containers[1].image"),
        (
            "kind: PodTemplate\ntemplate: {spec: {containers: [], initContainers: [{env: [{name: PORT, value: 8080}]}]}}",
            "template.spec.initContainers[0].env[0].value",
        ),
        (
            "kind: PodTemplate\ntemplate: {metadata: {annotations: {a.b/c: yes}}, spec: {containers: []}}",
            "template.metadata.annotations[\"a.b/c\"]",
        ),
    ] {
        let contents = contents_of(&format!("apiVersion: v1\n{text}"));
        let [Content::Invalid { message, .. }] = &contents[..] else { panic!("{contents:?}") };
        assert!(message.contains(&format!("refused: {place} has to be a text")), "{text}: {message}");
    }
}

#[test]
fn what_has_no_template_is_named() {
    let contents = contents_of("apiVersion: apps/v1\nkind: Deployment\nspec: {}");
    assert!(matches!(&contents[..], [Content::Invalid { message, .. }] if message.contains("spec.template")));
}
