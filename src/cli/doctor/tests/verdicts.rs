//! Findings that are faults, findings that are only notes, and what proves that the installation works.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::super::Findings;
use super::super::findings::{Finding, Status, Verdict};
use super::failed;
use super::test_cluster::{
    CONFIG, Call, EVERY_POD, NAMESPACES, POD_METRICS, PODS, TestCluster, WEBHOOKS, namespace,
    stored_pod,
};

#[tokio::test]
async fn dry_run_is_tried_if_webhooks_are_unreadable() {
    for forbidden in [&[WEBHOOKS][..], &[NAMESPACES], &[WEBHOOKS, NAMESPACES]] {
        for (call, only, expected) in [
            (Call::Answers, None, Verdict::Healthy),
            (Call::Answers, Some("team"), Verdict::Healthy),
            (Call::IsRefusedByAPolicy, None, Verdict::Unproven),
            (Call::IsNotMade, None, Verdict::Unproven),
            (Call::IsNotMade, Some("team"), Verdict::Failed),
        ] {
            let mut cluster = TestCluster::healthy();
            cluster.call = call;
            cluster.forbidden = forbidden.to_vec();
            let findings = cluster.examine(only).await;
            assert_eq!(
                findings.verdict(),
                expected,
                "{forbidden:?} {only:?}: {:#?}",
                findings.0
            );
        }
    }
    let json = Findings::default().json();
    assert_eq!(
        (&json["healthy"], &json["status"]),
        (&json!(false), &json!("unproven"))
    );
}

#[tokio::test]
async fn object_selectors_are_checked_against_pods() {
    let mut cluster = TestCluster::healthy();
    cluster.webhook()["objectSelector"] = json!({"matchLabels": {"canary": "true"}});
    let pods = [
        json!({"canary": "true"}),
        json!({}),
        json!({"tolerarch.io/mode": "off"}),
    ];
    cluster.objects.insert(
        EVERY_POD.into(),
        json!(pods.map(|labels| stored_pod("team", &labels))),
    );
    let findings = cluster.examine(None).await;
    assert_eq!(findings.verdict(), Verdict::Healthy, "{:#?}", findings.0);
    for text in [
        "called for 1 of 2 Pods, those with canary=true",
        "a dry-run Pod with canary=true in",
    ] {
        let has_text = |finding: &Finding| finding.message.contains(text);
        assert!(findings.0.iter().any(has_text), "{text}: {:#?}", findings.0);
    }
}

#[tokio::test]
async fn pull_secret_rights_matter_only_if_pods_name_secrets() {
    for (secrets, expected) in [
        (json!(null), Verdict::Healthy),
        (json!([{"name": "pull"}]), Verdict::Failed),
    ] {
        let mut cluster = TestCluster::healthy();
        cluster.config("credentials: {pullSecrets: true}\n");
        cluster.allowed = |_| false;
        let mut pod = stored_pod("team", &json!({}));
        pod["spec"]["imagePullSecrets"] = secrets;
        cluster
            .objects
            .insert(format!("{NAMESPACES}/team/pods"), json!([pod]));
        cluster
            .objects
            .insert(format!("{NAMESPACES}/team"), namespace("team", &json!({})));
        let findings = cluster.examine(Some("team")).await;
        assert_eq!(findings.verdict(), expected, "{:#?}", findings.0);
    }
}

/// A Pod waits for its certificate at a first start, and beside Pods that serve already.
#[tokio::test]
async fn pod_waiting_for_its_certificate_is_no_fault() {
    let mut cluster = TestCluster::healthy();
    let mut waiting = cluster.at(PODS)[0].clone();
    waiting["metadata"]["name"] = "mounting".into();
    let state = json!({"waiting": {"reason": "ContainerCreating"}});
    waiting["status"] = json!({"phase": "Pending", "containerStatuses": [{"state": state}]});
    cluster.at(PODS).as_array_mut().unwrap().push(waiting);
    let findings = cluster.examine(None).await;
    assert_eq!(findings.verdict(), Verdict::Healthy, "{:#?}", findings.0);
    assert!(
        !findings
            .0
            .iter()
            .any(|finding| finding.message.contains("mounting")),
        "{:#?}",
        findings.0
    );
}

#[tokio::test]
async fn observe_mode_is_reported() {
    for (config, expected) in [
        (
            "mode: observe\n",
            "observe (the default profile): Pods are decided",
        ),
        (
            "profiles: {batch: {mode: observe}}\n",
            "observe (batch): Pods are decided",
        ),
    ] {
        let mut cluster = TestCluster::healthy();
        cluster.config(config);
        let findings = cluster.examine(None).await;
        let mode = findings
            .0
            .iter()
            .find(|finding| finding.check == "mode")
            .unwrap();
        assert!(
            mode.status == Status::Unknown && mode.message.starts_with(expected),
            "{mode:?}"
        );
        assert!(mode.fix.contains("enforce"), "{mode:?}");
    }
}

