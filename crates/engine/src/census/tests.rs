use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::decide::Examined;
use tolerarch_core::decision::Decision;
use tolerarch_core::image::{LookupError, Support};
use tolerarch_core::pod::{Pod, Purpose};
use tolerarch_core::policy::{ImageSupport, Policy};
use tolerarch_core::testing::{platforms, policy};

type Outcome = Result<Support, LookupError>;

const BOTH: &[&str] = &["linux/amd64", "linux/arm64"];

fn runs(names: &[&str]) -> Outcome {
    Ok(Support::Index(platforms(names)))
}

/// Examines a Pod whose images have these outcomes.
fn examine(policy: &Policy, pod: &Value, images: &[(&str, Outcome)]) -> Examined {
    let pod = Pod::of_value(pod).unwrap();
    let purpose = Purpose::Run;
    let images: Vec<ImageSupport<'_>> = images
        .iter()
        .map(|&(given, support)| ImageSupport {
            given,
            purpose,
            support,
            failure: None,
        })
        .collect();
    let decision = Decision::without_images(policy, &pod);
    let rank = policy.rank("shop", &pod);
    let decision = decision.unwrap_or_else(|| Decision::of(policy, &pod, rank, &images));
    Examined::of(policy, "shop", &pod, decision, &images)
}

/// A Pod on a node. The platform of the node is passed to [`Summary::of`].
fn indexed(name: &str, workload: Workload, requests: Amount) -> IndexedPod {
    IndexedPod {
        name: name.into(),
        between: None,
        workload: Arc::new(workload),
        shape: None,
        requests,
        node: Some("n".into()),
        created: None,
        is_called: true,
    }
}

/// Adds up Pods, each with the platform of its node, without prices.
fn added<'p>(
    pods: impl IntoIterator<Item = (&'p IndexedPod, Option<PlatformSet>, &'p Examined)>,
) -> Summary<'p> {
    let pods = pods.into_iter().map(|(pod, node, examined)| PlacedPod {
        pod,
        node,
        examined,
        selected: PlatformSet::ALL,
    });
    Summary::of(&Basis::default(), pods)
}

fn workload(name: &str) -> Workload {
    Workload {
        namespace: "ops".into(),
        kind: "DaemonSet".into(),
        name: name.into(),
    }
}

fn pod(spec: &Value) -> Value {
    let mut pod = json!({"metadata": {"name": "web-1"}, "spec": {"containers": [{"image": "a"}]}});
    json_patch::merge(&mut pod, spec);
    pod
}

#[test]
fn coverage_depends_only_on_the_images() {
    let policy = policy(&json!({}));
    let denied = Err(LookupError::Denied);
    let tolerating = pod(&json!({"spec": {"tolerations": [{"operator": "Exists"}]}}));
    let opened = pod(&json!({
        "metadata": {"annotations": {"tolerarch.io/pools": "multi-arch"}},
        "spec": {"tolerations": [{"key": "tolerarch.io/multi-arch", "operator": "Exists", "effect": "NoSchedule"}]},
    }));
    let plain = pod(&json!({}));
    let on_node = indexed("web-1", workload("web"), Amount::default());
    let agent = pod(
        &json!({"metadata": {"ownerReferences": [{"kind": "DaemonSet", "name": "x", "controller": true}]}}),
    );
    for (pod, images, coverage, reason, blockers, missed) in [
        (
            &plain,
            &[("a", runs(BOTH))][..],
            Coverage::All,
            Reason::Tolerated,
            0,
            true,
        ),
        (
            &plain,
            &[("a", runs(&["linux/amd64"]))],
            Coverage::Partial,
            Reason::PlatformMissing,
            1,
            false,
        ),
        (
            &plain,
            &[("a", denied), ("b", runs(BOTH))],
            Coverage::Unknown,
            Reason::Unknown(LookupError::Denied),
            1,
            false,
        ),
        (
            &plain,
            &[("a", denied), ("b", runs(&["linux/amd64"]))],
            Coverage::Partial,
            Reason::PlatformMissing,
            2,
            false,
        ),
        // The images count although the decision does not depend on them.
        (
            &tolerating,
            &[("a", runs(BOTH))],
            Coverage::All,
            Reason::AlreadyTolerated,
            0,
            false,
        ),
        (
            &tolerating,
            &[("a", runs(&["linux/amd64"]))],
            Coverage::Partial,
            Reason::PlatformMissing,
            1,
            false,
        ),
        (
            &opened,
            &[("a", runs(BOTH))],
            Coverage::All,
            Reason::AlreadyTolerated,
            0,
            false,
        ),
        (
            &agent,
            &[("a", runs(&["linux/amd64"]))],
            Coverage::Skipped,
            Reason::DaemonSet,
            0,
            false,
        ),
    ] {
        let examined = examine(&policy, pod, images);
        assert_eq!(
            Coverage::of(&examined),
            (coverage, reason),
            "{pod} {images:?}"
        );
        let summary = added([(&on_node, None, &examined)]);
        assert_eq!(summary.images.len(), blockers, "{pod} {images:?}");
        assert_eq!(!summary.missed.is_empty(), missed, "{pod} {images:?}");
    }
}

