//! `tolerarch inspect`, and its agreement with the webhook.

use serde_json::{Value, json};
use testregistry::{Auth, DOCKER_MANIFEST, Fault, OCI_MANIFEST, Registry, Reply};

use super::{BOTH, CommandLine};
use crate::binary::program::Program;
use crate::support::review::pod;

/// Returns settings with three pools, so that an image is eligible for none, one or several. A lookup takes at most
/// `timeout`, which is shorter than the Pod's budget.
fn settings(timeout: &str) -> Value {
    let pool = |name: &str, platforms: &[&str]| {
        let key = format!("example.com/{name}");
        json!({"name": name, "platforms": platforms, "tolerations": [{"key": key, "operator": "Exists"}]})
    };
    json!({
        "pools": [pool("both", &BOTH), pool("arm", &["linux/arm64"]), pool("power", &["linux/ppc64le"])],
        "lookup": {"timeout": timeout, "budget": "25s"},
    })
}

/// Pushes images of every kind, and returns them in groups. Each group needs a separate webhook, because a webhook
/// remembers that a registry fails, and how it authenticates. The image of the last group hangs.
fn fixtures(registry: &Registry) -> Vec<Vec<String>> {
    let repo = registry.repo("team/app");
    repo.index(Some("both"), BOTH);
    repo.docker_list(Some("list"), BOTH);
    repo.image("linux/amd64", Some("amd64"));
    repo.image("linux/arm64/v8", Some("arm64"));
    repo.docker_image("linux/ppc64le", Some("power"));
    repo.index(
        Some("three"),
        ["linux/amd64", "linux/arm64", "linux/ppc64le"],
    );
    repo.index(
        Some("odd"),
        [
            "windows/amd64",
            "linux/amd64/v3",
            "linux/arm64/v9",
            "wasip1/wasm",
        ],
    );
    let entries = BOTH.map(|platform| repo.entry(platform));
    let attestations = entries
        .each_ref()
        .map(|entry| repo.attestation(entry["digest"].as_str().unwrap()));
    repo.index(
        Some("buildkit"),
        entries
            .into_iter()
            .chain(attestations)
            .map(testregistry::Entry::from),
    );
    let unnamed = repo.image("linux/arm64", None);
    let nested = repo.index(None, ["linux/arm64"]);
    repo.index(Some("unnamed"), [repo.entry("linux/amd64"), unnamed]);
    let mut other = nested.clone();
    other["platform"] = json!({"os": "linux", "architecture": "s390x"});
    repo.index(Some("nested"), [repo.entry("linux/amd64"), nested, other]);
    let chart = repo.blob("{}", "application/vnd.cncf.helm.config.v1+json");
    repo.image_of(chart, OCI_MANIFEST, Some("chart"));
    repo.manifest(
        r#"{"schemaVersion": 1, "fsLayers": []}"#,
        DOCKER_MANIFEST,
        Some("schema1"),
    );
    repo.manifest("garbage", OCI_MANIFEST, Some("garbage"));
    repo.index(Some("empty"), [""; 0]);
    let tags = [
        "both", "list", "amd64", "arm64", "power", "three", "odd", "buildkit", "unnamed", "nested",
        "chart", "schema1", "garbage", "empty", "gone",
    ];
    let mut images: Vec<String> = tags.iter().map(|tag| repo.reference(tag)).collect();
    images.push(repo.reference(&repo.digest_of("both").unwrap()));
    images.extend(["Not/An Image", "", "169.254.169.254/a:1"].map(str::to_owned));
    let mut groups = vec![images, vec!["127.0.0.1:1/a:1".to_owned()]];
    for (name, auth) in [
        ("token", Auth::bearer().or_anonymous()),
        ("private", Auth::basic("user", "password")),
    ] {
        let repo = registry.repo(name);
        repo.index(Some("v1"), BOTH);
        repo.require(auth);
        groups.push(vec![repo.reference("v1")]);
    }
    let faulty = [
        ("throttled", Fault::status(429)),
        ("denied", Fault::status(403)),
        ("down", Fault::status(503)),
        ("reset", Fault::reset()),
        ("hang", Fault::hang()),
    ];
    for (name, fault) in faulty {
        let repo = registry.repo(name);
        repo.index(Some("v1"), BOTH);
        repo.fault(Some(fault));
        groups.push(vec![repo.reference("v1")]);
    }
    groups
}

