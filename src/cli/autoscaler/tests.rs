use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use tolerarch_core::policy::Pool;
use tolerarch_kubernetes::autoscaler::Choice;
use tolerarch_kubernetes::cluster::testing::{FakeApi, Reply};

const ALL: &str = "/api/v1/configmaps";
const USUAL_STATUS: &str = "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/kube-system/deployments";
const PRIORITIES: &str =
    "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-priority-expander";
const MULTI_FIRST: &str = "100:\n  - multi\n10:\n  - .*\n";

/// Returns a status of this age, with the groups `multi` and `plain`.
fn status(namespace: &str, age: SignedDuration) -> Value {
    let written = Timestamp::now().checked_sub(age).unwrap();
    let written = written
        .strftime("%Y-%m-%d %H:%M:%S%.f +0000 UTC")
        .to_string();
    let groups = ["multi", "plain"].map(|name| json!({"name": name, "health": {"maxSize": 9}}));
    let text =
        json!({"autoscalerStatus": "Running", "time": written, "nodeGroups": groups}).to_string();
    json!({
        "metadata": {"name": Status::CONFIG_MAP, "namespace": namespace, "annotations": {WRITTEN: written}},
        "data": {"status": text},
    })
}

fn deployment(replicas: u32, command: &[&str]) -> Value {
    let container = json!({"name": "a", "image": "example.com/a:1", "command": command});
    json!({"metadata": {"name": "a"}, "spec": {
        "replicas": replicas, "selector": {}, "template": {"spec": {"containers": [container]}},
    }})
}

fn priorities(text: &str) -> Value {
    json!({"metadata": {"name": Priorities::CONFIG_MAP}, "data": {"priorities": text}})
}

/// Reads from an API server with these objects; nothing else exists.
async fn search(objects: &[(&str, Result<Value, u16>)], nodes: &[Node]) -> AutoscalerSearch {
    let objects: BTreeMap<String, Result<Value, u16>> = objects
        .iter()
        .map(|(path, object)| ((*path).to_owned(), object.clone()))
        .collect();
    let api = FakeApi::start(move |request| match objects.get(&request.path) {
        Some(Ok(object)) => Reply::of(200, object.clone()),
        Some(Err(refusal)) => Reply::refused(*refusal, "refused"),
        None => Reply::refused(404, "not found"),
    })
    .await;
    AutoscalerSearch::read(&api.client(), Some(nodes)).await
}

fn fresh() -> Value {
    json!([status("kube-system", SignedDuration::ZERO)])
}

fn node(labels: Value) -> Node {
    serde_json::from_value(json!({"metadata": {"name": "n", "labels": labels}})).unwrap()
}

#[tokio::test]
async fn deployment_shows_the_autoscaler_and_its_flags() {
    let running = json!([
        deployment(2, &["sh"]),
        deployment(1, &["./cluster-autoscaler", "--expander=priority"])
    ]);
    let objects = [
        (ALL, Ok(fresh())),
        (DEPLOYMENTS, Ok(running)),
        (PRIORITIES, Ok(priorities(MULTI_FIRST))),
    ];
    let AutoscalerSearch { autoscaler, notes } = search(&objects, &[]).await;
    let autoscaler = autoscaler.unwrap();
    assert_eq!(notes, [""; 0]);
    assert_eq!(
        autoscaler.expanders,
        Expanders::Named(vec!["priority".to_owned()])
    );
    let groups = autoscaler.groups.as_ref().unwrap();
    assert_eq!(
        groups
            .iter()
            .map(|group| autoscaler.priority(group))
            .collect::<Vec<_>>(),
        [Some(100), Some(10)]
    );
}

/// The flags name an unusual namespace and an unusual name of the status.
#[tokio::test]
async fn config_maps_are_read_where_the_flags_say() {
    let command = [
        "cluster-autoscaler",
        "--namespace=custom",
        "--status-config-map-name=mine",
    ];
    let mut mine = status("custom", SignedDuration::ZERO);
    mine["metadata"]["name"] = "mine".into();
    let objects = [
        (ALL, Ok(json!([]))),
        (DEPLOYMENTS, Ok(json!([deployment(1, &command)]))),
        ("/api/v1/namespaces/custom/configmaps/mine", Ok(mine)),
    ];
    let autoscaler = search(&objects, &[]).await.autoscaler.unwrap();
    assert_eq!(
        (
            autoscaler.namespace.as_str(),
            autoscaler.groups.map(|groups| groups.len())
        ),
        ("custom", Some(2))
    );
    assert!(matches!(autoscaler.priorities, KnownPriorities::Missing));
}

