//! `tolerarch report --newer`: newer tags of images that lack a platform, from the lists of their registry.

use serde_json::{Value, json};
use testregistry::{Fault, Kind, Registry, Reply, Repo};

use super::cluster::{FakeApiServer, FakeCluster};
use super::report::{NAMESPACES, NODES, PODS, REPLICA_SETS, json_of, namespace, node, pod, report};
use super::{BOTH, CommandLine};

/// Serves a cluster with Pods of each image. The first image has the most Pods.
async fn cluster_with(images: &[&str]) -> FakeApiServer {
    let mut pods = Vec::new();
    for (rank, image) in images.iter().enumerate() {
        for number in 0..images.len() - rank {
            pods.push(pod("shop", &format!("app-{rank}"), number, image, "x86"));
        }
    }
    FakeCluster::default()
        .with(PODS, pods.into())
        .with(NODES, json!([node("x86", "amd64")]))
        .with(NAMESPACES, json!([namespace("shop", &json!({}))]))
        .with(REPLICA_SETS, json!([]))
        .serve()
        .await
}

/// Pushes images with these tags and platforms.
fn push(cli: &CommandLine, name: &str, images: &[(&str, &[&str])]) -> Repo {
    let repo = cli.registry.repo(name);
    for (tag, platforms) in images {
        repo.index(Some(tag), platforms.iter().copied());
    }
    repo
}

async fn newer(cli: &CommandLine, images: &[&str]) -> Vec<Value> {
    let cluster = cluster_with(images).await;
    let mut json = json_of(cli, &cluster, &["--newer"]).await;
    match json["newer"].take() {
        Value::Array(newer) => newer,
        other => panic!("no list: {other}"),
    }
}

/// Returns the tags whose manifests were requested, in order.
fn looked_up_tags(repo: &Repo) -> Vec<String> {
    let mut tags = Vec::new();
    for request in repo.requests() {
        let reference = request.reference.unwrap_or_default();
        if request.kind == Kind::Manifest && !reference.contains(':') {
            tags.push(reference);
        }
    }
    tags
}

const AMD64: &[&str] = &["linux/amd64"];
const ALL: &[&str] = &["linux/amd64", "linux/arm64", "linux/s390x"];

#[tokio::test]
async fn nearest_and_newest_tags_with_the_platforms_are_named() {
    let cli = CommandLine::new(json!({})).await;
    let legacy = push(
        &cli,
        "shop/legacy",
        &[
            ("1.9.0", AMD64),
            ("1.9.1", AMD64),
            ("1.10.0", &BOTH),
            ("1.11.0", &BOTH),
            ("1.12.0-rc.1", &BOTH),
            ("2.0.0-alpine", &BOTH),
            ("20260101", &BOTH),
            ("latest", &BOTH),
        ],
    );
    let old = push(
        &cli,
        "shop/old",
        &[("v1", AMD64), ("v2", AMD64), ("v10", AMD64)],
    );
    let only = push(&cli, "shop/only", &[("v1", AMD64)]);
    let rolling = push(&cli, "shop/rolling", &[("latest", AMD64), ("1.0.0", &BOTH)]);
    let gone = cli.registry.repo("shop/gone");
    let fine = push(&cli, "shop/fine", &[("v1", &BOTH), ("v2", &BOTH)]);
    let images = [
        legacy.reference("1.9.0"),
        old.reference("v1"),
        only.reference("v1"),
        rolling.reference("latest"),
        gone.reference("v1"),
        fine.reference("v1"),
    ];
    let images: Vec<&str> = images.iter().map(String::as_str).collect();
    let newer = newer(&cli, &images).await;
    let expected = [
        json!({
            "image": images[0], "lacks": ["linux/arm64"], "tags": 8, "complete": true,
            "nearest": "1.10.0", "mayBeNearer": false, "newest": "1.11.0", "message": null,
        }),
        json!({
            "image": images[1], "lacks": ["linux/arm64"], "tags": 3, "complete": true,
            "nearest": null, "mayBeNearer": false, "newest": null,
            "message": "none found among 3 tags; looked up, from the newest on: 2 of 2 newer ones",
        }),
        json!({
            "image": images[2], "lacks": ["linux/arm64"], "tags": 1, "complete": true,
            "nearest": null, "mayBeNearer": false, "newest": null,
            "message": "none found among 1 tag: none differs by a newer version alone",
        }),
        json!({
            "image": images[3], "lacks": ["linux/arm64"], "tags": null, "complete": false,
            "nearest": null, "mayBeNearer": false, "newest": null,
            "message": "its tag, latest, is no version",
        }),
    ];
    assert_eq!(newer, expected);
    assert_eq!(
        looked_up_tags(&legacy),
        ["1.9.0", "1.11.0", "1.9.1", "1.10.0"]
    );
    for repo in [&rolling, &gone, &fine] {
        assert_eq!(
            repo.count(|request| request.kind == Kind::Tags),
            0,
            "{}",
            repo.name()
        );
    }
}

