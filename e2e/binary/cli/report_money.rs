//! `tolerarch report --prices` and its progress: every sum agrees with one that Go has computed (`e2e/conformance/bills.go`).

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Value, json};

use super::cluster::FakeCluster;
use super::configured::run;
use super::{Desk, Ran};

/// One line of the cluster, or one of the sums over its Pods.
#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[derive(Default)]
struct Bill {
    pod: Option<Value>,
    node: Option<Value>,
    image: Option<Image>,
    price: Option<Hour>,
    sum: Option<Sum>,
}

#[derive(Deserialize)]
struct Image {
    name: String,
    architectures: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Hour {
    architecture: String,
    vcpu: String,
    gib: String,
}

/// Money in millionths a month, CPU in thousandths of a core.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Sum {
    of: String,
    today: u64,
    after: u64,
    kept: u64,
    uncounted: u64,
    eligible: u64,
    on: BTreeMap<String, u64>,
    waiting: u64,
    since: u64,
    bound: u64,
    nodes: Option<u64>,
}

#[derive(Default)]
struct Fixture {
    pods: Vec<Value>,
    nodes: Vec<Value>,
    /// Image in the registry, by the name in the fixture.
    images: BTreeMap<String, String>,
    prices: BTreeMap<String, Value>,
    sums: Vec<Sum>,
}

impl Fixture {
    fn read(desk: &Desk) -> Self {
        let mut fixture = Self::default();
        for bill in conformance::cases::<Bill>("bills") {
            fixture.pods.extend(bill.pod);
            fixture.sums.extend(bill.sum);
            if let Some(node) = bill.node {
                let info =
                    json!({"architecture": node["architecture"], "operatingSystem": "linux"});
                let status = json!({"nodeInfo": info, "capacity": node["capacity"]});
                let metadata = json!({"name": node["name"]});
                fixture
                    .nodes
                    .push(json!({"metadata": metadata, "status": status}));
            }
            if let Some(Hour {
                architecture,
                vcpu,
                gib,
            }) = bill.price
            {
                let price = json!({"vcpuHour": vcpu, "gibHour": gib});
                fixture.prices.insert(architecture, price);
            }
            if let Some(Image {
                name,
                architectures,
            }) = bill.image
            {
                let repository = format!("shop/{name}");
                let image = match architectures {
                    Some(names) => {
                        let platforms: Vec<String> =
                            names.iter().map(|name| format!("linux/{name}")).collect();
                        let platforms: Vec<&str> = platforms.iter().map(String::as_str).collect();
                        desk.image(&repository, &platforms)
                    }
                    None => format!("{}/{repository}:v1", desk.registry.address()),
                };
                fixture.images.insert(name, image);
            }
        }
        for pod in &mut fixture.pods {
            for list in ["containers", "initContainers"] {
                for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
                    let name = container["image"].as_str().unwrap();
                    container["image"] = fixture.images[name].clone().into();
                }
            }
        }
        fixture
    }

    fn cluster(&self, desk: &Desk) -> FakeCluster {
        let ca = desk.path().join("ca.crt");
        let config = json!({
            "registries": {"hosts": {desk.registry.address(): {"caFile": ca}}},
            "network": {"allow": ["127.0.0.0/8"]},
            "controller": {"learn": false},
        });
        let mut namespaces: Vec<Value> = ["shop", "data", "ops"]
            .map(|name| json!({"metadata": {"name": name}}))
            .to_vec();
        let off = json!({"name": "off", "labels": {"tolerarch.io/mode": "off"}});
        namespaces.push(json!({"metadata": off}));
        FakeCluster::default()
            .with_tolerarch(&config)
            .with("/api/v1/pods", self.pods.clone().into())
            .with("/api/v1/nodes", self.nodes.clone().into())
            .with("/api/v1/namespaces", namespaces.into())
    }
}

/// Returns a number of JSON as a whole number of thousandths or millionths.
fn whole(value: &Value, parts: f64) -> u64 {
    let number = value.as_f64().unwrap_or_default() * parts;
    assert!((number - number.round()).abs() < 1e-3, "{value}");
    number.round() as u64
}

