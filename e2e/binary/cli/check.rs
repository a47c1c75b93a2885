//! `tolerarch check`.

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use testregistry::Fault;

use super::{BOTH, CommandLine};
use crate::support::review::{pod, review};

fn deployment(name: &str, image: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}, namespace: shop}}\nspec:\n  template:\n    \
         spec:\n      containers:\n      - image: {image}\n"
    )
}

fn reasons(report: &Value) -> Vec<&str> {
    report["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| result["reason"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn placed_workload_shows_required_and_preferred_nodes() {
    let prefer = json!([{"platform": "linux/amd64", "weight": 80}]);
    let settings = json!({"placement": {"require": "affinity", "prefer": prefer}});
    let cli = CommandLine::new(settings).await;
    let images = [
        ("web", cli.image("multi", &BOTH)),
        ("bills", cli.image("amd64", &BOTH[..1])),
    ];
    let text = images
        .clone()
        .map(|(name, image)| deployment(name, &image))
        .join("---\n");
    let table = cli.run_with(&["check", "-f", "-"], &text).await.stdout;
    let cells: Vec<Vec<&str>> = table
        .lines()
        .take(3)
        .map(|line| line.split_whitespace().take(6).collect())
        .collect();
    assert_eq!(
        cells,
        [
            [
                "NAMESPACE",
                "OBJECT",
                "DECISION",
                "POOLS",
                "REQUIRED",
                "PREFERRED"
            ],
            [
                "shop",
                "Deployment/web",
                "tolerated",
                "multi-arch",
                "amd64=80",
                "tolerated"
            ],
            [
                "shop",
                "Deployment/bills",
                "placed",
                "amd64",
                "amd64=80",
                "placed"
            ],
        ],
        "{table}"
    );

    let json = cli
        .run_with(&["check", "-f", "-", "-o", "json"], &text)
        .await
        .stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    let [web, bills] = [&json["results"][0], &json["results"][1]];
    assert_eq!(
        (web.get("required"), &web["preferred"]),
        (None, &json!("amd64=80"))
    );
    assert_eq!(
        (&bills["required"], &bills["preferred"]),
        (&json!("amd64"), &json!("amd64=80"))
    );

    // A requirement that the webhook added earlier is shown as well.
    let mut placed = pod(&[&images[1].1]);
    let patched = cli
        .run_with(&["check", "-f", "-", "-o", "patch"], &placed.to_string())
        .await;
    let patch: json_patch::Patch = serde_json::from_str(&patched.stdout).unwrap();
    json_patch::patch(&mut placed, &patch).unwrap();
    let (_, report) = cli.check(placed.to_string()).await;
    assert_eq!(report["results"][0]["required"], "amd64", "{report}");
    assert_eq!(report["results"][0].get("patch"), None, "{report}");
}

#[tokio::test]
async fn forged_annotations_are_ignored_and_break_no_table() {
    let cli = CommandLine::new(json!({"placement": {"require": "affinity"}})).await;
    let image = cli.image("multi", &BOTH);
    let forged = |name: &str, required: &str, labels: Value| {
        let mut pod = pod(&[&image]);
        pod["metadata"]["name"] = name.into();
        pod["metadata"]["labels"] = labels;
        pod["metadata"]["annotations"] =
            json!({"tolerarch.io/required": required, "tolerarch.io/preferred": "arm64=80"});
        pod
    };
    let opted_out = json!({"tolerarch.io/mode": "off"});
    let long_text = "amd64,\u{1b}[31m".repeat(10_000);
    let pods = [
        forged("open", "amd64", json!({})),
        forged("off", &long_text, opted_out),
    ];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": pods}).to_string();
    let (status, report) = cli.check(&list).await;
    assert_eq!(status, Some(0), "{report}");
    assert_eq!(reasons(&report), ["tolerated", "opted-out"]);
    for verdict in report["results"].as_array().unwrap() {
        assert_eq!(verdict.get("required"), None, "{verdict}");
        assert_eq!(verdict.get("preferred"), None, "{verdict}");
    }

    // A long name with escape sequences does not break the table either.
    let pod = forged(&long_text, "amd64", json!({})).to_string();
    let output = cli.run_with(&["check", "-f", "-"], &pod).await;
    assert_eq!(output.status, Some(0), "{}", output.stderr);
    assert!(!output.stdout.contains('\u{1b}'), "escape sequence");
}

#[tokio::test]
async fn named_profile_decides() {
    let cli = CommandLine::new(
        json!({"profiles": {"batch": {"mode": "observe"}}, "discover": {"nodes": true}}),
    )
    .await;
    let text = deployment("web", &cli.image("multi", &BOTH));
    let check = async |arguments: &[&str]| {
        let output = cli
            .run_with(
                &[&["check", "-f", "-", "-o", "json"], arguments].concat(),
                &text,
            )
            .await;
        let reason = serde_json::from_str(&output.stdout)
            .map(|report: Value| reasons(&report)[0].to_owned());
        (output.status, reason.unwrap_or_default(), output.stderr)
    };
    let (status, reason, stderr) = check(&[]).await;
    assert_eq!((status, reason.as_str()), (Some(0), "tolerated"));
    assert!(
        stderr.contains("note: this command reads no pools from a cluster"),
        "{stderr}"
    );
    let (status, reason, _) = check(&["--profile", "batch"]).await;
    assert_eq!((status, reason.as_str()), (Some(0), "observed"));
    let (status, reason, stderr) = check(&["--profile", "bacth"]).await;
    assert_eq!((status, reason.as_str()), (Some(2), ""));
    assert!(
        stderr.contains("--profile \"bacth\": `profiles` of the configuration has batch"),
        "{stderr}"
    );
}

#[tokio::test]
async fn placeholder_image_is_reported_as_one() {
    let cli = CommandLine::new(json!({"registries": {"deny": ["docker.io"]}})).await;
    let single = cli.image("single", &["linux/amd64"]);
    let gateway = deployment("gateway", "auto");
    let (status, report) = cli.check(&gateway).await;
    let error = report["results"][0]["error"].as_str().unwrap();
    assert_eq!(
        (
            status,
            error.contains("a placeholder that another webhook replaces")
        ),
        (Some(0), true),
        "{report}"
    );
    let with_both = gateway.replace(
        "- image: auto",
        &format!("- image: {single}\n      - image: auto"),
    );
    for (text, is_placeholder) in [
        (&gateway, true),
        (&with_both, true),
        (&deployment("other", "nginx"), false),
    ] {
        let output = cli
            .run_with(&["check", "-f", "-", "--fail-on", "unknown"], text)
            .await;
        assert_eq!(
            output
                .stdout
                .contains("\nauto: a placeholder that another webhook"),
            is_placeholder,
            "{}",
            output.stdout
        );
    }
}

#[tokio::test]
async fn each_workload_gets_the_decision_of_its_pods() {
    let cli = CommandLine::new(json!({})).await;
    let multi = cli.image("multi", &BOTH);
    let single = cli.image("single", &["linux/amd64"]);
    let template = |image: &str| json!({"spec": {"containers": [{"image": image}]}});
    let object = |version: &str, kind: &str, spec: Value| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x", "namespace": "shop"}, "spec": spec});
    let spec = |image: &str| json!({"template": template(image)});
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        object("apps/v1", "Deployment", spec(&multi)),
        object("apps/v1", "StatefulSet", spec(&single)),
        object("apps/v1", "DaemonSet", spec(&multi)),
        object("apps/v1", "ReplicaSet", spec(&multi)),
        object("v1", "ReplicationController", spec(&multi)),
        object("batch/v1", "Job", spec(&multi)),
        object("batch/v1", "CronJob", json!({"jobTemplate": {"spec": spec(&multi)}})),
        json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": template(&multi)}),
        object("v1", "Pod", template(&multi)["spec"].clone()),
        object("v1", "Service", json!({})),
        review("u-1", &pod(&[&single])),
        review("u-1", &json!({"metadata": {"labels": {"tolerarch.io/mode": "off"}}, "spec": {"containers": [{}]}})),
    ]});
    let (status, report) = cli.check(list.to_string()).await;
    assert_eq!(status, Some(0), "{report}");
    assert_eq!(
        reasons(&report),
        [
            "tolerated",
            "platform-missing",
            "daemonset",
            "tolerated",
            "tolerated",
            "tolerated",
            "tolerated",
            "tolerated",
            "tolerated",
            "platform-missing",
            "opted-out"
        ]
    );
    assert_eq!(report["skipped"], json!({"Service": 1}));
    let first = &report["results"][0];
    let members = [
        "file",
        "document",
        "line",
        "kind",
        "namespace",
        "name",
        "decision",
        "pools",
    ]
    .map(|key| first[key].clone());
    assert_eq!(
        json!(members),
        json!([
            "-",
            1,
            1,
            "Deployment",
            "shop",
            "x",
            "tolerated",
            ["multi-arch"]
        ])
    );
    assert_eq!(report["results"][1]["image"], single);
    // The image is looked up once: one request for its index, and one for each platform.
    assert_eq!(
        cli.registry
            .count(|request| request.repo.as_deref() == Some("multi")),
        3
    );
}

