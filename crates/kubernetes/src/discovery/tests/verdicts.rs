use super::*;
use crate::discovery::next_node::next_node_pool;

/// Makes a NodePool with a weight, and `more` members of `spec` and `status`.
fn weighed(name: &str, weight: u32, taints: Value, more: Value) -> Value {
    let mut pool = node_pool(name, json!([]), taints);
    if weight > 0 {
        pool["spec"]["weight"] = weight.into();
    }
    for part in ["spec", "status", "metadata"] {
        for (key, value) in more[part].as_object().into_iter().flatten() {
            pool[part][key] = value.clone();
        }
    }
    pool
}

/// Returns the verdict on a pool that tolerates the taint `multi`.
fn verdict(node_pools: &[Value]) -> String {
    let known = inventory(node_pools, &[]);
    Discovery::of(&[pool("multi-arch", "multi", &[])], &known).pools[0]
        .verdict
        .to_string()
}

#[test]
fn the_first_by_weight_and_name_makes_the_next_node() {
    let none = || json!({});
    let open = |name: &str, weight, more| weighed(name, weight, json!([]), more);
    let ours = |weight, more| weighed("multi-arch", weight, json!([taint("multi")]), more);
    let ready =
        |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    let full = || json!({"spec": {"limits": {"cpu": 4}}, "status": {"resources": {"cpu": "4"}}});
    let requires = |mut pool: Value, all: &[Value]| {
        pool["spec"]["template"]["spec"]["requirements"] =
            all.iter().map(|one| one[0].clone()).collect();
        pool
    };
    let contradiction = [arch("In", &["amd64"]), arch("In", &["arm64"])];
    let excluded = [arch("In", &["amd64"]), arch("NotIn", &["amd64"])];
    let team = |name: &str| json!([{"key": "team", "operator": "In", "values": [name]}]);
    let first = "`multi-arch` is the first NodePool that Karpenter takes";
    for (others, own, expected) in [
        (vec![open("default", 0, none())], ours(0, none()), first),
        (
            vec![open("spot", 0, none())],
            ours(0, none()),
            "new nodes come from `spot` (untainted, weight 0, later name) before `multi-arch`; give it a weight of 1 or more",
        ),
        (
            vec![open("default", 7, none())],
            ours(2, none()),
            "new nodes come from `default` (untainted, weight 7) before `multi-arch`; give it a weight of 8 or more",
        ),
        (vec![open("default", 7, none())], ours(8, none()), first),
        (
            vec![open("default", 100, none())],
            ours(99, none()),
            "new nodes come from `default` (untainted, weight 100) before `multi-arch`; lower the weight of `default`, as no \
             NodePool can have more",
        ),
        // A NodePool that keeps these Pods away is no rival.
        (
            vec![weighed("zoo", 9, json!([taint("gpu")]), none())],
            ours(0, none()),
            first,
        ),
        // Nor is one that prefers other Pods, as long as there is another NodePool.
        (
            vec![weighed(
                "zoo",
                9,
                json!([{"key": "k", "effect": "PreferNoSchedule"}]),
                none(),
            )],
            ours(0, none()),
            first,
        ),
        (
            vec![open("spot", 9, ready("False"))],
            ours(0, none()),
            first,
        ),
        (
            vec![open("spot", 9, ready("Unknown"))],
            ours(0, none()),
            first,
        ),
        (vec![open("spot", 9, full())], ours(0, none()), first),
        (
            vec![open("spot", 9, json!({"spec": {"replicas": 3}}))],
            ours(0, none()),
            first,
        ),
        (
            vec![open(
                "spot",
                9,
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            )],
            ours(0, none()),
            first,
        ),
        (
            vec![open("default", 0, none())],
            ours(9, full()),
            "new nodes come from `default`, as `multi-arch` has reached its limits; raise them",
        ),
        (
            vec![open("default", 0, none())],
            ours(9, ready("False")),
            "new nodes come from `default`, as `multi-arch` is not ready; see its status",
        ),
        // Nor is one of which Karpenter makes no nodes, as no instance type suits it.
        (
            vec![requires(open("spot", 9, none()), &contradiction)],
            ours(0, none()),
            first,
        ),
        (
            vec![requires(open("spot", 9, none()), &excluded)],
            ours(0, none()),
            first,
        ),
        // Karpenter merely leaves off a label that instance types lack.
        (
            vec![requires(open("spot", 9, none()), &[team("a"), team("b")])],
            ours(0, none()),
            "new nodes come from `spot` (untainted, weight 9) before `multi-arch`; give it a weight of 10 or more",
        ),
        (
            vec![open("default", 0, none())],
            requires(ours(9, none()), &contradiction),
            "new nodes come from `default`, as `multi-arch` requires what contradicts itself; see its requirements",
        ),
        (
            vec![],
            ours(9, ready("False")),
            "there are no new nodes, as `multi-arch` is not ready; see its status",
        ),
    ] {
        let mut all = others;
        all.push(own);
        assert_eq!(verdict(&all), expected, "{all:?}");
        all.reverse();
        assert_eq!(verdict(&all), expected, "in another order");
    }
    assert_eq!(
        verdict(&[open("default", 0, none())]),
        "it opens no NodePool"
    );
}