#[tokio::test]
async fn every_output_format_has_the_newer_tags() {
    let cli = CommandLine::new(json!({})).await;
    let legacy = push(
        &cli,
        "shop/legacy",
        &[("1.9.0", AMD64), ("1.10.0", &BOTH), ("1.11.0", &BOTH)],
    );
    let old = push(&cli, "shop/old", &[("v1", AMD64), ("v2", AMD64)]);
    let cluster = cluster_with(&[&legacy.reference("1.9.0"), &old.reference("v1")]).await;
    let table = report(&cli, &cluster, &["--newer"]).await.stdout;
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let legacy = legacy.reference("1.9.0");
    let old = old.reference("v1");
    for row in [
        vec!["NEAREST", "NEWEST", "IMAGE"],
        vec!["1.10.0", "1.11.0", &legacy],
        vec!["-", "-", &old],
    ] {
        assert!(rows.contains(&row), "{row:?} in\n{table}");
    }
    let note = format!(
        "  {old}: none found among 2 tags; looked up, from the newest on: 1 of 1 newer ones\n"
    );
    assert!(table.contains(&note), "{table}");
    assert!(!table.contains(&format!("{legacy}: ")), "{table}");
    let html = report(&cli, &cluster, &["--newer", "-o", "html"])
        .await
        .stdout;
    assert!(
        html.contains("<td class=\"name\"><span>1.11.0</span></td>"),
        "{html}"
    );

    // Without --newer no tags are listed.
    cli.registry.forget_requests();
    let json = json_of(&cli, &cluster, &[]).await;
    assert_eq!(json.get("newer"), None);
    let table = report(&cli, &cluster, &[]).await.stdout;
    assert!(!table.contains("Newer tags"), "{table}");
    let requests = cli.registry.requests();
    assert!(requests.iter().all(|request| request.kind != Kind::Tags));
}

#[tokio::test]
async fn tag_that_lost_a_platform_is_not_named() {
    let cli = CommandLine::new(json!({})).await;
    let repo = push(
        &cli,
        "shop/app",
        &[
            ("1.0", &["linux/amd64", "linux/s390x"]),
            ("1.1", &BOTH),
            ("1.2", ALL),
            ("1.3", &["linux/arm64"]),
        ],
    );
    let newer = newer(&cli, &[&repo.reference("1.0")]).await;
    assert_eq!(
        (&newer[0]["nearest"], &newer[0]["newest"]),
        (&json!("1.2"), &json!("1.2"))
    );
    assert_eq!(newer[0]["mayBeNearer"], false);
}

