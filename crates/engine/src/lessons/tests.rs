use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn digest(of: usize) -> Digest {
    Digest::of_content(of.to_string().as_bytes())
}

fn image(of: usize, namespace: &str, architecture: &str, nodes: &[&str]) -> Lesson {
    Lesson::Image(FailedImage {
        digest: digest(of),
        architecture: architecture.to_owned(),
        evidence: Evidence::ExecFormatError,
        namespace: namespace.to_owned(),
        nodes: nodes.iter().map(|name| node_id(name)).collect(),
    })
}

fn failed(of: usize, namespace: &str) -> Lesson {
    image(of, namespace, "arm64", &[])
}

/// A failure on this node that only the image explains.
fn on_node(of: usize, namespace: &str, node: &str) -> Lesson {
    image(of, namespace, "arm64", &[node])
}

fn for_all(of: usize, namespace: &str) -> Lesson {
    image(of, namespace, "arm64", &["node-1", "node-2"])
}

fn owner(name: &str, namespace: &str) -> Lesson {
    let [kind, name, namespace] = ["Broker", name, namespace].map(str::to_owned);
    Lesson::Owner(RecreatingOwner {
        kind,
        name,
        namespace,
    })
}

/// Whether the image counts as failed for Pods of this namespace.
fn is_closed(record: &Lessons, of: usize, namespace: &str, now: Timestamp) -> bool {
    record.failure(&digest(of), namespace, now).is_some()
}

#[test]
fn failure_counts_for_a_day_and_longer_after_each_retry() {
    let mut record = Lessons::default();
    let mut at = now();
    for hours in [24, 48, 96, 168, 168] {
        assert!(record.record(failed(0, "team"), at));
        let failure = record.failure(&digest(0), "team", at).unwrap();
        assert_eq!(
            (failure.platforms.to_string().as_str(), failure.since),
            ("linux/arm64", at.into())
        );
        let end = at + hours * HOUR;
        // A failure before the end is no retry.
        assert!(!record.record(failed(0, "team"), end - HOUR));
        assert!(is_closed(&record, 0, "team", end - HOUR / 60));
        assert!(!is_closed(&record, 0, "team", end), "{hours}");
        assert_eq!(
            (record.count(end - HOUR), record.count(end)),
            ([1, 0], [0, 0])
        );
        at = end;
    }
    // After a long time without a failure, the time is that of a first failure.
    at += 2 * LONGEST + HOUR;
    assert!(record.record(failed(0, "team"), at));
    assert!(!is_closed(&record, 0, "team", at + FIRST));
}

#[test]
fn weak_evidence_counts_only_for_its_namespace() {
    let mut record = Lessons::default();
    record.record(failed(0, "team"), now());
    assert!(is_closed(&record, 0, "team", now()));
    assert!(!is_closed(&record, 0, "other", now()));
    assert!(!is_closed(&record, 1, "team", now()), "another digest");
    // Better evidence counts for all namespaces at once. Weaker evidence neither revokes that nor extends it.
    assert!(record.record(for_all(0, "team"), now() + HOUR));
    assert!(!record.record(failed(0, "team"), now() + HOUR));
    assert!(is_closed(&record, 0, "other", now() + HOUR));
    assert!(record.record(failed(0, "team"), now() + FIRST));
    assert!(is_closed(&record, 0, "team", now() + FIRST));
    assert!(!is_closed(&record, 0, "other", now() + FIRST));
    // Failures on several architectures are combined into one.
    record.record(
        image(0, "third", "s390x", &["node-1", "node-2"]),
        now() + 30 * HOUR,
    );
    let failure = record
        .failure(&digest(0), "team", now() + 31 * HOUR)
        .unwrap();
    assert_eq!(failure.platforms.to_string(), "linux/arm64, linux/s390x");
    assert_eq!(failure.since, std::time::SystemTime::from(now() + FIRST));
}