#[test]
fn observed_pool_is_missed_and_withheld_pool_is_not() {
    let plain = pod(&json!({}));
    let images = [("a", runs(BOTH))];
    let observed = examine(&policy(&json!({"mode": "observe"})), &plain, &images);
    let on_node = indexed("web-1", workload("web"), Amount::default());
    let missed = |examined| added([(&on_node, None, examined)]).missed.len();
    assert_eq!(
        (Coverage::of(&observed).0, missed(&observed)),
        (Coverage::All, 1)
    );
    let pool = json!({"name": "p", "platforms": BOTH, "tolerations": [{"key": "k", "operator": "Exists"}], "share": 0});
    let closed = examine(&policy(&json!({"pools": [pool]})), &plain, &images);
    assert_eq!(
        (Coverage::of(&closed), missed(&closed)),
        ((Coverage::All, Reason::NotInShare), 0)
    );
}

#[test]
fn pod_on_an_unsupported_node_is_misplaced() {
    let policy = policy(&json!({}));
    let agent = pod(
        &json!({"metadata": {"ownerReferences": [{"kind": "DaemonSet", "name": "x", "controller": true}]}}),
    );
    let on_node = indexed(
        "x-1",
        workload("x"),
        Amount {
            pods: 1,
            ..Amount::default()
        },
    );
    for (images, platform, expected) in [
        (
            &[("a", runs(&["linux/amd64"]))][..],
            Some("linux/arm64"),
            &["a"][..],
        ),
        (
            &[("a", runs(&["linux/amd64"])), ("b", runs(BOTH))],
            Some("linux/arm64"),
            &["a"],
        ),
        (&[("a", runs(&["linux/amd64"]))], Some("linux/amd64"), &[]),
        (&[("a", runs(&["linux/amd64"]))], None, &[]),
        (
            &[("a", Err(LookupError::Timeout))],
            Some("linux/arm64"),
            &[],
        ),
    ] {
        let examined = examine(&policy, &agent, images);
        let node = platform.map(|name| platforms(&[name]));
        let summary = added([(&on_node, node, &examined)]);
        let mut misplaced: Vec<&str> = Vec::new();
        for (_, _, images) in summary.misplaced {
            misplaced.extend(images);
        }
        assert_eq!(misplaced, expected);
    }
}

/// A generated Pod: its workload, its requests, the outcomes of its images, and the platform of its node.
#[derive(Clone, Debug)]
struct GeneratedPod {
    workload: u8,
    cpu_millis: u64,
    memory_bytes: u64,
    images: Vec<(&'static str, Outcome)>,
    is_skipped: bool,
    node: Option<&'static str>,
}

fn generated_pods() -> impl Strategy<Value = Vec<GeneratedPod>> {
    let outcome = prop::sample::select(vec![
        runs(BOTH),
        runs(&["linux/amd64"]),
        runs(&[]),
        Err(LookupError::Denied),
        Err(LookupError::Timeout),
    ]);
    let image = (prop::sample::select(vec!["a", "b", "c"]), outcome);
    let images = prop::collection::vec(image, 1..4);
    let node = prop::sample::select(vec![None, Some("linux/amd64"), Some("linux/arm64")]);
    let one = (
        0..4_u8,
        0..9_000_u64,
        0..1_u64 << 40,
        images,
        any::<bool>(),
        node,
    );
    let one = one.prop_map(
        |(workload, cpu_millis, memory_bytes, images, is_skipped, node)| GeneratedPod {
            workload,
            cpu_millis,
            memory_bytes,
            images,
            is_skipped,
            node,
        },
    );
    prop::collection::vec(one, 0..24)
}

fn examine_all(
    policy: &Policy,
    pods: &[GeneratedPod],
) -> Vec<(IndexedPod, Option<PlatformSet>, Examined)> {
    let examined = |(number, one): (usize, &GeneratedPod)| {
        let mode = if one.is_skipped { "off" } else { "enforce" };
        let pod = pod(&json!({"metadata": {"labels": {"tolerarch.io/mode": mode}}}));
        let examined = examine(policy, &pod, &one.images);
        let name: Arc<str> = format!("w{}", one.workload).into();
        let workload = Workload {
            namespace: format!("n{}", one.workload % 2).into(),
            kind: "Deployment".into(),
            name,
        };
        let requests = Amount {
            cpu_millis: one.cpu_millis,
            memory_bytes: one.memory_bytes,
            pods: 1,
        };
        let pod = indexed(&format!("pod-{number}"), workload, requests);
        (pod, one.node.map(|name| platforms(&[name])), examined)
    };
    pods.iter().enumerate().map(examined).collect()
}

/// Adds up Pods at prices at which amd64 is cheaper for memory, and arm64 for CPU.
fn summary(examined: &[(IndexedPod, Option<PlatformSet>, Examined)]) -> Summary<'_> {
    let mut basis = Basis::default();
    let price = |vcpu, gib| Price { vcpu, gib };
    let amd64 = price(40_000_000, 4_000_000);
    let arm64 = price(30_000_000, 5_000_000);
    basis.prices.add(platforms(&["linux/amd64"]), amd64);
    basis.prices.add(platforms(&["linux/arm64"]), arm64);
    let pods = examined.iter().map(|(pod, node, examined)| PlacedPod {
        pod,
        node: *node,
        examined,
        // Some have a node selector.
        selected: match pod.requests.cpu_millis % 4 {
            0 => platforms(&["linux/amd64"]),
            1 => platforms(&["linux/arm64"]),
            _ => PlatformSet::ALL,
        },
    });
    Summary::of(&basis, pods)
}