#[tokio::test]
async fn status_shows_an_autoscaler_without_deployment() {
    let autoscaler = search(&[(ALL, Ok(fresh()))], &[]).await.autoscaler.unwrap();
    assert_eq!(autoscaler.expanders, Expanders::Unseen);
    assert!(
        autoscaler
            .grouped(&[])
            .outlook(&Pool::default())
            .choice
            .is_wrong(),
        "it has no priorities"
    );
    let other = json!([status("autoscaling", SignedDuration::ZERO)]);
    let autoscaler = search(&[(ALL, Ok(other))], &[]).await.autoscaler.unwrap();
    assert_eq!(autoscaler.namespace, "autoscaling");
    let gke = [node(json!({"cloud.google.com/gke-nodepool": "arm"}))];
    let autoscaler = search(&[(ALL, Ok(fresh()))], &gke)
        .await
        .autoscaler
        .unwrap();
    assert_eq!(autoscaler.expanders, Expanders::Gke);
}

#[tokio::test]
async fn stale_status_is_no_autoscaler() {
    let old = json!([status("kube-system", SignedDuration::from_hours(3))]);
    let stopped = json!([deployment(0, &["cluster-autoscaler"])]);
    let AutoscalerSearch { autoscaler, notes } =
        search(&[(ALL, Ok(old.clone())), (DEPLOYMENTS, Ok(stopped))], &[]).await;
    assert!(autoscaler.is_none());
    assert!(notes[0].contains(") 180 min ago"), "{notes:?}");
    // A fresh status in another namespace counts.
    let both = json!([old[0], status("custom", SignedDuration::ZERO)]);
    assert_eq!(
        search(&[(ALL, Ok(both))], &[])
            .await
            .autoscaler
            .unwrap()
            .namespace,
        "custom"
    );
    // An autoscaler with a Deployment counts, but a stale status does not show its groups.
    let running = json!([deployment(1, &["cluster-autoscaler"])]);
    let AutoscalerSearch { autoscaler, notes } =
        search(&[(ALL, Ok(old)), (DEPLOYMENTS, Ok(running))], &[]).await;
    assert_eq!(autoscaler.unwrap().groups, None);
    assert!(notes[0].contains(") 180 min ago"), "{notes:?}");
}

/// Anyone who may create a ConfigMap can forge a status.
#[tokio::test]
async fn autoscaler_in_the_usual_namespace_is_preferred() {
    let all = json!([
        status("a-team", SignedDuration::ZERO),
        status("kube-system", SignedDuration::ZERO)
    ]);
    let forged = json!([deployment(
        1,
        &[
            "cluster-autoscaler",
            "--expander=price",
            "--namespace=a-team"
        ]
    )]);
    let objects = [
        (ALL, Ok(all)),
        ("/apis/apps/v1/namespaces/a-team/deployments", Ok(forged)),
    ];
    assert_eq!(
        search(&objects, &[]).await.autoscaler.unwrap().namespace,
        "kube-system"
    );
    let tenants = json!([
        status("a", SignedDuration::ZERO),
        status("b", SignedDuration::ZERO)
    ]);
    let AutoscalerSearch { autoscaler, notes } = search(&[(ALL, Ok(tenants))], &[]).await;
    assert!(
        autoscaler.is_none()
            && notes
                .iter()
                .any(|note| note.contains("cluster-autoscalers in a, b")),
        "{notes:?}"
    );
}

#[tokio::test]
async fn starting_autoscaler_has_no_groups() {
    let mut starting = fresh();
    starting[0]["data"]["status"] = "autoscalerStatus: Initializing\n".into();
    assert_eq!(
        search(&[(ALL, Ok(starting))], &[])
            .await
            .autoscaler
            .unwrap()
            .groups,
        None
    );
}

#[tokio::test]
async fn missing_autoscaler_needs_no_note() {
    let AutoscalerSearch { autoscaler, notes } = search(&[], &[]).await;
    assert!(autoscaler.is_none() && notes.is_empty(), "{notes:?}");
    // Without nodes no group can be judged, so nothing is requested.
    let api = FakeApi::start(|_request| panic!("unexpected request")).await;
    let AutoscalerSearch { autoscaler, notes } = AutoscalerSearch::read(&api.client(), None).await;
    assert!(autoscaler.is_none() && notes.is_empty());
}

