use serde_json::json;

use super::*;
use tolerarch_core::reason::Reason;
use tolerarch_text::yaml::{self, Dialect};

fn contents_of(text: &str) -> Contents {
    let document = &yaml::read(text, Dialect::Kubernetes).unwrap()[0];
    let mut contents = Contents::default();
    contents.add(document, &Place::default(), None, &[]);
    contents
}

/// Returns the only object of a document.
fn object_of(text: &str) -> Object {
    let Contents {
        mut objects,
        skipped,
        not_looked_at,
        without_template,
        ..
    } = contents_of(text);
    assert_eq!(
        (
            objects.len(),
            skipped.len() + not_looked_at.len() + without_template.len()
        ),
        (1, 0)
    );
    objects.remove(0).unwrap()
}

/// Returns the line and the message of the only error of a document.
fn error_of(text: &str) -> (usize, String) {
    let contents = contents_of(text);
    let [Err(InputError { line, message, .. })] = &contents.objects[..] else {
        panic!("{contents:?}")
    };
    (*line, message.clone())
}

/// Returns counts with one object of this kind.
fn one(kind: &str) -> BTreeMap<String, usize> {
    BTreeMap::from([(kind.to_owned(), 1)])
}

#[test]
fn template_of_each_kind_is_found() {
    let spec = "{template: {metadata: {labels: {a: b}}, spec: {containers: [{image: x}]}}}";
    let cron = format!("{{jobTemplate: {{spec: {spec}}}}}");
    for (version, kind, spec, template, owner) in [
        (
            "apps/v1",
            "Deployment",
            spec,
            "/spec/template",
            "ReplicaSet",
        ),
        (
            "extensions/v1beta1",
            "Deployment",
            spec,
            "/spec/template",
            "ReplicaSet",
        ),
        (
            "apps/v1",
            "ReplicaSet",
            spec,
            "/spec/template",
            "ReplicaSet",
        ),
        (
            "apps/v1",
            "StatefulSet",
            spec,
            "/spec/template",
            "StatefulSet",
        ),
        ("apps/v1", "DaemonSet", spec, "/spec/template", "DaemonSet"),
        (
            "v1",
            "ReplicationController",
            spec,
            "/spec/template",
            "ReplicationController",
        ),
        ("batch/v1", "Job", spec, "/spec/template", "Job"),
        (
            "batch/v1beta1",
            "CronJob",
            &cron,
            "/spec/jobTemplate/spec/template",
            "Job",
        ),
    ] {
        let text = format!(
            "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: web, namespace: shop}}\nspec: {spec}\n"
        );
        let object = object_of(&text);
        assert_eq!(
            (
                &*object.place.kind,
                &*object.place.namespace,
                &*object.place.name
            ),
            (kind, "shop", "web")
        );
        assert_eq!(object.template.as_deref(), Some(template));
        assert!(matches!(&object.given, Given::Template { owner: kind, .. } if *kind == owner));
        let pod = &object.value;
        assert_eq!(pod["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(pod["spec"]["containers"][0]["image"], "x");
    }
    let template = "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: web}\ntemplate: {spec: {containers: []}}";
    let object = object_of(template);
    assert_eq!(
        (object.template.as_deref(), object.value.get("metadata")),
        (Some("/template"), None)
    );
    let pod = object.pod().unwrap();
    assert_eq!(pod.workload(), ("PodTemplate", "web"));
}

#[test]
fn other_kinds_are_skipped() {
    let contents_of_kind = |version: &str, kind: &str| {
        contents_of(&format!(
            "apiVersion: {version}\nkind: {kind}\nspec: {{template: {{}}}}"
        ))
    };
    for (version, kind) in [
        ("v1", "Service"),
        ("policy/v1", "PodDisruptionBudget"),
        ("rbac.authorization.k8s.io/v1", "Role"),
    ] {
        let contents = contents_of_kind(version, kind);
        assert_eq!(
            (&contents.skipped, contents.objects.len()),
            (&one(kind), 0),
            "{contents:?}"
        );
    }
    let config_map = "apiVersion: v1\nkind: ConfigMap\ndata: {containers: [{image: x}]}";
    let contents = contents_of(config_map);
    assert_eq!(
        (contents.skipped, contents.objects.len()),
        (one("ConfigMap"), 0)
    );
    for (version, kind, spec) in [
        ("kafka.strimzi.io/v1beta2", "Kafka", "{}"),
        (
            "argoproj.io/v1alpha1",
            "Rollout",
            "{workloadRef: {kind: Deployment, name: web}}",
        ),
    ] {
        let contents = contents_of(&format!(
            "apiVersion: {version}\nkind: {kind}\nspec: {spec}"
        ));
        assert_eq!(
            (contents.without_template.len(), contents.objects.len()),
            (1, 0),
            "{contents:?}"
        );
        assert!(contents.skipped.is_empty(), "{contents:?}");
    }
}

/// A group without a dot or below `k8s.io` may have custom kinds.
#[test]
fn kind_unknown_to_kubernetes_is_custom() {
    for (version, kind) in [
        ("v1", "Notebook"),
        ("v1", "Deployment"),
        ("apps/v1", "Rollout"),
        ("batch/v1", "MPIJob"),
        ("autoscaling/v1", "Group"),
        ("policy/v1", "Policy"),
        ("scheduling.k8s.io/v1alpha1", "Gang"),
        ("node.k8s.io/v1", "Agent"),
        ("gateway.networking.k8s.io/v1", "Gateway"),
        ("snapshot.storage.k8s.io/v1", "Snapshotter"),
        ("sparkoperator.k8s.io/v1beta2", "SparkApplication"),
    ] {
        let spec = "{template: {spec: {containers: [{image: x}]}}}";
        let object = object_of(&format!(
            "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: web}}\nspec: {spec}"
        ));
        assert_eq!(object.template.as_deref(), Some("/spec/template"), "{kind}");
    }
    let contents = contents_of("apiVersion: v1\nkind: Notebook\nspec: {image: x}");
    assert_eq!(
        (contents.not_looked_at, contents.unseen_images.len()),
        (one("Notebook"), 1)
    );
    let contents = contents_of("apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nspec: {}");
    assert_eq!(contents.skipped, one("Gateway.gateway.networking.k8s.io"));
}

#[test]
fn every_template_of_an_object_is_found() {
    let template = "{spec: {containers: [{image: x}]}}";
    for (version, kind, spec, paths) in [
        (
            "argoproj.io/v1alpha1",
            "Rollout",
            format!("{{template: {template}}}"),
            &[".spec.template"][..],
        ),
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
            &[
                ".spec.pytorchReplicaSpecs.Master.template",
                ".spec.pytorchReplicaSpecs[\"a/b\"].template",
            ],
        ),
        (
            "core.strimzi.io/v1beta2",
            "StrimziPodSet",
            format!("{{pods: [{template}]}}"),
            &[".spec.pods[0]"],
        ),
        (
            "serving.knative.dev/v1",
            "Revision",
            "{containers: [{image: x}]}".to_owned(),
            &[""],
        ),
    ] {
        let text =
            format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {spec}");
        let document = &yaml::read(&text, Dialect::Kubernetes).unwrap()[0];
        let objects: Vec<Object> = contents_of(&text)
            .objects
            .into_iter()
            .map(Result::unwrap)
            .collect();
        let actual: Vec<&str> = objects.iter().map(|object| &*object.place.path).collect();
        assert_eq!(actual, paths, "{kind}");
        for object in &objects {
            let template = object.template.as_deref().unwrap();
            assert_eq!(
                document.value().pointer(template),
                Some(&object.value),
                "{}",
                object.place.path
            );
            assert_eq!(object.place.label == format!("{kind}/a"), paths.len() == 1);
        }
    }
}

#[test]
fn templates_of_known_custom_kinds_have_path_and_owner() {
    let template = "{spec: {containers: [{image: x}]}}";
    for (version, kind, spec, path, owner) in [
        (
            "agones.dev/v1",
            "Fleet",
            "{template: {spec: {template: TEMPLATE}}}",
            ".spec.template.spec.template",
            "Fleet",
        ),
        (
            "agones.dev/v1",
            "GameServer",
            "{template: TEMPLATE}",
            ".spec.template",
            "GameServer",
        ),
        (
            "apps.kruise.io/v1alpha1",
            "CloneSet",
            "{template: TEMPLATE}",
            ".spec.template",
            "CloneSet",
        ),
        (
            "apps.kruise.io/v1alpha1",
            "DaemonSet",
            "{template: TEMPLATE}",
            ".spec.template",
            "DaemonSet",
        ),
        (
            "apps.openshift.io/v1",
            "DeploymentConfig",
            "{template: TEMPLATE}",
            ".spec.template",
            "DeploymentConfig",
        ),
        (
            "argoproj.io/v1alpha1",
            "Rollout",
            "{template: TEMPLATE}",
            ".spec.template",
            "ReplicaSet",
        ),
        (
            "batch.volcano.sh/v1alpha1",
            "Job",
            "{tasks: [{template: TEMPLATE}]}",
            ".spec.tasks[0].template",
            "Job",
        ),
        (
            "core.strimzi.io/v1beta2",
            "StrimziPodSet",
            "{pods: [TEMPLATE]}",
            ".spec.pods[0]",
            "StrimziPodSet",
        ),
        (
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            "{replicatedJobs: [{template: {spec: {template: TEMPLATE}}}]}",
            ".spec.replicatedJobs[0].template.spec.template",
            "JobSet",
        ),
        (
            "keda.sh/v1alpha1",
            "ScaledJob",
            "{jobTargetRef: {template: TEMPLATE}}",
            ".spec.jobTargetRef.template",
            "ScaledJob",
        ),
        (
            "kubeflow.org/v1",
            "MPIJob",
            "{mpiReplicaSpecs: {Worker: {template: TEMPLATE}}}",
            ".spec.mpiReplicaSpecs.Worker.template",
            "MPIJob",
        ),
        (
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            "{leaderWorkerTemplate: {workerTemplate: TEMPLATE}}",
            ".spec.leaderWorkerTemplate.workerTemplate",
            "StatefulSet",
        ),
        (
            "ray.io/v1",
            "RayJob",
            "{rayClusterSpec: {headGroupSpec: {template: TEMPLATE}}}",
            ".spec.rayClusterSpec.headGroupSpec.template",
            "RayJob",
        ),
        (
            "serving.knative.dev/v1",
            "Service",
            "{template: TEMPLATE}",
            ".spec.template",
            "Service",
        ),
        (
            "sources.knative.dev/v1",
            "ContainerSource",
            "{template: TEMPLATE}",
            ".spec.template",
            "ContainerSource",
        ),
    ] {
        let spec = spec.replace("TEMPLATE", template);
        let object = object_of(&format!(
            "apiVersion: {version}\nkind: {kind}\nspec: {spec}"
        ));
        let Given::Template { owner: actual, .. } = &object.given else {
            panic!("{object:?}")
        };
        assert_eq!((&*object.place.path, &**actual), (path, owner), "{kind}");
    }
    let contents = contents_of("apiVersion: ray.io/v1\nkind: RayCluster\nspec: {}");
    assert_eq!(
        (&contents.skipped, contents.objects.len()),
        (&one("RayCluster.ray.io"), 0),
        "{contents:?}"
    );
}

/// Returns the paths of templates to decide on, and of images outside of templates, which are not looked up.
fn paths_of(text: &str) -> (Vec<String>, Vec<String>) {
    let Contents {
        objects,
        unseen_images,
        not_looked_at,
        without_template,
        ..
    } = contents_of(text);
    assert!(without_template.is_empty(), "{text}: {without_template:?}");
    assert_eq!(
        not_looked_at.is_empty(),
        unseen_images.is_empty(),
        "{text}: {not_looked_at:?}"
    );
    let decided = objects
        .into_iter()
        .map(|object| object.unwrap().place.path)
        .collect();
    (
        decided,
        unseen_images
            .into_iter()
            .map(|image| image.place.path)
            .collect(),
    )
}

/// Most objects are parts of the operators' examples.
#[test]
fn templates_of_custom_kinds_are_found_by_shape() {
    for (version, kind, spec, decided, unseen) in [
        (
            "sparkoperator.k8s.io/v1beta2",
            "SparkApplication",
            "{image: 'spark:3.5', driver: {sidecars: [{name: a, image: b}]}, executor: {template: {spec: {containers: [{name: a, image: b}]}}}}",
            &[".spec.executor.template"][..],
            &[".spec.image", ".spec.driver.sidecars[0].image"][..],
        ),
        (
            "tekton.dev/v1",
            "Task",
            "{steps: [{image: alpine}, {image: $(params.image)}]}",
            &[],
            &[".spec.steps[0].image", ".spec.steps[1].image"],
        ),
        (
            "tekton.dev/v1",
            "Pipeline",
            "{tasks: [{taskSpec: {steps: [{image: alpine}]}}]}",
            &[],
            &[".spec.tasks[0].taskSpec.steps[0].image"],
        ),
        (
            "argoproj.io/v1alpha1",
            "Workflow",
            "{templates: [{container: {image: a}}, {script: {image: b}}, {containerSet: {containers: [{image: c}]}}]}",
            &[".spec.templates[2].containerSet"],
            &[
                ".spec.templates[0].container.image",
                ".spec.templates[1].script.image",
            ],
        ),
        (
            "postgresql.cnpg.io/v1",
            "Cluster",
            "{imageName: 'ghcr.io/cloudnative-pg/postgresql:17'}",
            &[],
            &[".spec.imageName"],
        ),
        (
            "monitoring.coreos.com/v1",
            "Prometheus",
            "{image: 'quay.io/prometheus/prometheus:v3', containers: [{name: proxy, image: proxy, env: [{name: A, value: b}]}]}",
            &[".spec"],
            &[".spec.image"],
        ),
        // These containers patch those that the operator creates.
        (
            "monitoring.coreos.com/v1",
            "Alertmanager",
            "{containers: [{name: alertmanager, args: []}]}",
            &[],
            &[],
        ),
        (
            "serving.kserve.io/v1beta1",
            "InferenceService",
            "{predictor: {containers: [{image: model}], initContainers: [{image: a}]}}",
            &[".spec.predictor"],
            &[],
        ),
        (
            "flink.apache.org/v1beta1",
            "FlinkDeployment",
            "{image: 'flink:1.20', podTemplate: {spec: {containers: [{name: main}]}}}",
            &[],
            &[".spec.image"],
        ),
        (
            "acid.zalan.do/v1",
            "postgresql",
            "{dockerImage: spilo}",
            &[],
            &[".spec.dockerImage"],
        ),
        (
            "helm.example.com/v1",
            "Chart",
            "{values: {image: {repository: web, tag: '1'}}}",
            &[],
            &[".spec.values.image"],
        ),
        (
            "example.com/v1",
            "Thing",
            "{template: {spec: {containers: [{image: x}]}}}",
            &[".spec.template"],
            &[],
        ),
        (
            "example.com/v1",
            "Thing",
            "{parts: [{podSpec: {containers: [{image: a}, {image: '${B}'}]}}]}",
            &[],
            &[
                ".spec.parts[0].podSpec.containers[0].image",
                ".spec.parts[0].podSpec.containers[1].image",
            ],
        ),
        (
            "example.com/v1",
            "Thing",
            "{podTemplate: {containers: [{name: x}]}, image: ''}",
            &[],
            &[],
        ),
        (
            "example.com/v1",
            "Page",
            "{image: 'https://example.com/logo.png'}",
            &[],
            &[],
        ),
    ] {
        let text =
            format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {spec}");
        let (actual_decided, actual_unseen) = paths_of(&text);
        assert_eq!(actual_decided, decided, "{text}");
        assert_eq!(actual_unseen, unseen, "{text}");
    }
}

/// A pipeline may fill in the image later.
#[test]
fn rollout_template_is_found_with_any_image() {
    for image in ["$IMAGE", "Nginx:1", "{{ .Values.image }}"] {
        let template = format!("{{spec: {{containers: [{{image: {image:?}}}]}}}}");
        for spec in [
            format!("{{template: {template}}}"),
            format!("{{workerTemplate: {template}}}"),
        ] {
            let text = format!("apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nspec: {spec}\n");
            assert_eq!(
                object_of(&text).value["spec"]["containers"][0]["image"],
                image
            );
        }
        // In other kinds, the member may hold another kind of template, as in Tekton's TriggerTemplate.
        for member in ["view", "template"] {
            let other =
                format!("apiVersion: a.b/v1\nkind: Thing\nspec: {{{member}: {template}}}\n");
            let Contents {
                objects,
                not_looked_at,
                ..
            } = contents_of(&other);
            assert!(objects.is_empty() && not_looked_at.len() == 1, "{other}");
        }
    }
}

#[test]
fn image_outside_a_workload_is_ignored() {
    for text in [
        "apiVersion: v1\nkind: ConfigMap\ndata: {image: a, containers: [{image: x}]}",
        "apiVersion: v1\nkind: PersistentVolume\nspec: {rbd: {image: a}}",
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nparameters: {image: a}",
        "apiVersion: apps/v1\nkind: ControllerRevision\ndata: {spec: {template: {spec: {containers: [{image: x}]}}}}",
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec: {versions: [{schema: {openAPIV3Schema: {properties: {image: {type: string, default: nginx}}, example: {image: a}}}}]}",
        "apiVersion: apiextensions.crossplane.io/v1\nkind: CompositeResourceDefinition\nspec: {versions: [{schema: {openAPIV3Schema: {example: {image: a}}}}]}",
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nimages: [{name: nginx, newTag: '1'}]\npatches: [{patch: 'image: a'}]",
        "apiVersion: example.com/v1\nkind: Thing\nmetadata: {annotations: {image: a}}\nstatus: {image: a, containers: [{image: a}]}",
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nspec: {rules: []}",
    ] {
        assert_eq!(paths_of(text), (vec![], vec![]), "{text}");
    }
}

/// A patch adds annotations, which need metadata.
#[test]
fn spec_without_metadata_gets_no_patch() {
    let object = object_of(
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: a, labels: {tolerarch.io/mode: 'off'}}\nspec: {predictor: {containers: [{image: x}]}}",
    );
    assert_eq!(
        (&*object.place.path, &object.template),
        (".spec.predictor", &None)
    );
    assert_eq!(
        object.value,
        json!({"spec": {"containers": [{"image": "x"}]}})
    );
    assert!(matches!(&object.given, Given::Template { owner, .. } if owner == "InferenceService"));
}

