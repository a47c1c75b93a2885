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

const FIRST: &str = "`multi-arch` is the first NodePool that Karpenter takes";

/// Makes a NodePool that is open to all Pods.
fn open(name: &str, weight: u32, more: Value) -> Value {
    weighed(name, weight, json!([]), more)
}

/// Makes a NodePool of the pool.
fn of_pool(weight: u32, more: Value) -> Value {
    weighed("multi-arch", weight, json!([taint("multi")]), more)
}

fn ready(status: &str) -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": status}]}})
}

fn full() -> Value {
    json!({"spec": {"limits": {"cpu": 4}}, "status": {"resources": {"cpu": "4"}}})
}

fn requiring(mut pool: Value, requirements: &[Value]) -> Value {
    pool["spec"]["template"]["spec"]["requirements"] = requirements
        .iter()
        .map(|requirement| requirement[0].clone())
        .collect();
    pool
}

/// Checks the verdict on a NodePool of the pool beside another NodePool, in both orders.
fn assert_verdict(other: Value, of_pool: Value, expected: &str) {
    let mut all = vec![other, of_pool];
    assert_eq!(verdict(&all), expected, "{all:?}");
    all.reverse();
    assert_eq!(verdict(&all), expected, "in another order");
}

#[test]
fn first_node_pool_by_weight_and_name_makes_the_next_node() {
    let none = || json!({});
    for (other, weight, expected) in [
        (open("default", 0, none()), 0, FIRST),
        (
            open("spot", 0, none()),
            0,
            "new nodes come from `spot` (untainted, weight 0, later name) before `multi-arch`; give it a weight of 1 or more",
        ),
        (
            open("default", 7, none()),
            2,
            "new nodes come from `default` (untainted, weight 7) before `multi-arch`; give it a weight of 8 or more",
        ),
        (open("default", 7, none()), 8, FIRST),
        (
            open("default", 100, none()),
            99,
            "new nodes come from `default` (untainted, weight 100) before `multi-arch`; lower the weight of `default`, as no \
             NodePool can have more",
        ),
    ] {
        assert_verdict(other, of_pool(weight, none()), expected);
    }
}

#[test]
fn node_pool_that_cannot_make_the_node_does_not_count() {
    let none = || json!({});
    let contradiction = [arch("In", &["amd64"]), arch("In", &["arm64"])];
    let excluded = [arch("In", &["amd64"]), arch("NotIn", &["amd64"])];
    let preference = json!([{"key": "k", "effect": "PreferNoSchedule"}]);
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    for other in [
        // It keeps these Pods away.
        weighed("zoo", 9, json!([taint("gpu")]), none()),
        // It prefers other Pods, and there is another NodePool.
        weighed("zoo", 9, preference, none()),
        open("spot", 9, ready("False")),
        open("spot", 9, ready("Unknown")),
        open("spot", 9, full()),
        open("spot", 9, json!({"spec": {"replicas": 3}})),
        open("spot", 9, deleted),
        // No instance type fits it.
        requiring(open("spot", 9, none()), &contradiction),
        requiring(open("spot", 9, none()), &excluded),
    ] {
        assert_verdict(other, of_pool(0, none()), FIRST);
    }
    // Karpenter omits a label that instance types lack, so this NodePool makes nodes.
    let team = |name: &str| json!([{"key": "team", "operator": "In", "values": [name]}]);
    assert_verdict(
        requiring(open("spot", 9, none()), &[team("a"), team("b")]),
        of_pool(0, none()),
        "new nodes come from `spot` (untainted, weight 9) before `multi-arch`; give it a weight of 10 or more",
    );
}

#[test]
fn verdict_names_why_the_pools_node_pool_is_unusable() {
    let default = || open("default", 0, json!({}));
    let contradiction = [arch("In", &["amd64"]), arch("In", &["arm64"])];
    for (node_pool, why) in [
        (of_pool(9, full()), "has reached its limits; raise them"),
        (of_pool(9, ready("False")), "is not ready; see its status"),
        (
            requiring(of_pool(9, json!({})), &contradiction),
            "requires what contradicts itself; see its requirements",
        ),
    ] {
        let expected = format!("new nodes come from `default`, as `multi-arch` {why}");
        assert_verdict(default(), node_pool, &expected);
    }
    assert_eq!(
        verdict(&[of_pool(9, ready("False"))]),
        "there are no new nodes, as `multi-arch` is not ready; see its status"
    );
    assert_eq!(verdict(&[default()]), "it opens no NodePool");
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
        let verdict = verdict(&[spot, of_pool(0, json!({}))]);
        assert_eq!(
            verdict.contains("is the first NodePool"),
            is_dropped,
            "{template}: {verdict}"
        );
    }
}

#[test]
fn heaviest_node_pool_of_the_pool_counts() {
    let named = |name: &str, weight| weighed(name, weight, json!([taint("multi")]), json!({}));
    let spot = weighed("spot", 5, json!([]), json!({}));
    let first = "`b` is the first NodePool that Karpenter takes";
    assert_eq!(
        verdict(&[named("a", 0), named("b", 9), spot.clone()]),
        first
    );
    let behind = verdict(&[named("a", 0), named("b", 4), spot]);
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
