//! `tolerarch doctor` against the real API server: a sound installation, and broken ones.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Namespace as NamespaceObject;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use scenarios::{Cluster, Namespace, Reaction, Stub, until_ok};
use serde_json::{Value, json};
use testregistry::Pki;

/// The checks that a sound installation behind a URL passes.
const PASSED: &[&str] = &[
    "version",
    "webhook",
    "scope",
    "installations",
    "order",
    "ca-bundle",
    "dry-run",
    "fail-open",
];

pub(crate) async fn doctor_accepts_a_sound_installation_and_names_faults(cluster: &Cluster) {
    let tolerarch = cluster.local().tolerarch(json!({})).await;
    let namespace = cluster.namespace_with("doctor", &tolerarch.url).await;
    cluster.until_called(&namespace).await;
    let sound = run_doctor(cluster, &namespace, &json!({})).await;
    assert_eq!(sound.status, 0, "{:#}", sound.report);
    for check in PASSED {
        assert!(sound.finds(check, "ok", ""), "{check}: {:#}", sound.report);
    }
    assert!(
        sound.finds("pools", "ok", "pool multi-arch opens"),
        "{:#}",
        sound.report
    );
    // No node has the taint of this pool.
    let foreign = json!({"pools": [{
        "name": "foreign",
        "platforms": ["linux/amd64"],
        "tolerations": [{"key": "e2e.tolerarch.io/no-node", "operator": "Exists"}],
    }]});
    let with_foreign_pool = run_doctor(cluster, &namespace, &foreign).await;
    assert_eq!(with_foreign_pool.status, 3);
    assert!(
        with_foreign_pool.finds("pools", "failed", "pool foreign opens nothing"),
        "{:#}",
        with_foreign_pool.report
    );

    broken_configurations_are_named(cluster, &namespace).await;
    other_webhooks_are_named(cluster, &namespace).await;
    faults_of_the_namespace_are_named(cluster, &namespace).await;
    hanging_webhook_is_distinguished_from_an_old_one(cluster).await;
}

/// Changes one field of the webhook at a time.
async fn broken_configurations_are_named(cluster: &Cluster, namespace: &Namespace) {
    let webhooks = Api::<MutatingWebhookConfiguration>::all(cluster.client.clone());
    let name = cluster.configuration_of(namespace);
    let sound = serde_json::to_value(webhooks.get(&name).await.unwrap()).unwrap();
    let other_ca = k8s_openapi::ByteString(Pki::new().ca_pem().into_bytes());
    let service = |port: u16| json!({"service": {"namespace": "tolerarch", "name": "tolerarch", "path": "/mutate", "port": port}});
    let bundle = sound["webhooks"][0]["clientConfig"]["caBundle"].clone();
    let with_bundle = |mut config: Value| {
        config["caBundle"] = bundle.clone();
        config
    };
    let mut untrusted = sound["webhooks"][0]["clientConfig"].clone();
    untrusted["caBundle"] = json!(other_ca);
    for (key, value, expected) in [
        (
            "clientConfig",
            untrusted,
            &[("dry-run", "the call failed")][..],
        ),
        (
            "clientConfig",
            service(443),
            &[
                ("ca-bundle", "is empty"),
                ("endpoints", "no endpoint that is ready"),
            ],
        ),
        (
            "clientConfig",
            with_bundle(service(4443)),
            &[
                ("service", "no such port"),
                ("dry-run", "without an answer"),
            ],
        ),
        (
            "matchConditions",
            json!([{"name": "never", "expression": "false"}]),
            &[("dry-run", "did not call it")],
        ),
        (
            "failurePolicy",
            json!("Fail"),
            &[("webhook", "failurePolicy Fail")],
        ),
        ("rules", json!([]), &[("webhook", "no rule covers it")]),
    ] {
        let mut broken = sound.clone();
        broken["webhooks"][0][key] = value;
        replace(&webhooks, &name, &broken).await;
        until_found(cluster, namespace, expected).await;
        // Without an answer, doctor must not report a sound CA bundle.
        if expected.iter().any(|(check, _)| *check == "dry-run") {
            let broken = run_doctor(cluster, namespace, &json!({})).await;
            assert!(
                !broken.finds("ca-bundle", "ok", ""),
                "{key}: {:#}",
                broken.report
            );
        }
    }
    replace(&webhooks, &name, &sound).await;
}

/// Adds another installation of tolerarch, and then a webhook that changes Pods after it.
async fn other_webhooks_are_named(cluster: &Cluster, namespace: &Namespace) {
    let webhooks = Api::<MutatingWebhookConfiguration>::all(cluster.client.clone());
    let name = cluster.configuration_of(namespace);
    let sound = serde_json::to_value(webhooks.get(&name).await.unwrap()).unwrap();
    let mut second = sound.clone();
    second["metadata"] = json!({"name": format!("{name}-second")});
    let second: MutatingWebhookConfiguration = serde_json::from_value(second).unwrap();
    webhooks
        .create(&PostParams::default(), &second)
        .await
        .unwrap();
    until_found(cluster, namespace, &[("installations", "are both called")]).await;
    webhooks
        .delete(&format!("{name}-second"), &DeleteParams::default())
        .await
        .unwrap();
    let injector = Stub::start(&cluster.local().pki, |_| Reaction::Patch(json!([]))).await;
    cluster
        .intercept(namespace, "zzz-injector", &injector.url)
        .await;
    let mut once = sound.clone();
    once["webhooks"][0]["reinvocationPolicy"] = "Never".into();
    replace(&webhooks, &name, &once).await;
    until_found(cluster, namespace, &[("order", "zzz-injector")]).await;
    webhooks
        .delete(
            &format!("zzz-injector-{}", namespace.name),
            &DeleteParams::default(),
        )
        .await
        .unwrap();
    replace(&webhooks, &name, &sound).await;
    until_sound(cluster, namespace).await;
}

