//! Which configuration decides: without `--config`, a command reads the configuration of the cluster.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use humantime::format_rfc3339_seconds;
use rustls::{NamedGroup, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use testregistry::{Auth, Registry};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio_rustls::TlsAcceptor;
use tolerarch_images::registry::testing::provider;

use super::cluster::{FakeApiServer, FakeCluster, kubeconfig};
use super::{BOTH, CommandLine, CommandOutput};
use crate::support::soon;

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/shop/deployments/web";
const CONFIG: &str = "/api/v1/namespaces/tolerarch/configmaps/tolerarch";
const RECORD: &str = "/api/v1/namespaces/tolerarch/configmaps/tolerarch-controller-failed-images";
const SERVICE: &str = "/api/v1/namespaces/tolerarch/services/tolerarch";
const PODS: &str = "/api/v1/namespaces/tolerarch/pods";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// Returns a cluster with a Deployment, where tolerarch is installed with this configuration.
fn cluster(image: &str, config: &Value) -> FakeCluster {
    let secrets = json!([{"name": "registry"}]);
    let pod = json!({"containers": [{"name": "app", "image": image}], "imagePullSecrets": secrets});
    FakeCluster::default()
        .with_tolerarch(config)
        .with(
            DEPLOYMENT,
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
                "spec": {"template": {"spec": pod}},
            }),
        )
        .with("/api/v1/pods", json!([{"metadata": {"name": "web-1", "namespace": "shop"}, "spec": pod}]))
        .with("/api/v1/namespaces/shop/pods", json!([]))
        .with("/api/v1/namespaces/shop", json!({"metadata": {"name": "shop"}}))
        .with("/api/v1/namespaces", json!([{"metadata": {"name": "shop"}}]))
        .with("/api/v1/nodes", json!([]))
}

/// Returns a configuration with a pool that is not the default, and with files that exist only in tolerarch's Pods.
fn settings(cli: &CommandLine) -> Value {
    let ca = cli.path().join("ca.crt");
    json!({
        "pools": [{"name": "of-cluster", "platforms": BOTH, "tolerations": [{"key": "of-cluster", "operator": "Exists"}]}],
        "registries": {"hostsDir": "/nowhere/certs.d", "hosts": {
            cli.registry.address(): {"caFile": ca},
            "other.example.com": {"caFile": "/nowhere/ca.crt", "clientCertFile": ca, "clientKeyFile": "/nowhere/tls.key"},
        }},
        "network": {"allow": ["127.0.0.0/8"]},
        "credentials": {"dockerConfigs": ["/nowhere/config.json"]},
    })
}

/// Runs a command without `--config`.
pub(super) async fn run(
    cli: &CommandLine,
    cluster: Option<&FakeApiServer>,
    arguments: &[&str],
) -> CommandOutput {
    finish(command(cli, cluster, arguments)).await
}

fn command(cli: &CommandLine, cluster: Option<&FakeApiServer>, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tolerarch"));
    command
        .args(arguments)
        .current_dir(cli.path())
        .env("HOME", cli.path())
        .env_remove("DOCKER_CONFIG");
    command
        .env("SSL_CERT_FILE", cli.path().join("ca.crt"))
        .env_remove("KUBECONFIG")
        .kill_on_drop(true);
    if let Some(cluster) = cluster {
        command.env("KUBECONFIG", cluster.kubeconfig(cli.path()));
    }
    command
}