/// Returns what a report says of one namespace or workload, or as a whole.
fn said(of: &str, money: &Value, progress: &Value) -> Sum {
    let millionths = |name: &str| whole(&money[name], 1e6);
    let millis = |amount: &Value| whole(&amount["cpuCores"], 1e3);
    let mut on = BTreeMap::new();
    for (architecture, amount) in progress["architectures"].as_object().into_iter().flatten() {
        on.insert(architecture.clone(), millis(amount));
    }
    if progress["elsewhere"]["pods"] != 0 {
        on.insert(String::new(), millis(&progress["elsewhere"]));
    }
    Sum {
        of: of.to_owned(),
        today: millionths("today"),
        after: millionths("after"),
        kept: millionths("kept"),
        uncounted: money["uncountedPods"].as_u64().unwrap(),
        eligible: millis(&progress["eligible"]),
        on,
        waiting: millis(&progress["waiting"]),
        since: millis(&progress["createdSince"]),
        bound: millis(&progress["bound"]),
        nodes: money.get("nodes").map(|nodes| whole(nodes, 1e6)),
    }
}

async fn report(desk: &Desk, fixture: &Fixture, arguments: &[&str]) -> Ran {
    let served = fixture.cluster(desk).serve().await;
    let prices = desk.path().join("prices.yaml");
    let list = json!({"currency": "EUR", "architectures": fixture.prices});
    std::fs::write(&prices, list.to_string()).unwrap();
    let prices = prices.display().to_string();
    let arguments = [&["report", "--prices", &prices], arguments].concat();
    let ran = run(desk, Some(&served), &arguments).await;
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    ran
}

