//! What holds for any Pod that is steered: all of the user's constraints stay, and all of ours can be taken back.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::model::{fitting, is_valid, names_architecture, normal, world};
use crate::config::Config;
use crate::fuzzing::patches::pass;
use crate::image::{LookupError, Support};
use crate::policy::Policy;
use crate::testing::platforms;

const ARCHITECTURES: [&str; 3] = ["amd64", "arm64", "s390x"];

fn policy(require: &str, unknown: &[&str]) -> Policy {
    let platforms = ARCHITECTURES.map(|arch| format!("linux/{arch}"));
    let unknown: Vec<String> = unknown.iter().map(|arch| format!("linux/{arch}")).collect();
    let placement = json!({"require": require, "platforms": platforms, "whenUnknown": unknown});
    Config::parse(&json!({"placement": placement}).to_string()).unwrap().policy
}

/// Absent, null, or there.
fn sometimes(value: impl Strategy<Value = Value> + 'static) -> impl Strategy<Value = Option<Value>> {
    prop_oneof![2 => Just(None), 1 => Just(Some(Value::Null)), 6 => value.prop_map(Some)]
}

fn object(members: Vec<(&str, Option<Value>)>) -> Value {
    members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn expression() -> impl Strategy<Value = Value> {
    let of = |expressions: Vec<Value>| prop::sample::select(expressions);
    let arch = |operator: &str, values: &[&str]| json!({"key": "kubernetes.io/arch", "operator": operator, "values": values});
    prop_oneof![
        12 => of(vec![
            json!({"key": "zone", "operator": "In", "values": ["a"]}),
            json!({"key": "zone", "operator": "NotIn", "values": ["b", "c"]}),
            json!({"key": "zone", "operator": "Exists"}),
            json!({"key": "zone", "operator": "DoesNotExist", "values": []}),
            json!({"key": "size", "operator": "Gt", "values": ["2"]}),
            json!({"key": "size", "operator": "Lt", "values": ["2"]}),
        ]),
        1 => of(vec![
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
        object(vec![("matchExpressions", expressions), ("matchFields", fields)])
    });
    let terms = prop::collection::vec(term, 1..4).prop_map(Value::from);
    let required = terms.prop_map(|terms| json!({"nodeSelectorTerms": terms}));
    let preferred =
        json!([{"weight": 3, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}]);
    let nodes = (sometimes(required), prop::option::of(Just(preferred))).prop_map(|(required, preferred)| {
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
    (sometimes(affinity()), sometimes(selector)).prop_map(|(affinity, selector)| {
        let containers = Some(json!([{"image": "x"}]));
        let spec =
            object(vec![("containers", containers), ("affinity", affinity), ("nodeSelector", selector)]);
        json!({"metadata": {"name": "web"}, "spec": spec})
    })
}

type Known = Result<Support, LookupError>;

fn runs_on(architectures: &[&str]) -> Known {
    let names: Vec<String> = architectures.iter().map(|arch| format!("linux/{arch}")).collect();
    Ok(Support::Index(platforms(&names.iter().map(String::as_str).collect::<Vec<_>>())))
}

fn image() -> impl Strategy<Value = Known> {
    let known = prop::sample::subsequence(ARCHITECTURES.to_vec(), 0..=3).prop_map(|names| runs_on(&names));
    prop_oneof![6 => known, 1 => Just(Err(LookupError::Timeout))]
}

/// On which architectures a Pod with these images may run; all where nothing is to be said.
fn allowed(images: &[Known], unknown: &[&'static str]) -> Vec<&'static str> {
    let supports = |image: &Known, arch: &str| {
        image.is_ok_and(|support| support.mounts_on().contains_all(format!("linux/{arch}").parse().unwrap()))
    };
    let known = |arch: &&str| images.iter().all(|image| image.is_err() || supports(image, arch));
    let mut shared: Vec<&str> = ARCHITECTURES.into_iter().filter(known).collect();
    if images.iter().any(Result::is_err) {
        shared.retain(|arch| unknown.contains(arch));
    }
    if shared.is_empty() { ARCHITECTURES.to_vec() } else { shared }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn keeps_every_constraint_and_takes_back_its_own(
        pod in pod(),
        first in prop::collection::vec(image(), 1..3),
        then in prop::collection::vec(image(), 1..3),
        form in prop::sample::select(vec!["affinity", "nodeSelector"]),
        unknown in prop::sample::select(vec![&[][..], &["amd64"], &["amd64", "arm64"]]),
    ) {
        let (policy, world) = (policy(form, unknown), world());
        prop_assert!(is_valid(&pod), "{}", pod);
        let (once, _) = pass(&policy, &pod, &first).unwrap();
        prop_assert!(is_valid(&once), "{}", once);
        let before = fitting(&pod, &world);
        let mut expected = before.clone();
        if !names_architecture(&pod) {
            let allowed = allowed(&first, unknown);
            expected.retain(|&node| allowed.contains(&world[node].arch()));
        }
        prop_assert_eq!(fitting(&once, &world), expected, "{} became {}", pod, once);

        let (again, operations) = pass(&policy, &once, &first).unwrap();
        prop_assert_eq!(operations, 0, "a second pass changed {} into {}", once, again);

        let (later, _) = pass(&policy, &once, &then).unwrap();
        let (direct, _) = pass(&policy, &pod, &then).unwrap();
        prop_assert_eq!(normal(&later), normal(&direct), "by way of {}", once);

        // An image that runs everywhere opens the pool, which is the concern of other tests.
        let (free, _) = pass(&policy, &once, &[runs_on(&[])]).unwrap();
        prop_assert_eq!(normal(&free), normal(&pod), "by way of {}", once);
    }
}