/// Checks that costs add up over workloads and namespaces, and savings over the reasons and the movable Pods.
fn is_conserved(summary: &Summary<'_>) -> Result<(), TestCaseError> {
    let mut of_workloads = Costs::default();
    let mut of_namespaces = Costs::default();
    for (_, total) in &summary.workloads {
        of_workloads.add(total.costs);
    }
    for (_, total) in &summary.namespaces {
        of_namespaces.add(total.costs);
    }
    prop_assert_eq!(of_workloads, summary.costs);
    prop_assert_eq!(of_namespaces, summary.costs);
    prop_assert!(summary.costs.after <= summary.costs.today);

    let progress = &summary.progress;
    let mut gain = progress.movable.money;
    for untolerated in progress.untolerated.values() {
        gain.add(untolerated.money);
    }
    prop_assert_eq!(gain, summary.costs.saved());
    let mut by_node = progress.elsewhere;
    for amount in progress.architectures.values() {
        by_node.add(*amount);
    }
    prop_assert_eq!(by_node, progress.eligible);
    Ok(())
}

proptest! {
    #[test]
    fn sums_are_conserved_and_the_order_does_not_matter(
        pods in generated_pods(),
        seed in any::<u64>(),
    ) {
        let policy = policy(&json!({}));
        let examined_pods = examine_all(&policy, &pods);
        let summary = summary(&examined_pods);
        let all = Amount {
            cpu_millis: pods.iter().map(|pod| pod.cpu_millis).sum(),
            memory_bytes: pods.iter().map(|pod| pod.memory_bytes).sum(),
            pods: pods.len() as u64,
        };
        prop_assert_eq!(summary.all(), all);
        is_conserved(&summary)?;
        prop_assert_eq!(summary.workloads.iter().map(|(_, one)| &one.amount).sum::<Amount>(), all);
        prop_assert_eq!(summary.namespaces.iter().flat_map(|(_, one)| one.amounts.values()).sum::<Amount>(), all);
        let workloads: u64 = summary.totals.iter().map(|(_, _, workloads)| workloads).sum();
        prop_assert_eq!(workloads, summary.workloads.len() as u64);
        prop_assert_eq!(summary.totals.iter().map(|(coverage, ..)| *coverage).collect::<Vec<_>>(), Coverage::ALL);
        let of = |coverage| summary.totals.iter().find(|(of, ..)| *of == coverage).unwrap().1;
        prop_assert_eq!(summary.unknown.iter().map(|(_, one)| &one.amount).sum::<Amount>(), of(Coverage::Unknown));
        prop_assert_eq!(summary.skipped.iter().map(|(_, one)| &one.amount).sum::<Amount>(), of(Coverage::Skipped));
        let kept: Amount = [of(Coverage::Partial), of(Coverage::Unknown)].iter().sum();
        // A Pod that only one image keeps ineligible counts only for that image.
        let alone: Amount = summary.images.iter().map(|(_, one)| &one.alone).sum();
        prop_assert!(alone.cpu_millis <= kept.cpu_millis && alone.pods <= kept.pods);
        for (_, image) in &summary.images {
            prop_assert!(image.alone.cpu_millis <= image.keeps.cpu_millis);
            prop_assert!(image.keeps.cpu_millis <= kept.cpu_millis && image.keeps.pods <= kept.pods);
        }
        prop_assert!(summary.images.is_sorted_by_key(|(_, one)| std::cmp::Reverse(one.keeps.cpu_millis)));

        let mut others = examine_all(&policy, &pods);
        fastrand::Rng::with_seed(seed).shuffle(&mut others);
        prop_assert_eq!(self::summary(&others), summary);
    }
}
