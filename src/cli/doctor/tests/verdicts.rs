//! Faults, mere notes, and the proof that the installation works.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::super::Findings;
use super::super::findings::{Finding, Status, Verdict};
use super::failed;
use super::world::{
    CONFIG, Call, EVERY_POD, NAMESPACES, POD_METRICS, PODS, WEBHOOKS, World, namespace, stored,
};

#[tokio::test]
async fn a_dry_run_proves_what_nobody_may_read() {
    for unread in [&[WEBHOOKS][..], &[NAMESPACES], &[WEBHOOKS, NAMESPACES]] {
        for (call, only, expected) in [
            (Call::Answers, None, Verdict::Healthy),
            (Call::Answers, Some("team"), Verdict::Healthy),
            (Call::IsRefusedElsewhere, None, Verdict::Unproven),
            (Call::IsNotMade, None, Verdict::Unproven),
            (Call::IsNotMade, Some("team"), Verdict::Failed),
        ] {
            let mut world = World::healthy();
            world.call = call;
            world.forbidden = unread.to_vec();
            let findings = world.examine(only).await;
            assert_eq!(
                findings.verdict(),
                expected,
                "{unread:?} {only:?}: {:#?}",
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
async fn selectors_may_choose_pods() {
    let mut world = World::healthy();
    world.webhook()["objectSelector"] = json!({"matchLabels": {"canary": "true"}});
    let pods = [
        json!({"canary": "true"}),
        json!({}),
        json!({"tolerarch.io/mode": "off"}),
    ];
    world.objects.insert(
        EVERY_POD.into(),
        json!(pods.map(|labels| stored("team", &labels))),
    );
    let findings = world.examine(None).await;
    assert_eq!(findings.verdict(), Verdict::Healthy, "{:#?}", findings.0);
    for text in [
        "called for 1 of 2 Pods, those with canary=true",
        "a dry-run Pod with canary=true in",
    ] {
        let told = |finding: &Finding| finding.message.contains(text);
        assert!(findings.0.iter().any(told), "{text}: {:#?}", findings.0);
    }
}

#[tokio::test]
async fn no_right_to_pull_secrets_is_needed_where_no_pod_has_any() {
    for (secrets, expected) in [
        (json!(null), Verdict::Healthy),
        (json!([{"name": "pull"}]), Verdict::Failed),
    ] {
        let mut world = World::healthy();
        world.config("credentials: {pullSecrets: true}\n");
        world.allowed = |_| false;
        let mut pod = stored("team", &json!({}));
        pod["spec"]["imagePullSecrets"] = secrets;
        world
            .objects
            .insert(format!("{NAMESPACES}/team/pods"), json!([pod]));
        world
            .objects
            .insert(format!("{NAMESPACES}/team"), namespace("team", &json!({})));
        let findings = world.examine(Some("team")).await;
        assert_eq!(findings.verdict(), expected, "{:#?}", findings.0);
    }
}

/// The same happens at a first start, or while other Pods serve.
#[tokio::test]
async fn a_pod_that_waits_for_its_certificate_is_no_fault() {
    let mut world = World::healthy();
    let mut waiting = world.at(PODS)[0].clone();
    waiting["metadata"]["name"] = "mounting".into();
    let state = json!({"waiting": {"reason": "ContainerCreating"}});
    waiting["status"] = json!({"phase": "Pending", "containerStatuses": [{"state": state}]});
    world.at(PODS).as_array_mut().unwrap().push(waiting);
    let findings = world.examine(None).await;
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
async fn observing_is_said() {
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
        let mut world = World::healthy();
        world.config(config);
        let findings = world.examine(None).await;
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
async fn a_configuration_that_kubelets_may_not_have_brought_yet_is_said() {
    let ago = |seconds| (Timestamp::now() - SignedDuration::from_secs(seconds)).to_string();
    for (changed, started, is_said) in [(30, 60, true), (30, 10, false), (180, 600, false)] {
        let mut world = World::healthy();
        world.at(CONFIG)["metadata"] =
            json!({"managedFields": [{"time": ago(9000)}, {"time": ago(changed)}]});
        world.at(PODS)[0]["status"] = json!({"startTime": ago(started)});
        let World { objects, .. } = &world;
        let other = World {
            objects: objects.clone(),
            ..World::healthy()
        };
        assert_eq!(
            other.configured().await.0.unwrap().change.is_some(),
            is_said
        );
        let findings = world.examine(None).await;
        let said = findings.0.iter().any(|finding| {
            finding.status == Status::Unknown
                && finding
                    .message
                    .contains("ConfigMap tolerarch/tolerarch was changed 3")
        });
        assert_eq!(said, is_said, "{changed} {started}: {:#?}", findings.0);
    }
}

#[tokio::test]
async fn pods_that_end_are_no_fault() {
    for (path, value) in [
        ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        ("/status/phase", json!("Failed")),
    ] {
        let mut world = World::healthy();
        let mut ending = world.at(PODS)[0].clone();
        ending["metadata"]["name"] = "ending".into();
        ending["metadata"]["deletionTimestamp"] = json!(null);
        ending["status"] = json!({"phase": "Running"});
        *ending.pointer_mut(path).unwrap() = value;
        world.at(PODS).as_array_mut().unwrap().push(ending);
        let metrics = POD_METRICS.replace("tolerarch-1", "ending");
        world.objects.insert(
            metrics,
            json!("tolerarch_certificate_expiry_timestamp_seconds 1.5e9\n"),
        );
        let findings = world.examine(None).await;
        assert_eq!(findings.verdict(), Verdict::Healthy, "{:#?}", findings.0);
    }
}

#[tokio::test]
async fn one_replica_more_than_there_is_room_for_is_no_fault() {
    let mut world = World::healthy();
    world.at(PODS)[0]["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    let mut waiting = world.at(PODS)[0].clone();
    waiting["metadata"]["name"] = "waiting".into();
    waiting["status"] =
        json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "no room"}]});
    world.at(PODS).as_array_mut().unwrap().push(waiting);
    let findings = world.examine(None).await;
    assert_eq!(findings.verdict(), Verdict::Healthy, "{:#?}", findings.0);
    assert!(
        findings
            .0
            .iter()
            .any(|finding| finding.message == "waiting cannot start: no node has room: no room")
    );
}

#[tokio::test]
async fn what_several_webhooks_have_in_common_is_told_and_tried_once() {
    let mut world = World::healthy();
    world.call = Call::HangsUntilTheTimeout;
    world.config("profiles: {batch: {}}\n");
    let mut entry = world.webhook().clone();
    entry["name"] = "batch.pods.tolerarch.io".into();
    entry["clientConfig"]["service"]["path"] = "/mutate/batch".into();
    entry["namespaceSelector"] =
        json!({"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}});
    world.at(WEBHOOKS)[1]["webhooks"]
        .as_array_mut()
        .unwrap()
        .push(entry);
    let findings = world.examine(None).await;
    let of = |check: &str| {
        findings
            .0
            .iter()
            .filter(|finding| finding.check == check)
            .collect::<Vec<_>>()
    };
    for check in ["webhook", "order", "ca-bundle", "dry-run"] {
        assert_eq!(of(check).len(), 1, "{:#?}", findings.0);
    }
    assert!(
        of("order")[0]
            .message
            .ends_with("; so for zz-tolerarch/batch.pods.tolerarch.io")
    );
    assert_eq!(failed(&findings).len(), 1, "{:#?}", findings.0);
}

#[tokio::test]
async fn labels_of_namespaces_that_mean_nothing_are_told() {
    for (labels, ignored) in [
        (
            json!({"tolerarch.io/mode": "observe"}),
            Some("tolerarch.io/mode=observe means nothing as a label of team"),
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
            let mut world = World::healthy();
            let named = json!({"key": "tolerarch.io/profile", "operator": "DoesNotExist"});
            if labels["tolerarch.io/profile"] == "batch" {
                world.webhook()["namespaceSelector"] =
                    json!({"matchLabels": {"tolerarch.io/profile": "batch"}});
            } else if labels["tolerarch.io/profile"].is_null() {
                world.webhook()["namespaceSelector"]["matchExpressions"][0] = named;
            }
            world.at(NAMESPACES)[1] = namespace("team", &labels);
            world
                .objects
                .insert(format!("{NAMESPACES}/team"), namespace("team", &labels));
            let findings = world.examine(only).await;
            let told = findings
                .0
                .iter()
                .find(|finding| finding.message.contains("means nothing"));
            assert_eq!(told.is_some(), ignored.is_some(), "{:#?}", findings.0);
            if let (Some(told), Some(ignored)) = (told, ignored) {
                assert!(
                    told.message.starts_with(ignored) && told.fix.contains("docs/placement.md"),
                    "{told:?}"
                );
                assert_eq!(told.status == Status::Failed, only.is_some());
            }
        }
    }
}
