//! `tolerarch inspect`, and that it says what the webhook does.

use serde_json::{Value, json};
use testregistry::{Auth, DOCKER_MANIFEST, Fault, OCI_MANIFEST, Registry, Reply};

use super::{BOTH, Desk};
use crate::binary::program::Program;
use crate::support::review::pod;

/// Pools, of which an image may open any number; lookups end by this timeout, which is before a Pod's own end.
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

/// Fills the registry with all that is odd, and gives the images: those of one webhook each, as it is remembered of a registry
/// that it fails, or how it authenticates. The last one hangs.
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
async fn says_what_the_webhook_does() {
    let desk = Desk::new(json!({})).await;
    let groups = fixtures(&desk.registry);
    let mut kinds = Vec::new();
    for (place, images) in groups.iter().enumerate() {
        let settings = settings(if place == groups.len() - 1 {
            "2s"
        } else {
            "20s"
        });
        desk.configure(&settings);
        let program = Program::start(&desk.registry, settings).await;
        let given = |image| json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"image": image}]}});
        let given: Vec<Value> = images.iter().map(given).collect();
        let (_, checked) = desk
            .check(json!({"apiVersion": "v1", "kind": "List", "items": given}).to_string())
            .await;
        for (place, image) in images.iter().enumerate() {
            let verdict = program.review(&pod(&[image])).await;
            let ran = desk.run(&["inspect", "-o", "json", "--", image]).await;
            let all: Value = serde_json::from_str(&ran.stdout)
                .unwrap_or_else(|_| panic!("{image}: {}", ran.stderr));
            let said = &all["images"][0];
            assert_eq!(said["reason"], verdict.reason, "{image}: {said}");
            let patched = verdict.applied_to(&pod(&[image]));
            let opened = patched["metadata"]["annotations"]["tolerarch.io/pools"]
                .as_str()
                .unwrap_or_default();
            let pools: Vec<&str> = said["pools"]
                .as_array()
                .unwrap()
                .iter()
                .map(|pool| pool.as_str().unwrap())
                .collect();
            assert_eq!(pools.join(","), opened, "{image}: {said}");
            assert_eq!(
                checked["results"][place]["reason"], verdict.reason,
                "{image}"
            );
            let unknown = !matches!(&*verdict.reason, "tolerated" | "platform-missing");
            assert_eq!(ran.status, Some(i32::from(unknown)), "{image}: {said}");
            kinds.push(verdict.reason);
        }
    }
    kinds.sort();
    kinds.dedup();
    assert_eq!(
        kinds,
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
async fn shows_each_entry_and_why_it_counts() {
    let desk = Desk::new(json!({})).await;
    fixtures(&desk.registry);
    let repo = desk.registry.repo("team/app");
    let ask = async |tag: &str| {
        let ran = desk
            .run(&["inspect", "-o", "json", &repo.reference(tag)])
            .await;
        serde_json::from_str::<Value>(&ran.stdout).unwrap()["images"][0].clone()
    };
    let why = |said: &Value| {
        let entries = said["entries"].as_array().unwrap();
        entries
            .iter()
            .map(|entry| entry["why"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let said = ask("buildkit").await;
    assert_eq!(why(&said), ["runs", "runs", "attestation", "attestation"]);
    assert_eq!(said["platforms"], json!(BOTH));
    assert_eq!(
        said["digest"].as_str(),
        repo.digest_of("buildkit").as_deref()
    );
    assert_eq!(said["mediaType"], testregistry::OCI_INDEX);
    assert_eq!(said["source"], desk.registry.url());
    assert_eq!(
        said["requests"].as_array().unwrap().len(),
        3,
        "the index, and a look for each platform"
    );
    assert_eq!(
        why(&ask("odd").await),
        ["other-os", "no-such-node", "no-such-node", "other-os"]
    );
    let said = ask("nested").await;
    assert_eq!(
        why(&said),
        ["runs", "index", "runs", "index", "outside-its-index"]
    );
    assert_eq!(said["requests"].as_array().unwrap().len(), 5);
    let single = ask("arm64").await;
    assert_eq!(
        (&single["entries"], &single["platforms"]),
        (&json!([]), &json!(["linux/arm64"]))
    );
    assert_eq!(single["requests"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&single["lacks"], &said["lacks"]),
        (&json!(["linux/amd64"]), &json!([]))
    );
}

#[tokio::test]
async fn explains_every_request_without_a_secret() {
    let desk = Desk::new(json!({})).await;
    let repo = desk.registry.repo("team/app");
    repo.image("linux/amd64", Some("v1"));
    repo.require(Auth::bearer().or_anonymous().token_text("canary"));
    repo.redirect_blobs_to(&desk.registry.cdn_of(&repo));
    let ran = desk
        .run(&["inspect", "--explain", &repo.reference("v1")])
        .await;
    for told in [
        "GET manifest",
        "401",
        "GET token",
        "bearer",
        "GET config",
        "platform-missing",
    ] {
        assert!(
            ran.stdout.contains(told),
            "{told}: {}{}",
            ran.stdout,
            ran.stderr
        );
    }
    assert!(
        !format!("{}{}", ran.stdout, ran.stderr).contains("canary"),
        "{}",
        ran.stdout
    );
}

#[tokio::test]
async fn images_are_asked_for_at_once() {
    let desk = Desk::new(json!({})).await;
    let images: Vec<String> = (0..5)
        .map(|place| desk.image(&format!("app{place}"), &BOTH))
        .collect();
    for place in 0..5 {
        desk.registry
            .repo(&format!("app{place}"))
            .fault(Some(Fault::hang()));
    }
    let arguments: Vec<&str> = ["inspect"]
        .into_iter()
        .chain(images.iter().map(String::as_str))
        .collect();
    let mut child = desk.command(&arguments).spawn().unwrap();
    desk.registry.wait_until(|seen| seen.len() == 5).await;
    child.kill().await.unwrap();
}

#[tokio::test]
async fn one_image_under_two_names_is_told_twice() {
    let desk = Desk::new(json!({})).await;
    let image = desk.image("app", &BOTH);
    let untagged = image.strip_suffix(":v1").unwrap();
    desk.registry.repo("app").index(Some("latest"), BOTH);
    let ran = desk
        .run(&[
            "inspect",
            "-o",
            "json",
            untagged,
            &format!("{untagged}:latest"),
        ])
        .await;
    let said: Value = serde_json::from_str(&ran.stdout).unwrap();
    for place in 0..2 {
        assert_eq!(said["images"][place]["platforms"], json!(BOTH), "{said}");
    }
}

#[tokio::test]
async fn failures_name_the_answer_and_the_credential() {
    let desk = Desk::new(json!({})).await;
    let url = desk.registry.url();
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
        let image = desk.image(&format!("app{status}"), &BOTH);
        desk.registry
            .repo(&format!("app{status}"))
            .fault(Some(Fault::status(status)));
        let ran = desk.run(&["inspect", &image]).await;
        assert!(
            ran.stdout.contains(&expected),
            "{}{}",
            ran.stdout,
            ran.stderr
        );
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {
            "containers": [{"name": "a", "image": image}], "imagePullSecrets": [{"name": "secret"}],
        }});
        let ran = desk.run_with(&["check", "-f", "-"], pod.to_string()).await;
        assert!(
            ran.stdout.contains(&format!("{image}: ")) && ran.stdout.contains(&expected),
            "{}",
            ran.stdout
        );
        assert_eq!(
            ran.stderr.contains("hint: 1 of them name imagePullSecrets"),
            status == 403,
            "{}",
            ran.stderr
        );
        let (_, all) = desk.check(pod.to_string()).await;
        assert!(
            all["results"][0]["error"]
                .as_str()
                .unwrap()
                .ends_with(&expected),
            "{all}"
        );
    }
}

#[tokio::test]
async fn a_throttled_lookup_says_for_how_long() {
    let desk = Desk::new(json!({})).await;
    let image = desk.image("app", &BOTH);
    let reply = Reply::new(429).header("retry-after", "30");
    desk.registry.repo("app").fault(Some(Fault::reply(reply)));
    let ran = desk.run(&["inspect", &image]).await;
    assert!(
        ran.stdout.contains("retry after 30 s"),
        "{}{}",
        ran.stdout,
        ran.stderr
    );
}

/// The last word is that of the registry that the image names.
#[tokio::test]
async fn the_answer_of_a_mirror_is_not_that_of_the_registry() {
    let desk = Desk::new(json!({})).await;
    let mirror = Registry::builder().pki(desk.registry.pki()).start().await;
    let ca = desk.path().join("ca.crt");
    desk.configure(&json!({"registries": {"hosts": {
        desk.registry.address(): {"mirrors": [mirror.address()]}, mirror.address(): {"caFile": ca},
    }}}));
    let image = desk.image("app", &BOTH);
    for (of_mirror, of_registry) in [(403, 503), (503, 403), (429, 403)] {
        mirror.repo("app").fault(Some(Fault::status(of_mirror)));
        desk.registry
            .repo("app")
            .fault(Some(Fault::status(of_registry)));
        let ran = desk.run(&["inspect", &image]).await;
        let expected = format!(
            "({} answered {of_registry} to GET manifest",
            desk.registry.url()
        );
        assert!(
            ran.stdout.contains(&expected),
            "{of_mirror}: {}{}",
            ran.stdout,
            ran.stderr
        );
        assert!(!mirror.requests().is_empty());
    }
}

/// Who has to open the way out is told where to.
#[tokio::test]
async fn a_redirect_shows_the_host_at_which_it_ended() {
    let desk = Desk::new(json!({})).await;
    let target = Registry::builder().pki(desk.registry.pki()).start().await;
    let ca = desk.path().join("ca.crt");
    desk.configure(&json!({"registries": {"hosts": {target.address(): {"caFile": ca}}}}));
    let image = desk.image("app", &BOTH);
    target.repo("app").index(Some("v1"), BOTH);
    let to = format!("{}/v2/app/manifests/v1", target.url());
    desk.registry
        .repo("app")
        .fault(Some(Fault::redirect(307, &to)));
    let ran = desk.run(&["inspect", "--explain", &image]).await;
    assert!(
        ran.stdout
            .contains(&format!("{}, 6 requests", target.url())),
        "{}{}",
        ran.stdout,
        ran.stderr
    );
    for shown in [desk.registry.url(), target.url()] {
        assert!(
            ran.stdout
                .contains(&format!(" {shown}/v2/app/manifests/v1")),
            "{}",
            ran.stdout
        );
    }
    target.repo("app").fault(Some(Fault::status(403)));
    let ran = desk.run(&["inspect", &image]).await;
    let from = desk.registry.address();
    let to = target.address();
    let redirected = format!("{from} redirects to {to}: denied: the registry answered 403");
    let answer = format!(
        "({} answered 403 to GET manifest, with no credential)",
        target.url()
    );
    assert!(
        ran.stdout.contains(&format!("{redirected} {answer}")),
        "{}{}",
        ran.stdout,
        ran.stderr
    );
    target.stop().await;
    let ran = desk.run(&["inspect", &image]).await;
    let gone = format!(
        "{from} redirects to {to}: failed: {to} cannot be reached: it refuses the connection"
    );
    assert!(ran.stdout.contains(&gone), "{}{}", ran.stdout, ran.stderr);
}

/// As crane and regctl do.
#[tokio::test]
async fn a_persons_docker_configuration_is_used_and_shown() {
    let desk = Desk::new(json!({})).await;
    let image = desk.image("app", &BOTH);
    desk.registry
        .repo("app")
        .require(Auth::basic("user", "canary"));
    std::fs::create_dir(desk.path().join(".docker")).unwrap();
    let entry = json!({"username": "user", "password": "canary"});
    desk.write(
        ".docker/config.json",
        json!({"auths": {desk.registry.address(): entry}}).to_string(),
    );
    let ran = desk.run(&["inspect", "-o", "json", &image]).await;
    let said: Value = serde_json::from_str(&ran.stdout).unwrap();
    let requests = said["images"][0]["requests"].as_array().unwrap();
    let last = &requests[requests.len() - 1];
    assert_eq!(
        (&last["answer"], &last["credential"]),
        (&json!("200"), &json!("docker config")),
        "{said}"
    );
    assert!(!ran.stdout.contains("canary"), "{}", ran.stdout);
}

#[tokio::test]
async fn registries_on_the_own_machine_need_no_configuration() {
    let desk = Desk::new(json!({"network": {"allow": null}, "registries": null})).await;
    let registry = Registry::builder().plain_http().start().await;
    registry.repo("app").index(Some("v1"), BOTH);
    for host in [registry.address(), format!("localhost:{}", registry.port())] {
        let image = format!("{host}/app:v1");
        let ran = desk.run(&["inspect", &image]).await;
        assert!(
            ran.stdout.contains("tolerated, opens multi-arch"),
            "{}{}",
            ran.stdout,
            ran.stderr
        );
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "kube-system"}, "spec": {
            "containers": [{"name": "a", "image": image}],
        }});
        let ran = desk.run_with(&["check", "-f", "-"], pod.to_string()).await;
        assert!(
            ran.stdout.contains("tolerated") && ran.stderr.contains("exclude"),
            "{}{}",
            ran.stdout,
            ran.stderr
        );
    }
}

