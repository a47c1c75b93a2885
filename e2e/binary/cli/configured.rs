//! Which configuration decides: commands that no file is named to take that of the cluster.

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

use super::cluster::{FakeCluster, Served, kubeconfig};
use super::{BOTH, Desk, Ran};
use crate::support::soon;

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/shop/deployments/web";
const CONFIG: &str = "/api/v1/namespaces/tolerarch/configmaps/tolerarch";
const RECORD: &str = "/api/v1/namespaces/tolerarch/configmaps/tolerarch-controller-failed-images";
const SERVICE: &str = "/api/v1/namespaces/tolerarch/services/tolerarch";
const PODS: &str = "/api/v1/namespaces/tolerarch/pods";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// A Deployment in a cluster where tolerarch runs with this configuration.
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

/// A pool that is not the default one, and files that only the Pods have.
fn settings(desk: &Desk) -> Value {
    let ca = desk.path().join("ca.crt");
    json!({
        "pools": [{"name": "of-cluster", "platforms": BOTH, "tolerations": [{"key": "own", "operator": "Exists"}]}],
        "registries": {"hostsDir": "/nowhere/certs.d", "hosts": {
            desk.registry.address(): {"caFile": ca},
            "other.example.com": {"caFile": "/nowhere/ca.crt", "clientCertFile": ca, "clientKeyFile": "/nowhere/tls.key"},
        }},
        "network": {"allow": ["127.0.0.0/8"]},
        "credentials": {"dockerConfigs": ["/nowhere/config.json"]},
    })
}

/// Runs it as a person does who names no file.
pub(super) async fn run(desk: &Desk, cluster: Option<&Served>, arguments: &[&str]) -> Ran {
    finish(command(desk, cluster, arguments)).await
}

fn command(desk: &Desk, cluster: Option<&Served>, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tolerarch"));
    command
        .args(arguments)
        .current_dir(desk.path())
        .env("HOME", desk.path())
        .env_remove("DOCKER_CONFIG");
    command
        .env("SSL_CERT_FILE", desk.path().join("ca.crt"))
        .env_remove("KUBECONFIG")
        .kill_on_drop(true);
    if let Some(cluster) = cluster {
        command.env("KUBECONFIG", cluster.kubeconfig(desk.path()));
    }
    command
}