#[tokio::test]
async fn platforms_of_one_pool_are_enough() {
    let toleration = json!([{"key": "pool", "operator": "Exists"}]);
    let cli = CommandLine::new(json!({"pools": [
        {"name": "arm", "platforms": ["linux/arm64"], "tolerations": toleration},
        {"name": "mainframe", "platforms": ["linux/amd64", "linux/s390x"], "tolerations": toleration},
    ]}))
    .await;
    let repo = push(
        &cli,
        "shop/app",
        // 1.1 has lost amd64, and 1.2 has the platforms of no pool.
        &[
            ("1.0", AMD64),
            ("1.1", &["linux/arm64"]),
            ("1.2", &["linux/amd64", "linux/ppc64le"]),
            ("1.3", &BOTH),
            ("1.4", &["linux/amd64", "linux/s390x"]),
        ],
    );
    let cluster = cluster_with(&[&repo.reference("1.0")]).await;
    let json = json_of(&cli, &cluster, &["--newer"]).await;
    let newer = &json["newer"][0];
    assert_eq!(
        (&newer["nearest"], &newer["newest"]),
        (&json!("1.3"), &json!("1.4")),
        "{newer}"
    );
    let json = json_of(&cli, &cluster, &[]).await;
    let steps = json["steps"].as_array().unwrap();
    let build = steps.iter().find(|step| step["step"] == "build").unwrap();
    assert_eq!(
        build["action"],
        "build for linux/arm64, linux/s390x, or those of them that one pool has"
    );
}

#[tokio::test]
async fn unknown_pod_does_not_hide_platforms_of_its_image() {
    let cli = CommandLine::new(json!({})).await;
    let tags: [(&str, &[&str]); 2] = [("1.0", AMD64), ("1.1", &["linux/arm64"])];
    let image = push(&cli, "shop/app", &tags).reference("1.0");
    let mut unknown = pod("shop", "first", 0, &image, "x86");
    unknown["spec"]["containers"][0]["imagePullPolicy"] = "Never".into();
    let cluster = FakeCluster::default()
        .with(
            PODS,
            json!([unknown, pod("shop", "second", 0, &image, "x86")]),
        )
        .with(NODES, json!([node("x86", "amd64")]))
        .with(NAMESPACES, json!([namespace("shop", &json!({}))]))
        .with(REPLICA_SETS, json!([]))
        .serve()
        .await;
    let json = json_of(&cli, &cluster, &["--newer"]).await;
    let newer = &json["newer"][0];
    assert_eq!(newer["tags"], 2, "{newer}");
    assert_eq!(newer["newest"], Value::Null, "{newer}");
}

#[tokio::test]
async fn tags_of_an_overridden_image_are_not_listed() {
    let cli = CommandLine::new(json!({})).await;
    let repo = push(&cli, "shop/app", &[("1.0", AMD64), ("1.1", &BOTH)]);
    let image = repo.reference("1.0");
    let name = image.trim_end_matches(":1.0");
    cli.configure(&json!({"overrides": [{"match": name, "platforms": AMD64}]}));
    let newer = newer(&cli, &[&image]).await;
    assert_eq!(newer[0]["tags"], Value::Null);
    assert_eq!(
        newer[0]["message"],
        "overrides in the configuration fix its platforms, those of each tag"
    );
    assert_eq!(repo.count(|request| request.kind == Kind::Tags), 0);
}

#[tokio::test]
async fn digest_without_a_tag_has_no_newer_tags() {
    let cli = CommandLine::new(json!({})).await;
    let repo = push(&cli, "shop/app", &[("1.0", AMD64), ("1.1", &BOTH)]);
    let digest = repo.digest_of("1.0").unwrap();
    let both = format!("{}@{digest}", repo.reference("1.0"));
    let alone = repo.reference(&digest);
    let newer = newer(&cli, &[&both, &alone]).await;
    assert_eq!(newer[0]["image"], both.as_str());
    assert_eq!(newer[0]["newest"], "1.1");
    assert_eq!(newer[1]["newest"], Value::Null);
    assert_eq!(newer[1]["message"], "it is named by its digest alone");
}

