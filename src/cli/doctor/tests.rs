//! A healthy installation, and installations with one fault each.

mod faults;
mod test_cluster;
mod verdicts;

use std::collections::BTreeSet;

use serde_json::json;

use super::super::output::tests::plain;
use super::findings::{Finding, Status, SubjectFindings, Verdict};
use super::*;
use crate::cli::installed::{Installed, Unconfigured};
use test_cluster::{
    BINDINGS, CONFIG, Call, DEPLOYMENTS, ISSUERS, LEASE, NAMESPACES, NODE_POOLS, NODES,
    POD_METRICS, PODS, POLICIES, READYZ, SERVICE, SLICES, TestCluster, WEBHOOKS, namespace,
};

fn failed(findings: &Findings) -> Vec<&Finding> {
    findings
        .0
        .iter()
        .filter(|finding| finding.status == Status::Failed)
        .collect()
}

#[test]
fn equal_findings_are_merged_and_a_fault_stays_separate() {
    let finding_of_pod = |name: &str, status| {
        let mut findings = SubjectFindings::on(name);
        findings.add(status, "pods", |name| format!("{name}: on a node"), "");
        findings
    };
    let mut findings = Findings::default();
    findings.merge([
        finding_of_pod("a", Status::Ok),
        finding_of_pod("b", Status::Failed),
        finding_of_pod("c", Status::Ok),
    ]);
    let merged: Vec<_> = findings
        .0
        .iter()
        .map(|finding| (finding.status, &*finding.message))
        .collect();
    assert_eq!(
        merged,
        [
            (Status::Ok, "a: on a node; so for c"),
            (Status::Failed, "b: on a node")
        ]
    );
}

#[tokio::test]
async fn healthy_installation_passes_every_check() {
    let mut cluster = TestCluster::healthy().with_controller();
    // doctor checks only the rights of features that are on.
    cluster.config(
        "credentials: {pullSecrets: true}\nserver: {failedImages: true}\ntls: {mode: managed}\ncache: {warm: {fromPods: true}}\ncontroller: {podLogs: true, evictFailed: true}\n",
    );
    let findings = cluster.examine(None).await;
    assert!(
        findings
            .0
            .iter()
            .all(|finding| finding.status == Status::Ok),
        "{:#?}",
        findings.0
    );
    for check in [
        "version",
        "registries",
        "webhook",
        "scope",
        "installations",
        "order",
        "ca-bundle",
        "service",
        "endpoints",
        "certificate",
        "components",
        "mode",
        "dry-run",
        "fail-open",
        "configuration",
        "rights",
        "controller",
        "toleration-restriction",
        "pools",
    ] {
        assert!(
            findings.0.iter().any(|finding| finding.check == check),
            "{check}"
        );
    }
    assert_eq!(findings.json()["healthy"], true);
}

#[tokio::test]
async fn dry_run_proves_a_webhook_called_by_url() {
    for (call, is_fault) in [(Call::Answers, false), (Call::Fails, true)] {
        let mut cluster = TestCluster::healthy();
        cluster.call = call;
        let config = cluster.webhook()["clientConfig"].as_object_mut().unwrap();
        config.remove("service");
        config.insert("url".into(), "https://127.0.0.1:8443/mutate".into());
        let findings = cluster.examine(None).await;
        let failed = failed(&findings);
        assert_eq!(failed.len(), usize::from(is_fault), "{failed:#?}");
        for finding in failed {
            assert!(
                finding.check == "dry-run" && finding.message.ends_with("the call failed"),
                "{finding:?}"
            );
            for part in [
                "clientConfig.url",
                "expired",
                "not valid yet",
                "another name",
                "another CA",
                "log",
            ] {
                assert!(finding.fix.contains(part), "{finding:?}");
            }
        }
    }
}

#[tokio::test]
async fn profile_without_an_entry_is_reported() {
    let mut findings = Findings::default();
    webhooks::check_profiles(&BTreeSet::new(), &BTreeSet::from(["batch"]), &mut findings);
    assert_eq!(findings.0.len(), 1);
    assert!(
        findings.0[0]
            .message
            .contains("profile batch is never used")
    );
    assert!(findings.0[0].fix.contains("tolerarch.io/profile=batch"));
}