/// A node with a broken program fails many images.
#[test]
fn failures_on_one_node_never_count_for_other_namespaces() {
    let mut record = Lessons::default();
    for of in 0..40 {
        for (at, namespace) in ["team", "second", "third"].into_iter().enumerate() {
            let at = now() + Duration::from_secs(at as u64);
            assert!(record.record(on_node(of, namespace, "broken"), at));
            assert!(
                !record.record(on_node(of, namespace, "broken"), at),
                "the record has not changed"
            );
        }
        assert!(is_closed(&record, of, "team", now()) && !is_closed(&record, of, "other", now()));
    }
    // The same holds after a retry, and after an expired failure on another node.
    for at in [FIRST, 3 * FIRST] {
        assert!(record.record(on_node(0, "team", "broken"), now() + at));
        assert!(!is_closed(&record, 0, "other", now() + at));
    }
    let later = now() + FIRST + HOUR;
    record.record(on_node(1, "fourth", "sound"), later);
    assert!(is_closed(&record, 1, "fourth", later) && !is_closed(&record, 1, "other", later));
    // A failure on another architecture or of another image does not count either.
    record.record(image(2, "team", "s390x", &["sound"]), now());
    record.record(on_node(100, "team", "sound"), now());
    assert!(!is_closed(&record, 2, "other", now()) && !is_closed(&record, 100, "other", now()));
    // Nor do failures that the Pod itself may explain.
    record.record(failed(101, "team"), now());
    record.record(failed(101, "second"), now());
    record.record(on_node(101, "third", "sound"), now());
    assert!(!is_closed(&record, 101, "other", now()));
}

#[test]
fn failures_on_two_nodes_count_for_all_namespaces() {
    let mut record = Lessons::default();
    for second in ["team", "second"] {
        let of = second.len();
        record.record(on_node(of, "team", "node-1"), now());
        // A new leader reads the first node from the record.
        record = Lessons::of_text(&record.to_text(), now());
        assert!(!is_closed(&record, of, "other", now() + HOUR));
        assert!(record.record(on_node(of, second, "node-2"), now() + HOUR));
        assert!(is_closed(&record, of, "other", now() + HOUR), "{second}");
        assert!(
            !record.record(on_node(of, second, "node-3"), now() + HOUR),
            "two are enough"
        );
        assert_eq!(Lessons::of_text(&record.to_text(), now() + HOUR), record);
        // After the end, two nodes are needed again.
        let end = now() + FIRST + HOUR;
        assert!(record.record(on_node(of, second, "node-1"), end));
        assert!(is_closed(&record, of, second, end) && !is_closed(&record, of, "other", end));
        assert!(record.record(on_node(of, second, "node-2"), end + HOUR));
        assert!(is_closed(&record, of, "other", end + HOUR));
    }
}

/// Earlier releases set `allNamespaces` for a single node, and do not read `nodes`.
#[test]
fn entries_of_earlier_releases_count_only_for_their_namespace() {
    let mut record = Lessons::default();
    record.record(on_node(0, "team", "node-1"), now());
    record.record(for_all(1, "team"), now());
    record.record(owner("one", "team"), now());
    let mut entries: Value = serde_json::from_str(&record.to_text()).unwrap();
    let entries = entries.as_array_mut().unwrap();
    let count = |expected: Value| {
        let entries = entries.iter();
        let matching = entries.filter(|entry| entry["allNamespaces"] == expected);
        matching.count()
    };
    assert_eq!((count(json!(true)), count(json!(false))), (1, 1));
    for entry in entries.iter_mut() {
        if entry["digest"].is_string() {
            entry.as_object_mut().unwrap().remove("nodes");
            entry["allNamespaces"] = true.into();
        }
    }
    let older = Lessons::of_text(&json!(entries).to_string(), now());
    assert_eq!(older.count(now()), [2, 1]);
    for of in [0, 1] {
        assert!(is_closed(&older, of, "team", now()) && !is_closed(&older, of, "other", now()));
    }
}