#[tokio::test]
async fn reasons_and_pools_are_those_of_the_webhook() {
    let cli = CommandLine::new(json!({})).await;
    let groups = fixtures(&cli.registry);
    let mut reasons = Vec::new();
    for (group, images) in groups.iter().enumerate() {
        let settings = settings(if group == groups.len() - 1 {
            "2s"
        } else {
            "20s"
        });
        cli.configure(&settings);
        let program = Program::start(&cli.registry, settings).await;
        let as_pod = |image| json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"image": image}]}});
        let pods: Vec<Value> = images.iter().map(as_pod).collect();
        let (_, checked) = cli
            .check(json!({"apiVersion": "v1", "kind": "List", "items": pods}).to_string())
            .await;
        for (index, image) in images.iter().enumerate() {
            let verdict = program.review(&pod(&[image])).await;
            let output = cli.run(&["inspect", "-o", "json", "--", image]).await;
            let report: Value = serde_json::from_str(&output.stdout)
                .unwrap_or_else(|_| panic!("{image}: {}", output.stderr));
            let inspected = &report["images"][0];
            assert_eq!(inspected["reason"], verdict.reason, "{image}: {inspected}");
            let patched = verdict.applied_to(&pod(&[image]));
            let recorded_pools = patched["metadata"]["annotations"]["tolerarch.io/pools"]
                .as_str()
                .unwrap_or_default();
            let pools: Vec<&str> = inspected["pools"]
                .as_array()
                .unwrap()
                .iter()
                .map(|pool| pool.as_str().unwrap())
                .collect();
            assert_eq!(pools.join(","), recorded_pools, "{image}: {inspected}");
            assert_eq!(
                checked["results"][index]["reason"], verdict.reason,
                "{image}"
            );
            let is_unknown = !matches!(&*verdict.reason, "tolerated" | "platform-missing");
            assert_eq!(
                output.status,
                Some(i32::from(is_unknown)),
                "{image}: {inspected}"
            );
            reasons.push(verdict.reason);
        }
    }
    reasons.sort();
    reasons.dedup();
    assert_eq!(
        reasons,
        [
            "address-not-allowed",
            "bad-manifest",
            "denied",
            "image-invalid",
            "not-found",
            "platform-missing",
            "throttled",
            "timeout",
            "tolerated",
            "unreachable"
        ]
    );
}