#[tokio::test]
async fn patch_applies_to_the_object_in_the_file() {
    let cli = CommandLine::new(json!({})).await;
    let multi = cli.image("multi", &BOTH);
    let spec = json!({"containers": [{"image": multi}]});
    for (document, path) in [
        (json!({"apiVersion": "v1", "kind": "Pod", "spec": spec}), ""),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}),
            "",
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": spec}}}),
            "/spec/template",
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"metadata": null, "spec": spec}}}),
            "/spec/template",
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"metadata": {"annotations": {"a": "b"}}, "spec": spec}}}),
            "/spec/template",
        ),
        (
            json!({"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}}),
            "/spec/jobTemplate/spec/template",
        ),
    ] {
        let output = cli
            .run_with(&["check", "-f", "-", "-o", "patch"], document.to_string())
            .await;
        assert_eq!(output.status, Some(0), "{}", output.stderr);
        let patch: json_patch::Patch = serde_json::from_str(&output.stdout).unwrap();
        let mut patched = document.clone();
        json_patch::patch(&mut patched, &patch).unwrap();
        let pod = patched.pointer(path).unwrap();
        assert_eq!(
            pod["spec"]["tolerations"][0]["key"], "tolerarch.io/multi-arch",
            "{patched}"
        );
        assert_eq!(
            pod["metadata"]["annotations"]["tolerarch.io/pools"], "multi-arch",
            "{patched}"
        );
        // The patched object needs no further patch.
        let output = cli
            .run_with(&["check", "-f", "-", "-o", "patch"], patched.to_string())
            .await;
        assert_eq!((output.status, &*output.stdout), (Some(0), ""), "{patched}");
    }
}