#[tokio::test]
async fn every_sum_is_the_one_that_go_computes() {
    let desk = Desk::new(json!({})).await;
    let fixture = Fixture::read(&desk);
    let ran = report(&desk, &fixture, &["-o", "json"]).await;
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["money"]["currency"], "EUR");
    assert_eq!(json["installed"], "2026-03-01T12:00:00Z");
    let mut saves = Vec::new();
    let mut kinds = BTreeSet::new();
    for step in json["steps"].as_array().unwrap() {
        saves.push(step["saves"].as_f64().unwrap());
        kinds.insert(step["step"].as_str().unwrap());
    }
    let expected = [
        "build",
        "consolidate",
        "explain",
        "move",
        "resolve",
        "restart",
    ];
    assert_eq!(Vec::from_iter(kinds), expected, "{:#}", json["steps"]);
    // The first one is of Pods that fail where they are.
    assert!(saves[1..].iter().rev().is_sorted(), "{saves:?}");

    let mut compared = 0;
    let namespaces = json["namespaces"].as_array().unwrap();
    for sum in &fixture.sums {
        if sum.of.is_empty() {
            assert_eq!(&said("", &json["money"], &json["progress"]), sum);
            let beyond = &json["money"]["beyondRequests"];
            match sum.nodes.unwrap().checked_sub(sum.today) {
                Some(expected) => assert_eq!(whole(beyond, 1e6), expected),
                // More Pods were drawn than the nodes have room for.
                None => assert!(beyond.is_null(), "{beyond}"),
            }
            compared += 1;
        }
        for namespace in namespaces {
            if namespace["namespace"] == *sum.of {
                let ours = said(&sum.of, &namespace["money"], &namespace["progress"]);
                assert_eq!(&ours, sum);
                compared += 1;
            }
        }
        for workload in json["workloads"].as_array().unwrap() {
            let part = |name: &str| workload[name].as_str().unwrap();
            let name = format!("{}/{}/{}", part("namespace"), part("kind"), part("name"));
            if name == sum.of {
                let money = &workload["money"];
                assert_eq!(whole(&money["today"], 1e6), sum.today, "{name}");
                assert_eq!(whole(&money["after"], 1e6), sum.after, "{name}");
                assert_eq!(whole(&money["kept"], 1e6), sum.kept, "{name}");
                assert_eq!(whole(&money["saved"], 1e6), sum.today - sum.after, "{name}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, fixture.sums.len());
    assert!(compared > 50, "{compared}");
}

/// Forbids members that a schema does not name, which it allows for the sake of later versions.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.contains_key("properties") {
                members.insert("additionalProperties".to_owned(), false.into());
            }
            members.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

#[tokio::test]
async fn the_schema_in_the_documentation_names_every_member() {
    let desk = Desk::new(json!({})).await;
    let fixture = Fixture::read(&desk);
    let text = std::fs::read_to_string("docs/report.schema.json").unwrap();
    let mut schema: Value = serde_json::from_str(&text).unwrap();
    close(&mut schema);
    let schema = jsonschema::validator_for(&schema).unwrap();
    let earlier = report(&desk, &fixture, &["-o", "json"]).await.stdout;
    let file = desk.path().join("earlier.json");
    std::fs::write(&file, &earlier).unwrap();
    let file = file.display().to_string();
    let arguments = ["-o", "json", "--newer", "--compare", &file];
    let later = report(&desk, &fixture, &arguments).await;
    for json in [earlier, later.stdout] {
        let json: Value = serde_json::from_str(&json).unwrap();
        for list in [
            "images",
            "workloads",
            "namespaces",
            "unknown",
            "skipped",
            "missed",
            "misplaced",
        ] {
            assert!(json[list] != json!([]), "{list}");
        }
        let faults: Vec<String> = schema
            .iter_errors(&json)
            .map(|fault| format!("{}: {fault}", fault.instance_path()))
            .collect();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}

#[tokio::test]
async fn tables_show_money_and_progress() {
    let desk = Desk::new(json!({})).await;
    let fixture = Fixture::read(&desk);
    for (by, expected) in [
        ("image", &["KEPT "][..]),
        (
            "workload",
            &["What workloads cost a month", "StatefulSet/web"],
        ),
        (
            "namespace",
            &[
                "How far namespaces are",
                "AMD64  ARM64",
                "What namespaces cost a month",
            ],
        ),
    ] {
        let table = report(&desk, &fixture, &["--by", by]).await.stdout;
        let always = [
            "What it costs a month, in EUR",
            "saved: today less after",
            "not counted: nodes beyond",
            "on arm64",
            "waits for a restart: older than tolerarch",
        ];
        for text in expected.iter().chain(&always) {
            assert!(table.contains(text), "{by}: {text} in\n{table}");
        }
    }
}

#[tokio::test]
async fn an_earlier_report_shows_what_has_changed() {
    let desk = Desk::new(json!({})).await;
    let mut fixture = Fixture::read(&desk);
    let before = report(&desk, &fixture, &["-o", "json"]).await.stdout;
    let file = desk.path().join("before.json");
    std::fs::write(&file, &before).unwrap();
    let file = file.display().to_string();
    let before: Value = serde_json::from_str(&before).unwrap();

    let same = report(&desk, &fixture, &["-o", "json", "--compare", &file]).await;
    let same: Value = serde_json::from_str(&same.stdout).unwrap();
    let measures = same["comparison"]["measures"].as_array().unwrap();
    assert_eq!(measures.len(), 15, "{measures:#?}");
    assert!(
        measures.iter().all(|one| one["change"] == 0.0),
        "{measures:#?}"
    );

    // An image gets its platforms, one is no longer used, and another one is new.
    let old = fixture.images["old"].clone();
    let gone = fixture.images["gone"].clone();
    let lost = format!("{}/shop/lost:v1", desk.registry.address());
    let both = fixture.images["both"].clone();
    for pod in &mut fixture.pods {
        for list in ["containers", "initContainers"] {
            for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
                if container["image"] == *old {
                    container["image"] = both.clone().into();
                } else if container["image"] == *gone {
                    container["image"] = lost.clone().into();
                }
            }
        }
    }
    let after = report(&desk, &fixture, &["-o", "json", "--compare", &file]).await;
    let after: Value = serde_json::from_str(&after.stdout).unwrap();
    let comparison = &after["comparison"];
    assert_eq!(comparison["since"], before["time"]);
    assert_eq!(comparison["imagesGone"], json!([gone, old]));
    assert_eq!(comparison["imagesNew"], json!([lost]));
    for place in [
        "/totals/all/cpuCores",
        "/money/saved",
        "/progress/architectures/arm64/cpuCores",
    ] {
        let measures = comparison["measures"].as_array().unwrap();
        let measure = measures.iter().find(|one| one["place"] == place).unwrap();
        assert_eq!(&measure["before"], before.pointer(place).unwrap());
        assert_eq!(&measure["now"], after.pointer(place).unwrap());
        let change = measure["now"].as_f64().unwrap() - measure["before"].as_f64().unwrap();
        assert!(change > 0.0 && (measure["change"].as_f64().unwrap() - change).abs() < 1e-6);
    }
    let table = report(&desk, &fixture, &["--compare", &file]).await.stdout;
    for text in ["What has changed", "no longer  ", &old, "new  "] {
        assert!(table.contains(text), "{text} in\n{table}");
    }

    // At other prices: money is compared, and a note says so.
    let mut other = before.clone();
    assert_eq!(
        other["money"]["prices"]["arm64"]["vcpuHour"].to_string(),
        fixture.prices["arm64"]["vcpuHour"].as_str().unwrap()
    );
    other["money"]["prices"]["arm64"]["vcpuHour"] = json!(0.5);
    std::fs::write(&file, other.to_string()).unwrap();
    let other = report(&desk, &fixture, &["-o", "json", "--compare", &file]).await;
    let other: Value = serde_json::from_str(&other.stdout).unwrap();
    let note = "the earlier report has other prices, so its costs differ by these as well";
    assert!(other["notes"].to_string().contains(note), "{other:#}");
    assert_eq!(
        other["comparison"]["measures"].as_array().unwrap().len(),
        15
    );
    assert!(!after["notes"].to_string().contains(note), "{after:#}");

    // Of another currency and of another scope: only what can be compared is.
    let mut other = before.clone();
    other["money"]["currency"] = "USD".into();
    std::fs::write(&file, other.to_string()).unwrap();
    let other = report(&desk, &fixture, &["-o", "json", "--compare", &file]).await;
    let other: Value = serde_json::from_str(&other.stdout).unwrap();
    let notes = other["notes"].to_string();
    assert!(notes.contains("is in USD, and this one in EUR"), "{notes}");
    assert_eq!(
        other["comparison"]["measures"].as_array().unwrap().len(),
        11
    );
    let scoped = json!({"namespace": "shop", "totals": before["totals"], "images": []});
    std::fs::write(&file, scoped.to_string()).unwrap();
    let scoped = report(&desk, &fixture, &["-o", "json", "--compare", &file]).await;
    let scoped: Value = serde_json::from_str(&scoped.stdout).unwrap();
    let notes = scoped["notes"].to_string();
    assert!(
        notes.contains("is of shop, and this one of all namespaces: they are not compared"),
        "{notes}"
    );
    assert_eq!(scoped["comparison"]["measures"], json!([]));
    assert_eq!(scoped["comparison"]["imagesNew"], json!([]));
}

#[tokio::test]
async fn a_wrong_file_is_refused_before_the_cluster_is_asked() {
    let desk = Desk::new(json!({})).await;
    let served = FakeCluster::default().serve().await;
    let file = desk.path().join("file");
    std::fs::write(
        &file,
        "currency: EUR\narchitectures: {amd64: {vcpuHour: -1, gibHour: 1}}\n",
    )
    .unwrap();
    let path = file.display().to_string();
    for (arguments, expected) in [
        (["--prices", "/nowhere"], "--prices /nowhere: No such file"),
        (
            ["--prices", &path],
            "line 2: architectures.amd64.vcpuHour: a price is",
        ),
        (
            ["--compare", "/nowhere"],
            "--compare /nowhere: No such file",
        ),
        (
            ["--compare", &path],
            "not a report of `tolerarch report -o json`",
        ),
    ] {
        let ran = run(
            &desk,
            Some(&served),
            &[&["report"], &arguments[..]].concat(),
        )
        .await;
        assert_eq!((ran.status, &*ran.stdout), (Some(1), ""), "{arguments:?}");
        assert!(
            ran.stderr.contains(expected),
            "{expected} in {}",
            ran.stderr
        );
    }
    assert_eq!(served.asked(), Vec::<String>::new());
}