#[test]
fn list_items_are_read_separately() {
    let pods =
        "apiVersion: v1\nkind: PodList\nitems: [{spec: {}}, {metadata: {name: b}, spec: {}}]";
    assert_eq!(contents_of(pods).objects.len(), 2);
    let nested = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Secret}]}\n- 7\n- {kind: Pod}";
    let contents = contents_of(nested);
    let lines = contents
        .objects
        .iter()
        .map(|object| object.as_ref().unwrap_err().line);
    assert_eq!(
        (&contents.skipped, lines.collect::<Vec<_>>()),
        (&one("Secret"), vec![5, 6]),
        "{contents:?}"
    );
    let empty = contents_of("apiVersion: v1\nkind: List\nitems: []");
    assert_eq!(
        (empty.objects.len(), empty.skipped.len()),
        (0, 0),
        "{empty:?}"
    );
}

#[test]
fn stored_pod_is_decided_without_its_node() {
    let pod = |uid: &str| {
        object_of(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: a{uid}}}\nspec: {{nodeName: node-1}}"
        ))
    };
    assert_eq!(pod("").pod().unwrap().skipped(), Some(Reason::NodeAssigned));
    assert_eq!(pod(", uid: u").pod().unwrap().skipped(), None);
}

#[test]
fn unquoted_value_is_reported() {
    let text =
        "apiVersion: v1\nkind: Pod\nmetadata:\n  labels:\n    tolerarch.io/mode: off\nspec: {}";
    let (line, message) = error_of(text);
    assert_eq!(line, 5);
    assert!(
        message.contains("tolerarch.io/mode") && message.contains("quotes"),
        "{message}"
    );
}

