//! Failed starts. The program exits, and its message says case is wrong, where, and case would be right.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use testregistry::{Leaf, Pki};

use super::program::run;
use crate::support::https::NAME;

#[tokio::test]
async fn invalid_command_line_is_status_2() {
    for (arguments, expected) in [
        (&[][..], "Usage: tolerarch"),
        (&["serv"], "'serve'"),
        (&["serve", "--tls-crt", "x"], "'--tls-cert'"),
        (
            &["serve", "--log-level", "loud"],
            "[possible values: error, warn, info, debug, trace]",
        ),
        (
            &["serve", "--log-format", "xml"],
            "[possible values: json, text]",
        ),
        (&["serve", "--listen", "8443"], "invalid socket address"),
        (&["serve", "--config"], "<FILE>"),
        (&["serve", "config.yaml"], "unexpected argument"),
    ] {
        let (status, written) = run(arguments).await;
        assert_eq!(status, Some(2), "{arguments:?}: {written}");
        assert!(written.contains(expected), "{arguments:?}: {written}");
    }
    for (argument, expected) in [
        ("--help", "serve"),
        ("--version", env!("CARGO_PKG_VERSION")),
    ] {
        let (status, written) = run(&[argument]).await;
        assert_eq!(status, Some(0));
        assert!(written.contains(expected), "{written}");
    }
}

/// Starts the program, which has to end with status 1, without a panic, and with a message that has all of `expected`.
async fn refuses(case: &str, arguments: &[&str], expected: &[&str]) -> String {
    let (status, written) = run(&[&["serve"], arguments].concat()).await;
    assert_eq!(status, Some(1), "{case}: {written}");
    assert!(written.starts_with("tolerarch: "), "{case}: {written}");
    for text in expected {
        assert!(written.contains(text), "{case}: {text:?} in {written}");
    }
    assert!(
        !written.contains("panic") && !written.contains("RUST_BACKTRACE"),
        "{case}: {written}"
    );
    written
}

#[tokio::test]
async fn invalid_configuration_is_status_1() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.yaml");
    let path = file.to_str().unwrap();
    let cases: &[(&str, &[&str])] = &[
        (
            "lookup: {budget: fast}",
            &[
                "lookup.budget (line 1)",
                "\"fast\"",
                "a duration such as 300ms",
            ],
        ),
        (
            "cache:\n  tagTtl: -1h",
            &["cache.tagTtl (line 2)", "a duration such as 300ms"],
        ),
        ("mode: enfroce", &["mode (line 1)", "enforce or observe"]),
        (
            "server:\n  maxConnections: 0",
            &["server.maxConnections (line 2)", "a number from 1"],
        ),
        (
            "server:\n  listen: 8443",
            &["server.listen (line 2)", "\"[::]:8443\""],
        ),
        (
            "servr: {}",
            &["servr (line 1)", "unknown key; did you mean server?"],
        ),
        (
            "cache:\n  tagTTL: 1h",
            &["cache.tagTTL (line 2)", "did you mean tagTtl?"],
        ),
        (
            "something: {}",
            &["unknown key; known are mode, server, tls, admin"],
        ),
        ("pools: []", &["pools (line 1)", "there has to be a pool"]),
        (
            "pools: [{name: a, platforms: [linux/arm46], tolerations: [{key: k, operator: Exists}]}]",
            &["pools[0].platforms[0]", "linux/arm64"],
        ),
        (
            "network: {allow: [everything]}",
            &["network.allow[0]", "a network such as 10.0.0.0/8"],
        ),
        ("mode: [enforce", &["the document (line", "not YAML"]),
        (
            "server:\n\tlisten: x",
            &["the document (line 2)", "not YAML"],
        ),
        (
            "just text",
            &["the document (line 1)", "a section with mode"],
        ),
        (
            "mode: x\nservr: 1\nlookup: {concurrency: many}",
            &[
                "mode (line 1)",
                "servr (line 2)",
                "lookup.concurrency (line 3)",
            ],
        ),
    ];
    for (text, expected) in cases {
        fs::write(&file, text).unwrap();
        let written = refuses(text, &["--config", path], expected).await;
        assert!(written.contains(path), "{written}");
    }
    fs::write(&file, [0xff, 0xfe, 0x00]).unwrap();
    refuses("no text", &["--config", path], &[path]).await;
    let absent = directory.path().join("absent.yaml");
    let absent = absent.to_str().unwrap();
    refuses(
        "no file",
        &["--config", absent],
        &[absent, "cannot be read", "No such file"],
    )
    .await;
    let directory = directory.path().to_str().unwrap();
    refuses(
        "a directory",
        &["--config", directory],
        &[directory, "cannot be read"],
    )
    .await;
}