#[tokio::test]
async fn fail_on_sets_the_exit_status() {
    let cli = CommandLine::new(json!({})).await;
    let unsupported = deployment("a", &cli.image("single", &["linux/amd64"]));
    let unknown = deployment("a", &cli.registry.repo("gone").reference("v1"));
    let good = deployment("a", &cli.image("multi", &BOTH));
    let tolerating = json!({
        "metadata": {"annotations": {"tolerarch.io/pools": "multi-arch"}},
        "spec": {"containers": [{"image": cli.registry.repo("gone").reference("v1")}]},
    });
    let retracted = review("u-1", &tolerating).to_string();
    for (text, fail_on, status) in [
        (&unsupported, &["--fail-on", "unsupported"][..], 3),
        (&retracted, &["--fail-on", "unsupported"], 3),
        (&retracted, &["--fail-on", "unknown"], 3),
        (&unsupported, &["--fail-on", "unknown"], 0),
        (&unsupported, &["--fail-on", "unknown,unsupported"], 3),
        (
            &unsupported,
            &["--fail-on", "unknown", "--fail-on", "unsupported"],
            3,
        ),
        (&unsupported, &[], 0),
        (&unknown, &["--fail-on", "unknown"], 3),
        (&unknown, &["--fail-on", "unsupported"], 0),
        (&unknown, &[], 0),
        (&good, &["--fail-on", "unknown,unsupported"], 0),
        (&good, &["--fail-on", "no"], 2),
    ] {
        let arguments = [&["check", "-f", "-"], fail_on].concat();
        let output = cli.run_with(&arguments, text).await;
        assert_eq!(
            output.status,
            Some(status),
            "{fail_on:?} {}{}",
            output.stdout,
            output.stderr
        );
    }
    let unsupported_and_broken = format!("{unsupported}---\nkind: [\n");
    assert_eq!(
        cli.run_with(
            &["check", "-f", "-", "--fail-on", "unsupported"],
            unsupported_and_broken
        )
        .await
        .status,
        Some(1)
    );
}

