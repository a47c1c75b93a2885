//! Laws for any Pod that is steered: all of the user's constraints stay, and all managed additions can be removed.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::model::{fitting, is_valid, names_architecture, nodes, normal};
use crate::decision::testing::{self as patches, pass};
use crate::image::{LookupError, Support};
use crate::policy::Policy;
use crate::testing::{self, platforms};

const ARCHITECTURES: [&str; 3] = ["amd64", "arm64", "s390x"];

/// The policy has preferences and labels of Pods as well if `is_full`.
fn policy(require: &str, unknown: &[&str], is_full: bool) -> Policy {
    let platforms = ARCHITECTURES.map(|arch| format!("linux/{arch}"));
    let unknown: Vec<String> = unknown.iter().map(|arch| format!("linux/{arch}")).collect();
    let mut placement = json!({"require": require, "platforms": platforms, "whenUnknown": unknown});
    if is_full {
        placement["prefer"] = json!([{"platform": "linux/arm64", "weight": 80}, {"platform": "linux/amd64", "weight": 7}]);
        placement["podLabels"] = json!(["zone", "team"]);
    }
    testing::policy(&json!({"placement": placement}))
}

/// A member that is absent, null, or has a value.
fn sometimes(
    value: impl Strategy<Value = Value> + 'static,
) -> impl Strategy<Value = Option<Value>> {
    prop_oneof![2 => Just(None), 1 => Just(Some(Value::Null)), 6 => value.prop_map(Some)]
}

fn object(members: Vec<(&str, Option<Value>)>) -> Value {
    members
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

fn expression() -> impl Strategy<Value = Value> {
    let one_of = |expressions: Vec<Value>| prop::sample::select(expressions);
    let arch = |operator: &str, values: &[&str]| json!({"key": "kubernetes.io/arch", "operator": operator, "values": values});
    prop_oneof![
        12 => one_of(vec![
            json!({"key": "zone", "operator": "In", "values": ["a"]}),
            json!({"key": "zone", "operator": "NotIn", "values": ["b", "c"]}),
            json!({"key": "zone", "operator": "Exists"}),
            json!({"key": "zone", "operator": "DoesNotExist", "values": []}),
            json!({"key": "size", "operator": "Gt", "values": ["2"]}),
            json!({"key": "size", "operator": "Lt", "values": ["2"]}),
        ]),
        1 => one_of(vec![
            arch("In", &["amd64"]), arch("In", &["amd64", "arm64"]), arch("NotIn", &["s390x"]), arch("Exists", &[]),
            json!({"key": "beta.kubernetes.io/arch", "operator": "In", "values": ["arm64"]}),
        ]),
    ]
}

fn affinity() -> impl Strategy<Value = Value> {
    let expressions = prop::collection::vec(expression(), 0..3).prop_map(Value::from);
    let name = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
    let fields = prop::collection::vec(Just(name), 0..2).prop_map(Value::from);
    let term = (sometimes(expressions), prop::option::weighted(0.3, fields));
    let term = term.prop_map(|(expressions, fields)| {
        object(vec![
            ("matchExpressions", expressions),
            ("matchFields", fields),
        ])
    });
    let terms = prop::collection::vec(term, 1..4).prop_map(Value::from);
    let required = terms.prop_map(|terms| json!({"nodeSelectorTerms": terms}));
    let weighted = |weight: u8, expression: Value| json!({"weight": weight, "preference": {"matchExpressions": [expression]}});
    let zone = weighted(3, json!({"key": "zone", "operator": "Exists"}));
    let arm64 = weighted(
        80,
        json!({"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}),
    );
    let preferred = prop::sample::select(vec![
        json!([]),
        json!([zone]),
        json!([zone, arm64, zone]),
        Value::Null,
    ]);
    let nodes =
        (sometimes(required), prop::option::of(preferred)).prop_map(|(required, preferred)| {
            object(vec![
                ("requiredDuringSchedulingIgnoredDuringExecution", required),
                ("preferredDuringSchedulingIgnoredDuringExecution", preferred),
            ])
        });
    (sometimes(nodes), prop::option::of(Just(json!({}))))
        .prop_map(|(nodes, pods)| object(vec![("nodeAffinity", nodes), ("podAntiAffinity", pods)]))
}

/// Valid Pods as users write them.
fn pod() -> impl Strategy<Value = Value> {
    let selector = prop::sample::select(vec![
        json!({}),
        json!({"zone": "a"}),
        json!({"zone": "b", "size": "5"}),
        json!({"kubernetes.io/arch": "amd64"}),
        json!({"zone": "a", "beta.kubernetes.io/arch": "arm64"}),
    ]);
    let labels = prop::sample::select(vec![
        json!({}),
        json!({"zone": "a", "other": "x"}),
        json!({"zone": "no, label"}),
    ]);
    (sometimes(affinity()), sometimes(selector), sometimes(labels)).prop_map(
        |(affinity, selector, labels)| {
            let containers = Some(json!([{"image": "x"}]));
            let spec =
                object(vec![("containers", containers), ("affinity", affinity), ("nodeSelector", selector)]);
            json!({"metadata": object(vec![("name", Some("web".into())), ("labels", labels)]), "spec": spec})
        },
    )
}

/// Pods that may name the labels of pools as well.
fn pod_with_class() -> impl Strategy<Value = Value> {
    (
        pod(),
        prop::sample::select(vec!["", "selector", "affinity"]),
    )
        .prop_map(|(mut pod, place)| {
            let spec = &mut pod["spec"];
            match place {
                "selector" => spec["nodeSelector"] = json!({"class": "multi", "zone": "b"}),
                "affinity" => {
                    let named = json!({"key": "class", "operator": "NotIn", "values": ["gpu"]});
                    let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [named]}]});
                    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": terms});
                    spec["affinity"] = json!({ "nodeAffinity": required });
                }
                _ => {}
            }
            pod
        })
}

