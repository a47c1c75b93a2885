mod laws;
mod model;
mod preferring;
mod selecting;
mod steering;

use std::collections::BTreeMap;

use serde_json::json;

use super::edits::OBJECT;
use super::*;
use crate::image::PlatformSet;
use crate::pod::{POOLS_KEY, REASON_KEY};
use crate::testing::toleration;

fn annotated(value: &str) -> BTreeMap<&'static str, String> {
    BTreeMap::from([(POOLS_KEY, value.into())])
}

#[test]
fn additions_fit_only_within_the_limit_of_the_object() {
    let pools = toleration(&json!({"key": "a", "operator": "Exists"}));
    let adds = || Edits {
        add: vec![&pools],
        annotations: annotated("multi-arch"),
        ..Edits::default()
    };
    let largest = json!({"x": "v".repeat(OBJECT)});
    let around = Pod::of_value(&largest).unwrap().bytes - OBJECT;
    let of_bytes = |bytes: usize| json!({"x": "v".repeat(bytes - around)});
    assert!(adds().fit(&Pod::of_value(&of_bytes(OBJECT - 1024)).unwrap()));
    // A request to etcd has room for the rest of the request and for additions: see `pod/stored/tests.rs`.
    const { assert!(OBJECT + 2048 <= 3 << 19) };
    // Also far beyond the limit of etcd: whether the API server refuses the Pod anyway is unknown here.
    for bytes in [OBJECT - 100, OBJECT, 2 << 20, 3 << 20] {
        let pod = of_bytes(bytes);
        let pod = Pod::of_value(&pod).unwrap();
        assert!(!adds().fit(&pod), "{bytes}");
        assert!(
            !Edits {
                annotations: annotated("arm"),
                ..Edits::default()
            }
            .fit(&pod),
            "{bytes}"
        );
        // Removals make room.
        for left in ["", "arm"] {
            let less = Edits {
                remove: vec![0],
                annotations: annotated(left),
                ..Edits::default()
            };
            assert!(less.fit(&pod), "{bytes}");
            // An explanation may be longer than the removed parts.
            let explained = (REASON_KEY, "x".repeat(200));
            let annotations = annotated(left).into_iter().chain([explained]).collect();
            assert!(
                !Edits {
                    annotations,
                    ..less
                }
                .fit(&pod),
                "{bytes}"
            );
        }
        assert!(
            Edits {
                annotations: annotated(""),
                ..Edits::default()
            }
            .fit(&pod),
            "{bytes}"
        );
        assert!(Edits::default().fit(&pod), "{bytes}");
    }
}

#[test]
fn annotations_stay_within_their_own_limit() {
    let room = ANNOTATION_BYTES - POOLS_KEY.len() - "multi-arch".len();
    for (size, fits) in [(room, true), (room + 1, false)] {
        let pod = json!({"metadata": {"annotations": {"k": "v".repeat(size - 1)}}});
        let edits = Edits {
            annotations: annotated("multi-arch"),
            ..Edits::default()
        };
        assert_eq!(edits.fit(&Pod::of_value(&pod).unwrap()), fits);
    }
}

#[test]
fn managed_tolerations_follow_from_the_annotation() {
    let tolerates = |key: &str| json!({"key": key, "operator": "Exists"});
    let pools = ["multi-arch", "gpu", "other"].map(|name| Pool {
        name: name.into(),
        platforms: PlatformSet::ALL,
        tolerations: vec![toleration(&tolerates(name))],
        ..Pool::default()
    });
    let tolerations = ["gpu", "other", "multi-arch"].map(tolerates);
    let pod = json!({
        "metadata": {"annotations": {"tolerarch.io/pools": " multi-arch, gpu,,"}},
        "spec": {"tolerations": tolerations},
    });
    let pod = Pod::of_value(&pod).unwrap();
    assert!(Ownership::is_claimed(&pod));
    let ownership = Ownership::of(&pod, &pools);
    assert_eq!(ownership.tolerations, [0, 2]);
    assert_eq!(
        ownership.record(&pools, &[&pools[1], &pools[0]]),
        None,
        "the annotation names both already"
    );
    let fewer = ownership.record(&pools, &[&pools[1]]).unwrap();
    assert_eq!(fewer, ("tolerarch.io/pools", "gpu".to_owned()));
    // A pool of another configuration stays named, and its tolerations stay unchanged.
    let configured = &pools[1..2];
    let ownership = Ownership::of(&pod, configured);
    assert_eq!(ownership.tolerations, [0]);
    assert_eq!(ownership.record(configured, &[]).unwrap().1, "multi-arch");
}
