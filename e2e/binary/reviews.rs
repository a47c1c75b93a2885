//! Decisions on Pods: patches, audit annotations and warnings.

use serde_json::json;
use testregistry::{Auth, OCI_MANIFEST, Registry};

use super::program::Program;
use crate::support::review::{Verdict, pod, post, review};

#[tokio::test]
async fn eligible_pod_gets_the_pools_tolerations() {
    let registry = Registry::start().await;
    let repo = registry.repo("team/app");
    repo.index(Some("v1"), ["linux/amd64", "linux/arm64/v8"]);
    let program = Program::start(&registry, json!({})).await;

    let pod = pod(&[&repo.reference("v1")]);
    let verdict = program.review(&pod).await;
    assert_eq!(verdict.audit(), ("tolerated", "tolerated", None));
    let mut expected = pod.clone();
    expected["metadata"]["annotations"] = json!({"tolerarch.io/pools": "multi-arch"});
    expected["spec"]["tolerations"] =
        json!([{"key": "tolerarch.io/multi-arch", "operator": "Exists", "effect": "NoSchedule"}]);
    let changed = verdict.applied_to(&pod);
    assert_eq!(changed, expected);

    let repeated = program.review(&changed).await;
    assert_eq!(repeated.audit(), ("unchanged", "already-tolerated", None));
    assert_eq!(repeated.patch, None);
}

#[tokio::test]
async fn ineligible_sidecar_retracts_the_toleration() {
    let registry = Registry::start().await;
    let repo = registry.repo("team/app");
    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    repo.image("linux/amd64", Some("sidecar"));
    let program = Program::start(&registry, json!({})).await;

    let pod = pod(&[&repo.reference("v1")]);
    let mut injected = program.review(&pod).await.applied_to(&pod);
    let sidecar = repo.reference("sidecar");
    let containers = injected["spec"]["containers"].as_array_mut().unwrap();
    containers.push(json!({"name": "sidecar", "image": sidecar}));
    let verdict = program.review(&injected).await;
    assert_eq!(
        verdict.audit(),
        ("retracted", "retracted", Some(sidecar.as_str()))
    );
    let changed = verdict.applied_to(&injected);
    assert_eq!(changed["spec"]["tolerations"], json!([]));
    assert_eq!(changed["metadata"]["annotations"], json!({}));
}

#[tokio::test]
async fn ineligible_pod_is_unchanged_and_has_a_reason() {
    let registry = Registry::start().await;
    let repo = registry.repo("team/app");
    repo.index(Some("amd64-index"), ["linux/amd64", "linux/s390x"]);
    repo.image("linux/amd64", Some("amd64"));
    repo.manifest("{", OCI_MANIFEST, Some("broken"));
    let private = registry.repo("team/private");
    private.require(Auth::bearer().credentials("user", "password"));
    let program = Program::start(&registry, json!({})).await;

    for (image, reason) in [
        (repo.reference("amd64-index"), "platform-missing"),
        (repo.reference("amd64"), "platform-missing"),
        (repo.reference("broken"), "bad-manifest"),
        (repo.reference("absent"), "not-found"),
        (private.reference("v1"), "denied"),
        ("127.0.0.1:1/app".into(), "unreachable"),
        ("169.254.169.254/app".into(), "address-not-allowed"),
        ("Not An Image".into(), "image-invalid"),
        (String::new(), "image-invalid"),
    ] {
        let verdict = program.review(&pod(&[&image])).await;
        assert_eq!(verdict.audit(), ("unchanged", reason, Some(image.as_str())));
        assert_eq!(verdict.patch, None);
    }
}

#[tokio::test]
async fn excluded_pod_is_unchanged_without_a_lookup() {
    let registry = Registry::start().await;
    let repo = registry.repo("team/app");
    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    let program = Program::start(&registry, json!({})).await;

    let labels = json!({"tolerarch.io/mode": "off"});
    for (change, reason) in [
        (json!({"operation": "UPDATE"}), "not-applicable"),
        (
            json!({"object": {"metadata": {"labels": labels}}}),
            "opted-out",
        ),
        (
            json!({"object": {"spec": {"nodeName": "node-1"}}}),
            "node-assigned",
        ),
        (json!({"object": {"spec": 7}}), "malformed"),
        (json!({"object": null}), "malformed"),
    ] {
        let mut review = review("u-1", &pod(&[&repo.reference("v1")]));
        json_patch::merge(&mut review["request"], &change);
        let verdict = Verdict::of(&program.webhook.exchange(&post("/mutate", &review)).await);
        assert_eq!(verdict.audit(), ("unchanged", reason, None));
        assert_eq!(verdict.patch, None);
    }
    assert!(registry.requests().is_empty());
}

#[tokio::test]
async fn observe_mode_changes_nothing() {
    let registry = Registry::start().await;
    let repo = registry.repo("team/app");
    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    let program = Program::start(&registry, json!({"mode": "observe"})).await;

    let verdict = program.review(&pod(&[&repo.reference("v1")])).await;
    assert_eq!(verdict.audit(), ("unchanged", "observed", None));
    assert_eq!(verdict.patch, None);
    assert_eq!(
        program
            .metric(r#"tolerarch_reviews_total{decision="observed",profile="",reason="observed"}"#)
            .await,
        "1"
    );
    assert_eq!(program.logged("reviewed").await["pools"], "multi-arch");
}

#[tokio::test]
async fn meaningless_mode_is_a_warning() {
    let registry = Registry::start().await;
    let repo = registry.repo("team/app");
    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    let program = Program::start(&registry, json!({"mode": "observe"})).await;
    let pod_with_mode = |mode: &str| {
        let mut pod = pod(&[&repo.reference("v1")]);
        pod["metadata"]["labels"]["tolerarch.io/mode"] = json!(mode);
        pod
    };
    let verdict = program.review(&pod_with_mode("on\n")).await;
    assert_eq!(
        (verdict.audit(), verdict.patch.is_some()),
        (("unchanged", "opted-out", None), false)
    );
    let expected = r#"tolerarch.io/mode: "on\n" is none of off, observe, enforce; tolerarch left the Pod unchanged"#;
    assert_eq!(verdict.warnings, [expected]);
    for (mode, reason) in [
        ("off", "opted-out"),
        ("observe", "observed"),
        ("enforce", "tolerated"),
    ] {
        let verdict = program.review(&pod_with_mode(mode)).await;
        assert_eq!(
            (&*verdict.reason, verdict.warnings.len()),
            (reason, 0),
            "{mode}"
        );
    }
}