/// A pool that is selected by its class, one that is selected by its zone as well, and one without a selector.
fn selecting_policy(require: &str) -> Policy {
    let pool = |name: &str, platforms: &[&str], select: Value| {
        let toleration = json!({"key": name, "operator": "Exists"});
        json!({"name": name, "platforms": platforms, "tolerations": [toleration], "select": select})
    };
    let pools = json!([
        pool(
            "multi",
            &["linux/amd64", "linux/arm64"],
            json!({"class": "multi"})
        ),
        pool(
            "zone",
            &["linux/arm64"],
            json!({"zone": "a", "class": "arm"})
        ),
        pool("plain", &["linux/amd64"], json!({})),
    ]);
    let mut policy = policy(require, &[], true);
    policy.placement.pod_labels.clear();
    policy.pools = testing::policy(&json!({ "pools": pools })).pools;
    policy
}

fn selector(pod: &Value) -> serde_json::Map<String, Value> {
    let selector = pod["spec"]["nodeSelector"].as_object();
    selector.cloned().unwrap_or_default()
}

type Outcome = Result<Support, LookupError>;

fn runs_on(architectures: &[&str]) -> Outcome {
    let names: Vec<String> = architectures
        .iter()
        .map(|arch| format!("linux/{arch}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Ok(Support::Index(platforms(&names)))
}

fn image() -> impl Strategy<Value = Outcome> {
    let known =
        prop::sample::subsequence(ARCHITECTURES.to_vec(), 0..=3).prop_map(|names| runs_on(&names));
    prop_oneof![6 => known, 1 => Just(Err(LookupError::Timeout))]
}

fn supports(image: &Outcome, arch: &str) -> bool {
    let nodes = image.ok().and_then(Support::runs_on);
    nodes.is_some_and(|nodes| nodes.contains(format!("linux/{arch}").parse().unwrap()))
}

/// The architectures on which a Pod with these images may run; `None` if nothing is required.
fn allowed(form: &str, images: &[Outcome], unknown: &[&'static str]) -> Option<Vec<&'static str>> {
    let is_known = images.iter().all(Result::is_ok);
    if form == "off" {
        return is_known.then(|| ARCHITECTURES.to_vec());
    }
    let may_run = |arch: &&str| {
        let mut images = images.iter();
        images.all(|image| image.is_err() || supports(image, arch))
    };
    let mut shared: Vec<&str> = ARCHITECTURES.into_iter().filter(may_run).collect();
    shared.retain(|arch| is_known || unknown.contains(arch));
    (!shared.is_empty()).then_some(shared)
}

/// The zone that a Pod's label requires, unless the Pod's own constraints name a zone.
fn zone(pod: &Value) -> Option<&str> {
    let zone = pod.pointer("/metadata/labels/zone")?.as_str()?;
    let required =
        &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let is_named =
        required.to_string().contains("zone") || !pod["spec"]["nodeSelector"]["zone"].is_null();
    (zone == "a" && !is_named).then_some(zone)
}

/// Whether the user's preferences name an architecture.
fn prefers_architecture(pod: &Value) -> bool {
    let list =
        &pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    list.to_string().contains("kubernetes.io/arch")
}

/// Tolerations as users write them: those of the pools in other forms, and others.
fn tolerations() -> impl Strategy<Value = Vec<Value>> {
    let one = prop::sample::select(vec![
        json!({"key": "kubernetes.io/arch", "operator": "Equal", "value": "arm64", "effect": "NoSchedule"}),
        json!({"effect": "NoSchedule", "value": "arm64", "key": "kubernetes.io/arch"}),
        json!({"key": "arm", "operator": "Exists", "value": "", "effect": "NoExecute", "tolerationSeconds": 60}),
        json!({"key": "tolerarch.io/multi-arch", "operator": "Exists", "effect": "NoSchedule", "value": null}),
        json!({"key": "tolerarch.io/multi-arch", "operator": "Exists", "effect": "NoExecute"}),
        json!({"key": "gpu", "operator": "Exists"}),
    ]);
    prop::collection::vec(one, 0..5)
}

/// A second pass changes nothing. A later pass with other images has the same result as a first pass with them.
fn settles(
    policy: &Policy,
    pod: &Value,
    once: &Value,
    first: &[Outcome],
    then: &[Outcome],
) -> Result<(), TestCaseError> {
    let (again, operations) = pass(policy, once, first).unwrap();
    prop_assert_eq!(
        operations,
        0,
        "a second pass changed {} into {}",
        once,
        again
    );
    let (later, _) = pass(policy, once, then).unwrap();
    let (direct, _) = pass(policy, pod, then).unwrap();
    prop_assert_eq!(normal(&later), normal(&direct), "by way of {}", once);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn only_managed_tolerations_are_removed(
        users in tolerations(),
        first in image(),
        then in image(),
    ) {
        let policy = patches::policy();
        let pod = json!({"spec": {"containers": [{"image": "x"}], "tolerations": users}});
        let all = |pod: &Value| pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
        let (once, _) = pass(&policy, &pod, &[first]).unwrap();
        prop_assert_eq!(&all(&once)[..users.len()], &users[..], "unchanged, and in their order");
        let (later, _) = pass(&policy, &once, &[then]).unwrap();
        prop_assert_eq!(&all(&later)[..users.len()], &users[..], "by way of {}", once);
        let (direct, _) = pass(&policy, &pod, &[then]).unwrap();
        prop_assert_eq!(all(&later).len(), all(&direct).len(), "by way of {}", once);
        let (free, _) = pass(&policy, &once, &[runs_on(&[])]).unwrap();
        prop_assert_eq!(all(&free), users, "by way of {}", once);
    }

    #[test]
    fn selector_is_added_and_removed_with_the_tolerations(
        pod in pod_with_class(),
        first in prop::collection::vec(image(), 1..3),
        then in prop::collection::vec(image(), 1..3),
        form in prop::sample::select(vec!["affinity", "nodeSelector", "off"]),
    ) {
        let policy = selecting_policy(form);
        let (once, _) = pass(&policy, &pod, &first).unwrap();
        let users = selector(&pod);
        let mut added = selector(&once);
        for (key, value) in &users {
            prop_assert_eq!(added.remove(key), Some(value.clone()), "{} became {}", pod, once);
        }
        added.remove("kubernetes.io/arch");
        let pools = once.pointer("/metadata/annotations/tolerarch.io~1pools");
        let pools = pools.and_then(Value::as_str).unwrap_or_default();
        let mut expected = serde_json::Map::new();
        for pool in &policy.pools {
            let is_open = pools.split(',').any(|name| name == pool.name);
            let tolerations = once["spec"]["tolerations"].to_string();
            prop_assert_eq!(is_open, tolerations.contains(&format!("{:?}", pool.name)), "{}", once);
            if is_open {
                expected.extend(pool.select.clone().into_iter().map(|(key, value)| (key, value.into())));
                let affinity = pod["spec"]["affinity"].to_string();
                let is_named = |key: &String| users.contains_key(key) || affinity.contains(&format!("{key:?}"));
                prop_assert!(!pool.select.keys().any(is_named), "{} became {}", pod, once);
            }
        }
        prop_assert_eq!(added, expected, "{} became {}", pod, once);

        settles(&policy, &pod, &once, &first, &then)?;
        // Images that open no pool and leave no nodes.
        let nothing = if form == "off" { Err(LookupError::Timeout) } else { runs_on(&[]) };
        let (free, _) = pass(&policy, &once, &[nothing]).unwrap();
        prop_assert_eq!(normal(&free), normal(&pod), "by way of {}", once);
    }

    #[test]
    fn user_constraints_stay_and_managed_ones_are_removed(
        pod in pod(),
        first in prop::collection::vec(image(), 1..3),
        then in prop::collection::vec(image(), 1..3),
        form in prop::sample::select(vec!["affinity", "nodeSelector", "off"]),
        unknown in prop::sample::select(vec![&[][..], &["amd64"], &["amd64", "arm64"]]),
        is_full in any::<bool>(),
    ) {
        let unknown = if form == "off" { &[] } else { unknown };
        let policy = policy(form, unknown, is_full);
        let nodes = nodes();
        prop_assert!(is_valid(&pod), "{}", pod);
        let (once, _) = pass(&policy, &pod, &first).unwrap();
        prop_assert!(is_valid(&once), "{}", once);
        let mut expected = fitting(&pod, &nodes);
        let can_match = !expected.is_empty();
        let allowed = allowed(form, &first, unknown).filter(|_| !names_architecture(&pod));
        if let Some(allowed) = &allowed {
            expected.retain(|&node| allowed.contains(&nodes[node].arch()));
            let zone = zone(&pod).filter(|_| is_full);
            expected.retain(|&node| zone.is_none() || nodes[node].label("zone") == zone);
        }
        prop_assert_eq!(fitting(&once, &nodes), expected, "{} became {}", pod, once);

        let may_prefer = is_full && first.iter().all(Result::is_ok) && !prefers_architecture(&pod);
        let is_preferred = |arch: &str| {
            may_prefer && allowed.is_some() && first.iter().all(|image| supports(image, arch))
        };
        let preferred = ["amd64=7", "arm64=80"].into_iter().filter(|name| is_preferred(&name[..5]));
        let recorded = once.pointer("/metadata/annotations/tolerarch.io~1preferred");
        if can_match {
            let preferred = preferred.collect::<Vec<_>>().join(",");
            prop_assert_eq!(recorded.and_then(Value::as_str).unwrap_or_default(), preferred);
        }

        settles(&policy, &pod, &once, &first, &then)?;
        // Images that open no pool and leave no nodes.
        let nothing = if form == "off" { Err(LookupError::Timeout) } else { runs_on(&[]) };
        let (free, _) = pass(&policy, &once, &[nothing]).unwrap();
        prop_assert_eq!(normal(&free), normal(&pod), "by way of {}", once);
    }
}
