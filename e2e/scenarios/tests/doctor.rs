//! `tolerarch doctor` against the real API server: a right installation, and some that are broken.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Namespace as NamespaceObject;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use scenarios::{Cluster, Namespace, Reaction, Stub, until_ok};
use serde_json::{Value, json};
use testregistry::Pki;

/// The checks that a right installation behind a URL passes.
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
    let right = examined(cluster, &namespace, &json!({})).await;
    assert_eq!(right.status, 0, "{:#}", right.report);
    for check in PASSED {
        assert!(right.finds(check, "ok", ""), "{check}: {:#}", right.report);
    }
    // Nodes of the cluster have the taint of the default pool, and none has this one's.
    assert!(
        right.finds("pools", "ok", "pool multi-arch opens"),
        "{:#}",
        right.report
    );
    let foreign = json!({"pools": [{
        "name": "foreign",
        "platforms": ["linux/amd64"],
        "tolerations": [{"key": "e2e.tolerarch.io/no-node", "operator": "Exists"}],
    }]});
    let odd = examined(cluster, &namespace, &foreign).await;
    assert_eq!(odd.status, 3);
    assert!(
        odd.finds("pools", "failed", "pool foreign opens nothing"),
        "{:#}",
        odd.report
    );

    breaks_the_configuration(cluster, &namespace).await;
    breaks_the_namespace(cluster, &namespace).await;
    a_webhook_that_hangs_is_told_from_one_that_answers_otherwise(cluster).await;
}

/// Each change of the webhook, and what is found then.
async fn breaks_the_configuration(cluster: &Cluster, namespace: &Namespace) {
    let webhooks = Api::<MutatingWebhookConfiguration>::all(cluster.client.clone());
    let name = cluster.configuration_of(namespace);
    let right = serde_json::to_value(webhooks.get(&name).await.unwrap()).unwrap();
    let other_ca = k8s_openapi::ByteString(Pki::new().ca_pem().into_bytes());
    let service = |port: u16| json!({"service": {"namespace": "tolerarch", "name": "tolerarch", "path": "/mutate", "port": port}});
    let bundle = right["webhooks"][0]["clientConfig"]["caBundle"].clone();
    let with_bundle = |mut config: Value| {
        config["caBundle"] = bundle.clone();
        config
    };
    let mut untrusted = right["webhooks"][0]["clientConfig"].clone();
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
        let mut broken = right.clone();
        broken["webhooks"][0][key] = value;
        replace(&webhooks, &name, &broken).await;
        until_found(cluster, namespace, expected).await;
        // Nothing is ticked that only an answer would show.
        if expected.iter().any(|(check, _)| *check == "dry-run") {
            let broken = examined(cluster, namespace, &json!({})).await;
            assert!(
                !broken.finds("ca-bundle", "ok", ""),
                "{key}: {:#}",
                broken.report
            );
        }
    }
    replace(&webhooks, &name, &right).await;

    // Others, beside it.
    let mut second = right.clone();
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
    let mut once = right.clone();
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
    replace(&webhooks, &name, &right).await;
    until_right(cluster, namespace).await;
}

/// What an administrator says of a namespace.
async fn breaks_the_namespace(cluster: &Cluster, namespace: &Namespace) {
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
    until_right(cluster, namespace).await;

    let closed = cluster.namespace_opted_out("doctor-off").await;
    until_found(
        cluster,
        &closed,
        &[("scope", "no webhook of tolerarch selects namespace")],
    )
    .await;
}

async fn a_webhook_that_hangs_is_told_from_one_that_answers_otherwise(cluster: &Cluster) {
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

/// Replaces it whatever its version.
async fn replace(webhooks: &Api<MutatingWebhookConfiguration>, name: &str, wanted: &Value) {
    let mut wanted = wanted.clone();
    wanted["metadata"] = json!({"name": name, "resourceVersion": webhooks.get(name).await.unwrap().metadata.resource_version});
    let wanted: MutatingWebhookConfiguration = serde_json::from_value(wanted).unwrap();
    webhooks
        .replace(name, &PostParams::default(), &wanted)
        .await
        .unwrap();
}

/// Waits until all of these have failed with such messages: the API server takes up changes some time after they were made.
async fn until_found(cluster: &Cluster, namespace: &Namespace, expected: &[(&str, &str)]) {
    until_ok(&format!("doctor finds {expected:?}"), async || {
        let examined = examined(cluster, namespace, &json!({})).await;
        let found = expected
            .iter()
            .all(|(check, message)| examined.finds(check, "failed", message));
        if examined.status == 3 && found {
            Ok(())
        } else {
            Err(examined.report.to_string())
        }
    })
    .await;
}

async fn until_right(cluster: &Cluster, namespace: &Namespace) {
    until_ok("doctor finds nothing", async || {
        let examined = examined(cluster, namespace, &json!({})).await;
        if examined.status == 0 {
            Ok(())
        } else {
            Err(examined.report.to_string())
        }
    })
    .await;
}

struct Examined {
    status: i32,
    report: Value,
}

impl Examined {
    fn finds(&self, check: &str, status: &str, message: &str) -> bool {
        self.report["checks"]
            .as_array()
            .unwrap()
            .iter()
            .any(|finding| {
                finding["check"] == check
                    && finding["status"] == status
                    && finding["message"].as_str().unwrap().contains(message)
            })
    }
}

/// What doctor says of a namespace, with this configuration.
async fn examined(cluster: &Cluster, namespace: &Namespace, config: &Value) -> Examined {
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
    Examined { status, report }
}