#[tokio::test]
async fn forbidden_reads_become_notes() {
    let AutoscalerSearch { autoscaler, notes } = search(
        &[
            (ALL, Err(403)),
            (USUAL_STATUS, Err(403)),
            (DEPLOYMENTS, Err(403)),
        ],
        &[],
    )
    .await;
    assert!(autoscaler.is_none());
    assert!(
        notes.len() == 1 && notes[0].contains("cannot see whether a cluster-autoscaler runs"),
        "{notes:?}"
    );
}

#[tokio::test]
async fn status_shows_an_autoscaler_with_unreadable_flags() {
    let usual = fresh()[0].clone();
    let objects = [
        (ALL, Err(403)),
        (USUAL_STATUS, Ok(usual)),
        (DEPLOYMENTS, Err(403)),
        (PRIORITIES, Ok(priorities(MULTI_FIRST))),
    ];
    let taints = json!([{"key": "t", "effect": "NoSchedule"}]);
    let node = json!({"metadata": {"name": "multi-x7k2p"}, "spec": {"taints": taints}});
    let node: Node = serde_json::from_value(node).unwrap();
    let toleration = json!({"key": "t", "operator": "Exists", "effect": "NoSchedule"});
    let pool = Pool {
        tolerations: vec![tolerarch_core::testing::toleration(&toleration)],
        ..Pool::default()
    };
    let AutoscalerSearch { autoscaler, notes } = search(&objects, &[]).await;
    let choice = autoscaler.unwrap().grouped(&[node]).outlook(&pool).choice;
    assert!(
        matches!(&choice, Choice::Unseen { why } if why.contains("its flags cannot be read")),
        "{choice}"
    );
    assert!(
        notes[0].contains("runs outside of kube-system"),
        "{notes:?}"
    );
    assert!(
        notes[1].contains("the Deployments of kube-system cannot be read"),
        "{notes:?}"
    );
}

#[tokio::test]
async fn unreadable_and_invalid_priorities_differ() {
    let priorities_of = async |map: Result<Value, u16>| {
        let objects = [(ALL, Ok(fresh())), (PRIORITIES, map)];
        search(&objects, &[]).await.autoscaler.unwrap().priorities
    };
    assert!(matches!(
        priorities_of(Err(403)).await,
        KnownPriorities::Unknown(_)
    ));
    assert!(matches!(
        priorities_of(Ok(json!({"data": {"priority": "x"}}))).await,
        KnownPriorities::Ignored(_)
    ));
    assert!(matches!(
        priorities_of(Ok(priorities("multi first"))).await,
        KnownPriorities::Ignored(_)
    ));
}

/// The ConfigMap is valid, but the autoscaler's account may not read it. An account that may not list nodes is not the
/// autoscaler's.
#[tokio::test]
async fn priorities_that_the_account_may_not_read_are_ignored() {
    for (allowed, is_read) in [
        (
            &["list nodes", "list configmaps", "watch configmaps"][..],
            true,
        ),
        (&["list nodes", "list configmaps"], false),
        (&["list nodes"], false),
        (&[], true),
    ] {
        let running = deployment(1, &["cluster-autoscaler", "--expander=priority"]);
        let objects = BTreeMap::from([
            (ALL, fresh()),
            (DEPLOYMENTS, json!([running])),
            (PRIORITIES, priorities(MULTI_FIRST)),
        ]);
        let api = FakeApi::start(move |request| {
            if request.path.ends_with("/subjectaccessreviews") {
                let spec = &request.body["spec"];
                assert_eq!(spec["user"], "system:serviceaccount:kube-system:default");
                let field = |name: &str| {
                    spec["resourceAttributes"][name]
                        .as_str()
                        .unwrap()
                        .to_owned()
                };
                let right = format!("{} {}", field("verb"), field("resource"));
                return Reply::of(
                    201,
                    json!({"status": {"allowed": allowed.contains(&right.as_str())}}),
                );
            }
            match objects.get(request.path.as_str()) {
                Some(object) => Reply::of(200, object.clone()),
                None => Reply::refused(404, "not found"),
            }
        })
        .await;
        let autoscaler = AutoscalerSearch::read(&api.client(), Some(&[]))
            .await
            .autoscaler
            .unwrap();
        assert_eq!(
            matches!(autoscaler.priorities, KnownPriorities::Read(_)),
            is_read,
            "{allowed:?}"
        );
        assert_eq!(
            matches!(autoscaler.priorities, KnownPriorities::Ignored(_)),
            !is_read,
            "{allowed:?}"
        );
    }
}