#[tokio::test]
async fn each_index_entry_shows_why_it_counts() {
    let cli = CommandLine::new(json!({})).await;
    fixtures(&cli.registry);
    let repo = cli.registry.repo("team/app");
    let inspect = async |tag: &str| {
        let output = cli
            .run(&["inspect", "-o", "json", &repo.reference(tag)])
            .await;
        serde_json::from_str::<Value>(&output.stdout).unwrap()["images"][0].clone()
    };
    let entry_reasons = |image: &Value| {
        let entries = image["entries"].as_array().unwrap();
        entries
            .iter()
            .map(|entry| entry["why"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let image = inspect("buildkit").await;
    assert_eq!(
        entry_reasons(&image),
        ["runs", "runs", "attestation", "attestation"]
    );
    assert_eq!(image["platforms"], json!(BOTH));
    assert_eq!(
        image["digest"].as_str(),
        repo.digest_of("buildkit").as_deref()
    );
    assert_eq!(image["mediaType"], testregistry::OCI_INDEX);
    assert_eq!(image["source"], cli.registry.url());
    assert_eq!(
        image["requests"].as_array().unwrap().len(),
        3,
        "one for the index, and one for each platform"
    );
    assert_eq!(
        entry_reasons(&inspect("odd").await),
        ["other-os", "no-such-node", "no-such-node", "other-os"]
    );
    let image = inspect("nested").await;
    assert_eq!(
        entry_reasons(&image),
        ["runs", "index", "runs", "index", "outside-its-index"]
    );
    assert_eq!(image["requests"].as_array().unwrap().len(), 5);
    let single = inspect("arm64").await;
    assert_eq!(
        (&single["entries"], &single["platforms"]),
        (&json!([]), &json!(["linux/arm64"]))
    );
    assert_eq!(single["requests"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&single["lacks"], &image["lacks"]),
        (&json!(["linux/amd64"]), &json!([]))
    );
}

#[tokio::test]
async fn explain_shows_every_request_and_no_secret() {
    let cli = CommandLine::new(json!({})).await;
    let repo = cli.registry.repo("team/app");
    repo.image("linux/amd64", Some("v1"));
    repo.require(Auth::bearer().or_anonymous().token_text("canary"));
    repo.redirect_blobs_to(&cli.registry.cdn_of(&repo));
    let output = cli
        .run(&["inspect", "--explain", &repo.reference("v1")])
        .await;
    for expected in [
        "GET manifest",
        "401",
        "GET token",
        "bearer",
        "GET config",
        "platform-missing",
    ] {
        assert!(
            output.stdout.contains(expected),
            "{expected}: {}{}",
            output.stdout,
            output.stderr
        );
    }
    assert!(
        !format!("{}{}", output.stdout, output.stderr).contains("canary"),
        "{}",
        output.stdout
    );
}

#[tokio::test]
async fn images_are_looked_up_concurrently() {
    let cli = CommandLine::new(json!({})).await;
    let images: Vec<String> = (0..5)
        .map(|number| cli.image(&format!("app{number}"), &BOTH))
        .collect();
    for number in 0..5 {
        cli.registry
            .repo(&format!("app{number}"))
            .fault(Some(Fault::hang()));
    }
    let arguments: Vec<&str> = ["inspect"]
        .into_iter()
        .chain(images.iter().map(String::as_str))
        .collect();
    let mut child = cli.command(&arguments).spawn().unwrap();
    cli.registry
        .wait_until(|requests| requests.len() == 5)
        .await;
    child.kill().await.unwrap();
}

#[tokio::test]
async fn image_with_two_names_is_shown_twice() {
    let cli = CommandLine::new(json!({})).await;
    let image = cli.image("app", &BOTH);
    let untagged = image.strip_suffix(":v1").unwrap();
    cli.registry.repo("app").index(Some("latest"), BOTH);
    let output = cli
        .run(&[
            "inspect",
            "-o",
            "json",
            untagged,
            &format!("{untagged}:latest"),
        ])
        .await;
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    for index in 0..2 {
        assert_eq!(
            report["images"][index]["platforms"],
            json!(BOTH),
            "{report}"
        );
    }
}

#[tokio::test]
async fn failure_names_the_answer_and_the_credential() {
    let cli = CommandLine::new(json!({})).await;
    let url = cli.registry.url();
    for (status, expected) in [
        (
            403,
            format!("({url} answered 403 to GET manifest, with no credential)"),
        ),
        (
            503,
            format!("({url} answered 503 to GET manifest, with no credential)"),
        ),
        (
            429,
            format!("({url} answered 429 to GET manifest, with no credential)"),
        ),
    ] {
        let image = cli.image(&format!("app{status}"), &BOTH);
        cli.registry
            .repo(&format!("app{status}"))
            .fault(Some(Fault::status(status)));
        let output = cli.run(&["inspect", &image]).await;
        assert!(
            output.stdout.contains(&expected),
            "{}{}",
            output.stdout,
            output.stderr
        );
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {
            "containers": [{"name": "a", "image": image}], "imagePullSecrets": [{"name": "secret"}],
        }});
        let output = cli.run_with(&["check", "-f", "-"], pod.to_string()).await;
        assert!(
            output.stdout.contains(&format!("{image}: ")) && output.stdout.contains(&expected),
            "{}",
            output.stdout
        );
        assert_eq!(
            output
                .stderr
                .contains("hint: 1 of them name imagePullSecrets"),
            status == 403,
            "{}",
            output.stderr
        );
        let (_, report) = cli.check(pod.to_string()).await;
        assert!(
            report["results"][0]["error"]
                .as_str()
                .unwrap()
                .ends_with(&expected),
            "{report}"
        );
    }
}

#[tokio::test]
async fn throttled_lookup_says_when_to_retry() {
    let cli = CommandLine::new(json!({})).await;
    let image = cli.image("app", &BOTH);
    let reply = Reply::new(429).header("retry-after", "30");
    cli.registry.repo("app").fault(Some(Fault::reply(reply)));
    let output = cli.run(&["inspect", &image]).await;
    assert!(
        output.stdout.contains("retry after 30 s"),
        "{}{}",
        output.stdout,
        output.stderr
    );
}

/// The image's registry is tried after its mirrors, and its answer is shown.
#[tokio::test]
async fn failure_shows_the_registry_and_not_its_mirror() {
    let cli = CommandLine::new(json!({})).await;
    let mirror = Registry::builder().pki(cli.registry.pki()).start().await;
    let ca = cli.path().join("ca.crt");
    cli.configure(&json!({"registries": {"hosts": {
        cli.registry.address(): {"mirrors": [mirror.address()]}, mirror.address(): {"caFile": ca},
    }}}));
    let image = cli.image("app", &BOTH);
    for (mirror_status, registry_status) in [(403, 503), (503, 403), (429, 403)] {
        mirror.repo("app").fault(Some(Fault::status(mirror_status)));
        cli.registry
            .repo("app")
            .fault(Some(Fault::status(registry_status)));
        let output = cli.run(&["inspect", &image]).await;
        let expected = format!(
            "({} answered {registry_status} to GET manifest",
            cli.registry.url()
        );
        assert!(
            output.stdout.contains(&expected),
            "{mirror_status}: {}{}",
            output.stdout,
            output.stderr
        );
        assert!(!mirror.requests().is_empty());
    }
}

/// Whoever configures outbound access needs the host that a redirect leads to.
#[tokio::test]
async fn redirect_shows_the_final_host() {
    let cli = CommandLine::new(json!({})).await;
    let target = Registry::builder().pki(cli.registry.pki()).start().await;
    let ca = cli.path().join("ca.crt");
    cli.configure(&json!({"registries": {"hosts": {target.address(): {"caFile": ca}}}}));
    let image = cli.image("app", &BOTH);
    target.repo("app").index(Some("v1"), BOTH);
    let to = format!("{}/v2/app/manifests/v1", target.url());
    cli.registry
        .repo("app")
        .fault(Some(Fault::redirect(307, &to)));
    let output = cli.run(&["inspect", "--explain", &image]).await;
    assert!(
        output
            .stdout
            .contains(&format!("{}, 6 requests", target.url())),
        "{}{}",
        output.stdout,
        output.stderr
    );
    for url in [cli.registry.url(), target.url()] {
        assert!(
            output
                .stdout
                .contains(&format!(" {url}/v2/app/manifests/v1")),
            "{}",
            output.stdout
        );
    }
    target.repo("app").fault(Some(Fault::status(403)));
    let output = cli.run(&["inspect", &image]).await;
    let from = cli.registry.address();
    let to = target.address();
    let redirected = format!("{from} redirects to {to}: denied: the registry answered 403");
    let answer = format!(
        "({} answered 403 to GET manifest, with no credential)",
        target.url()
    );
    assert!(
        output.stdout.contains(&format!("{redirected} {answer}")),
        "{}{}",
        output.stdout,
        output.stderr
    );
    target.stop().await;
    let output = cli.run(&["inspect", &image]).await;
    let unreachable = format!(
        "{from} redirects to {to}: failed: {to} cannot be reached: it refuses the connection"
    );
    assert!(
        output.stdout.contains(&unreachable),
        "{}{}",
        output.stdout,
        output.stderr
    );
}

/// crane and regctl use it as well.
#[tokio::test]
async fn docker_configuration_of_the_user_is_used_and_shown() {
    let cli = CommandLine::new(json!({})).await;
    let image = cli.image("app", &BOTH);
    cli.registry
        .repo("app")
        .require(Auth::basic("user", "canary"));
    std::fs::create_dir(cli.path().join(".docker")).unwrap();
    let entry = json!({"username": "user", "password": "canary"});
    cli.write(
        ".docker/config.json",
        json!({"auths": {cli.registry.address(): entry}}).to_string(),
    );
    let output = cli.run(&["inspect", "-o", "json", &image]).await;
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    let requests = report["images"][0]["requests"].as_array().unwrap();
    let last = &requests[requests.len() - 1];
    assert_eq!(
        (&last["answer"], &last["credential"]),
        (&json!("200"), &json!("docker config")),
        "{report}"
    );
    assert!(!output.stdout.contains("canary"), "{}", output.stdout);
}

#[tokio::test]
async fn local_registry_needs_no_configuration() {
    let cli = CommandLine::new(json!({"network": {"allow": null}, "registries": null})).await;
    let registry = Registry::builder().plain_http().start().await;
    registry.repo("app").index(Some("v1"), BOTH);
    for host in [registry.address(), format!("localhost:{}", registry.port())] {
        let image = format!("{host}/app:v1");
        let output = cli.run(&["inspect", &image]).await;
        assert!(
            output.stdout.contains("tolerated, opens multi-arch"),
            "{}{}",
            output.stdout,
            output.stderr
        );
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "kube-system"}, "spec": {
            "containers": [{"name": "a", "image": image}],
        }});
        let output = cli.run_with(&["check", "-f", "-"], pod.to_string()).await;
        assert!(
            output.stdout.contains("tolerated") && output.stderr.contains("exclude"),
            "{}{}",
            output.stdout,
            output.stderr
        );
    }
}

