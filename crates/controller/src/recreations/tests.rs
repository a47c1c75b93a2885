use serde_json::{Value, json};

use super::*;

/// Returns a Pod of the owner `one`. `deleted` is the time of its deletion, and `age` its age then, in seconds.
fn pod(uid: usize, deleted: i64, age: i64) -> Value {
    let at = |seconds: i64| {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_800_000_000);
        let time = time + std::time::Duration::from_secs(seconds.unsigned_abs());
        humantime::format_rfc3339_seconds(time).to_string()
    };
    json!({
        "metadata": {
            "name": "one-0", "namespace": "team", "uid": uid.to_string(),
            "annotations": {"tolerarch.io/pools": "multi-arch"},
            // The deletion timestamp is the end of the grace period.
            "creationTimestamp": at(deleted - age), "deletionTimestamp": at(deleted + 30),
            "deletionGracePeriodSeconds": 30,
            "ownerReferences": [{
                "apiVersion": "brokers.test/v1", "kind": "Broker", "name": "one", "uid": "u", "controller": true,
            }],
        },
        "spec": {"containers": [{"name": "app", "image": "app"}]},
        "status": {"phase": "Pending"},
    })
}

fn take(recreations: &mut Recreations, pod: &Value) -> Option<String> {
    recreations
        .take(&StoredPod::of_value(pod).unwrap())
        .map(|owner| format!("{} {}", owner.kind, owner.name))
}

/// Returns the number of Pods after which the owner is detected. `change` changes each Pod.
fn detected_after(pods: usize, change: impl Fn(usize, &mut Value)) -> Option<usize> {
    let mut recreations = Recreations::default();
    (1..=pods).find(|of| {
        let mut pod = pod(*of, 100 + 2 * i64::try_from(*of).unwrap(), 1);
        change(*of, &mut pod);
        take(&mut recreations, &pod).is_some_and(|owner| owner == "Broker one")
    })
}

#[test]
fn fifth_deletion_in_a_row_detects_the_owner() {
    assert_eq!(detected_after(10, |_, _| {}), Some(5));
    // Any annotation of tolerarch counts.
    let required = json!({"tolerarch.io/required": "amd64"});
    assert_eq!(
        detected_after(10, |_, pod| pod["metadata"]["annotations"] =
            required.clone()),
        Some(5)
    );
    let mut recreations = Recreations::default();
    let mut detections = 0;
    for number in 1..=10 {
        if take(&mut recreations, &pod(1, 100 + 2 * number, 1)).is_some() {
            detections += 1;
        }
    }
    assert_eq!(detections, 2, "the owner is detected again if it continues");
}

#[test]
fn other_deletions_are_no_evidence() {
    let none = |why: &str, change: &dyn Fn(usize, &mut Value)| {
        assert_eq!(detected_after(1000, change), None, "{why}");
    };
    for kind in ["apps/v1", "batch/v1", "v1", "apps/v1/x", ""] {
        none("a kind of Kubernetes", &|_, pod| {
            pod["metadata"]["ownerReferences"][0]["apiVersion"] = kind.into();
        });
    }
    none("no owner", &|_, pod| {
        pod["metadata"]["ownerReferences"] = json!([]);
    });
    none("another owner controls it", &|_, pod| {
        pod["metadata"]["ownerReferences"][0]["controller"] = false.into();
    });
    none("tolerarch has not changed it", &|_, pod| {
        pod["metadata"]["annotations"] = json!({"own": "x"});
    });
    none("it is not deleted", &|_, pod| {
        pod["metadata"]["deletionTimestamp"] = Value::Null;
    });
    none("it has run", &|_, pod| {
        pod["status"]["phase"] = "Running".into();
    });
    none("it was evicted or preempted", &|_, pod| {
        pod["status"]["conditions"] = json!([{"type": "DisruptionTarget", "status": "True"}]);
    });
    none("it was pending for long", &|number, changed| {
        *changed = pod(number, 1000 * i64::try_from(number).unwrap(), YOUNG + 1);
    });
    none("the deletions are far apart", &|number, changed| {
        *changed = pod(number, 200 * i64::try_from(number).unwrap(), 1);
    });
    // The owner is deleted, or scaled down.
    none("all at once", &|number, changed| {
        *changed = pod(number, 100 + i64::try_from(number % 50).unwrap(), 55);
    });
    none("one Pod changes often while it ends", &|_, changed| {
        *changed = pod(1, 100, 0);
    });
    none("names that no object has", &|_, pod| {
        pod["metadata"]["ownerReferences"][0]["kind"] = "\u{1b}".into();
    });
    none("too long an apiVersion", &|_, pod| {
        pod["metadata"]["ownerReferences"][0]["apiVersion"] = "x.y/".repeat(100).into();
    });
}