#[tokio::test]
async fn uncertain_nearest_tag_is_marked() {
    let cli = CommandLine::new(json!({})).await;
    let many = cli.registry.repo("shop/many");
    let old = many.image("linux/amd64", None)["digest"].clone();
    let new = many.index(None, BOTH)["digest"].clone();
    for number in 0..100 {
        let digest = if number < 60 { &old } else { &new };
        many.tag(&format!("1.{number}"), digest.as_str().unwrap());
    }
    // The list names a tag whose manifest is gone.
    let holes = push(&cli, "shop/holes", &[("v1", AMD64), ("v3", &BOTH)]);
    holes.tag("v2", "sha256:none");
    let newer = newer(&cli, &[&many.reference("1.0"), &holes.reference("v1")]).await;
    assert_eq!(newer[0]["nearest"], "1.60");
    assert_eq!(newer[0]["newest"], "1.99");
    assert_eq!(newer[0]["mayBeNearer"], true);
    assert_eq!(
        newer[0]["message"],
        "a tag before 1.60 may have the platforms as well"
    );
    assert!(
        looked_up_tags(&many).len() <= 1 + 1 + 8 + 7,
        "{:?}",
        looked_up_tags(&many)
    );
    assert_eq!(
        (&newer[1]["nearest"], &newer[1]["newest"]),
        (&json!("v3"), &json!("v3"))
    );
    assert_eq!(newer[1]["mayBeNearer"], true);
    assert_eq!(
        newer[1]["message"],
        "a tag before v3 may have the platforms as well; 1 lookup failed: not-found"
    );
    let cluster = cluster_with(&[&many.reference("1.0")]).await;
    let table = report(&cli, &cluster, &["--newer"]).await.stdout;
    assert!(table.contains("1.60 or before  1.99"), "{table}");
}

#[tokio::test]
async fn truncated_tag_list_is_reported() {
    let cli = CommandLine::new(json!({})).await;
    let repo = push(&cli, "shop/app", &[("1.0", AMD64), ("1.1", &BOTH)]);
    let none = push(&cli, "shop/none", &[("1.0", AMD64)]);
    let first_page = |tags: &[&str]| {
        let page = Reply::new(200).json(&json!({"tags": tags}));
        Fault::reply(page.header("Link", "</v2/x/tags/list?n=1>; rel=\"next\"")).only_tags()
    };
    repo.fault(Some(first_page(&["1.0", "1.1"])));
    none.fault(Some(first_page(&["1.0"])));
    let newer = newer(&cli, &[&repo.reference("1.0"), &none.reference("1.0")]).await;
    assert_eq!(
        (&newer[0]["complete"], &newer[0]["newest"]),
        (&json!(false), &json!("1.1"))
    );
    assert_eq!(
        newer[0]["message"],
        "only the first 2 tags were listed, so there may be nearer and newer ones"
    );
    assert_eq!(
        newer[1]["message"],
        "none found among the first 1 tag: none differs by a newer version alone"
    );
}

#[tokio::test]
async fn failed_page_of_tags_is_reported() {
    let cli = CommandLine::new(json!({})).await;
    let repo = push(&cli, "shop/app", &[("1.0", AMD64), ("1.1", &BOTH)]);
    let fails_after_first_page = |request: &testregistry::Request| {
        let page = Reply::new(200).json(&json!({"tags": ["1.0", "1.1"]}));
        Some(match &*request.query {
            "n=1000" => Fault::reply(page.header("Link", "<?last=1.1>; rel=next")),
            _ => Fault::status(500),
        })
    };
    repo.fault(Some(Fault::custom(fails_after_first_page).only_tags()));
    let newer = newer(&cli, &[&repo.reference("1.0")]).await;
    assert_eq!(newer[0]["newest"], "1.1");
    assert_eq!(
        newer[0]["message"],
        "only the first 2 tags were listed, so there may be nearer and newer ones; the rest of the list: failed: the \
         registry answered 500"
    );
}