async fn finish(mut command: Command) -> CommandOutput {
    let output = soon("the end", command.output()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    CommandOutput {
        status: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

#[tokio::test]
async fn cluster_configuration_decides_despite_unread_files() {
    let cli = CommandLine::new(json!({})).await;
    let image = cli.image("shop/web", &BOTH);
    let served = cluster(&image, &settings(&cli)).serve().await;
    let note = "the configuration is that of ConfigMap tolerarch/tolerarch";
    for arguments in [
        &["why", "-n", "shop", "deploy/web"][..],
        &["report"],
        &["inspect", &image],
        &["pools"],
    ] {
        let output = run(&cli, Some(&served), arguments).await;
        let text = format!("{}{}", output.stdout, output.stderr);
        assert_eq!(output.status, Some(0), "{arguments:?}: {text}");
        assert!(
            text.contains("of-cluster") && text.contains(note),
            "{arguments:?}: {text}"
        );
        for unread_file in [
            "registries.hostsDir: /nowhere/certs.d cannot be read here (No such file or directory",
            "registries.hosts.\"other.example.com\".caFile: /nowhere/ca.crt",
            "registries.hosts.\"other.example.com\".clientCertFile: /nowhere/tls.key",
            "credentials.dockerConfigs: files that the cluster names are not read here",
        ] {
            assert_eq!(
                text.contains(unread_file),
                arguments != ["pools"],
                "{arguments:?}: {unread_file}: {text}"
            );
        }
    }
    let output = run(&cli, Some(&served), &["why", "-n", "shop", "deploy/web"]).await;
    assert!(
        output.stdout.contains("\n  today      tolerated\n"),
        "{}",
        output.stdout
    );
    let output = run(&cli, Some(&served), &["pools", "--config", "config.yaml"]).await;
    assert!(
        output.stdout.contains("multi-arch") && !output.stdout.contains("of-cluster"),
        "{}",
        output.stdout
    );
}

const WHY_WEB: [&str; 4] = ["why", "-n", "shop", "deploy/web"];

/// Returns a cluster whose record says that `shop/web` has failed on arm64 in the namespace `shop`.
fn cluster_with_record(cli: &CommandLine, config: &Value, since: SystemTime) -> FakeCluster {
    let image = cli.image("shop/web", &BOTH);
    let failed = json!([{
        "digest": cli.registry.repo("shop/web").digest_of("v1"), "architecture": "arm64", "failures": 1,
        "evidence": "exec-format-error", "namespace": "shop", "allNamespaces": false,
        "since": format_rfc3339_seconds(since).to_string(),
        "until": format_rfc3339_seconds(since + Duration::from_secs(3600)).to_string(),
    }]);
    let record = json!({"data": {"record.json": failed.to_string()}});
    cluster(&image, config).with(RECORD, record)
}

#[tokio::test]
async fn recorded_image_failures_are_shown() {
    let cli = CommandLine::new(json!({})).await;
    let since = SystemTime::now();
    let served = cluster_with_record(&cli, &settings(&cli), since)
        .serve()
        .await;
    let image = cli.registry.repo("shop/web").reference("v1");
    let expected = format!("failed on linux/arm64 at {}", format_rfc3339_seconds(since));
    for arguments in [
        &WHY_WEB[..],
        &["report"],
        &["inspect", "-n", "shop", &image],
    ] {
        let output = run(&cli, Some(&served), arguments).await;
        assert!(
            output.stdout.contains(&expected),
            "{arguments:?}: {}{}",
            output.stdout,
            output.stderr
        );
        assert!(
            !output.stdout.contains("lacks"),
            "{arguments:?}: {}",
            output.stdout
        );
    }
    let output = run(&cli, Some(&served), &WHY_WEB).await;
    assert!(
        output.stdout.contains("unchanged: failed-there"),
        "{}",
        output.stdout
    );
    for (arguments, pointer) in [
        (
            &[&WHY_WEB[..], &["-o", "json"]].concat()[..],
            "/objects/0/images/0",
        ),
        (
            &["inspect", "-n", "shop", &image, "-o", "json"],
            "/images/0",
        ),
    ] {
        let output = run(&cli, Some(&served), arguments).await;
        let json: Value = serde_json::from_str(&output.stdout).unwrap();
        let failure = &json.pointer(pointer).unwrap()["failed"];
        assert_eq!(failure["platforms"], json!(["linux/arm64"]), "{json:#}");
        assert_eq!(failure["since"], format_rfc3339_seconds(since).to_string());
    }
    let output = run(&cli, Some(&served), &["report", "--by", "workload"]).await;
    assert!(output.stdout.contains("failed-there"), "{}", output.stdout);
    // Evidence from a tenant's namespace counts only in that namespace.
    let output = run(&cli, Some(&served), &["inspect", &image]).await;
    assert!(
        output.stdout.contains("opens of-cluster"),
        "{}",
        output.stdout
    );
}

#[tokio::test]
async fn recorded_failures_do_not_count_without_learning() {
    let cli = CommandLine::new(json!({})).await;
    let mut settings = settings(&cli);
    settings["controller"] = json!({"learn": false});
    let cluster = cluster_with_record(&cli, &settings, SystemTime::now());
    let output = run(&cli, Some(&cluster.serve().await), &WHY_WEB).await;
    assert!(
        output.stdout.contains("\n  today      tolerated\n"),
        "{}",
        output.stdout
    );
}

#[tokio::test]
async fn forbidden_record_of_failures_is_reported() {
    let cli = CommandLine::new(json!({})).await;
    let mut cluster = cluster_with_record(&cli, &settings(&cli), SystemTime::now());
    cluster.forbidden = vec![RECORD];
    let output = run(&cli, Some(&cluster.serve().await), &WHY_WEB).await;
    let expected = "ConfigMap tolerarch/tolerarch-controller-failed-images cannot be read, so images that have failed are decided like others: ";
    assert!(output.stderr.contains(expected), "{}", output.stderr);
    assert!(
        output.stdout.contains("\n  today      tolerated\n"),
        "{}",
        output.stdout
    );
}

#[tokio::test]
async fn namespace_without_webhook_calls_is_reported() {
    let cli = CommandLine::new(json!({})).await;
    let image = cli.image("shop/web", &BOTH);
    let mut cluster = cluster(&image, &settings(&cli));
    let selector = json!({"matchExpressions": [{"key": "excluded", "operator": "DoesNotExist"}]});
    cluster.objects.get_mut(WEBHOOKS).unwrap()[0]["webhooks"][0]["namespaceSelector"] = selector;
    for (labels, today, is_reported) in [
        (json!({}), "tolerated", false),
        (json!({"excluded": "1"}), "unchanged: not-applicable", true),
        (
            json!({"excluded": "1", "tolerarch.io/mode": "off"}),
            "unchanged: opted-out",
            true,
        ),
        (json!({"tolerarch.io/mode": "disabled"}), "tolerated", false),
    ] {
        let namespace = json!({"metadata": {"name": "shop", "labels": labels}});
        cluster
            .objects
            .insert("/api/v1/namespaces/shop".to_owned(), namespace);
        let served = FakeCluster {
            objects: cluster.objects.clone(),
            ..FakeCluster::default()
        }
        .serve()
        .await;
        let output = run(&cli, Some(&served), &["why", "-n", "shop", "deploy/web"]).await;
        assert!(
            output.stdout.contains(&format!("\n  today      {today}\n")),
            "{}",
            output.stdout
        );
        let expected = "no webhook of tolerarch selects the labels of Deployment/web and of the namespace shop";
        assert_eq!(
            output.stderr.contains(expected),
            is_reported,
            "{}",
            output.stderr
        );
        let ignored = "the label tolerarch.io/mode=disabled of the namespace has no effect";
        assert_eq!(
            output.stderr.contains(ignored),
            labels["tolerarch.io/mode"] == "disabled",
            "{}",
            output.stderr
        );
    }
}

#[tokio::test]
async fn pods_without_webhook_calls_are_reported() {
    let cli = CommandLine::new(json!({})).await;
    let image = cli.image("shop/web", &BOTH);
    for (webhook_fields, today, expected) in [
        (
            json!({"objectSelector": {"matchLabels": {"team": "x"}}}),
            "unchanged: not-applicable",
            "selects the labels",
        ),
        (
            json!({"matchConditions": [{"name": "never", "expression": "false"}]}),
            "tolerated",
            "a matchCondition of the webhook, which is not evaluated here, determines whether Deployment/web is decided on",
        ),
    ] {
        let mut cluster = cluster(&image, &settings(&cli));
        let webhook = &mut cluster.objects.get_mut(WEBHOOKS).unwrap()[0]["webhooks"][0];
        webhook
            .as_object_mut()
            .unwrap()
            .extend(webhook_fields.as_object().unwrap().clone());
        let served = cluster.serve().await;
        let output = run(&cli, Some(&served), &["why", "-n", "shop", "deploy/web"]).await;
        assert!(
            output.stdout.contains(&format!("\n  today      {today}\n")),
            "{}",
            output.stdout
        );
        assert!(output.stderr.contains(expected), "{}", output.stderr);
    }
}

/// Decisions by the built-in defaults would be about the wrong pools.
#[tokio::test]
async fn unreadable_configuration_decides_nothing() {
    let cli = CommandLine::new(json!({})).await;
    let image = cli.image("shop/web", &BOTH);
    let commands: [&[&str]; 4] = [
        &["why", "-n", "shop", "deploy/web"],
        &["report"],
        &["pools"],
        &["inspect", &image],
    ];
    for path in [CONFIG, SERVICE, PODS, WEBHOOKS] {
        for is_forbidden in [true, false] {
            let mut cluster = cluster(&image, &settings(&cli));
            let paths = if is_forbidden {
                &mut cluster.forbidden
            } else {
                &mut cluster.failing
            };
            paths.push(path);
            let served = cluster.serve().await;
            for arguments in commands {
                let output = run(&cli, Some(&served), arguments).await;
                let names_the_fix = output.stderr.contains("cannot be read: ")
                    && output.stderr.contains("--config FILE");
                assert_eq!(
                    (output.status, &*output.stdout),
                    (Some(1), ""),
                    "{path} {arguments:?}: {}",
                    output.stderr
                );
                assert!(names_the_fix, "{path} {arguments:?}: {}", output.stderr);
            }
            let output = run(&cli, Some(&served), &["pools", "--config", "/dev/null"]).await;
            assert!(
                output.status == Some(0) && output.stdout.contains("multi-arch"),
                "{}{}",
                output.stdout,
                output.stderr
            );
        }
    }
    let mut cluster = cluster(&image, &settings(&cli));
    cluster.failing = vec![RECORD];
    let output = run(&cli, Some(&cluster.serve().await), commands[0]).await;
    assert!(
        output.status == Some(1) && output.stderr.contains("failed-images cannot be read"),
        "{}",
        output.stderr
    );
}

#[tokio::test]
async fn namespace_opts_out_even_if_its_pods_are_forbidden() {
    let cli = CommandLine::new(json!({})).await;
    let image = cli.image("shop/web", &BOTH);
    let labels = json!({"tolerarch.io/mode": "off"});
    let mut cluster = cluster(&image, &settings(&cli)).with(
        "/api/v1/namespaces/shop",
        json!({"metadata": {"name": "shop", "labels": labels}}),
    );
    cluster.forbidden = vec!["/api/v1/namespaces/shop/pods"];
    let output = run(
        &cli,
        Some(&cluster.serve().await),
        &["why", "-n", "shop", "deploy/web"],
    )
    .await;
    assert!(
        output.stdout.contains("unchanged: opted-out"),
        "{}{}",
        output.stdout,
        output.stderr
    );
    assert!(
        output.stderr.contains("Pods cannot be listed"),
        "{}",
        output.stderr
    );
}

#[tokio::test]
async fn defaults_decide_where_nothing_is_installed() {
    let cli = CommandLine::new(json!({})).await;
    let image = cli.image("shop/web", &BOTH);
    for path in [CONFIG, SERVICE, WEBHOOKS] {
        let mut cluster = cluster(&image, &settings(&cli));
        cluster.objects.remove(path);
        let served = cluster.serve().await;
        let expected = "the built-in defaults decide, unless --config names a file: ";
        let output = run(&cli, Some(&served), &["why", "-n", "shop", "deploy/web"]).await;
        assert!(
            output.stdout.contains("multi-arch") && output.stderr.contains(expected),
            "{}{}",
            output.stdout,
            output.stderr
        );
    }
}

#[tokio::test]
async fn invalid_configuration_of_the_cluster_is_an_error() {
    let cli = CommandLine::new(json!({})).await;
    let image = cli.image("shop/web", &BOTH);
    let served = cluster(&image, &json!({"pols": []})).serve().await;
    let output = run(&cli, Some(&served), &["pools"]).await;
    assert_eq!(output.status, Some(1), "{}", output.stdout);
    assert!(
        output
            .stderr
            .contains("the configuration ConfigMap tolerarch/tolerarch is not valid"),
        "{}",
        output.stderr
    );
}

#[tokio::test]
async fn inspect_needs_a_cluster_only_if_a_flag_names_it() {
    let cli = CommandLine::new(json!({})).await;
    let registry = Registry::builder().plain_http().start().await;
    registry.repo("app").index(Some("v1"), BOTH);
    let image = registry.repo("app").reference("v1");
    let output = run(&cli, None, &["inspect", &image]).await;
    assert!(
        output.stdout.contains("opens multi-arch") && !output.stderr.contains("defaults"),
        "{}{}",
        output.stdout,
        output.stderr
    );
    let unreachable = kubeconfig("http://127.0.0.1:1", cli.path());
    let output = run(
        &cli,
        None,
        &["inspect", &image, "--kubeconfig", &unreachable],
    )
    .await;
    let expected = "cannot be read: cannot reach the API server http://127.0.0.1:1";
    assert!(
        output.status == Some(1) && output.stderr.contains(expected),
        "{}{}",
        output.stdout,
        output.stderr
    );
    let output = run(
        &cli,
        None,
        &[
            "inspect",
            &image,
            "--kubeconfig",
            &unreachable,
            "--config",
            "/dev/null",
        ],
    )
    .await;
    assert!(
        output.stdout.contains("opens multi-arch"),
        "{}{}",
        output.stdout,
        output.stderr
    );
}

#[tokio::test]
async fn unread_pull_secrets_are_reported() {
    let cli = CommandLine::new(json!({})).await;
    let image = format!("{}/shop/gone:v1", cli.registry.address());
    let served = cluster(&image, &settings(&cli)).serve().await;
    let output = run(&cli, Some(&served), &["report"]).await;
    assert!(
        output
            .stdout
            .contains("1 of the Pods name imagePullSecrets, which are not read"),
        "{}",
        output.stdout
    );
    let output = run(&cli, Some(&served), &["why", "-n", "shop", "deploy/web"]).await;
    assert!(
        output
            .stderr
            .contains("1 of these objects name imagePullSecrets"),
        "{}",
        output.stderr
    );
    // With --kubeconfig, credentials of another cluster would be read.
    let mut settings_with_secrets = settings(&cli);
    settings_with_secrets["credentials"] = json!({"pullSecrets": true});
    let served = cluster(&image, &settings_with_secrets).serve().await;
    let kubeconfig = served.kubeconfig(cli.path());
    let output = run(&cli, None, &["report", "--kubeconfig", &kubeconfig]).await;
    assert!(
        output
            .stdout
            .contains("pull secrets are not read with --kubeconfig"),
        "{}{}",
        output.stdout,
        output.stderr
    );
    assert!(
        !served
            .requests()
            .iter()
            .any(|path| path.contains("/secrets/")),
        "{:?}",
        served.requests()
    );
}

/// Returns a cluster with a private image, and with a pull secret for a host. The keys of the Secret have capitals, as
/// kubectl 1.13.0 wrote them.
fn cluster_with_pull_secret(cli: &CommandLine, host: &str) -> FakeCluster {
    let image = cli.image("private", &BOTH);
    cli.registry
        .repo("private")
        .require(Auth::basic("canary", "canary"));
    let mut settings = settings(cli);
    settings["credentials"] = json!({"pullSecrets": true});
    let auths =
        json!({"auths": {host: {"Username": "canary", "Password": "canary", "Email": "a@b"}}});
    let data = json!({".dockerconfigjson": STANDARD.encode(auths.to_string())});
    let secret = json!({"type": "kubernetes.io/dockerconfigjson", "data": data});
    cluster(&image, &settings).with("/api/v1/namespaces/shop/secrets/registry", secret)
}

#[tokio::test]
async fn pull_secret_with_capitalized_keys_is_used() {
    let cli = CommandLine::new(json!({})).await;
    let served = cluster_with_pull_secret(&cli, &cli.registry.address())
        .serve()
        .await;
    let output = run(&cli, Some(&served), &["why", "-n", "shop", "deploy/web"]).await;
    assert!(
        output.stdout.contains("tolerated"),
        "{}{}",
        output.stdout,
        output.stderr
    );
}

#[tokio::test]
async fn pull_secret_without_the_registry_is_reported() {
    let cli = CommandLine::new(json!({})).await;
    let served = cluster_with_pull_secret(&cli, "canary.example.com")
        .serve()
        .await;
    let expected = format!(
        "pull secret \"registry\" has no entry for {}",
        cli.registry.address()
    );
    for command in [&["why", "-n", "shop", "deploy/web"][..], &["report"]] {
        let output = run(&cli, Some(&served), command).await;
        let text = output
            .stdout
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert!(text.contains(&expected), "{text}{}", output.stderr);
        assert!(
            !text.contains("canary") && !text.contains("with no credential"),
            "{text}"
        );
    }
}

/// kubectl reaches such an API server, because Go offers P-521.
#[tokio::test]
async fn api_server_with_p_521_alone_is_reached() {
    let cli = CommandLine::new(json!({})).await;
    let served = cluster(&cli.image("app", &BOTH), &settings(&cli))
        .serve()
        .await;
    let mut provider = provider();
    provider
        .kx_groups
        .retain(|group| group.name() == NamedGroup::secp521r1);
    let leaf = cli.registry.pki().leaf(&["127.0.0.1"]);
    let certificate = CertificateDer::from_pem_slice(leaf.cert_pem.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(leaf.key_pem.as_bytes()).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(provider));
    let builder = builder
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth();
    let acceptor = TlsAcceptor::from(Arc::new(
        builder.with_single_cert(vec![certificate], key).unwrap(),
    ));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let backend = served.url.replace("http://", "");
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            let backend = backend.clone();
            tokio::spawn(async move {
                let Ok(mut tls) = acceptor.accept(tcp).await else {
                    return;
                };
                let mut backend = TcpStream::connect(backend).await.unwrap();
                let _ = copy_bidirectional(&mut tls, &mut backend).await;
            });
        }
    });
    let file = kubeconfig(&format!("https://{address}"), cli.path());
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    config["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = true.into();
    std::fs::write(&file, config.to_string()).unwrap();
    let output = run(&cli, None, &["report", "--kubeconfig", &file]).await;
    assert_eq!(output.status, Some(0), "{}{}", output.stdout, output.stderr);
}

#[tokio::test]
async fn missing_namespace_is_a_failure() {
    let cli = CommandLine::new(json!({})).await;
    let served = FakeCluster::default()
        .with("/api/v1/namespaces/nosuch/pods", json!([]))
        .with("/api/v1/nodes", json!([]))
        .serve()
        .await;
    let output = run(&cli, Some(&served), &["report", "-n", "nosuch"]).await;
    assert_eq!(
        (output.status, output.stdout.as_str()),
        (Some(1), ""),
        "{}",
        output.stderr
    );
}

/// A failed connection is reported once, with its fix.
#[tokio::test]
async fn advice_fits_the_failed_connection() {
    let cli = CommandLine::new(json!({})).await;
    let without_tls = Registry::builder().plain_http().start().await;
    let mut settings = settings(&cli);
    settings["registries"]["hosts"][without_tls.address()] = json!({});
    let untrusted = Registry::start().await;
    settings["registries"]["hosts"][untrusted.address()] = json!({});
    for (host, advice) in [
        (
            without_tls.address(),
            "does not speak TLS; if it speaks plain HTTP, set registries.hosts.",
        ),
        (
            untrusted.address(),
            ".caFile to its authority, or extraCAs of the chart",
        ),
    ] {
        let served = cluster(&format!("{host}/app:v1"), &settings).serve().await;
        let output = run(&cli, Some(&served), &["why", "-n", "shop", "deploy/web"]).await;
        assert!(
            output.stdout.contains(advice),
            "{}{}",
            output.stdout,
            output.stderr
        );
        for superfluous in ["name a mirror", "gave no answer"] {
            assert!(!output.stdout.contains(superfluous), "{}", output.stdout);
        }
    }
}

#[tokio::test]
async fn programs_named_by_the_cluster_are_not_run() {
    let cli = CommandLine::new(json!({})).await;
    let bin = cli.path().join("bin");
    let trace = cli.path().join("ran");
    std::fs::create_dir(&bin).unwrap();
    let program = bin.join("provider");
    std::fs::write(&program, format!("#!/bin/sh\ntouch {}\n", trace.display())).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let helper = bin.join("docker-credential-cluster");
    std::fs::copy(&program, &helper).unwrap();
    let providers = json!({"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig", "providers": [{
        "name": "provider", "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "defaultCacheDuration": "1m",
        "matchImages": [cli.registry.address()],
    }]});
    let file = cli.path().join("providers.json");
    std::fs::write(&file, providers.to_string()).unwrap();
    let docker = cli.path().join("docker");
    std::fs::create_dir(&docker).unwrap();
    let helpers = json!({"credHelpers": {cli.registry.address(): "cluster"}});
    std::fs::write(docker.join("config.json"), helpers.to_string()).unwrap();
    let image = cli.image("shop/web", &BOTH);
    for (credentials, note) in [
        (
            json!({"providers": {"config": file, "binDir": bin}}),
            "programs that the cluster names are not run here",
        ),
        (
            json!({"dockerConfigs": [docker.join("config.json")]}),
            "files that the cluster names are not read here",
        ),
    ] {
        let mut config = settings(&cli);
        config["credentials"] = credentials;
        let served = cluster(&image, &config).serve().await;
        let inspect = async |arguments: &[&str]| {
            let mut inspect = command(&cli, Some(&served), arguments);
            // The helper is a script that needs programs of the system.
            inspect.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
            finish(inspect).await
        };
        let output = inspect(&["inspect", &image]).await;
        assert!(output.stderr.contains(note), "{}", output.stderr);
        assert!(!trace.exists(), "{}", output.stderr);
        // With the same settings in the user's file the program runs, so the trace works.
        let user_file = cli.path().join("user.yaml");
        std::fs::write(&user_file, config.to_string()).unwrap();
        let output = inspect(&[
            "inspect",
            "--config",
            &user_file.display().to_string(),
            &image,
        ])
        .await;
        assert!(
            trace.exists(),
            "{config}: {}{}",
            output.stdout,
            output.stderr
        );
        std::fs::remove_file(&trace).unwrap();
    }
}