#[tokio::test]
async fn missing_platform_is_found_beside_unknown_images() {
    let cli = CommandLine::new(json!({})).await;
    let single = cli.image("single", &["linux/amd64"]);
    let gone = cli.registry.repo("gone").reference("v1");
    // The decisive image is the last container, and its answer arrives last.
    cli.registry
        .repo("single")
        .fault(Some(Fault::drip(Duration::from_millis(1))));
    for other_container in [
        json!({"image": gone}),
        json!({"image": "Bad Image"}),
        json!({"image": gone, "imagePullPolicy": "Never"}),
    ] {
        let spec = json!({"containers": [other_container, {"image": single}]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec}).to_string();
        let output = cli
            .run_with(&["check", "-f", "-", "--fail-on", "unsupported"], pod)
            .await;
        assert_eq!(output.status, Some(3), "{}{}", output.stdout, output.stderr);
        assert!(
            output.stdout.contains("platform-missing"),
            "{}",
            output.stdout
        );
    }
}

#[tokio::test]
async fn every_blocker_is_reported() {
    let cli = CommandLine::new(json!({})).await;
    let amd = cli.image("amd", &["linux/amd64"]);
    let arm = cli.image("arm", &["linux/arm64"]);
    let gone = cli.registry.repo("gone").reference("v1");
    let multi = cli.image("multi", &BOTH);
    let containers = [&amd, &multi, &gone, &arm].map(|image| json!({"image": image}));
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": containers}});
    let (_, report) = cli.check(pod.to_string()).await;
    assert_eq!(
        report["results"][0]["blockers"],
        json!([
            {"image": amd, "reason": "platform-missing", "lacks": ["linux/arm64"]},
            {"image": gone, "reason": "not-found", "lacks": []},
            {"image": arm, "reason": "platform-missing", "lacks": ["linux/amd64"]},
        ])
    );
    let output = cli.run_with(&["check", "-f", "-"], pod.to_string()).await;
    for expected in [
        format!("{amd} lacks linux/arm64\n"),
        format!("{arm} lacks linux/amd64\n"),
    ] {
        assert!(output.stdout.contains(&expected), "{}", output.stdout);
    }
    let row = output
        .stdout
        .lines()
        .find(|line| line.contains(" not-found "))
        .unwrap();
    assert!(row.ends_with(&gone), "{}", output.stdout);
}