async fn finish(mut command: Command) -> Ran {
    let output = soon("the end", command.output()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran {
        status: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

#[tokio::test]
async fn the_configuration_of_the_cluster_decides_without_what_only_its_pods_have() {
    let desk = Desk::new(json!({})).await;
    let image = desk.image("shop/web", &BOTH);
    let served = cluster(&image, &settings(&desk)).serve().await;
    let whose = "the configuration is that of ConfigMap tolerarch/tolerarch";
    for arguments in [
        &["why", "-n", "shop", "deploy/web"][..],
        &["report"],
        &["inspect", &image],
        &["pools"],
    ] {
        let ran = run(&desk, Some(&served), arguments).await;
        let all = format!("{}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.status, Some(0), "{arguments:?}: {all}");
        assert!(
            all.contains("of-cluster") && all.contains(whose),
            "{arguments:?}: {all}"
        );
        for lost in [
            "registries.hostsDir: /nowhere/certs.d cannot be read here (No such file or directory",
            "registries.hosts.\"other.example.com\".caFile: /nowhere/ca.crt",
            "registries.hosts.\"other.example.com\".clientCertFile: /nowhere/tls.key",
            "credentials.dockerConfigs: files that the cluster names are not read here",
        ] {
            assert_eq!(
                all.contains(lost),
                arguments != ["pools"],
                "{arguments:?}: {lost}: {all}"
            );
        }
    }
    let ran = run(&desk, Some(&served), &["why", "-n", "shop", "deploy/web"]).await;
    assert!(
        ran.stdout.contains("\n  today      tolerated\n"),
        "{}",
        ran.stdout
    );
    let ran = run(&desk, Some(&served), &["pools", "--config", "config.yaml"]).await;
    assert!(
        ran.stdout.contains("multi-arch") && !ran.stdout.contains("of-cluster"),
        "{}",
        ran.stdout
    );
}

#[tokio::test]
async fn images_that_failed_count_as_for_the_webhook() {
    let desk = Desk::new(json!({})).await;
    let image = desk.image("shop/web", &BOTH);
    let since = SystemTime::now();
    let failed = json!([{
        "digest": desk.registry.repo("shop/web").digest_of("v1"), "architecture": "arm64", "failures": 1,
        "evidence": "exec-format-error", "namespace": "shop", "allNamespaces": false,
        "since": format_rfc3339_seconds(since).to_string(),
        "until": format_rfc3339_seconds(since + Duration::from_secs(3600)).to_string(),
    }]);
    let record = json!({"data": {"record.json": failed.to_string()}});
    let recorded = |config: &Value| cluster(&image, config).with(RECORD, record.clone());
    let served = recorded(&settings(&desk)).serve().await;
    let said = format!("failed on linux/arm64 at {}", format_rfc3339_seconds(since));
    let why = ["why", "-n", "shop", "deploy/web"];
    for arguments in [&why[..], &["report"], &["inspect", "-n", "shop", &image]] {
        let ran = run(&desk, Some(&served), arguments).await;
        assert!(
            ran.stdout.contains(&said),
            "{arguments:?}: {}{}",
            ran.stdout,
            ran.stderr
        );
        assert!(
            !ran.stdout.contains("lacks"),
            "{arguments:?}: {}",
            ran.stdout
        );
    }
    let ran = run(&desk, Some(&served), &why).await;
    assert!(
        ran.stdout.contains("unchanged: failed-there"),
        "{}",
        ran.stdout
    );
    for (arguments, list) in [
        (
            &[&why[..], &["-o", "json"]].concat()[..],
            "/objects/0/images/0",
        ),
        (
            &["inspect", "-n", "shop", &image, "-o", "json"],
            "/images/0",
        ),
    ] {
        let ran = run(&desk, Some(&served), arguments).await;
        let json: Value = serde_json::from_str(&ran.stdout).unwrap();
        let failed = &json.pointer(list).unwrap()["failed"];
        assert_eq!(failed["platforms"], json!(["linux/arm64"]), "{json:#}");
        assert_eq!(failed["since"], format_rfc3339_seconds(since).to_string());
    }
    let ran = run(&desk, Some(&served), &["report", "--by", "workload"]).await;
    assert!(ran.stdout.contains("failed-there"), "{}", ran.stdout);
    // What a tenant says counts in its namespace.
    let ran = run(&desk, Some(&served), &["inspect", &image]).await;
    assert!(ran.stdout.contains("opens of-cluster"), "{}", ran.stdout);

    let mut learns_not = settings(&desk);
    learns_not["controller"] = json!({"learn": false});
    let ran = run(&desk, Some(&recorded(&learns_not).serve().await), &why).await;
    assert!(
        ran.stdout.contains("\n  today      tolerated\n"),
        "{}",
        ran.stdout
    );

    let mut forbidden = recorded(&settings(&desk));
    forbidden.forbidden = vec![RECORD];
    let ran = run(&desk, Some(&forbidden.serve().await), &why).await;
    let said = "ConfigMap tolerarch/tolerarch-controller-failed-images cannot be read, so images that have failed are decided like others: ";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
    assert!(
        ran.stdout.contains("\n  today      tolerated\n"),
        "{}",
        ran.stdout
    );
}

#[tokio::test]
async fn a_namespace_for_which_the_webhook_is_not_called_is_told() {
    let desk = Desk::new(json!({})).await;
    let image = desk.image("shop/web", &BOTH);
    let mut cluster = cluster(&image, &settings(&desk));
    let others = json!({"matchExpressions": [{"key": "own", "operator": "DoesNotExist"}]});
    cluster.objects.get_mut(WEBHOOKS).unwrap()[0]["webhooks"][0]["namespaceSelector"] = others;
    for (labels, today, is_told) in [
        (json!({}), "tolerated", false),
        (json!({"own": "1"}), "unchanged: not-applicable", true),
        (
            json!({"own": "1", "tolerarch.io/mode": "off"}),
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
        let ran = run(&desk, Some(&served), &["why", "-n", "shop", "deploy/web"]).await;
        assert!(
            ran.stdout.contains(&format!("\n  today      {today}\n")),
            "{}",
            ran.stdout
        );
        let told = "no webhook of tolerarch selects the labels of Deployment/web and of the namespace shop";
        assert_eq!(ran.stderr.contains(told), is_told, "{}", ran.stderr);
        let ignored = "the label tolerarch.io/mode=disabled of the namespace has no effect";
        assert_eq!(
            ran.stderr.contains(ignored),
            labels["tolerarch.io/mode"] == "disabled",
            "{}",
            ran.stderr
        );
    }
}

#[tokio::test]
async fn pods_for_which_the_webhook_is_not_called_are_told() {
    let desk = Desk::new(json!({})).await;
    let image = desk.image("shop/web", &BOTH);
    for (own, today, told) in [
        (
            json!({"objectSelector": {"matchLabels": {"team": "x"}}}),
            "unchanged: not-applicable",
            "selects the labels",
        ),
        (
            json!({"matchConditions": [{"name": "own", "expression": "false"}]}),
            "tolerated",
            "a matchCondition of the webhook, which is not evaluated here, determines whether Deployment/web is decided on",
        ),
    ] {
        let mut cluster = cluster(&image, &settings(&desk));
        let webhook = &mut cluster.objects.get_mut(WEBHOOKS).unwrap()[0]["webhooks"][0];
        webhook
            .as_object_mut()
            .unwrap()
            .extend(own.as_object().unwrap().clone());
        let served = cluster.serve().await;
        let ran = run(&desk, Some(&served), &["why", "-n", "shop", "deploy/web"]).await;
        assert!(
            ran.stdout.contains(&format!("\n  today      {today}\n")),
            "{}",
            ran.stdout
        );
        assert!(ran.stderr.contains(told), "{}", ran.stderr);
    }
}

/// The built-in defaults would be the wrong pools.
#[tokio::test]
async fn where_it_cannot_be_read_nothing_is_decided() {
    let desk = Desk::new(json!({})).await;
    let image = desk.image("shop/web", &BOTH);
    let commands: [&[&str]; 4] = [
        &["why", "-n", "shop", "deploy/web"],
        &["report"],
        &["pools"],
        &["inspect", &image],
    ];
    for path in [CONFIG, SERVICE, PODS, WEBHOOKS] {
        for is_forbidden in [true, false] {
            let mut cluster = cluster(&image, &settings(&desk));
            let paths = if is_forbidden {
                &mut cluster.forbidden
            } else {
                &mut cluster.failing
            };
            paths.push(path);
            let served = cluster.serve().await;
            for arguments in commands {
                let ran = run(&desk, Some(&served), arguments).await;
                let told =
                    ran.stderr.contains("cannot be read: ") && ran.stderr.contains("--config FILE");
                assert_eq!(
                    (ran.status, &*ran.stdout),
                    (Some(1), ""),
                    "{path} {arguments:?}: {}",
                    ran.stderr
                );
                assert!(told, "{path} {arguments:?}: {}", ran.stderr);
            }
            let ran = run(&desk, Some(&served), &["pools", "--config", "/dev/null"]).await;
            assert!(
                ran.status == Some(0) && ran.stdout.contains("multi-arch"),
                "{}{}",
                ran.stdout,
                ran.stderr
            );
        }
    }
    let mut cluster = cluster(&image, &settings(&desk));
    cluster.failing = vec![RECORD];
    let ran = run(&desk, Some(&cluster.serve().await), commands[0]).await;
    assert!(
        ran.status == Some(1) && ran.stderr.contains("failed-images cannot be read"),
        "{}",
        ran.stderr
    );
}

#[tokio::test]
async fn a_namespace_opts_out_also_for_those_who_may_not_list_its_pods() {
    let desk = Desk::new(json!({})).await;
    let image = desk.image("shop/web", &BOTH);
    let labels = json!({"tolerarch.io/mode": "off"});
    let mut cluster = cluster(&image, &settings(&desk)).with(
        "/api/v1/namespaces/shop",
        json!({"metadata": {"name": "shop", "labels": labels}}),
    );
    cluster.forbidden = vec!["/api/v1/namespaces/shop/pods"];
    let ran = run(
        &desk,
        Some(&cluster.serve().await),
        &["why", "-n", "shop", "deploy/web"],
    )
    .await;
    assert!(
        ran.stdout.contains("unchanged: opted-out"),
        "{}{}",
        ran.stdout,
        ran.stderr
    );
    assert!(
        ran.stderr.contains("Pods cannot be listed"),
        "{}",
        ran.stderr
    );
}

#[tokio::test]
async fn where_there_is_none_the_defaults_decide_and_say_so() {
    let desk = Desk::new(json!({})).await;
    let image = desk.image("shop/web", &BOTH);
    for path in [CONFIG, SERVICE, WEBHOOKS] {
        let mut cluster = cluster(&image, &settings(&desk));
        cluster.objects.remove(path);
        let served = cluster.serve().await;
        let said = "the built-in defaults decide, unless --config names a file: ";
        let ran = run(&desk, Some(&served), &["why", "-n", "shop", "deploy/web"]).await;
        assert!(
            ran.stdout.contains("multi-arch") && ran.stderr.contains(said),
            "{}{}",
            ran.stdout,
            ran.stderr
        );
    }
    let faulty = cluster(&image, &json!({"pols": []})).serve().await;
    let ran = run(&desk, Some(&faulty), &["pools"]).await;
    assert_eq!(ran.status, Some(1), "{}", ran.stdout);
    assert!(
        ran.stderr
            .contains("the configuration ConfigMap tolerarch/tolerarch is not valid"),
        "{}",
        ran.stderr
    );
    // An image can be asked for without a cluster.
    let plain = Registry::builder().plain_http().start().await;
    plain.repo("app").index(Some("v1"), BOTH);
    let image = plain.repo("app").reference("v1");
    let ran = run(&desk, None, &["inspect", &image]).await;
    assert!(
        ran.stdout.contains("opens multi-arch") && !ran.stderr.contains("defaults"),
        "{}{}",
        ran.stdout,
        ran.stderr
    );
    let gone = kubeconfig("http://127.0.0.1:1", desk.path());
    let ran = run(&desk, None, &["inspect", &image, "--kubeconfig", &gone]).await;
    let said = "cannot be read: cannot reach the API server http://127.0.0.1:1";
    assert!(
        ran.status == Some(1) && ran.stderr.contains(said),
        "{}{}",
        ran.stdout,
        ran.stderr
    );
    let ran = run(
        &desk,
        None,
        &[
            "inspect",
            &image,
            "--kubeconfig",
            &gone,
            "--config",
            "/dev/null",
        ],
    )
    .await;
    assert!(
        ran.stdout.contains("opens multi-arch"),
        "{}{}",
        ran.stdout,
        ran.stderr
    );
}

#[tokio::test]
async fn pull_secrets_that_are_not_read_are_told() {
    let desk = Desk::new(json!({})).await;
    let image = format!("{}/shop/gone:v1", desk.registry.address());
    let served = cluster(&image, &settings(&desk)).serve().await;
    let ran = run(&desk, Some(&served), &["report"]).await;
    assert!(
        ran.stdout
            .contains("1 of the Pods name imagePullSecrets, which are not read"),
        "{}",
        ran.stdout
    );
    let ran = run(&desk, Some(&served), &["why", "-n", "shop", "deploy/web"]).await;
    assert!(
        ran.stderr
            .contains("1 of these objects name imagePullSecrets"),
        "{}",
        ran.stderr
    );
    // They would be those of another cluster.
    let mut reads = settings(&desk);
    reads["credentials"] = json!({"pullSecrets": true});
    let served = cluster(&image, &reads).serve().await;
    let kubeconfig = served.kubeconfig(desk.path());
    let ran = run(&desk, None, &["report", "--kubeconfig", &kubeconfig]).await;
    assert!(
        ran.stdout
            .contains("pull secrets are not read with --kubeconfig"),
        "{}{}",
        ran.stdout,
        ran.stderr
    );
    assert!(
        !served.asked().iter().any(|path| path.contains("/secrets/")),
        "{:?}",
        served.asked()
    );
}

/// As `kubectl` 1.13.0 wrote it, and one that gives nothing for the registry.
#[tokio::test]
async fn pull_secrets_are_read_with_capitals_and_named_where_they_give_nothing() {
    let desk = Desk::new(json!({})).await;
    let image = desk.image("private", &BOTH);
    desk.registry
        .repo("private")
        .require(Auth::basic("canary", "canary"));
    let mut reads = settings(&desk);
    reads["credentials"] = json!({"pullSecrets": true});
    let secret = |host: &str| {
        let auths =
            json!({"auths": {host: {"Username": "canary", "Password": "canary", "Email": "a@b"}}});
        let data = json!({".dockerconfigjson": STANDARD.encode(auths.to_string())});
        json!({"type": "kubernetes.io/dockerconfigjson", "data": data})
    };
    let path = "/api/v1/namespaces/shop/secrets/registry";
    let served = cluster(&image, &reads)
        .with(path, secret(&desk.registry.address()))
        .serve()
        .await;
    let ran = run(&desk, Some(&served), &["why", "-n", "shop", "deploy/web"]).await;
    assert!(
        ran.stdout.contains("tolerated"),
        "{}{}",
        ran.stdout,
        ran.stderr
    );

    let served = cluster(&image, &reads)
        .with(path, secret("canary.example.com"))
        .serve()
        .await;
    let expected = format!(
        "pull secret \"registry\" has no entry for {}",
        desk.registry.address()
    );
    for command in [&["why", "-n", "shop", "deploy/web"][..], &["report"]] {
        let ran = run(&desk, Some(&served), command).await;
        let told = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains(&expected), "{told}{}", ran.stderr);
        assert!(
            !told.contains("canary") && !told.contains("with no credential"),
            "{told}"
        );
    }
}

/// As kubectl reaches it: Go offers this group.
#[tokio::test]
async fn an_api_server_may_exchange_keys_over_p_521_alone() {
    let desk = Desk::new(json!({})).await;
    let served = cluster(&desk.image("app", &BOTH), &settings(&desk))
        .serve()
        .await;
    let mut provider = provider();
    provider
        .kx_groups
        .retain(|group| group.name() == NamedGroup::secp521r1);
    let leaf = desk.registry.pki().leaf(&["127.0.0.1"]);
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
    let behind = served.url.replace("http://", "");
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            let behind = behind.clone();
            tokio::spawn(async move {
                let Ok(mut tls) = acceptor.accept(tcp).await else {
                    return;
                };
                let mut behind = TcpStream::connect(behind).await.unwrap();
                let _ = copy_bidirectional(&mut tls, &mut behind).await;
            });
        }
    });
    let file = kubeconfig(&format!("https://{address}"), desk.path());
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    config["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = true.into();
    std::fs::write(&file, config.to_string()).unwrap();
    let ran = run(&desk, None, &["report", "--kubeconfig", &file]).await;
    assert_eq!(ran.status, Some(0), "{}{}", ran.stdout, ran.stderr);
}

#[tokio::test]
async fn a_namespace_that_is_not_there_is_a_failure() {
    let desk = Desk::new(json!({})).await;
    let served = FakeCluster::default()
        .with("/api/v1/namespaces/nosuch/pods", json!([]))
        .with("/api/v1/nodes", json!([]))
        .serve()
        .await;
    let ran = run(&desk, Some(&served), &["report", "-n", "nosuch"]).await;
    assert_eq!(
        (ran.status, ran.stdout.as_str()),
        (Some(1), ""),
        "{}",
        ran.stderr
    );
}

/// A failed connection is reported once, with its fix.
#[tokio::test]
async fn advice_fits_what_stands_in_the_way() {
    let desk = Desk::new(json!({})).await;
    let plain = Registry::builder().plain_http().start().await;
    let mut settings = settings(&desk);
    settings["registries"]["hosts"][plain.address()] = json!({});
    let untrusted = Registry::start().await;
    settings["registries"]["hosts"][untrusted.address()] = json!({});
    for (host, advice) in [
        (
            plain.address(),
            "does not speak TLS; if it speaks plain HTTP, set registries.hosts.",
        ),
        (
            untrusted.address(),
            ".caFile to its authority, or extraCAs of the chart",
        ),
    ] {
        let served = cluster(&format!("{host}/app:v1"), &settings).serve().await;
        let ran = run(&desk, Some(&served), &["why", "-n", "shop", "deploy/web"]).await;
        assert!(ran.stdout.contains(advice), "{}{}", ran.stdout, ran.stderr);
        for superfluous in ["name a mirror", "gave no answer"] {
            assert!(!ran.stdout.contains(superfluous), "{}", ran.stdout);
        }
    }
}

#[tokio::test]
async fn programs_that_the_cluster_names_are_not_run() {
    let desk = Desk::new(json!({})).await;
    let bin = desk.path().join("bin");
    let trace = desk.path().join("ran");
    std::fs::create_dir(&bin).unwrap();
    let program = bin.join("provider");
    std::fs::write(&program, format!("#!/bin/sh\ntouch {}\n", trace.display())).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let helper = bin.join("docker-credential-cluster");
    std::fs::copy(&program, &helper).unwrap();
    let providers = json!({"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig", "providers": [{
        "name": "provider", "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "defaultCacheDuration": "1m",
        "matchImages": [desk.registry.address()],
    }]});
    let file = desk.path().join("providers.json");
    std::fs::write(&file, providers.to_string()).unwrap();
    let docker = desk.path().join("docker");
    std::fs::create_dir(&docker).unwrap();
    let helpers = json!({"credHelpers": {desk.registry.address(): "cluster"}});
    std::fs::write(docker.join("config.json"), helpers.to_string()).unwrap();
    let image = desk.image("shop/web", &BOTH);
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
        let mut config = settings(&desk);
        config["credentials"] = credentials;
        let served = cluster(&image, &config).serve().await;
        let inspect = async |arguments: &[&str]| {
            let mut inspect = command(&desk, Some(&served), arguments);
            // With the system's, as the helper is a script.
            inspect.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
            finish(inspect).await
        };
        let ran = inspect(&["inspect", &image]).await;
        assert!(ran.stderr.contains(note), "{}", ran.stderr);
        assert!(!trace.exists(), "{}", ran.stderr);
        // A person may name them, so the trace says something.
        let own = desk.path().join("own.yaml");
        std::fs::write(&own, config.to_string()).unwrap();
        let ran = inspect(&["inspect", "--config", &own.display().to_string(), &image]).await;
        assert!(trace.exists(), "{config}: {}{}", ran.stdout, ran.stderr);
        std::fs::remove_file(&trace).unwrap();
    }
}