#[test]
fn recreating_owner_is_matched_by_kind_name_and_namespace() {
    let mut record = Lessons::default();
    assert!(
        record.record(owner("one", "team"), now())
            && !record.record(owner("one", "team"), now() + HOUR)
    );
    record.record(for_all(0, "team"), now());
    let counts = |record: &Lessons, kind: &str, name: &str, namespace: &str, at| {
        record.recreates(namespace, kind, name, at)
    };
    let read = Lessons::of_text(&record.to_text(), now() + HOUR);
    assert_eq!(read, record);
    assert!(counts(&read, "Broker", "one", "team", now() + HOUR));
    assert!(
        !counts(&read, "Broker", "one", "team", now() + FIRST),
        "the entry has expired, so Pods are changed again"
    );
    assert_eq!(
        (read.count(now()), read.count(now() + FIRST)),
        ([1, 1], [0, 0])
    );
    for (kind, name, namespace) in [
        ("Broker", "two", "team"),
        ("Other", "one", "team"),
        ("Broker", "one", "x"),
    ] {
        assert!(
            !counts(&read, kind, name, namespace, now()),
            "{kind} {name} {namespace}"
        );
    }
    assert!(record.record(owner("one", "team"), now() + FIRST));
    assert!(
        counts(&record, "Broker", "one", "team", now() + 3 * FIRST - HOUR),
        "longer the second time"
    );
    // Names that no API server has, or that would make the record too large.
    let forged = |key: &str, value: &str| {
        let mut entries: Value = serde_json::from_str(&read.to_text()).unwrap();
        let entries = entries.as_array_mut().unwrap();
        entries
            .iter_mut()
            .find(|entry| entry["owner"].is_string())
            .unwrap()[key] = value.into();
        Lessons::of_text(&json!(entries).to_string(), now()).count(now())
    };
    let long = "x".repeat(300);
    assert_eq!(forged("name", "other"), [1, 1]);
    for (key, invalid) in [
        ("owner", ""),
        ("owner", "a b"),
        ("name", ""),
        ("name", &long),
        ("name", "\u{1b}"),
        ("namespace", ""),
    ] {
        assert_eq!(forged(key, invalid), [1, 0], "{key}: {invalid}");
    }
}

#[test]
fn namespace_cannot_evict_entries_of_others() {
    let mut record = Lessons::default();
    for of in 0..10 {
        record.record(for_all(of, "victim"), now());
    }
    for of in 0..1000_usize {
        record.record(
            for_all(100 + of, "flooding"),
            now() + Duration::from_secs(1 + of as u64),
        );
    }
    assert_eq!(record.0.len(), 10 + OF_NAMESPACE);
    assert!(
        is_closed(&record, 1099, "victim", now() + 3 * HOUR)
            && !is_closed(&record, 100, "flooding", now())
    );
    // Nor can many namespaces with few entries each.
    for of in 0..1200_usize {
        let namespace = format!("flooding-{}", of % 60);
        record.record(
            for_all(20_000 + of, &namespace),
            now() + Duration::from_secs(20_000 + of as u64),
        );
    }
    assert_eq!(record.0.len(), ALL);
    assert!((0..10).all(|of| is_closed(&record, of, "team", now() + HOUR)));
    let text = record.to_text();
    assert!(text.len() < TEXT / 2, "{}", text.len());
    assert_eq!(Lessons::of_text(&text, now() + 8 * HOUR), record);
}

/// The text of a full record, with entries by a function of their number and namespace.
fn full(lesson: impl Fn(usize, &str) -> Lesson, namespace_length: usize) -> String {
    let mut record = Lessons::default();
    record.record(for_all(0, "victim"), now());
    for of in 1..ALL + 100 {
        let namespace = format!("{:0>namespace_length$}", of % 40);
        record.record(
            lesson(of, &namespace),
            now() + Duration::from_secs(of as u64),
        );
    }
    assert_eq!(record.0.len(), ALL);
    record.to_text()
}

#[test]
fn full_record_is_within_the_limit_and_drops_the_oldest() {
    let long_owner = |of: usize, namespace: &str| {
        Lesson::Owner(RecreatingOwner {
            kind: "K".repeat(63),
            name: format!("{of:0>253}"),
            namespace: namespace.to_owned(),
        })
    };
    let later = now() + HOUR;
    for text in [full(failed, 63), full(long_owner, 63)] {
        assert!(text.len() <= TEXT / 2, "{}", text.len());
        let read = Lessons::of_text(&text, later);
        assert!((ALL - 60..=ALL).contains(&read.0.len()), "{}", read.0.len());
        assert!(is_closed(&read, 0, "team", later), "the oldest of all");
        let newest = (now() + Duration::from_secs(ALL as u64 + 99)).to_string();
        assert!(text.contains(&newest), "the newest entries stay");
    }
    // Even with names that are longer than allowed.
    let text = full(long_owner, 1000);
    assert!(
        (TEXT / 2 - 2000..=TEXT / 2).contains(&text.len()),
        "{}",
        text.len()
    );
    let items: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert!(
        items.is_sorted_by_key(|item| item["since"].as_str().unwrap()),
        "the oldest first"
    );
    assert_eq!(items[0]["namespace"], "victim");
}