#[tokio::test]
async fn invalid_mode_is_reported() {
    let cli = CommandLine::new(json!({})).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "annotations": {"tolerarch.io/mode": "On"}},
        "spec": {"containers": [{"image": "x"}]}});
    let warning = "tolerarch.io/mode: \"On\" is none of off, observe, enforce";
    let (_, report) = cli.check(pod.to_string()).await;
    assert!(
        report["results"][0]["warnings"][0]
            .as_str()
            .unwrap()
            .starts_with(warning),
        "{report}"
    );
    let output = cli.run_with(&["check", "-f", "-"], pod.to_string()).await;
    assert!(
        output
            .stdout
            .contains(&format!("\nwarning: Pod/web: {warning}")),
        "{}",
        output.stdout
    );
    let output = cli
        .run_with(&["check", "-f", "-", "-o", "patch"], pod.to_string())
        .await;
    assert!(
        output.stdout.is_empty() && output.stderr.contains(warning),
        "{}{}",
        output.stdout,
        output.stderr
    );
}

#[tokio::test]
async fn many_images_of_one_registry_are_all_looked_up() {
    // With this setting the webhook lets two lookups run and sixteen wait.
    let cli = CommandLine::new(json!({"lookup": {"perRegistry": 2}})).await;
    let mut items = Vec::new();
    for pod in 0..15 {
        let repo = cli.registry.repo(&format!("app{pod}"));
        let containers = (0..12).map(|tag| {
            repo.index(Some(&format!("v{tag}")), BOTH);
            json!({"image": repo.reference(&format!("v{tag}"))})
        });
        let spec = json!({"containers": containers.collect::<Vec<_>>()});
        items.push(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{pod}")}, "spec": spec}),
        );
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    let (status, report) = cli.check(list).await;
    assert_eq!(
        (status, reasons(&report)),
        (Some(0), vec!["tolerated"; 15]),
        "{report}"
    );
}

#[tokio::test]
async fn unreadable_document_is_named_and_others_are_checked() {
    let cli = CommandLine::new(json!({})).await;
    let good = deployment("good", &cli.image("multi", &BOTH));
    let review = |member: &str, value: Value| {
        let mut review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
        }});
        review["request"][member] = value;
        format!("{review}\n").into_bytes()
    };
    for (broken, expected) in [
        (b"kind: [1\n".to_vec(), "not YAML"),
        (b"a:\n\t- 1\n".to_vec(), "not YAML"),
        (b"a: [!!str, b]\n".to_vec(), "not YAML: a tag (!)"),
        (b"a: stra\xdfe\n".to_vec(), "UTF-8"),
        (b"just a text\n".to_vec(), "no object"),
        (b"- a\n".to_vec(), "no object"),
        (b"kind: Pod\n".to_vec(), "apiVersion"),
        (
            b"apiVersion: apps/v1\nkind: Deployment\n".to_vec(),
            "spec.template",
        ),
        (
            b"apiVersion: v1\nkind: Pod\nspec: {containers: [{image: 7}]}\n".to_vec(),
            "spec.containers[0].image",
        ),
        (
            b"apiVersion: v1\nkind: Pod\nspec: {containers: 7}\n".to_vec(),
            "malformed: spec.containers has the wrong type",
        ),
        (
            b"apiVersion: v1\nkind: Pod\nspec: {volumes: [{name: a, image: {reference: [a]}}]}\n"
                .to_vec(),
            "malformed: spec.volumes[0].image.reference has the wrong type",
        ),
        (
            review("object", json!({"spec": {"containers": [{"image": 7}]}})),
            "malformed: spec.containers[0].image has",
        ),
        (
            review("object", Value::Null),
            "malformed: request.object is missing",
        ),
        (
            review("namespace", json!(7)),
            "request.namespace of the AdmissionReview has the wrong type",
        ),
        (
            b"apiVersion: v1\nkind: Pod\nspec: {containers: []}\n".to_vec(),
            "malformed: it has no containers",
        ),
        (
            b"apiVersion: v1\nkind: Pod\nmetadata: {labels: {tolerarch.io/mode: off}}\n".to_vec(),
            "quotes",
        ),
        (
            b"apiVersion: admission.k8s.io/v1beta1\nkind: AdmissionReview\n".to_vec(),
            "AdmissionReview",
        ),
        (b"apiVersion: v1\nkind: List\nitems: {}\n".to_vec(), "items"),
        (b"{\"apiVersion\": \"v1\",}\n".to_vec(), ""),
    ] {
        let text = [
            good.as_bytes(),
            b"---\n# a comment\n",
            &broken,
            b"---\n",
            good.as_bytes(),
        ]
        .concat();
        let (status, report) = cli.check(&text).await;
        let broken_text = String::from_utf8_lossy(&broken).into_owned();
        assert_eq!(status, Some(1), "{broken_text}: {report}");
        assert_eq!(
            reasons(&report),
            ["tolerated", "tolerated"],
            "{broken_text}"
        );
        let errors = report["errors"].as_array().unwrap();
        assert_eq!(
            (errors.len(), &errors[0]["document"]),
            (1, &json!(2)),
            "{broken_text}: {report}"
        );
        let line = errors[0]["line"].as_u64().unwrap();
        assert!((11..=14).contains(&line), "{broken_text}: {report}");
        assert!(
            errors[0]["message"].as_str().unwrap().contains(expected),
            "{broken_text}: {report}"
        );
    }
}

