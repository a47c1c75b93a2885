//! A right installation, and one with each of the faults that occur.

mod faults;
mod verdicts;
mod world;

use std::collections::BTreeSet;

use serde_json::json;

use super::super::output::tests::plain;
use super::findings::{Finding, Status, SubjectFindings, Verdict};
use super::*;
use crate::cli::installed::{Installed, Unconfigured};
use world::{
    BINDINGS, CONFIG, Call, DEPLOYMENTS, ISSUERS, LEASE, NAMESPACES, NODE_POOLS, NODES,
    POD_METRICS, PODS, POLICIES, READYZ, SERVICE, SLICES, WEBHOOKS, World, namespace,
};

fn failed(findings: &Findings) -> Vec<&Finding> {
    findings
        .0
        .iter()
        .filter(|finding| finding.status == Status::Failed)
        .collect()
}

#[test]
fn what_several_report_is_one_line_but_a_fault_is_never_part_of_a_tick() {
    let of = |name: &str, status| {
        let mut own = SubjectFindings::on(name);
        own.add(status, "pods", |name| format!("{name}: on a node"), "");
        own
    };
    let mut findings = Findings::default();
    findings.merge([
        of("a", Status::Ok),
        of("b", Status::Failed),
        of("c", Status::Ok),
    ]);
    let told: Vec<_> = findings
        .0
        .iter()
        .map(|finding| (finding.status, &*finding.message))
        .collect();
    assert_eq!(
        told,
        [
            (Status::Ok, "a: on a node; so for c"),
            (Status::Failed, "b: on a node")
        ]
    );
}

