//! Breaks an installation on real nodes in one way after the other, and checks that doctor names the fault first.

use scenarios::{Cluster, Kind, until};
use serde_json::{Value, json};

/// The namespace of the installation, as arguments of kubectl.
const TOLERARCH: [&str; 2] = ["--namespace", "tolerarch"];
const CONFIGURATION: &str = "mutatingwebhookconfiguration/zz-tolerarch";

pub(crate) async fn doctor_names_the_fault_of_a_broken_installation(cluster: &Cluster) {
    let kind = cluster.kind();
    let nobody = json!({"matchLabels": {"e2e.tolerarch.io/nobody": "has-it"}});
    for (object, field, value, check) in [
        (
            CONFIGURATION,
            "/webhooks/0/objectSelector",
            nobody.clone(),
            "scope",
        ),
        (
            CONFIGURATION,
            "/webhooks/0/namespaceSelector",
            nobody,
            "scope",
        ),
        (
            CONFIGURATION,
            "/webhooks/0/clientConfig/service/port",
            4443.into(),
            "service",
        ),
        (
            CONFIGURATION,
            "/webhooks/0/failurePolicy",
            "Fail".into(),
            "webhook",
        ),
        (
            "service/tolerarch",
            "/spec/selector",
            json!({"app": "nothing"}),
            "pods",
        ),
        ("deployment/tolerarch", "/spec/replicas", 0.into(), "pods"),
        (
            "deployment/tolerarch",
            "/spec/template/spec/containers/0/image",
            "127.0.0.1:1/lost:1".into(),
            "pods",
        ),
    ] {
        let sound = get(kind, object)
            .await
            .pointer(field)
            .expect("the field")
            .clone();
        set(kind, object, field, value).await;
        until_found(kind, &format!("{object} {field}"), check).await;
        set(kind, object, field, sound).await;
        let rollout_status = [
            "rollout",
            "status",
            "deployment/tolerarch",
            "--timeout=240s",
        ];
        kind.kubectl(&[&TOLERARCH[..], &rollout_status].concat())
            .await;
        let what = format!("doctor finds no fault with {object} {field}");
        until(&what, async || {
            let (status, _) = run_doctor(kind).await;
            (status == Some(0)).then_some(())
        })
        .await;
    }
}

async fn get(kind: &Kind, object: &str) -> Value {
    let object = kind
        .kubectl(&[&TOLERARCH[..], &["get", object, "--output", "json"]].concat())
        .await;
    serde_json::from_str(&object).expect("an object")
}

async fn set(kind: &Kind, object: &str, field: &str, value: Value) {
    let patch = json!([{"op": "replace", "path": field, "value": value}]).to_string();
    let arguments = ["patch", object, "--type", "json", "--patch", &patch];
    kind.kubectl(&[&TOLERARCH[..], &arguments].concat()).await;
}

/// Waits until the first fault that doctor names is of this check.
async fn until_found(kind: &Kind, broken: &str, check: &str) {
    until(&format!("doctor names {check} for {broken}"), async || {
        let (status, findings) = run_doctor(kind).await;
        let first = findings
            .iter()
            .find(|finding| finding["status"] == "failed");
        println!(
            "breakages: {broken}: {status:?}, {}",
            first.map_or(&Value::Null, |first| &first["message"])
        );
        (status == Some(3) && first?["check"] == check).then_some(())
    })
    .await;
}

/// Runs doctor. Returns its exit status and its findings.
async fn run_doctor(kind: &Kind) -> (Option<i32>, Vec<Value>) {
    let output = kind.tolerarch(&["doctor", "--output", "json"]).await;
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (
        output.status.code(),
        report["checks"].as_array().expect("checks").clone(),
    )
}