/// The parser of YAML panics at a tag before a comma.
#[tokio::test]
async fn parser_panic_is_printed_as_one_error() {
    let cli = CommandLine::new(json!({})).await;
    let run = cli.run_with(&["check", "-f", "-"], "a: [!!str, b]\n").await;
    let line = "tolerarch: standard input: document 1, line 2: not YAML: a tag (!) directly before a comma";
    assert_eq!(run.stderr.lines().collect::<Vec<_>>(), [line]);
}

#[tokio::test]
async fn large_file_is_read_and_binary_file_is_refused() {
    let cli = CommandLine::new(json!({})).await;
    let good = deployment("good", &cli.image("multi", &BOTH));
    let huge = format!("{good}---\n# {}\n", "x".repeat(10 << 20));
    let (status, report) = cli.check(huge).await;
    assert_eq!((status, reasons(&report).len()), (Some(0), 1));
    let crlf = format!("\u{feff}{}", good.replace('\n', "\r\n"));
    assert_eq!(cli.check(crlf).await.0, Some(0));
    for binary in [
        &[0, 1, 2, 3][..],
        b"\xff\xfea\0b\0",
        b"\x7fELF\x02\x01\x01\0",
    ] {
        assert_eq!(cli.check(binary).await.0, Some(1));
    }
}

#[tokio::test]
async fn files_and_directories_are_read() {
    let cli = CommandLine::new(json!({})).await;
    let image = cli.image("multi", &BOTH);
    std::fs::create_dir(cli.path().join("dir")).unwrap();
    cli.write("dir/b.yaml", deployment("b", &image));
    cli.write("dir/a.yml", deployment("a", &image));
    cli.write("dir/README.md", "not a manifest: [");
    let output = cli
        .run(&["check", "-f", "dir", "--filename", "gone.yaml"])
        .await;
    assert_eq!(output.status, Some(1));
    let lines: Vec<&str> = output.stdout.lines().map(str::trim_end).collect();
    assert!(
        lines[1].contains("Deployment/a") && lines[2].contains("Deployment/b"),
        "{lines:?}"
    );
    assert!(lines[1].starts_with("dir/a.yml:1"), "{lines:?}");
    assert!(
        output
            .stderr
            .starts_with("tolerarch: gone.yaml: cannot be read"),
        "{}",
        output.stderr
    );
}