#[test]
fn entry_counts_only_if_the_controller_could_have_written_it() {
    let mut record = Lessons::default();
    record.record(for_all(0, "team"), now());
    let good: Value = serde_json::from_str(&record.to_text()).unwrap();
    assert_eq!(
        good,
        json!([{
            "digest": digest(0).to_string(), "architecture": "arm64", "evidence": "exec-format-error",
            "namespace": "team", "allNamespaces": true, "failures": 1,
            "nodes": ["35971be6e9bb024a", "1779f59f4df251f6"],
            "since": "2027-01-15T08:00:00Z", "until": "2027-01-16T08:00:00Z",
        }])
    );
    let read = |value: &Value| Lessons::of_text(&value.to_string(), now());
    assert_eq!(read(&good), record);
    for (key, invalid) in [
        ("digest", json!("sha256:zz")),
        ("digest", json!(7)),
        ("digest", json!(format!("sha512:{}", "0".repeat(128)))),
        ("architecture", json!("vax")),
        ("evidence", json!("hearsay")),
        ("namespace", json!("../x")),
        ("namespace", json!("x".repeat(64))),
        ("since", json!("2027-01-15T10:00:00Z")),
        ("since", json!("tomorrow")),
        ("until", json!("2027-01-15T07:00:00Z")),
        ("until", json!("2099-01-01T00:00:00Z")),
        ("since", json!("9999-12-30T22:00:00Z")),
        ("until", json!("9999-12-30T22:00:00Z")),
        ("failures", json!(0)),
        ("failures", json!(-1)),
        ("nodes", json!(7)),
        ("nodes", json!(["node-1"])),
        ("nodes", json!(["000000000000000A", "0000000000000001"])),
        ("nodes", json!(["0000000000000000", "0000000000000000"])),
        (
            "nodes",
            json!(["0000000000000000", "0000000000000001", "0000000000000002"]),
        ),
    ] {
        let mut forged = good.clone();
        forged[0][key] = invalid.clone();
        assert!(read(&forged).is_empty(), "{key}: {invalid}");
        // An invalid entry does not affect others.
        forged.as_array_mut().unwrap().push(good[0].clone());
        assert_eq!(read(&forged), record, "{key}: {invalid}");
    }
    for text in [
        "",
        "null",
        "{}",
        "[",
        "[[[[",
        "[1, null, {}]",
        &"[".repeat(100_000),
        &(" ".repeat(TEXT) + &good.to_string()),
    ] {
        assert!(Lessons::of_text(text, now()).is_empty(), "{text:.80}");
    }
    // Equal entries count once.
    let mut many = good.clone();
    *many.as_array_mut().unwrap() = vec![good[0].clone(); 2000];
    assert_eq!(read(&many), record);
    assert!(Lessons::of_text(&good.to_string(), now() + 30 * FIRST).is_empty());
}

fn any_time() -> impl Strategy<Value = Timestamp> {
    let [least, most] = [Timestamp::MIN, Timestamp::MAX].map(Timestamp::as_second);
    let near = 1_800_000_000 - 2_000_000..1_800_000_000_i64 + 2_000_000;
    let second = prop_oneof![Just(least), Just(0), Just(most), near, least..=most];
    second.prop_map(|second| Timestamp::from_second(second).unwrap())
}

proptest! {
    #[test]
    fn never_panics_on_any_times(
        since in any_time(),
        until in any_time(),
        now in any_time(),
        failures in prop_oneof![Just(u32::MAX), any::<u32>()],
    ) {
        let text = json!([{
            "digest": digest(0).to_string(), "architecture": "arm64", "evidence": "exec-format-error",
            "namespace": "team", "allNamespaces": true, "failures": failures, "since": since, "until": until,
        }]);
        let mut read = Lessons::of_text(&text.to_string(), now);
        if let Some(failure) = read.failure(&digest(0), "team", now) {
            // A blocker renders it.
            prop_assert!(failure.since >= std::time::SystemTime::UNIX_EPOCH);
        }
        if let Some(entry) = read.0.values().next() {
            prop_assert!(since.duration_since(now) <= SKEW.try_into().unwrap());
            prop_assert!(until.duration_since(since) <= LONGEST.try_into().unwrap());
            prop_assert_eq!((entry.since, entry.until), (since, until));
            read.record(failed(0, "team"), now);
        }
    }
}