#[tokio::test]
async fn rate_limited_registry_gets_no_more_requests() {
    let cli = CommandLine::new(json!({})).await;
    let repo = push(
        &cli,
        "shop/app",
        &[
            ("1.0", AMD64),
            ("1.1", &BOTH),
            ("1.2", &BOTH),
            ("1.3", &BOTH),
        ],
    );
    let throttled = |request: &testregistry::Request| {
        (request.reference.as_deref() == Some("1.3")).then(|| Fault::status(429))
    };
    repo.fault(Some(Fault::custom(throttled)));
    let host = cli.registry.address();
    let image = repo.reference("1.0");
    let newer_tags = newer(&cli, &[&image]).await;
    assert_eq!(
        newer_tags[0]["message"],
        format!(
            "none found among 4 tags; looked up, from the newest on: 1 of 3 newer ones; {host} limits requests, so \
             the search was stopped; 1 lookup failed: throttled"
        )
    );
    assert_eq!(looked_up_tags(&repo), ["1.0", "1.3"]);

    repo.fault(Some(Fault::status(429).only_tags()));
    let newer_tags = newer(&cli, &[&image]).await;
    assert_eq!(
        newer_tags[0]["message"],
        "its tags cannot be listed: throttled: the registry limits requests"
    );

    // The search stops when the report has used most of the limit.
    repo.fault(None);
    repo.header("ratelimit-limit", Some("100;w=21600"));
    repo.header("ratelimit-remaining", Some("24;w=21600"));
    let newer_tags = newer(&cli, &[&image]).await;
    assert_eq!(
        newer_tags[0]["message"],
        format!("{host} allows few more requests, so the search was stopped")
    );
}

#[tokio::test]
async fn missing_tag_list_has_a_reason() {
    let cli = CommandLine::new(json!({})).await;
    let repo = push(&cli, "shop/app", &[("1.0", AMD64), ("1.1", &BOTH)]);
    let other_registry = Registry::start().await;
    let ca = cli.write("elsewhere.crt", other_registry.pki().ca_pem());
    cli.configure(&json!({"registries": {"hosts": {other_registry.address(): {"caFile": ca}}}}));
    let missing_page = format!("{}/nothing", other_registry.url());
    for (fault, message) in [
        (Fault::status(404), "its registry has no list of its tags"),
        (
            Fault::redirect(307, &missing_page),
            "its registry has no list of its tags",
        ),
        (
            Fault::status(403),
            "its tags cannot be listed: denied: the registry answered 403",
        ),
        (
            Fault::status(405),
            "its tags cannot be listed: failed: the registry answered 405",
        ),
        (
            Fault::body("<html>", "text/html"),
            "its tags cannot be listed: failed: the registry's list of tags is not JSON",
        ),
    ] {
        repo.fault(Some(fault.only_tags()));
        let newer = newer(&cli, &[&repo.reference("1.0")]).await;
        assert_eq!(newer[0]["message"], message);
        assert_eq!(newer[0]["tags"], Value::Null);
    }
}

#[tokio::test]
async fn only_the_first_twenty_images_are_searched() {
    let cli = CommandLine::new(json!({})).await;
    let mut images = Vec::new();
    for number in 0..25 {
        let repo = push(
            &cli,
            &format!("shop/app-{number}"),
            &[("1.0", AMD64), ("1.1", &BOTH)],
        );
        images.push(repo.reference("1.0"));
    }
    let images: Vec<&str> = images.iter().map(String::as_str).collect();
    let newer = newer(&cli, &images).await;
    let searched_images: Vec<&str> = newer
        .iter()
        .filter_map(|image| image["image"].as_str())
        .collect();
    assert_eq!(searched_images, images[..20]);
    assert!(
        newer.iter().all(|image| image["newest"] == "1.1"),
        "{newer:?}"
    );
    let lists = cli.registry.requests().into_iter();
    assert_eq!(
        lists.filter(|request| request.kind == Kind::Tags).count(),
        20
    );
}