/// A user does not choose each file below a directory. A pipe without a writer or an endless device would block.
#[tokio::test]
async fn only_regular_files_below_directories_are_read() {
    let cli = CommandLine::new(json!({})).await;
    let image = cli.image("multi", &BOTH);
    std::fs::create_dir_all(cli.path().join("dir/below/directory.yaml")).unwrap();
    cli.write("target", deployment("linked", &image));
    cli.write("dir/below/good.yaml", deployment("good", &image));
    let path_of = |name: &str| cli.path().join("dir/below").join(name);
    let fifo = |path: &Path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    fifo(&path_of("fifo.yaml"));
    let _socket = UnixListener::bind(path_of("socket.json")).unwrap();
    for (name, target) in [
        ("to-file.yml", "../../target"),
        ("to-fifo.yaml", "fifo.yaml"),
        ("to-device.yaml", "/dev/zero"),
        ("to-directory.yaml", ".."),
        ("to-itself.yaml", "to-itself.yaml"),
        ("to-nothing.yaml", "gone"),
        ("loop", "../.."),
    ] {
        symlink(target, path_of(name)).unwrap();
    }
    let output = cli.run(&["check", "-R", "-f", "dir", "-o", "json"]).await;
    assert_eq!(output.status, Some(1));
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(
        reasons(&report),
        ["tolerated"; 2],
        "the linked file and the good one: {report}"
    );
    for (name, error) in [
        ("fifo.yaml", "cannot be read: not a regular file"),
        ("socket.json", "cannot be read: not a regular file"),
        ("to-fifo.yaml", "cannot be read: not a regular file"),
        ("to-device.yaml", "cannot be read: not a regular file"),
        (
            "to-itself.yaml",
            "cannot be read: Too many levels of symbolic links",
        ),
        ("to-nothing.yaml", "cannot be read: No such file"),
    ] {
        assert!(
            output
                .stderr
                .contains(&format!("dir/below/{name}: {error}")),
            "{name}: {}",
            output.stderr
        );
    }
    assert_eq!(
        output.stderr.matches("tolerarch: dir/").count(),
        6,
        "{}",
        output.stderr
    );
}

/// A shell passes `<(…)` as a named pipe.
#[tokio::test]
async fn named_pipe_is_read() {
    let cli = CommandLine::new(json!({})).await;
    let text = deployment("piped", &cli.image("multi", &BOTH));
    let pipe = cli.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let writer = std::thread::spawn(move || std::fs::write(pipe, text));
    let output = cli.run(&["check", "-f", "pipe"]).await;
    assert_eq!(output.status, Some(0), "{}", output.stderr);
    assert!(
        output.stdout.contains("Deployment/piped"),
        "{}",
        output.stdout
    );
    writer.join().unwrap().unwrap();
}

#[tokio::test]
async fn escape_sequences_in_names_are_escaped() {
    let cli = CommandLine::new(json!({})).await;
    let image = cli.image("multi", &BOTH);
    let text = deployment("\"a\\e[31m\\u202e\"", &image);
    let output = cli.run_with(&["check", "-f", "-"], text).await;
    assert!(
        output.stdout.contains("a\\u{1b}[31m\\u{202e}"),
        "{}",
        output.stdout
    );
    assert!(!output.stdout.contains('\u{1b}'), "{}", output.stdout);
}

#[tokio::test]
async fn empty_input_is_an_error() {
    let cli = CommandLine::new(json!({})).await;
    for text in ["", "---\n", "\u{feff}---\r\n", "# a comment\n"] {
        let (status, report) = cli.check(text).await;
        assert_eq!((status, reasons(&report).len()), (Some(1), 0), "{text:?}");
        assert!(
            report["errors"][0]["message"]
                .as_str()
                .unwrap()
                .starts_with("no objects"),
            "{report}"
        );
    }
    std::fs::create_dir(cli.path().join("empty")).unwrap();
    let output = cli.run(&["check", "-f", "empty"]).await;
    assert_eq!(output.status, Some(1));
    assert!(
        output.stderr.starts_with("tolerarch: empty: no objects"),
        "{}",
        output.stderr
    );
    // `kubectl get` prints an empty list for a cluster without objects.
    assert_eq!(
        cli.check("apiVersion: v1\nkind: List\nitems: []\n").await.0,
        Some(0)
    );
}