#[tokio::test]
async fn a_variable_of_no_key_is_a_warning() {
    let desk = Desk::new(json!({})).await;
    let image = desk.image("app", &BOTH);
    let output = desk
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
async fn an_override_is_believed_and_the_registry_is_not_asked() {
    let registry = Registry::start().await;
    let overrides =
        json!([{"match": format!("{}/team/*", registry.address()), "platforms": ["linux/amd64"]}]);
    let desk =
        Desk::new(json!({"overrides": overrides, "registries": {"deny": [registry.address()]}}))
            .await;
    let image = registry.repo("team/app").reference("v1");
    let ran = desk.run(&["inspect", "-o", "json", &image]).await;
    let said: Value = serde_json::from_str(&ran.stdout).unwrap();
    let said = &said["images"][0];
    assert_eq!(
        (ran.status, &said["reason"]),
        (Some(0), &json!("platform-missing")),
        "{said}"
    );
    assert_eq!(
        (&said["platforms"], &said["lacks"]),
        (&json!(["linux/amd64"]), &json!(["linux/arm64"]))
    );
    assert_eq!(
        (&said["source"], registry.requests().len()),
        (&json!("overrides"), 0)
    );
    let ran = desk.run(&["inspect", &image]).await;
    assert!(
        ran.stdout.contains("from       overrides, 0 requests"),
        "{}",
        ran.stdout
    );
}

#[tokio::test]
async fn what_a_hosts_toml_has_of_other_containerds_is_named() {
    let desk = Desk::new(json!({})).await;
    let image = desk.image("multi", &BOTH);
    let certs = desk.path().join("certs.d");
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
    desk.configure(&json!({"registries": {"hostsDir": certs}}));
    let ran = desk.run(&["inspect", &image]).await;
    let lines = |words: [&str; 2]| {
        ran.stderr
            .lines()
            .filter(|line| words.iter().all(|word| line.contains(word)))
            .count()
    };
    assert_eq!(
        lines(["quay.io/hosts.toml, line 2", "not understood"]),
        1,
        "{}",
        ran.stderr
    );
    assert_eq!(
        lines(["docker.io/hosts.toml, line 1", "rewrite is followed"]),
        1,
        "{}",
        ran.stderr
    );
    assert!(!ran.stderr.contains("canary"), "{}", ran.stderr);
}