#[tokio::test]
async fn missing_rights_are_no_faults() {
    let paths = [
        "/version",
        NAMESPACES,
        SERVICE,
        SLICES,
        PODS,
        CONFIG,
        NODES,
        NODE_POOLS,
        POD_METRICS,
        "/metrics",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        "/api/v1/namespaces/team/pods",
    ];
    for path in paths {
        let mut cluster = TestCluster::healthy();
        cluster.config("credentials: {pullSecrets: true}\n");
        cluster.forbidden.push(path);
        let findings = cluster.examine(None).await;
        assert!(failed(&findings).is_empty(), "{path}: {:#?}", findings.0);
        let is_noted = |finding: &Finding| {
            finding.status == Status::Unknown && finding.message.contains("forbidden")
        };
        assert!(findings.0.iter().any(is_noted), "{path}: {:#?}", findings.0);
    }
}

#[tokio::test]
async fn unreadable_objects_are_named() {
    for path in [NODES, NODE_POOLS, NAMESPACES, PODS] {
        let mut cluster = TestCluster::healthy();
        let unreadable = json!({"metadata": {"name": "odd", "labels": 7}});
        cluster.at(path).as_array_mut().unwrap().push(unreadable);
        let findings = cluster.examine(None).await;
        assert!(failed(&findings).is_empty(), "{path}: {:#?}", findings.0);
        let unread = findings
            .0
            .iter()
            .find(|finding| finding.check == "unread")
            .unwrap();
        let kind = path.rsplit('/').next().unwrap();
        let note = format!("1 of the {kind} cannot be read, and are left out: odd");
        assert_eq!((unread.status, &unread.message), (Status::Unknown, &note));
    }
}

#[tokio::test]
async fn dry_run_refused_by_others_proves_nothing() {
    let mut cluster = TestCluster::healthy();
    cluster.call = Call::IsRefusedByAPolicy;
    let findings = cluster.examine(None).await;
    assert_eq!(findings.verdict(), Verdict::Unproven);
    let dry_run = findings
        .0
        .iter()
        .find(|finding| finding.check == "dry-run")
        .unwrap();
    assert!(
        dry_run.status == Status::Unknown && dry_run.message.contains("denied by a policy"),
        "{dry_run:?}"
    );
}

#[tokio::test]
async fn namespace_limits_checks_to_webhooks_that_select_it() {
    for (name, labels, selected) in [
        ("team", json!({}), true),
        ("closed", json!({"tolerarch.io/mode": "off"}), false),
    ] {
        let mut cluster = TestCluster::healthy();
        cluster
            .objects
            .insert(format!("{NAMESPACES}/{name}"), namespace(name, &labels));
        let findings = cluster.examine(Some(name)).await;
        let failed = failed(&findings);
        assert_eq!(failed.is_empty(), selected, "{failed:#?}");
        assert!(
            failed
                .iter()
                .all(|finding| finding.message.contains("selects namespace closed")),
            "{failed:#?}"
        );
        // A message about namespaces says that it covers only those that were read.
        for finding in findings
            .0
            .iter()
            .filter(|finding| finding.status == Status::Ok)
        {
            let Finding { message, .. } = finding;
            assert!(
                !message.contains(" namespace") || message.contains("read"),
                "{message}"
            );
        }
    }
}

#[tokio::test]
async fn control_characters_in_findings_are_escaped() {
    let mut findings = Findings::default();
    findings.failed("scope", "a\u{1b}[31mb", "c\nd");
    findings.ok("order", "fine");
    findings.unknown("pools", "hidden");
    assert_eq!(
        plain(&findings.table()),
        "✗ scope                   a\\u{1b}[31mb\n                          → c\\nd\n\
         ✓ order                   fine\n– pools                   hidden\n"
    );
}