/// Time after which a row is dropped.
const LATER: tokio::time::Duration = tokio::time::Duration::from_secs(601);

/// Returns a Pod of the owner of this name in a namespace.
fn of(namespace: &str, name: usize, deleted: i64) -> Value {
    let mut pod = pod(name, deleted, 1);
    pod["metadata"]["namespace"] = namespace.into();
    pod["metadata"]["ownerReferences"][0]["name"] = name.to_string().into();
    pod
}

#[tokio::test(start_paused = true)]
async fn namespaces_share_the_followed_owners() {
    let mut recreations = Recreations::default();
    for name in 0..1000 {
        take(&mut recreations, &of("hostile", name, 100));
    }
    assert_eq!(recreations.0.len(), OF_NAMESPACE);
    for turn in 0..PODS {
        let detected = take(
            &mut recreations,
            &of("team", 7, 100 + 2 * i64::try_from(turn).unwrap()),
        );
        assert_eq!(detected.is_some(), turn == PODS - 1);
    }
    // A tenant with many namespaces leaves the others their share.
    take(&mut recreations, &of("early", 6, 100));
    for namespace in 0..66 {
        for name in 0..OF_NAMESPACE {
            take(
                &mut recreations,
                &of(&format!("hostile-{namespace}"), name, 100),
            );
        }
    }
    assert_eq!(recreations.0.len(), OWNERS);
    for turn in 0..PODS {
        let deleted = 102 + 2 * i64::try_from(turn).unwrap();
        assert_eq!(
            take(&mut recreations, &of("team", 8, deleted)).is_some(),
            turn == PODS - 1
        );
        assert_eq!(
            take(&mut recreations, &of("early", 6, deleted)).is_some(),
            turn == PODS - 2
        );
    }
    assert!(recreations.0.len() <= OWNERS);
    // Old rows are dropped, by a clock that Pods cannot affect.
    tokio::time::advance(LATER).await;
    take(&mut recreations, &of("team", 9, 100));
    assert_eq!(recreations.0.len(), 1);
}

/// `kubectl delete --grace-period` accepts a number of seconds that overflows the API server's own sum.
#[tokio::test(start_paused = true)]
async fn invented_times_do_not_affect_other_owners() {
    let extremes = [
        i64::MIN,
        i64::MIN + 1,
        -1,
        86_401,
        1_800_000_000,
        i64::MAX - 1,
        i64::MAX,
    ];
    let times = [
        "-009999-01-02T01:59:59Z",
        "1970-01-01T00:00:00Z",
        "9999-12-30T22:00:00Z",
    ];
    let mut forged = Vec::new();
    for grace in extremes {
        let mut pod = of("hostile", 1, 100);
        pod["metadata"]["deletionGracePeriodSeconds"] = grace.into();
        forged.push(pod.clone());
        for field in ["creationTimestamp", "deletionTimestamp"] {
            for time in times {
                let mut pod = pod.clone();
                pod["metadata"][field] = time.into();
                forged.push(pod);
            }
        }
    }
    for forged in forged {
        let mut recreations = Recreations::default();
        for turn in 0..PODS {
            let victim = of("team", 7, 100 + 2 * i64::try_from(turn).unwrap());
            assert_eq!(
                take(&mut recreations, &victim).is_some(),
                turn == PODS - 1,
                "{forged}"
            );
            take(&mut recreations, &forged);
        }
        // Rows with invented times are dropped as well.
        tokio::time::advance(LATER).await;
        take(&mut recreations, &of("team", 8, 100));
        assert_eq!(recreations.0.len(), 1, "{forged}");
    }
}