#[tokio::test]
async fn images_of_unknown_kinds_are_named_but_not_checked() {
    let cli = CommandLine::new(json!({})).await;
    let thing = "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a}\nspec: {steps: [{image: x}]}\n";
    let (status, report) = cli.check(thing).await;
    assert_eq!(
        (status, &report["notLookedAt"]),
        (Some(0), &json!({"Thing.example.com": 1}))
    );
    let image = json!({"file": "-", "document": 1, "line": 4, "kind": "Thing", "namespace": "", "name": "a", "path": ".spec.steps[0].image", "image": "x"});
    assert_eq!(report["imagesNotLookedAt"], json!([image]));
    let output = cli.run_with(&["check", "-f", "-"], thing).await;
    let expected = "not looked at: Thing/a.spec.steps[0].image is x\n\n0 checked; 1 not looked at (1 Thing.example.com)\n";
    assert_eq!(output.stdout, expected);
    let output = cli
        .run_with(&["check", "-f", "-", "--fail-on", "not-looked-at"], thing)
        .await;
    assert_eq!(output.status, Some(3), "{}", output.stderr);
}

#[tokio::test]
async fn each_item_of_a_json_list_has_its_own_line() {
    let cli = CommandLine::new(json!({})).await;
    let pod = |image: Value| json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"image": image}]}});
    let list = json!({"apiVersion": "v1", "items": [pod("Bad Image".into()), pod(7.into())], "kind": "List"});
    let (status, report) = cli.check(format!("{list:#}")).await;
    let text = format!("{list:#}");
    let line_of = |part: &str| text.lines().position(|line| line.contains(part)).unwrap() + 1;
    let line = |entry: &Value| entry["line"].as_u64().unwrap() as usize;
    assert_eq!(
        (status, line(&report["results"][0])),
        (Some(1), line_of("\"apiVersion\"") + 2),
        "{report}"
    );
    assert_eq!(
        line(&report["errors"][0]),
        line_of("\"image\": 7"),
        "{report}"
    );
}

#[tokio::test]
async fn custom_kind_is_checked_at_the_named_template_path() {
    let cli = CommandLine::new(json!({})).await;
    let multi = cli.image("multi", &BOTH);
    let single = cli.image("single", &["linux/amd64"]);
    let template = |image: &str| json!({"spec": {"containers": [{"image": image}]}});
    let object = |version: &str, kind: &str, spec: Value| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": spec});
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        object("argoproj.io/v1alpha1", "Rollout", json!({"template": template(&multi)})),
        object("example.com/v1", "Thing", json!({"parts": [{"pod": template(&single)}, {"pod": template(&multi)}]})),
    ]})
    .to_string();
    std::fs::create_dir_all(cli.path().join("dir/below")).unwrap();
    cli.write("dir/below/list.yaml", &list);
    let arguments = &[
        "check",
        "-R",
        "-f",
        "dir",
        "-o",
        "json",
        "--workload",
        "Thing.example.com=.spec.parts[].pod",
    ];
    let output = cli.run(arguments).await;
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(
        reasons(&report),
        ["tolerated", "platform-missing", "tolerated"],
        "{}",
        output.stderr
    );
    let paths: Vec<&Value> = report["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| &result["path"])
        .collect();
    assert_eq!(
        paths,
        [".spec.template", ".spec.parts[0].pod", ".spec.parts[1].pod"]
    );
    assert_eq!(
        report["results"][2]["patch"][0]["path"],
        "/spec/parts/1/pod/spec/tolerations"
    );
    let invalid = cli
        .run(&["check", "-f", "dir", "--workload", "Thing"])
        .await;
    assert!(
        invalid.status == Some(2) && invalid.stderr.contains("KIND.GROUP=.path"),
        "{}",
        invalid.stderr
    );
}