#[test]
fn non_string_value_is_reported() {
    for (text, path) in [
        (
            "kind: Pod\nmetadata: {name: 1e3}\nspec: {}",
            "metadata.name",
        ),
        (
            "kind: Pod\nmetadata: {name: off}\nspec: {}",
            "metadata.name",
        ),
        (
            "kind: Pod\nmetadata: {namespace: 7}\nspec: {}",
            "metadata.namespace",
        ),
        (
            "kind: Pod\nspec: {containers: [{image: a}, {image: 7}]}",
            "spec.containers[1].image",
        ),
        (
            "kind: PodTemplate\ntemplate: {spec: {containers: [], initContainers: [{env: [{name: PORT, value: 8080}]}]}}",
            "template.spec.initContainers[0].env[0].value",
        ),
        (
            "kind: PodTemplate\ntemplate: {metadata: {annotations: {a.b/c: yes}}, spec: {containers: []}}",
            "template.metadata.annotations[\"a.b/c\"]",
        ),
    ] {
        let (_, message) = error_of(&format!("apiVersion: v1\n{text}"));
        assert!(
            message.contains(&format!("refused: {path} has to be a text")),
            "{text}: {message}"
        );
    }
}

#[test]
fn missing_template_is_reported() {
    let (_, message) = error_of("apiVersion: apps/v1\nkind: Deployment\nspec: {}");
    assert!(message.contains("spec.template"), "{message}");
}