/// A whitelist of tolerations, and a namespace that has opted out.
async fn faults_of_the_namespace_are_named(cluster: &Cluster, namespace: &Namespace) {
    let namespaces = Api::<NamespaceObject>::all(cluster.client.clone());
    let annotate = async |listed: Value| {
        let annotations = json!({"scheduler.alpha.kubernetes.io/tolerationsWhitelist": listed});
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        namespaces
            .patch(&namespace.name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    };
    let listed = json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists"}]);
    annotate(listed.to_string().into()).await;
    until_found(
        cluster,
        namespace,
        &[("toleration-restriction", "PodTolerationRestriction refuses")],
    )
    .await;
    annotate(Value::Null).await;
    until_sound(cluster, namespace).await;

    let closed = cluster.namespace_opted_out("doctor-off").await;
    until_found(
        cluster,
        &closed,
        &[("scope", "no webhook of tolerarch selects namespace")],
    )
    .await;
}

async fn hanging_webhook_is_distinguished_from_an_old_one(cluster: &Cluster) {
    let pki = &cluster.local().pki;
    let hanging = Stub::start(pki, |_| Reaction::Hang).await;
    let briefly = |webhook: &mut Value| webhook["timeoutSeconds"] = 1.into();
    let namespace = cluster
        .namespace_with_changed("doctor-hangs", &hanging.url, briefly)
        .await;
    cluster.until_called_without_effect(&namespace).await;
    until_found(
        cluster,
        &namespace,
        &[("dry-run", "the API server waited ")],
    )
    .await;
    let old = Stub::start(pki, |_| Reaction::Patch(json!([]))).await;
    let namespace = cluster.namespace_with("doctor-old", &old.url).await;
    cluster.until_called_without_effect(&namespace).await;
    until_found(
        cluster,
        &namespace,
        &[(
            "dry-run",
            "did not answer as tolerarch of this version does",
        )],
    )
    .await;
}

/// Replaces the configuration, whatever its current version.
async fn replace(webhooks: &Api<MutatingWebhookConfiguration>, name: &str, new: &Value) {
    let current = webhooks.get(name).await.unwrap();
    let version = current.metadata.resource_version;
    let mut new = new.clone();
    new["metadata"] = json!({"name": name, "resourceVersion": version});
    let new: MutatingWebhookConfiguration = serde_json::from_value(new).unwrap();
    webhooks
        .replace(name, &PostParams::default(), &new)
        .await
        .unwrap();
}

/// Waits until these checks fail with messages that contain these texts: the API server applies changes only after some
/// time.
async fn until_found(cluster: &Cluster, namespace: &Namespace, expected: &[(&str, &str)]) {
    until_ok(&format!("doctor finds {expected:?}"), async || {
        let run = run_doctor(cluster, namespace, &json!({})).await;
        let finds_all = expected
            .iter()
            .all(|(check, message)| run.finds(check, "failed", message));
        if run.status == 3 && finds_all {
            Ok(())
        } else {
            Err(run.report.to_string())
        }
    })
    .await;
}

async fn until_sound(cluster: &Cluster, namespace: &Namespace) {
    until_ok("doctor finds nothing", async || {
        let run = run_doctor(cluster, namespace, &json!({})).await;
        if run.status == 0 {
            Ok(())
        } else {
            Err(run.report.to_string())
        }
    })
    .await;
}

/// The exit status and the report of doctor.
struct DoctorRun {
    status: i32,
    report: Value,
}

impl DoctorRun {
    fn finds(&self, check: &str, status: &str, message: &str) -> bool {
        let mut findings = self.report["checks"].as_array().unwrap().iter();
        findings.any(|finding| {
            finding["check"] == check
                && finding["status"] == status
                && finding["message"].as_str().unwrap().contains(message)
        })
    }
}

/// Runs doctor for a namespace, with this configuration.
async fn run_doctor(cluster: &Cluster, namespace: &Namespace, config: &Value) -> DoctorRun {
    let file = cluster
        .local()
        .directory()
        .join(format!("{}.config.yaml", namespace.name));
    std::fs::write(&file, config.to_string()).unwrap();
    let file = file.display().to_string();
    let arguments = [
        "doctor",
        "--config",
        &file,
        "-n",
        &namespace.name,
        "-o",
        "json",
    ];
    let (status, output) = cluster.local().run_tolerarch(&arguments).await;
    let report =
        serde_json::from_str(&output).unwrap_or_else(|error| panic!("{status}: {error}: {output}"));
    DoctorRun { status, report }
}