#[tokio::test]
async fn unknown_environment_variable_is_a_warning() {
    let cli = CommandLine::new(json!({})).await;
    let image = cli.image("app", &BOTH);
    let output = cli
        .command(&["inspect", &image])
        .env("TOLERARCH_MODEE", "observe")
        .output()
        .await
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && stderr.contains("did you mean TOLERARCH_MODE"),
        "{stderr}"
    );
}

#[tokio::test]
async fn override_decides_without_a_request() {
    let registry = Registry::start().await;
    let overrides =
        json!([{"match": format!("{}/team/*", registry.address()), "platforms": ["linux/amd64"]}]);
    let cli = CommandLine::new(
        json!({"overrides": overrides, "registries": {"deny": [registry.address()]}}),
    )
    .await;
    let image = registry.repo("team/app").reference("v1");
    let output = cli.run(&["inspect", "-o", "json", &image]).await;
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    let image_report = &report["images"][0];
    assert_eq!(
        (output.status, &image_report["reason"]),
        (Some(0), &json!("platform-missing")),
        "{image_report}"
    );
    assert_eq!(
        (&image_report["platforms"], &image_report["lacks"]),
        (&json!(["linux/amd64"]), &json!(["linux/arm64"]))
    );
    assert_eq!(
        (&image_report["source"], registry.requests().len()),
        (&json!("overrides"), 0)
    );
    let output = cli.run(&["inspect", &image]).await;
    assert!(
        output.stdout.contains("from       overrides, 0 requests"),
        "{}",
        output.stdout
    );
}

