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
    let inventory = inventory(node_pools, &[]);
    Discovery::of(&[pool("multi-arch", "multi", &[])], &inventory).pools[0]
        .verdict
        .to_string()
}

#[test]
fn first_node_pool_by_weight_and_name_makes_the_next_node() {
    let none = || json!({});
    let open = |name: &str, weight, more| weighed(name, weight, json!([]), more);
    let of_pool = |weight, more| weighed("multi-arch", weight, json!([taint("multi")]), more);
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
    for (others, pool, expected) in [
        (vec![open("default", 0, none())], of_pool(0, none()), first),
        (
            vec![open("spot", 0, none())],
            of_pool(0, none()),
            "new nodes come from `spot` (untainted, weight 0, later name) before `multi-arch`; give it a weight of 1 or more",
        ),
        (
            vec![open("default", 7, none())],
            of_pool(2, none()),
            "new nodes come from `default` (untainted, weight 7) before `multi-arch`; give it a weight of 8 or more",
        ),
        (vec![open("default", 7, none())], of_pool(8, none()), first),
        (
            vec![open("default", 100, none())],
            of_pool(99, none()),
            "new nodes come from `default` (untainted, weight 100) before `multi-arch`; lower the weight of `default`, as no \
             NodePool can have more",
        ),
        // A NodePool that keeps these Pods away does not count.
        (
            vec![weighed("zoo", 9, json!([taint("gpu")]), none())],
            of_pool(0, none()),
            first,
        ),
        // A NodePool that prefers other Pods comes after all others.
        (
            vec![weighed(
                "zoo",
                9,
                json!([{"key": "k", "effect": "PreferNoSchedule"}]),
                none(),
            )],
            of_pool(0, none()),
            first,
        ),
        (
            vec![open("spot", 9, ready("False"))],
            of_pool(0, none()),
            first,
        ),
        (
            vec![open("spot", 9, ready("Unknown"))],
            of_pool(0, none()),
            first,
        ),
        (vec![open("spot", 9, full())], of_pool(0, none()), first),
        (
            vec![open("spot", 9, json!({"spec": {"replicas": 3}}))],
            of_pool(0, none()),
            first,
        ),
        (
            vec![open(
                "spot",
                9,
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            )],
            of_pool(0, none()),
            first,
        ),
        (
            vec![open("default", 0, none())],
            of_pool(9, full()),
            "new nodes come from `default`, as `multi-arch` has reached its limits; raise them",
        ),
        (
            vec![open("default", 0, none())],
            of_pool(9, ready("False")),
            "new nodes come from `default`, as `multi-arch` is not ready; see its status",
        ),
        // A NodePool that no instance type fits does not count.
        (
            vec![requires(open("spot", 9, none()), &contradiction)],
            of_pool(0, none()),
            first,
        ),
        (
            vec![requires(open("spot", 9, none()), &excluded)],
            of_pool(0, none()),
            first,
        ),
        // Karpenter omits a label that instance types lack.
        (
            vec![requires(open("spot", 9, none()), &[team("a"), team("b")])],
            of_pool(0, none()),
            "new nodes come from `spot` (untainted, weight 9) before `multi-arch`; give it a weight of 10 or more",
        ),
        (
            vec![open("default", 0, none())],
            requires(of_pool(9, none()), &contradiction),
            "new nodes come from `default`, as `multi-arch` requires what contradicts itself; see its requirements",
        ),
        (
            vec![],
            of_pool(9, ready("False")),
            "there are no new nodes, as `multi-arch` is not ready; see its status",
        ),
    ] {
        let mut all = others;
        all.push(pool);
        assert_eq!(verdict(&all), expected, "{all:?}");
        all.reverse();
        assert_eq!(verdict(&all), expected, "in another order");
    }
    assert_eq!(
        verdict(&[open("default", 0, none())]),
        "it opens no NodePool"
    );
}

/// `scheduling.Requirements` of Karpenter 1.14 intersects the requirements with the labels of every instance type.
#[test]
fn node_pool_with_contradictory_requirements_is_dropped() {
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
        let of_pool = weighed("multi-arch", 0, json!([taint("multi")]), json!({}));
        let verdict = verdict(&[spot, of_pool]);
        assert_eq!(
            verdict.contains("is the first NodePool"),
            is_dropped,
            "{template}: {verdict}"
        );
    }
}

#[test]
fn heaviest_node_pool_of_the_pool_counts() {
    let of_pool = |name: &str, weight| weighed(name, weight, json!([taint("multi")]), json!({}));
    let spot = weighed("spot", 5, json!([]), json!({}));
    let first = "`b` is the first NodePool that Karpenter takes";
    assert_eq!(
        verdict(&[of_pool("a", 0), of_pool("b", 9), spot.clone()]),
        first
    );
    let behind = verdict(&[of_pool("a", 0), of_pool("b", 4), spot]);
    assert!(
        behind.starts_with("new nodes come from `spot`") && behind.contains("before `b`"),
        "{behind}"
    );
}

/// If there is no other NodePool, PreferNoSchedule is no obstacle.
#[test]
fn only_node_pool_is_used_despite_a_preference() {
    let taints = json!([{"key": "k", "effect": "PreferNoSchedule"}]);
    let node_pool: NodePool = read(&weighed("avoided", 9, taints, json!({})));
    let next = next_node_pool(&[&node_pool], &[]);
    assert_eq!(next.map(NodePool::name), Some("avoided"));
}