/// As `scheduling.Requirements` of Karpenter 1.14 intersects them with the labels of every instance type.
#[test]
fn a_node_pool_whose_requirements_contradict_each_other_makes_no_nodes() {
    let arm64 = || arch("In", &["arm64"])[0].clone();
    let of = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
    let no_labels = || json!({});
    for (requirements, labels, is_dropped) in [
        (
            json!([arm64(), arch("NotIn", &["arm64"])[0]]),
            no_labels(),
            true,
        ),
        (
            json!([arch("NotIn", &["arm64"])[0], arm64()]),
            no_labels(),
            true,
        ),
        (
            json!([arm64(), of("beta.kubernetes.io/arch", "NotIn", &["arm64"])]),
            no_labels(),
            true,
        ),
        (
            json!([arm64()]),
            json!({"kubernetes.io/arch": "amd64"}),
            true,
        ),
        (
            json!([arch("NotIn", &["arm64"])[0]]),
            json!({"beta.kubernetes.io/arch": "arm64"}),
            true,
        ),
        (json!([arch("DoesNotExist", &[])[0]]), no_labels(), true),
        (
            json!([arm64(), of("beta.kubernetes.io/arch", "DoesNotExist", &[])]),
            no_labels(),
            true,
        ),
        (
            json!([of("kubernetes.io/arch", "Gt", &["5"])]),
            no_labels(),
            true,
        ),
        (
            json!([of("karpenter.sh/capacity-type", "Lte", &["5"])]),
            no_labels(),
            true,
        ),
        (
            json!([of("topology.kubernetes.io/zone", "Gt", &["0"])]),
            no_labels(),
            false,
        ),
        (
            json!([of("kubernetes.io/arch", "Exists", &[]), arm64()]),
            no_labels(),
            false,
        ),
        (
            json!([arm64()]),
            json!({"kubernetes.io/arch": "arm64", "team": "a"}),
            false,
        ),
        (
            json!([of("example.com/gpu", "DoesNotExist", &[])]),
            no_labels(),
            false,
        ),
    ] {
        let template =
            json!({"metadata": {"labels": labels}, "spec": {"requirements": requirements}});
        let spot = weighed(
            "spot",
            9,
            json!([]),
            json!({"spec": {"template": template}}),
        );
        let own = weighed("multi-arch", 0, json!([taint("multi")]), json!({}));
        let said = verdict(&[spot, own]);
        assert_eq!(
            said.contains("is the first NodePool"),
            is_dropped,
            "{template}: {said}"
        );
    }
}

/// The best of several NodePools of the pool counts.
#[test]
fn one_of_several_is_enough() {
    let ours = |name: &str, weight| weighed(name, weight, json!([taint("multi")]), json!({}));
    let spot = weighed("spot", 5, json!([]), json!({}));
    let first = "`b` is the first NodePool that Karpenter takes";
    assert_eq!(verdict(&[ours("a", 0), ours("b", 9), spot.clone()]), first);
    let behind = verdict(&[ours("a", 0), ours("b", 4), spot]);
    assert!(
        behind.starts_with("new nodes come from `spot`") && behind.contains("before `b`"),
        "{behind}"
    );
}

/// If there is no other NodePool, PreferNoSchedule is no obstacle.
#[test]
fn a_wish_gives_way() {
    let wish = weighed(
        "wish",
        9,
        json!([{"key": "k", "effect": "PreferNoSchedule"}]),
        json!({}),
    );
    let all: Vec<NodePool> = vec![read(&wish)];
    let all: Vec<&NodePool> = all.iter().collect();
    assert_eq!(next_node_pool(&all, &[]).map(NodePool::name), Some("wish"));
}