#[tokio::test]
async fn recent_configuration_change_is_reported() {
    let ago = |seconds| (Timestamp::now() - SignedDuration::from_secs(seconds)).to_string();
    for (changed, started, is_reported) in [(30, 60, true), (30, 10, false), (180, 600, false)] {
        let mut cluster = TestCluster::healthy();
        cluster.at(CONFIG)["metadata"] =
            json!({"managedFields": [{"time": ago(9000)}, {"time": ago(changed)}]});
        cluster.at(PODS)[0]["status"] = json!({"startTime": ago(started)});
        let TestCluster { objects, .. } = &cluster;
        let same_cluster = TestCluster {
            objects: objects.clone(),
            ..TestCluster::healthy()
        };
        assert_eq!(
            same_cluster
                .read_configuration()
                .await
                .0
                .unwrap()
                .change
                .is_some(),
            is_reported
        );
        let findings = cluster.examine(None).await;
        let has_report = findings.0.iter().any(|finding| {
            finding.status == Status::Unknown
                && finding
                    .message
                    .contains("ConfigMap tolerarch/tolerarch was changed 3")
        });
        assert_eq!(
            has_report, is_reported,
            "{changed} {started}: {:#?}",
            findings.0
        );
    }
}

#[tokio::test]
async fn ended_pods_are_no_fault() {
    for (path, value) in [
        ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        ("/status/phase", json!("Failed")),
    ] {
        let mut cluster = TestCluster::healthy();
        let mut ending = cluster.at(PODS)[0].clone();
        ending["metadata"]["name"] = "ending".into();
        ending["metadata"]["deletionTimestamp"] = json!(null);
        ending["status"] = json!({"phase": "Running"});
        *ending.pointer_mut(path).unwrap() = value;
        cluster.at(PODS).as_array_mut().unwrap().push(ending);
        let metrics = POD_METRICS.replace("tolerarch-1", "ending");
        cluster.objects.insert(
            metrics,
            json!("tolerarch_certificate_expiry_timestamp_seconds 1.5e9\n"),
        );
        let findings = cluster.examine(None).await;
        assert_eq!(findings.verdict(), Verdict::Healthy, "{:#?}", findings.0);
    }
}

#[tokio::test]
async fn unschedulable_replica_beside_a_ready_one_is_no_fault() {
    let mut cluster = TestCluster::healthy();
    cluster.at(PODS)[0]["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    let mut waiting = cluster.at(PODS)[0].clone();
    waiting["metadata"]["name"] = "waiting".into();
    waiting["status"] =
        json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "no room"}]});
    cluster.at(PODS).as_array_mut().unwrap().push(waiting);
    let findings = cluster.examine(None).await;
    assert_eq!(findings.verdict(), Verdict::Healthy, "{:#?}", findings.0);
    assert!(
        findings
            .0
            .iter()
            .any(|finding| finding.message == "waiting cannot start: no node has room: no room")
    );
}

#[tokio::test]
async fn webhooks_of_one_service_are_tried_once() {
    let mut cluster = TestCluster::healthy();
    cluster.call = Call::HangsUntilTheTimeout;
    cluster.config("profiles: {batch: {}}\n");
    let mut entry = cluster.webhook().clone();
    entry["name"] = "batch.pods.tolerarch.io".into();
    entry["clientConfig"]["service"]["path"] = "/mutate/batch".into();
    entry["namespaceSelector"] =
        json!({"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}});
    cluster.at(WEBHOOKS)[1]["webhooks"]
        .as_array_mut()
        .unwrap()
        .push(entry);
    let findings = cluster.examine(None).await;
    let with_check = |check: &str| {
        findings
            .0
            .iter()
            .filter(|finding| finding.check == check)
            .collect::<Vec<_>>()
    };
    for check in ["webhook", "order", "ca-bundle", "dry-run"] {
        assert_eq!(with_check(check).len(), 1, "{:#?}", findings.0);
    }
    assert!(
        with_check("order")[0]
            .message
            .ends_with("; so for zz-tolerarch/batch.pods.tolerarch.io")
    );
    assert_eq!(failed(&findings).len(), 1, "{:#?}", findings.0);
}

#[tokio::test]
async fn namespace_labels_without_effect_are_reported() {
    for (labels, expected) in [
        (
            json!({"tolerarch.io/mode": "observe"}),
            Some("the label tolerarch.io/mode=observe of team has no effect"),
        ),
        (
            json!({"tolerarch.io/mode": "disabled"}),
            Some("tolerarch.io/mode=disabled"),
        ),
        (
            json!({"tolerarch.io/profile": "nosuch"}),
            Some("tolerarch.io/profile=nosuch"),
        ),
        (json!({"tolerarch.io/profile": "batch"}), None),
        (json!({"team": "a"}), None),
    ] {
        for only in [None, Some("team")] {
            let mut cluster = TestCluster::healthy();
            let without_profile =
                json!({"key": "tolerarch.io/profile", "operator": "DoesNotExist"});
            if labels["tolerarch.io/profile"] == "batch" {
                cluster.webhook()["namespaceSelector"] =
                    json!({"matchLabels": {"tolerarch.io/profile": "batch"}});
            } else if labels["tolerarch.io/profile"].is_null() {
                cluster.webhook()["namespaceSelector"]["matchExpressions"][0] = without_profile;
            }
            cluster.at(NAMESPACES)[1] = namespace("team", &labels);
            cluster
                .objects
                .insert(format!("{NAMESPACES}/team"), namespace("team", &labels));
            let findings = cluster.examine(only).await;
            let finding = findings
                .0
                .iter()
                .find(|finding| finding.message.contains("has no effect"));
            assert_eq!(finding.is_some(), expected.is_some(), "{:#?}", findings.0);
            if let (Some(finding), Some(expected)) = (finding, expected) {
                assert!(
                    finding.message.contains(expected) && finding.fix.contains("docs/placement.md"),
                    "{finding:?}"
                );
                assert_eq!(finding.status == Status::Failed, only.is_some());
            }
        }
    }
}
