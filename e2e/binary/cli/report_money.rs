//! `tolerarch report --prices` and its progress. A Go program has computed the expected sums (`e2e/conformance/bills.go`).

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Value, json};

use super::cluster::FakeCluster;
use super::configured::run;
use super::{CommandLine, CommandOutput};

/// A line of the cases: an object of the cluster, a price, or an expected sum.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Line {
    pod: Option<Value>,
    node: Option<Value>,
    image: Option<Image>,
    price: Option<HourlyPrice>,
    sum: Option<Sum>,
}

#[derive(Deserialize)]
struct Image {
    name: String,
    architectures: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct HourlyPrice {
    architecture: String,
    vcpu: String,
    gib: String,
}

/// Expected figures. Money is in millionths a month, CPU in thousandths of a core.
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

/// The cluster, the prices and the expected sums of the cases.
#[derive(Default)]
struct Fixture {
    pods: Vec<Value>,
    nodes: Vec<Value>,
    /// Image references in the test registry, by the names in the cases.
    images: BTreeMap<String, String>,
    prices: BTreeMap<String, Value>,
    sums: Vec<Sum>,
}

impl Fixture {
    fn read(cli: &CommandLine) -> Self {
        let mut fixture = Self::default();
        for line in conformance::cases::<Line>("bills") {
            fixture.pods.extend(line.pod);
            fixture.sums.extend(line.sum);
            if let Some(node) = line.node {
                let info =
                    json!({"architecture": node["architecture"], "operatingSystem": "linux"});
                let status = json!({"nodeInfo": info, "capacity": node["capacity"]});
                let metadata = json!({"name": node["name"]});
                fixture
                    .nodes
                    .push(json!({"metadata": metadata, "status": status}));
            }
            if let Some(HourlyPrice {
                architecture,
                vcpu,
                gib,
            }) = line.price
            {
                let price = json!({"vcpuHour": vcpu, "gibHour": gib});
                fixture.prices.insert(architecture, price);
            }
            if let Some(Image {
                name,
                architectures,
            }) = line.image
            {
                let repository = format!("shop/{name}");
                let image = match architectures {
                    Some(names) => {
                        let platforms: Vec<String> =
                            names.iter().map(|name| format!("linux/{name}")).collect();
                        let platforms: Vec<&str> = platforms.iter().map(String::as_str).collect();
                        cli.image(&repository, &platforms)
                    }
                    None => format!("{}/{repository}:v1", cli.registry.address()),
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

    fn cluster(&self, cli: &CommandLine) -> FakeCluster {
        let ca = cli.path().join("ca.crt");
        let config = json!({
            "registries": {"hosts": {cli.registry.address(): {"caFile": ca}}},
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

/// Returns a JSON number as a whole number of parts, such as thousandths.
fn whole_parts(value: &Value, parts: f64) -> u64 {
    let number = value.as_f64().unwrap_or_default() * parts;
    assert!((number - number.round()).abs() < 1e-3, "{value}");
    number.round() as u64
}

/// Returns the figures of a report for one namespace, or for the whole cluster.
fn reported_sum(of: &str, money: &Value, progress: &Value) -> Sum {
    let millionths = |name: &str| whole_parts(&money[name], 1e6);
    let millis = |amount: &Value| whole_parts(&amount["cpuCores"], 1e3);
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
        nodes: money.get("nodes").map(|nodes| whole_parts(nodes, 1e6)),
    }
}

async fn report(cli: &CommandLine, fixture: &Fixture, arguments: &[&str]) -> CommandOutput {
    let served = fixture.cluster(cli).serve().await;
    let prices = cli.path().join("prices.yaml");
    let list = json!({"currency": "EUR", "architectures": fixture.prices});
    std::fs::write(&prices, list.to_string()).unwrap();
    let prices = prices.display().to_string();
    let arguments = [&["report", "--prices", &prices], arguments].concat();
    let output = run(cli, Some(&served), &arguments).await;
    assert_eq!(output.status, Some(0), "{}", output.stderr);
    output
}

#[tokio::test]
async fn sums_equal_those_of_the_go_program() {
    let cli = CommandLine::new(json!({})).await;
    let fixture = Fixture::read(&cli);
    let output = report(&cli, &fixture, &["-o", "json"]).await;
    let json: Value = serde_json::from_str(&output.stdout).unwrap();
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
    // The first step moves Pods that fail on their nodes; the others are sorted by what they save.
    assert!(saves[1..].iter().rev().is_sorted(), "{saves:?}");

    let mut compared = 0;
    let namespaces = json["namespaces"].as_array().unwrap();
    for sum in &fixture.sums {
        if sum.of.is_empty() {
            assert_eq!(&reported_sum("", &json["money"], &json["progress"]), sum);
            let beyond = &json["money"]["beyondRequests"];
            match sum.nodes.unwrap().checked_sub(sum.today) {
                Some(expected) => assert_eq!(whole_parts(beyond, 1e6), expected),
                // The cases have more Pods than fit on the nodes.
                None => assert!(beyond.is_null(), "{beyond}"),
            }
            compared += 1;
        }
        for namespace in namespaces {
            if namespace["namespace"] == *sum.of {
                let reported = reported_sum(&sum.of, &namespace["money"], &namespace["progress"]);
                assert_eq!(&reported, sum);
                compared += 1;
            }
        }
        for workload in json["workloads"].as_array().unwrap() {
            let part = |name: &str| workload[name].as_str().unwrap();
            let name = format!("{}/{}/{}", part("namespace"), part("kind"), part("name"));
            if name == sum.of {
                let money = &workload["money"];
                assert_eq!(whole_parts(&money["today"], 1e6), sum.today, "{name}");
                assert_eq!(whole_parts(&money["after"], 1e6), sum.after, "{name}");
                assert_eq!(whole_parts(&money["kept"], 1e6), sum.kept, "{name}");
                assert_eq!(
                    whole_parts(&money["saved"], 1e6),
                    sum.today - sum.after,
                    "{name}"
                );
                compared += 1;
            }
        }
    }
    assert_eq!(compared, fixture.sums.len());
    assert!(compared > 50, "{compared}");
}

/// Forbids members that the schema does not name. The published schema allows them, because later versions may add members.
fn forbid_unknown_members(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.contains_key("properties") {
                members.insert("additionalProperties".to_owned(), false.into());
            }
            members.values_mut().for_each(forbid_unknown_members);
        }
        Value::Array(items) => items.iter_mut().for_each(forbid_unknown_members),
        _ => {}
    }
}

#[tokio::test]
async fn schema_in_the_documentation_names_every_member() {
    let cli = CommandLine::new(json!({})).await;
    let fixture = Fixture::read(&cli);
    let text = std::fs::read_to_string("docs/report.schema.json").unwrap();
    let mut schema: Value = serde_json::from_str(&text).unwrap();
    forbid_unknown_members(&mut schema);
    let schema = jsonschema::validator_for(&schema).unwrap();
    let earlier = report(&cli, &fixture, &["-o", "json"]).await.stdout;
    let file = cli.path().join("earlier.json");
    std::fs::write(&file, &earlier).unwrap();
    let file = file.display().to_string();
    let arguments = ["-o", "json", "--newer", "--compare", &file];
    let later = report(&cli, &fixture, &arguments).await;
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
    let cli = CommandLine::new(json!({})).await;
    let fixture = Fixture::read(&cli);
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
        let table = report(&cli, &fixture, &["--by", by]).await.stdout;
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

/// Writes an earlier report to a file, and returns the path.
fn write_earlier(cli: &CommandLine, earlier: &Value) -> String {
    let file = cli.write("earlier.json", earlier.to_string());
    file.display().to_string()
}

async fn report_json(cli: &CommandLine, fixture: &Fixture, arguments: &[&str]) -> Value {
    let output = report(cli, fixture, &[&["-o", "json"], arguments].concat()).await;
    serde_json::from_str(&output.stdout).unwrap()
}

#[tokio::test]
async fn equal_earlier_report_shows_no_change() {
    let cli = CommandLine::new(json!({})).await;
    let fixture = Fixture::read(&cli);
    let before = report_json(&cli, &fixture, &[]).await;
    let file = write_earlier(&cli, &before);
    let same = report_json(&cli, &fixture, &["--compare", &file]).await;
    let measures = same["comparison"]["measures"].as_array().unwrap();
    assert_eq!(measures.len(), 15, "{measures:#?}");
    assert!(
        measures.iter().all(|measure| measure["change"] == 0.0),
        "{measures:#?}"
    );
}

#[tokio::test]
async fn earlier_report_shows_what_has_changed() {
    let cli = CommandLine::new(json!({})).await;
    let mut fixture = Fixture::read(&cli);
    let before = report_json(&cli, &fixture, &[]).await;
    let file = write_earlier(&cli, &before);

    // One image gets its missing platforms, one is no longer used, and one is new.
    let old = fixture.images["old"].clone();
    let gone = fixture.images["gone"].clone();
    let lost = format!("{}/shop/lost:v1", cli.registry.address());
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
    let after = report_json(&cli, &fixture, &["--compare", &file]).await;
    let comparison = &after["comparison"];
    assert_eq!(comparison["since"], before["time"]);
    assert_eq!(comparison["imagesGone"], json!([gone, old]));
    assert_eq!(comparison["imagesNew"], json!([lost]));
    for pointer in [
        "/totals/all/cpuCores",
        "/money/saved",
        "/progress/architectures/arm64/cpuCores",
    ] {
        let measures = comparison["measures"].as_array().unwrap();
        let measure = measures
            .iter()
            .find(|measure| measure["place"] == pointer)
            .unwrap();
        assert_eq!(&measure["before"], before.pointer(pointer).unwrap());
        assert_eq!(&measure["now"], after.pointer(pointer).unwrap());
        let change = measure["now"].as_f64().unwrap() - measure["before"].as_f64().unwrap();
        assert!(change > 0.0 && (measure["change"].as_f64().unwrap() - change).abs() < 1e-6);
    }
    let table = report(&cli, &fixture, &["--compare", &file]).await.stdout;
    for text in ["What has changed", "no longer  ", &old, "new  "] {
        assert!(table.contains(text), "{text} in\n{table}");
    }
}

#[tokio::test]
async fn other_prices_are_compared_with_a_note() {
    const NOTE: &str = "the earlier report has other prices, so its costs differ by these as well";
    let cli = CommandLine::new(json!({})).await;
    let fixture = Fixture::read(&cli);
    let mut earlier = report_json(&cli, &fixture, &[]).await;
    let file = write_earlier(&cli, &earlier);
    let same_prices = report_json(&cli, &fixture, &["--compare", &file]).await;
    let notes = same_prices["notes"].to_string();
    assert!(!notes.contains(NOTE), "{notes}");

    assert_eq!(
        earlier["money"]["prices"]["arm64"]["vcpuHour"].to_string(),
        fixture.prices["arm64"]["vcpuHour"].as_str().unwrap()
    );
    earlier["money"]["prices"]["arm64"]["vcpuHour"] = json!(0.5);
    let file = write_earlier(&cli, &earlier);
    let report = report_json(&cli, &fixture, &["--compare", &file]).await;
    assert!(report["notes"].to_string().contains(NOTE), "{report:#}");
    let measures = report["comparison"]["measures"].as_array().unwrap();
    assert_eq!(measures.len(), 15);
}

#[tokio::test]
async fn money_of_another_currency_is_not_compared() {
    let cli = CommandLine::new(json!({})).await;
    let fixture = Fixture::read(&cli);
    let mut earlier = report_json(&cli, &fixture, &[]).await;
    earlier["money"]["currency"] = "USD".into();
    let file = write_earlier(&cli, &earlier);
    let report = report_json(&cli, &fixture, &["--compare", &file]).await;
    let notes = report["notes"].to_string();
    assert!(notes.contains("is in USD, and this one in EUR"), "{notes}");
    let measures = report["comparison"]["measures"].as_array().unwrap();
    assert_eq!(measures.len(), 11);
}

#[tokio::test]
async fn report_on_another_scope_is_not_compared() {
    let cli = CommandLine::new(json!({})).await;
    let fixture = Fixture::read(&cli);
    let before = report_json(&cli, &fixture, &[]).await;
    let scoped = json!({"namespace": "shop", "totals": before["totals"], "images": []});
    let file = write_earlier(&cli, &scoped);
    let report = report_json(&cli, &fixture, &["--compare", &file]).await;
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("is of shop, and this one of all namespaces: they are not compared"),
        "{notes}"
    );
    assert_eq!(report["comparison"]["measures"], json!([]));
    assert_eq!(report["comparison"]["imagesNew"], json!([]));
}

#[tokio::test]
async fn invalid_file_is_refused_before_any_request() {
    let cli = CommandLine::new(json!({})).await;
    let served = FakeCluster::default().serve().await;
    let file = cli.path().join("file");
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
        let output = run(&cli, Some(&served), &[&["report"], &arguments[..]].concat()).await;
        assert_eq!(
            (output.status, &*output.stdout),
            (Some(1), ""),
            "{arguments:?}"
        );
        assert!(
            output.stderr.contains(expected),
            "{expected} in {}",
            output.stderr
        );
    }
    assert_eq!(served.requests(), Vec::<String>::new());
}