#[tokio::test]
async fn unsupported_parts_of_hosts_toml_are_named() {
    let cli = CommandLine::new(json!({})).await;
    let image = cli.image("multi", &BOTH);
    let certs = cli.path().join("certs.d");
    for (name, text) in [
        ("quay.io", "\n[auth]\nusername = 'canary'\n"),
        (
            "docker.io",
            "[host.'https://cache.example.com'.rewrite]\n'(.*)' = 'hub/$1'\n",
        ),
    ] {
        std::fs::create_dir_all(certs.join(name)).unwrap();
        std::fs::write(certs.join(name).join("hosts.toml"), text).unwrap();
    }
    cli.configure(&json!({"registries": {"hostsDir": certs}}));
    let output = cli.run(&["inspect", &image]).await;
    let lines = |words: [&str; 2]| {
        output
            .stderr
            .lines()
            .filter(|line| words.iter().all(|word| line.contains(word)))
            .count()
    };
    assert_eq!(
        lines(["quay.io/hosts.toml, line 2", "not understood"]),
        1,
        "{}",
        output.stderr
    );
    assert_eq!(
        lines(["docker.io/hosts.toml, line 1", "rewrite is followed"]),
        1,
        "{}",
        output.stderr
    );
    assert!(!output.stderr.contains("canary"), "{}", output.stderr);
}