#[tokio::test]
async fn order_ignores_webhooks_for_other_namespaces() {
    let mut cluster = TestCluster::healthy();
    cluster.webhook()["reinvocationPolicy"] = "Never".into();
    cluster.at(WEBHOOKS)[2]["webhooks"][0]["namespaceSelector"] =
        json!({"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}});
    assert!(failed(&cluster.examine(None).await).is_empty());
}

#[tokio::test]
async fn service_without_selector_has_no_pods() {
    let mut cluster = TestCluster::healthy();
    *cluster.at(SERVICE) = json!({"spec": {"ports": [{"port": 443}, {"port": 8080}]}});
    let findings = cluster.examine(None).await;
    assert!(failed(&findings).is_empty(), "{:#?}", findings.0);
    assert!(
        !findings
            .0
            .iter()
            .any(|finding| finding.check == "certificate"),
        "{:#?}",
        findings.0
    );
}

#[tokio::test]
async fn registry_faults_are_read_from_metrics() {
    let mut cluster = TestCluster::healthy();
    let request = |registry: &str, code: &str, count: u32| {
        format!(
            "tolerarch_registry_requests_total{{code=\"{code}\",kind=\"manifest\",registry=\"{registry}\"}} {count}\n"
        )
    };
    let metrics = [
        "tolerarch_certificate_expiry_timestamp_seconds 4000000000\n".to_owned(),
        "tolerarch_registry_circuit_open{registry=\"docker.io\"} 0\n".to_owned(),
        "tolerarch_registry_circuit_open{registry=\"registry.k8s.io\"} 1\n".to_owned(),
        "tolerarch_registry_circuit_open{registry=\"other\"} 2\n".to_owned(),
        "tolerarch_registry_failing{registry=\"docker.io\"} 0\n".to_owned(),
        "tolerarch_registry_failing{registry=\"registry.k8s.io\"} 1\n".to_owned(),
        "tolerarch_registry_failing{registry=\"quay.io\"} 1\n".to_owned(),
        // docker.io was unreachable only for a moment.
        request("docker.io", "2xx", 3),
        request("docker.io", "unreachable", 7),
        request("docker.io", "4xx", 2),
        request("a.b", "unreachable", 4),
        request("c.d", "address-not-allowed", 1),
        request("quay.io", "unreachable", 1),
        "tolerarch_reviews_total{decision=\"unchanged\",profile=\"\",reason=\"denied\"} 5\n"
            .to_owned(),
        "tolerarch_reviews_total{decision=\"unchanged\",profile=\"\",reason=\"not-found\"} 6\n"
            .to_owned(),
    ];
    *cluster.at(POD_METRICS) = json!(metrics.concat());
    let findings = cluster.examine(None).await;
    let registries: Vec<_> = findings
        .0
        .iter()
        .filter(|finding| finding.check == "registries")
        .collect();
    assert_eq!(registries.len(), 6, "{registries:#?}");
    for (message, fix) in [
        (
            "quay.io did not answer the last request",
            "the replicas may connect to it",
        ),
        (
            "registry.k8s.io keeps failing: its circuit is open",
            "inspect --explain",
        ),
        (
            "a registry that the configuration does not name keeps failing: its circuit is open",
            "TolerarchRegistryUnreachable.md",
        ),
        (
            "a.b has answered no request so far: unreachable",
            "the replicas may connect to it",
        ),
        (
            "c.d has answered no request so far: address-not-allowed",
            "the replicas may connect to it",
        ),
    ] {
        let message = format!("Pod tolerarch-1: {message}");
        let finding = registries
            .iter()
            .find(|finding| finding.message == message)
            .unwrap();
        assert!(
            finding.status == Status::Failed && finding.fix.contains(fix),
            "{finding:?}"
        );
    }
    let denied = registries
        .iter()
        .find(|finding| finding.message.contains("requires a login"))
        .unwrap();
    assert!(
        denied.status == Status::Unknown && denied.fix.contains("credentials"),
        "{denied:?}"
    );
    assert!(
        denied
            .message
            .starts_with("5 reviews of Pod tolerarch-1 ended with denied"),
        "{denied:?}"
    );
}

/// While lookups wait for a registry that does not answer, no request has failed yet.
#[tokio::test]
async fn lookups_in_flight_make_registries_unknown() {
    let mut cluster = TestCluster::healthy();
    let metrics =
        cluster.at(POD_METRICS).as_str().unwrap().to_owned() + "tolerarch_lookups_in_flight 1\n";
    *cluster.at(POD_METRICS) = json!(metrics);
    let findings = cluster.examine(None).await;
    let registries = findings
        .0
        .iter()
        .find(|finding| finding.check == "registries")
        .unwrap();
    assert!(
        registries.status == Status::Unknown && registries.message.contains("in progress"),
        "{registries:?}"
    );
}

#[tokio::test]
async fn every_installation_is_checked() {
    let mut cluster = TestCluster::healthy();
    let mut other = cluster.at(WEBHOOKS)[1].clone();
    other["metadata"]["name"] = "zz-second".into();
    other["webhooks"][0]["clientConfig"]["service"]["namespace"] = "second".into();
    other["webhooks"][0]["namespaceSelector"] =
        json!({"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}});
    cluster.at(WEBHOOKS).as_array_mut().unwrap().push(other);
    let findings = cluster.examine(None).await;
    let failed = failed(&findings);
    assert_eq!(failed.len(), 1, "{failed:#?}");
    assert!(
        failed[0]
            .message
            .contains("Service second/tolerarch, which does not exist"),
        "{failed:#?}"
    );
}

#[tokio::test]
async fn template_entries_skip_the_checks_of_pod_entries() {
    let mut cluster = TestCluster::healthy();
    for (group, resource) in [("apps", "daemonsets"), ("", "podtemplates")] {
        let mut entry = cluster.webhook().clone();
        entry["name"] = format!("{resource}.tolerarch.io").into();
        entry["rules"] = json!([{"operations": ["CREATE", "UPDATE"], "apiGroups": [group], "resources": [resource]}]);
        cluster.at(WEBHOOKS)[1]["webhooks"]
            .as_array_mut()
            .unwrap()
            .push(entry);
    }
    assert!(failed(&cluster.examine(None).await).is_empty());
}

#[tokio::test]
async fn rights_in_some_namespaces_are_no_fault() {
    let mut cluster = TestCluster::healthy();
    cluster.config("credentials: {pullSecrets: true}\n");
    cluster
        .at(NAMESPACES)
        .as_array_mut()
        .unwrap()
        .push(namespace("other", &json!({})));
    cluster.allowed = |namespace| namespace == "team";
    let findings = cluster.examine(None).await;
    assert!(failed(&findings).is_empty(), "{:#?}", findings.0);
    let rights = findings
        .0
        .iter()
        .find(|finding| finding.check == "rights")
        .unwrap();
    assert!(
        rights.status == Status::Unknown
            && rights.message.contains("1 namespaces, but not in other"),
        "{rights:?}"
    );
}

const NODE_TAINTS: &str =
    "controller: {nodeTaints: [{selector: {team: a}, taint: {key: team, effect: NoSchedule}}]}\n";

#[tokio::test]
async fn faults_of_the_controller_are_reported() {
    type Break = fn(&mut TestCluster);
    let cases: [(Break, &str, &str); 8] = [
        (
            |cluster| cluster.at(LEASE)["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z".into(),
            "was renewed",
            "log",
        ),
        (
            |cluster| cluster.at(LEASE)["spec"]["holderIdentity"] = "".into(),
            "has no holder",
            "log",
        ),
        (
            |cluster| drop(cluster.objects.remove(LEASE)),
            "has no holder",
            "log",
        ),
        (
            |cluster| cluster.allowed = |namespace| namespace == "tolerarch",
            "may not list pods, watch pods, list namespaces, watch namespaces, get mutatingwebhookconfigurations zz-tolerarch, \
             patch pods, create events, get nodes, get namespaces: controller, controller.events, controller.repair needs it",
            "manifests/controller",
        ),
        (
            |cluster| *cluster.at(POLICIES) = json!([]),
            "for pods that is bound with Deny",
            "validatingadmissionpolicy.yaml",
        ),
        (
            |cluster| cluster.at(BINDINGS)[1]["spec"]["validationActions"] = json!(["Audit"]),
            "for pods that is bound with Deny",
            "validatingadmissionpolicy.yaml",
        ),
        (
            |cluster| {
                cluster.config(NODE_TAINTS);
                drop(cluster.at(POLICIES).as_array_mut().unwrap().remove(0));
            },
            "for nodes that is bound with Deny",
            "nodetaints.yaml",
        ),
        (
            |cluster| {
                cluster.config(NODE_TAINTS);
                cluster.allowed = |namespace| namespace == "tolerarch";
            },
            "get nodes, get namespaces, list nodes, watch nodes, patch nodes: controller, ",
            "manifests/node-taints",
        ),
    ];
    for (break_cluster, message, fix) in cases {
        let mut cluster = TestCluster::healthy().with_controller();
        break_cluster(&mut cluster);
        let findings = cluster.examine(None).await;
        let failed = failed(&findings);
        assert_eq!(failed.len(), 1, "{failed:#?}");
        assert_eq!(failed[0].check, "controller");
        assert!(
            failed[0].message.contains(message) && failed[0].fix.contains(fix),
            "{failed:#?}"
        );
    }
}

#[tokio::test]
async fn missing_controller_is_not_checked() {
    let findings = TestCluster::healthy().examine(None).await;
    assert!(
        findings
            .0
            .iter()
            .all(|finding| finding.check != "controller")
    );
}

#[tokio::test]
async fn disabled_feature_of_the_controller_needs_no_right() {
    let mut cluster = TestCluster::healthy().with_controller();
    cluster.config("controller: {repair: false, events: false}\n");
    cluster.allowed = |namespace| namespace == "tolerarch";
    cluster.objects.remove(POLICIES);
    let findings = cluster.examine(None).await;
    let failed = failed(&findings);
    assert!(
        failed.len() == 1 && !failed[0].message.contains("events"),
        "{failed:#?}"
    );
}

#[tokio::test]
async fn controller_needs_the_right_to_read_pull_secrets() {
    let mut cluster = TestCluster::healthy().with_controller();
    cluster.config("credentials: {pullSecrets: true}\n");
    cluster.allowed = |namespace| namespace == "tolerarch";
    let findings = cluster.examine(None).await;
    let expected = "has no right to get secrets in team: credentials.pullSecrets needs it";
    for check in ["rights", "controller"] {
        let mut failed = failed(&findings).into_iter();
        assert!(
            failed.any(|finding| finding.check == check && finding.message.ends_with(expected)),
            "{check}: {:#?}",
            findings.0
        );
    }
}

#[tokio::test]
async fn unproven_state_is_not_ok() {
    type Change = fn(&mut TestCluster);
    let cases: [(&str, Change); 4] = [
        ("components", |cluster| {
            *cluster.at(READYZ) = "no right".into();
            cluster.readyz_status = 403;
        }),
        ("mode", |cluster| {
            let now = tolerarch_kubernetes::cluster::micro_time();
            cluster.at(CONFIG)["metadata"] = json!({"managedFields": [{"time": now}]});
            cluster.at(PODS)[0]["status"] = json!({"startTime": "2026-01-01T00:00:00Z"});
        }),
        ("controller", |cluster| {
            cluster.at(LEASE)["spec"]["holderIdentity"] = "tolerarch-0_0123".into();
        }),
        ("registries", |cluster| {
            *cluster.at(POD_METRICS) =
                "tolerarch_certificate_expiry_timestamp_seconds 4000000000\n".into();
        }),
    ];
    for (check, change) in cases {
        let mut cluster = TestCluster::healthy().with_controller();
        // Leaves only the check of the Lease.
        cluster.config("mode: enforce\ncontroller: {repair: false}\n");
        cluster.allowed = |_| false;
        change(&mut cluster);
        let findings = cluster.examine(None).await;
        let of_check: Vec<_> = findings
            .0
            .iter()
            .filter(|finding| finding.check == check)
            .collect();
        assert!(
            of_check
                .iter()
                .any(|finding| finding.status == Status::Unknown),
            "{of_check:#?}"
        );
        assert!(
            of_check.iter().all(|finding| finding.status != Status::Ok),
            "{of_check:#?}"
        );
    }
}

#[tokio::test]
async fn issuer_pod_that_cannot_start_is_reported() {
    let mut cluster = TestCluster::healthy();
    cluster.config("mode: enforce\ntls: {mode: managed}\n");
    let labels = json!({"app.kubernetes.io/name": "tolerarch", "app.kubernetes.io/component": "certificates"});
    cluster.at(PODS)[0]["metadata"]["labels"] = json!({"app.kubernetes.io/name": "tolerarch"});
    let issuer = &mut cluster.at(ISSUERS)[0];
    issuer["metadata"]["labels"] = labels;
    issuer["spec"]["containers"][0]["image"] = "nosuch".into();
    let waiting = json!({"reason": "ErrImagePull", "message": "not found"});
    issuer["status"] = json!({"containerStatuses": [{
        "name": "tolerarch", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"waiting": waiting},
    }]});
    let findings = cluster.examine(None).await;
    let failed = failed(&findings);
    assert_eq!(failed.len(), 1, "{:#?}", findings.0);
    assert!(
        failed[0].check == "pods" && failed[0].message.contains("cannot start: ErrImagePull"),
        "{failed:#?}"
    );
}

#[tokio::test]
async fn namespace_check_ignores_entries_of_other_profiles() {
    let mut cluster = TestCluster::healthy();
    cluster.config("mode: enforce\nprofiles: {batch: {}}\n");
    let mut entry = cluster.webhook().clone();
    entry["name"] = "batch.tolerarch.io".into();
    entry["clientConfig"]["service"]["path"] = "/mutate/batch".into();
    entry["namespaceSelector"] = json!({"matchLabels": {"tolerarch.io/profile": "batch"}});
    cluster.at(WEBHOOKS)[1]["webhooks"]
        .as_array_mut()
        .unwrap()
        .push(entry);
    assert!(failed(&cluster.examine(Some("team")).await).is_empty());
}

#[tokio::test]
async fn configuration_is_read_from_the_installation() {
    let (installed, paths) = TestCluster::healthy().read_configuration().await;
    let installed = installed.unwrap();
    assert_eq!(installed.source, "ConfigMap tolerarch/tolerarch");
    assert_eq!(installed.text, "mode: enforce\n");
    assert_eq!(installed.namespace, "tolerarch");
    assert_eq!(paths, [WEBHOOKS, SERVICE, PODS, CONFIG]);
    let mut cluster = TestCluster::healthy();
    cluster.forbidden.push(PODS);
    let why = cluster.read_configuration().await.0.err().unwrap();
    let expected = "the Pods of Service tolerarch/tolerarch cannot be read: ";
    assert!(
        matches!(&why, Unconfigured::Unread(why) if why.starts_with(expected)),
        "{why:?}"
    );
    let mut cluster = TestCluster::healthy();
    cluster.objects.remove(CONFIG);
    let why = cluster.read_configuration().await.0.err().unwrap();
    assert!(
        matches!(&why, Unconfigured::Absent(why) if why.contains("(404)")),
        "{why:?}"
    );
    // If there is no Pod, the Deployment names the ConfigMap.
    let mut cluster = TestCluster::healthy();
    *cluster.at(PODS) = json!([]);
    cluster.forbidden.push(DEPLOYMENTS);
    let why = cluster.read_configuration().await.0.err().unwrap();
    assert!(
        matches!(&why, Unconfigured::Unread(why) if why.starts_with("the Deployments")),
        "{why:?}"
    );
}

#[tokio::test]
async fn unreadable_version_does_not_stop_the_checks() {
    let mut cluster = TestCluster::healthy();
    cluster.objects.remove("/version");
    let findings = cluster.examine(None).await;
    let version = findings
        .0
        .iter()
        .find(|finding| finding.check == "version")
        .unwrap();
    assert!(
        version.status == Status::Unknown && version.message.contains("(404)"),
        "{version:?}"
    );
    assert!(findings.0.iter().any(|finding| finding.check == "dry-run"));
}

#[tokio::test]
async fn pod_environment_overrides_the_config_map() {
    let mut cluster = TestCluster::healthy();
    cluster.at(PODS)[0]["spec"]["containers"][0]["env"] =
        json!([{"name": "TOLERARCH_MODE", "value": "observe"}, {"name": "OTHER", "value": "x"}]);
    let same_cluster = TestCluster {
        objects: cluster.objects.clone(),
        ..TestCluster::healthy()
    };
    let Installed {
        source,
        environment,
        ..
    } = same_cluster.read_configuration().await.0.unwrap();
    assert_eq!(
        source,
        "ConfigMap tolerarch/tolerarch with the environment of its Pods"
    );
    assert_eq!(
        environment.texts().collect::<Vec<_>>(),
        [("TOLERARCH_MODE".to_owned(), "observe".to_owned())]
    );
    let findings = cluster.examine(None).await;
    let mode = findings
        .0
        .iter()
        .find(|finding| finding.check == "mode")
        .unwrap();
    assert!(
        mode.status == Status::Unknown && mode.message.starts_with("observe"),
        "{mode:?}"
    );
}

/// The API server keeps connections, so an answer does not prove that it would still accept the certificate.
#[tokio::test]
async fn ca_bundle_with_a_failed_dry_run_is_unknown() {
    let mut cluster = TestCluster::healthy();
    cluster.config("mode: enforce\nprofiles: {batch: {}}\n");
    let mut entry = cluster.webhook().clone();
    entry["name"] = "batch.profiles.tolerarch.io".into();
    entry["clientConfig"]["service"]["path"] = "/mutate/batch".into();
    entry["namespaceSelector"] = json!({"matchLabels": {"tolerarch.io/profile": "batch"}});
    cluster.at(WEBHOOKS)[1]["webhooks"]
        .as_array_mut()
        .unwrap()
        .push(entry);
    cluster
        .at(NAMESPACES)
        .as_array_mut()
        .unwrap()
        .push(namespace(
            "trial",
            &json!({"tolerarch.io/profile": "batch"}),
        ));
    cluster.webhook()["namespaceSelector"] =
        json!({"matchLabels": {"kubernetes.io/metadata.name": "team"}});
    cluster.failing_path = Some("/api/v1/namespaces/trial/pods");
    // Without the API server's metrics, a missing answer counts as a failed call.
    cluster.forbidden.push("/metrics");
    let findings = cluster.examine(None).await;
    let statuses = |check: &str| {
        let of_check = findings.0.iter().filter(|finding| finding.check == check);
        of_check.map(|finding| finding.status).collect::<Vec<_>>()
    };
    assert_eq!(
        statuses("dry-run"),
        [Status::Ok, Status::Failed],
        "{:#?}",
        findings.0
    );
    assert_eq!(statuses("ca-bundle"), [Status::Unknown]);
}

#[tokio::test]
async fn deployment_names_the_configuration_if_no_pod_exists() {
    for (app, is_selected) in [("tolerarch", true), ("other", false)] {
        let mut cluster = TestCluster::healthy();
        let template = json!({"spec": cluster.at(PODS)[0]["spec"].clone()});
        let metadata = json!({"name": "tolerarch", "labels": {"app": app}});
        let deployment =
            json!({"metadata": metadata, "spec": {"replicas": 0, "template": template}});
        cluster
            .objects
            .insert(DEPLOYMENTS.to_owned(), json!([deployment]));
        *cluster.at(PODS) = json!([]);
        let installed = cluster.read_configuration().await.0;
        assert_eq!(
            installed.is_ok_and(|installed| installed.text == "mode: enforce\n"),
            is_selected,
            "{app}"
        );
    }
}