#[tokio::test]
async fn a_right_installation_passes_every_check() {
    let mut world = World::healthy().with_controller();
    // Rights are checked where a feature needs them.
    world.config(
        "credentials: {pullSecrets: true}\nserver: {failedImages: true}\ntls: {mode: managed}\ncache: {warm: {fromPods: true}}\ncontroller: {podLogs: true, evictFailed: true}\n",
    );
    let findings = world.examine(None).await;
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
async fn what_is_called_by_a_url_is_proven_by_the_dry_run() {
    for (call, is_fault) in [(Call::Answers, false), (Call::Fails, true)] {
        let mut world = World::healthy();
        world.call = call;
        let config = world.webhook()["clientConfig"].as_object_mut().unwrap();
        config.remove("service");
        config.insert("url".into(), "https://127.0.0.1:8443/mutate".into());
        let findings = world.examine(None).await;
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
async fn a_profile_of_the_configuration_needs_its_entry() {
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
async fn missing_rights_are_notes() {
    let all = [
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
    for path in all {
        let mut world = World::healthy();
        world.config("credentials: {pullSecrets: true}\n");
        world.forbidden.push(path);
        let findings = world.examine(None).await;
        assert!(failed(&findings).is_empty(), "{path}: {:#?}", findings.0);
        let noted = |finding: &Finding| {
            finding.status == Status::Unknown && finding.message.contains("forbidden")
        };
        assert!(findings.0.iter().any(noted), "{path}: {:#?}", findings.0);
    }
}

#[tokio::test]
async fn objects_that_cannot_be_read_are_named() {
    for path in [NODES, NODE_POOLS, NAMESPACES, PODS] {
        let mut world = World::healthy();
        let odd = json!({"metadata": {"name": "odd", "labels": 7}});
        world.at(path).as_array_mut().unwrap().push(odd);
        let findings = world.examine(None).await;
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
async fn a_pod_that_others_refuse_proves_nothing() {
    let mut world = World::healthy();
    world.call = Call::IsRefusedElsewhere;
    let findings = world.examine(None).await;
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
async fn with_a_namespace_only_what_is_called_for_it() {
    for (name, labels, selected) in [
        ("team", json!({}), true),
        ("closed", json!({"tolerarch.io/mode": "off"}), false),
    ] {
        let mut world = World::healthy();
        world
            .objects
            .insert(format!("{NAMESPACES}/{name}"), namespace(name, &labels));
        let findings = world.examine(Some(name)).await;
        let failed = failed(&findings);
        assert_eq!(failed.is_empty(), selected, "{failed:#?}");
        assert!(
            failed
                .iter()
                .all(|finding| finding.message.contains("selects namespace closed")),
            "{failed:#?}"
        );
        // Nothing is claimed of namespaces that were not read.
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
async fn what_untrusted_names_hold_does_not_reach_the_terminal() {
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
async fn only_injectors_for_the_same_namespaces_count() {
    let mut world = World::healthy();
    world.webhook()["reinvocationPolicy"] = "Never".into();
    world.at(WEBHOOKS)[2]["webhooks"][0]["namespaceSelector"] =
        json!({"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}});
    assert!(failed(&world.examine(None).await).is_empty());
}

#[tokio::test]
async fn the_pods_of_a_service_without_a_selector_are_not_guessed() {
    let mut world = World::healthy();
    *world.at(SERVICE) = json!({"spec": {"ports": [{"port": 443}, {"port": 8080}]}});
    let findings = world.examine(None).await;
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
async fn what_replicas_count_of_registries_is_told_apart() {
    let mut world = World::healthy();
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
        // The registry was away for a moment.
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
    *world.at(POD_METRICS) = json!(metrics.concat());
    let findings = world.examine(None).await;
    let told: Vec<_> = findings
        .0
        .iter()
        .filter(|finding| finding.check == "registries")
        .collect();
    assert_eq!(told.len(), 6, "{told:#?}");
    for (message, fix) in [
        (
            "quay.io did not answer the last time that it was asked",
            "let the replicas out",
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
            "let the replicas out",
        ),
        (
            "c.d has answered no request so far: address-not-allowed",
            "let the replicas out",
        ),
    ] {
        let message = format!("Pod tolerarch-1: {message}");
        let found = told
            .iter()
            .find(|finding| finding.message == message)
            .unwrap();
        assert!(
            found.status == Status::Failed && found.fix.contains(fix),
            "{found:?}"
        );
    }
    let denied = told
        .iter()
        .find(|finding| finding.message.contains("wants a login"))
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

/// A registry that does not answer has failed no request yet while lookups wait for it.
#[tokio::test]
async fn no_registry_is_praised_while_lookups_wait() {
    let mut world = World::healthy();
    let metrics =
        world.at(POD_METRICS).as_str().unwrap().to_owned() + "tolerarch_lookups_in_flight 1\n";
    *world.at(POD_METRICS) = json!(metrics);
    let findings = world.examine(None).await;
    let told = findings
        .0
        .iter()
        .find(|finding| finding.check == "registries")
        .unwrap();
    assert!(
        told.status == Status::Unknown && told.message.contains("under way"),
        "{told:?}"
    );
}

#[tokio::test]
async fn each_installation_is_looked_at() {
    let mut world = World::healthy();
    let mut other = world.at(WEBHOOKS)[1].clone();
    other["metadata"]["name"] = "zz-second".into();
    other["webhooks"][0]["clientConfig"]["service"]["namespace"] = "second".into();
    other["webhooks"][0]["namespaceSelector"] =
        json!({"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}});
    world.at(WEBHOOKS).as_array_mut().unwrap().push(other);
    let findings = world.examine(None).await;
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
async fn the_entries_for_templates_are_none_for_pods() {
    let mut world = World::healthy();
    for (group, resource) in [("apps", "daemonsets"), ("", "podtemplates")] {
        let mut entry = world.webhook().clone();
        entry["name"] = format!("{resource}.tolerarch.io").into();
        entry["rules"] = json!([{"operations": ["CREATE", "UPDATE"], "apiGroups": [group], "resources": [resource]}]);
        world.at(WEBHOOKS)[1]["webhooks"]
            .as_array_mut()
            .unwrap()
            .push(entry);
    }
    assert!(failed(&world.examine(None).await).is_empty());
}

#[tokio::test]
async fn rights_in_some_namespaces_may_be_meant() {
    let mut world = World::healthy();
    world.config("credentials: {pullSecrets: true}\n");
    world
        .at(NAMESPACES)
        .as_array_mut()
        .unwrap()
        .push(namespace("other", &json!({})));
    world.allowed = |namespace| namespace == "team";
    let findings = world.examine(None).await;
    assert!(failed(&findings).is_empty(), "{:#?}", findings.0);
    let rights = findings
        .0
        .iter()
        .find(|finding| finding.check == "rights")
        .unwrap();
    assert!(
        rights.status == Status::Unknown
            && rights.message.contains("1 namespaces, and not in other"),
        "{rights:?}"
    );
}

const NODE_TAINTS: &str =
    "controller: {nodeTaints: [{selector: {team: a}, taint: {key: team, effect: NoSchedule}}]}\n";

#[tokio::test]
async fn what_the_controller_takes_is_checked_where_it_is_installed() {
    type Break = fn(&mut World);
    let cases: [(Break, &str, &str); 8] = [
        (
            |world| world.at(LEASE)["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z".into(),
            "was renewed",
            "log",
        ),
        (
            |world| world.at(LEASE)["spec"]["holderIdentity"] = "".into(),
            "has no holder",
            "log",
        ),
        (
            |world| drop(world.objects.remove(LEASE)),
            "has no holder",
            "log",
        ),
        (
            |world| world.allowed = |namespace| namespace == "tolerarch",
            "may not list pods, watch pods, list namespaces, watch namespaces, get mutatingwebhookconfigurations zz-tolerarch, \
             patch pods, create events, get nodes, get namespaces: controller, controller.events, controller.repair needs it",
            "manifests/controller",
        ),
        (
            |world| *world.at(POLICIES) = json!([]),
            "for pods that is bound with Deny",
            "validatingadmissionpolicy.yaml",
        ),
        (
            |world| world.at(BINDINGS)[1]["spec"]["validationActions"] = json!(["Audit"]),
            "for pods that is bound with Deny",
            "validatingadmissionpolicy.yaml",
        ),
        (
            |world| {
                world.config(NODE_TAINTS);
                drop(world.at(POLICIES).as_array_mut().unwrap().remove(0));
            },
            "for nodes that is bound with Deny",
            "nodetaints.yaml",
        ),
        (
            |world| {
                world.config(NODE_TAINTS);
                world.allowed = |namespace| namespace == "tolerarch";
            },
            "get nodes, get namespaces, list nodes, watch nodes, patch nodes: controller, ",
            "manifests/node-taints",
        ),
    ];
    for (broken, message, fix) in cases {
        let mut world = World::healthy().with_controller();
        broken(&mut world);
        let findings = world.examine(None).await;
        let failed = failed(&findings);
        assert_eq!(failed.len(), 1, "{failed:#?}");
        assert_eq!(failed[0].check, "controller");
        assert!(
            failed[0].message.contains(message) && failed[0].fix.contains(fix),
            "{failed:#?}"
        );
    }
    // An installation without a controller has no checks of one.
    let findings = World::healthy().examine(None).await;
    assert!(
        findings
            .0
            .iter()
            .all(|finding| finding.check != "controller")
    );
    // A feature that is off needs no right.
    let mut world = World::healthy().with_controller();
    world.config("controller: {repair: false, events: false}\n");
    world.allowed = |namespace| namespace == "tolerarch";
    world.objects.remove(POLICIES);
    let findings = world.examine(None).await;
    let failed = failed(&findings);
    assert!(
        failed.len() == 1 && !failed[0].message.contains("events"),
        "{failed:#?}"
    );
}

#[tokio::test]
async fn what_is_not_so_yet_gets_no_tick() {
    type Change = fn(&mut World);
    let cases: [(&str, Change); 4] = [
        ("components", |world| {
            *world.at(READYZ) = "no right".into();
            world.ready = 403;
        }),
        ("mode", |world| {
            let now = tolerarch_kubernetes::cluster::micro_time();
            world.at(CONFIG)["metadata"] = json!({"managedFields": [{"time": now}]});
            world.at(PODS)[0]["status"] = json!({"startTime": "2026-01-01T00:00:00Z"});
        }),
        ("controller", |world| {
            world.at(LEASE)["spec"]["holderIdentity"] = "tolerarch-0_0123".into();
        }),
        ("registries", |world| {
            *world.at(POD_METRICS) =
                "tolerarch_certificate_expiry_timestamp_seconds 4000000000\n".into();
        }),
    ];
    for (check, change) in cases {
        let mut world = World::healthy().with_controller();
        // Of the controller only the Lease.
        world.config("mode: enforce\ncontroller: {repair: false}\n");
        world.allowed = |_| false;
        change(&mut world);
        let findings = world.examine(None).await;
        let ticks: Vec<_> = findings
            .0
            .iter()
            .filter(|finding| finding.check == check)
            .collect();
        assert!(
            ticks
                .iter()
                .any(|finding| finding.status == Status::Unknown),
            "{ticks:#?}"
        );
        assert!(
            ticks.iter().all(|finding| finding.status != Status::Ok),
            "{ticks:#?}"
        );
    }
}

#[tokio::test]
async fn the_pod_of_another_process_that_cannot_start_is_named() {
    let mut world = World::healthy();
    world.config("mode: enforce\ntls: {mode: managed}\n");
    let labels = json!({"app.kubernetes.io/name": "tolerarch", "app.kubernetes.io/component": "certificates"});
    world.at(PODS)[0]["metadata"]["labels"] = json!({"app.kubernetes.io/name": "tolerarch"});
    let issuer = &mut world.at(ISSUERS)[0];
    issuer["metadata"]["labels"] = labels;
    issuer["spec"]["containers"][0]["image"] = "nosuch".into();
    let waiting = json!({"reason": "ErrImagePull", "message": "not found"});
    issuer["status"] = json!({"containerStatuses": [{
        "name": "tolerarch", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"waiting": waiting},
    }]});
    let findings = world.examine(None).await;
    let failed = failed(&findings);
    assert_eq!(failed.len(), 1, "{:#?}", findings.0);
    assert!(
        failed[0].check == "pods" && failed[0].message.contains("cannot start: ErrImagePull"),
        "{failed:#?}"
    );
}

#[tokio::test]
async fn a_namespace_of_one_profile_shows_no_fault_of_others() {
    let mut world = World::healthy();
    world.config("mode: enforce\nprofiles: {batch: {}}\n");
    let mut entry = world.webhook().clone();
    entry["name"] = "batch.tolerarch.io".into();
    entry["clientConfig"]["service"]["path"] = "/mutate/batch".into();
    entry["namespaceSelector"] = json!({"matchLabels": {"tolerarch.io/profile": "batch"}});
    world.at(WEBHOOKS)[1]["webhooks"]
        .as_array_mut()
        .unwrap()
        .push(entry);
    assert!(failed(&world.examine(Some("team")).await).is_empty());
}

#[tokio::test]
async fn the_configuration_is_found_without_the_checks() {
    let (found, paths) = World::healthy().configured().await;
    let found = found.map(|found| (found.source, found.text, found.namespace));
    let wanted = [
        "ConfigMap tolerarch/tolerarch",
        "mode: enforce\n",
        "tolerarch",
    ]
    .map(ToOwned::to_owned);
    assert_eq!(found.unwrap(), wanted.into());
    assert_eq!(paths, [WEBHOOKS, SERVICE, PODS, CONFIG]);
    let mut world = World::healthy();
    world.forbidden.push(PODS);
    let why = world.configured().await.0.err().unwrap();
    let wanted = "the Pods of Service tolerarch/tolerarch cannot be read: ";
    assert!(
        matches!(&why, Unconfigured::Unread(why) if why.starts_with(wanted)),
        "{why:?}"
    );
    let mut world = World::healthy();
    world.objects.remove(CONFIG);
    let why = world.configured().await.0.err().unwrap();
    assert!(
        matches!(&why, Unconfigured::Absent(why) if why.contains("(404)")),
        "{why:?}"
    );
    // Without a Pod the Deployment shows the ConfigMap.
    let mut world = World::healthy();
    *world.at(PODS) = json!([]);
    world.forbidden.push(DEPLOYMENTS);
    let why = world.configured().await.0.err().unwrap();
    assert!(
        matches!(&why, Unconfigured::Unread(why) if why.starts_with("the Deployments")),
        "{why:?}"
    );
}

#[tokio::test]
async fn a_version_that_cannot_be_read_ends_nothing() {
    let mut world = World::healthy();
    world.objects.remove("/version");
    let findings = world.examine(None).await;
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
async fn variables_of_the_pods_beat_their_file() {
    let mut world = World::healthy();
    world.at(PODS)[0]["spec"]["containers"][0]["env"] =
        json!([{"name": "TOLERARCH_MODE", "value": "observe"}, {"name": "OTHER", "value": "x"}]);
    let other = World {
        objects: world.objects.clone(),
        ..World::healthy()
    };
    let Installed {
        source,
        environment,
        ..
    } = other.configured().await.0.unwrap();
    assert_eq!(
        source,
        "ConfigMap tolerarch/tolerarch with the environment of its Pods"
    );
    assert_eq!(
        environment.texts().collect::<Vec<_>>(),
        [("TOLERARCH_MODE".to_owned(), "observe".to_owned())]
    );
    let findings = world.examine(None).await;
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

/// The API server keeps connections, so one answer says nothing about a certificate that it refuses by now.
#[tokio::test]
async fn a_bundle_by_which_a_call_failed_is_not_proven() {
    let mut world = World::healthy();
    world.config("mode: enforce\nprofiles: {batch: {}}\n");
    let mut entry = world.webhook().clone();
    entry["name"] = "batch.profiles.tolerarch.io".into();
    entry["clientConfig"]["service"]["path"] = "/mutate/batch".into();
    entry["namespaceSelector"] = json!({"matchLabels": {"tolerarch.io/profile": "batch"}});
    world.at(WEBHOOKS)[1]["webhooks"]
        .as_array_mut()
        .unwrap()
        .push(entry);
    world.at(NAMESPACES).as_array_mut().unwrap().push(namespace(
        "trial",
        &json!({"tolerarch.io/profile": "batch"}),
    ));
    world.webhook()["namespaceSelector"] =
        json!({"matchLabels": {"kubernetes.io/metadata.name": "team"}});
    world.refusing = Some("/api/v1/namespaces/trial/pods");
    // Without the counts of calls it is taken for a failed one.
    world.forbidden.push("/metrics");
    let findings = world.examine(None).await;
    let of = |check: &str| {
        let all = findings.0.iter().filter(|finding| finding.check == check);
        all.map(|finding| finding.status).collect::<Vec<_>>()
    };
    assert_eq!(
        of("dry-run"),
        [Status::Ok, Status::Failed],
        "{:#?}",
        findings.0
    );
    assert_eq!(of("ca-bundle"), [Status::Unknown]);
}

#[tokio::test]
async fn without_pods_the_deployment_shows_the_configuration() {
    for (app, is_found) in [("tolerarch", true), ("other", false)] {
        let mut world = World::healthy();
        let template = json!({"spec": world.at(PODS)[0]["spec"].clone()});
        let metadata = json!({"name": "tolerarch", "labels": {"app": app}});
        let deployment =
            json!({"metadata": metadata, "spec": {"replicas": 0, "template": template}});
        world
            .objects
            .insert(DEPLOYMENTS.to_owned(), json!([deployment]));
        *world.at(PODS) = json!([]);
        let found = world.configured().await.0;
        assert_eq!(
            found.is_ok_and(|found| found.text == "mode: enforce\n"),
            is_found,
            "{app}"
        );
    }
}