#[tokio::test]
async fn unusable_certificate_is_status_1() {
    let pki = Pki::new();
    let good = pki.leaf(&[NAME]);
    let other = pki.leaf(&[NAME]);
    let garbage = "canary".to_owned();
    let pem = |kind: &str| format!("-----BEGIN {kind}-----\nY2FuYXJ5\n-----END {kind}-----\n");
    let cases = [
        (
            "no certificate",
            Leaf {
                cert_pem: garbage.clone(),
                ..good.clone()
            },
            &["tls.crt: no PEM certificate"][..],
        ),
        (
            "no real certificate",
            Leaf {
                cert_pem: pem("CERTIFICATE"),
                ..good.clone()
            },
            &["tls.crt: not an X.509 certificate"],
        ),
        (
            "key and certificate mixed up",
            Leaf {
                cert_pem: good.key_pem.clone(),
                key_pem: good.cert_pem.clone(),
            },
            &["tls.crt: no PEM certificate"],
        ),
        (
            "no key",
            Leaf {
                key_pem: garbage,
                ..good.clone()
            },
            &["tls.key: no PEM private key"],
        ),
        (
            "no real key",
            Leaf {
                key_pem: pem("PRIVATE KEY"),
                ..good.clone()
            },
            &["tls.crt", "cannot be used together"],
        ),
        (
            "another certificate's key",
            Leaf {
                key_pem: other.key_pem.clone(),
                ..good.clone()
            },
            &["tls.crt", "cannot be used together"],
        ),
    ];
    for (case, leaf, expected) in cases {
        let directory = tempfile::tempdir().unwrap();
        leaf.write(directory.path()).unwrap();
        let written = serve_fails(
            case,
            directory.path(),
            "127.0.0.1:0",
            "127.0.0.1:0",
            expected,
        )
        .await;
        assert!(
            written.contains("--tls-cert, --tls-key"),
            "{case}: {written}"
        );
        let secrets = ["canary", "Y2FuYXJ5", "PRIVATE", &other.key_pem[40..60]];
        assert!(
            !secrets.iter().any(|secret| written.contains(secret)),
            "{case}: {written}"
        );
    }
    let empty = tempfile::tempdir().unwrap();
    serve_fails(
        "no files",
        empty.path(),
        "127.0.0.1:0",
        "127.0.0.1:0",
        &["tls.crt: cannot be read", "No such file"],
    )
    .await;
    fs::write(empty.path().join("tls.crt"), &good.cert_pem).unwrap();
    serve_fails(
        "no key file",
        empty.path(),
        "127.0.0.1:0",
        "127.0.0.1:0",
        &["tls.key: cannot be read", "No such file"],
    )
    .await;
}

#[tokio::test]
async fn port_in_use_is_status_1() {
    let directory = tempfile::tempdir().unwrap();
    Pki::new().leaf(&[NAME]).write(directory.path()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let used_address = listener.local_addr().unwrap().to_string();
    for (listen, admin, key) in [
        (&*used_address, "127.0.0.1:0", "server.listen"),
        ("127.0.0.1:0", &*used_address, "admin.listen"),
    ] {
        serve_fails(
            key,
            directory.path(),
            listen,
            admin,
            &[key, &used_address, "in use"],
        )
        .await;
    }
}

/// Starts the program with this directory of certificates on these addresses, which has to fail.
async fn serve_fails(
    case: &str,
    certificates: &Path,
    listen: &str,
    admin: &str,
    expected: &[&str],
) -> String {
    let file = |name: &str| certificates.join(name).to_str().unwrap().to_owned();
    let certificate = file("tls.crt");
    let key = file("tls.key");
    let arguments = [
        "--tls-cert",
        &certificate,
        "--tls-key",
        &key,
        "--listen",
        listen,
        "--admin-listen",
        admin,
    ];
    refuses(case, &arguments, expected).await
}
