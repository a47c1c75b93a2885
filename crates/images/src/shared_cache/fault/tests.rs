use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{Duration, timeout};

use super::super::server::Server;
use super::super::settings::SharedCacheSettings;
use super::*;

/// Starts a server that sends these bytes for each command it gets.
async fn answering(reply: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                    // What is no command of Redis, such as a greeting of TLS, gets one answer as well.
                    let commands = buffer[..read].iter().filter(|byte| **byte == b'*').count();
                    for _ in 0..commands.max(1) {
                        if stream.write_all(reply).await.is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    address
}

async fn fault_of(url: &str, settings: SharedCacheSettings) -> Fault {
    let url: ServerUrl = url.parse().unwrap();
    let connected = timeout(Duration::from_secs(60), Server::connect(&settings, &url))
        .await
        .unwrap();
    let Err(error) = connected else {
        panic!("{} was connected", url.as_str())
    };
    Fault::of(&error, &url, Failed::Connect)
}

fn text(state: State) -> &'static str {
    let State::Degraded(text) = state else {
        panic!("{state:?}")
    };
    text
}

#[tokio::test]
async fn each_server_error_has_its_remedy() {
    for (reply, state, advice) in [
        (
            &b"-MOVED 1234 10.0.0.1:6379\r\n"[..],
            "redis+cluster://",
            "write redis+cluster:// in cache.shared.url",
        ),
        (b"-ASK 1234 10.0.0.1:6379\r\n", "redis+cluster://", "write redis+cluster:// in cache.shared.url"),
        (
            b"-CLUSTERDOWN Hash slot not served\r\n",
            "redis+cluster://",
            "write redis+cluster:// in cache.shared.url",
        ),
        (b"-NOAUTH Authentication required.\r\n", "passwordFile", "set cache.shared.passwordFile"),
        (
            b"-WRONGPASS invalid username-password pair or user is disabled.\r\n",
            "passwordFile",
            "usernameFile",
        ),
        (b"-ERR invalid password\r\n", "passwordFile", "usernameFile"),
        (b"-ERR operation not permitted: AUTH first\r\n", "passwordFile", "usernameFile"),
        (
            b"-DENIED Redis is running in protected mode because protected mode is enabled\r\n",
            "protected mode",
            "requirepass",
        ),
        (
            b"-NOPERM User x has no permissions to run the 'getrange' command\r\n",
            "lacks rights",
            "+getrange +set +del",
        ),
        (b"-NOPERM No permissions to access a key\r\n", "lacks rights", "~tolerarch:*"),
        (b"-LOADING Redis is loading the dataset in memory\r\n", "loading its data", "tried again"),
        (
            b"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
            "lost its primary",
            "name the primary",
        ),
        (b"-ERR max number of clients reached\r\n", "maxclients", "raise maxclients"),
        (b"-ERR unknown command 'GETRANGE', with args beginning with: 'x'\r\n", "Sentinel, a proxy", "26379"),
        (b"-ERR something new\r\n", "answers with an error, see the log", "something new"),
        (b"-BUSY Redis is busy running a script.\r\n", "answers with an error, see the log", "busy"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no Valkey or Redis", "if it speaks TLS, write rediss://"),
        // The alert of a TLS server.
        (
            b"\x15\x03\x03\x00\x02\x02\x46",
            "no Valkey or Redis, or speaks TLS",
            "if it speaks TLS, write rediss://",
        ),
    ] {
        let address = answering(reply).await;
        let fault = fault_of(&format!("redis://{address}"), SharedCacheSettings::default()).await;
        assert!(text(fault.state).contains(state), "{}: {}", reply.escape_ascii(), text(fault.state));
        assert!(fault.text.contains(advice), "{}: {}", reply.escape_ascii(), fault.text);
        assert!(!text(fault.state).contains("no server answers"));
    }
}

#[tokio::test]
async fn refused_login_differs_from_other_first_errors() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, "canary").unwrap();
    let settings = SharedCacheSettings {
        password_file: Some(file),
        ..SharedCacheSettings::default()
    };
    for (reply, state) in [
        (&b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"[..], "passwordFile"),
        (
            b"-ERR AUTH <password> called without any password configured for the default user.\r\n",
            "passwordFile",
        ),
        (b"-DENIED Redis is running in protected mode\r\n", "protected mode"),
        (b"-ERR max number of clients reached\r\n", "maxclients"),
        (b"-LOADING Redis is loading the dataset in memory\r\n", "loading"),
    ] {
        let address = answering(reply).await;
        let fault = fault_of(&format!("redis://{address}"), settings.clone()).await;
        assert!(text(fault.state).contains(state), "{}: {}", reply.escape_ascii(), fault.text);
        assert!(!fault.text.contains("canary"));
    }
}

#[tokio::test]
async fn missing_database_is_named() {
    let address = answering(b"-ERR DB index is out of range\r\n").await;
    let fault = fault_of(
        &format!("redis://{address}/99"),
        SharedCacheSettings::default(),
    )
    .await;
    assert!(
        fault.text.contains("the end of cache.shared.url") || fault.text.contains("`databases`"),
        "{}",
        fault.text
    );
}

#[tokio::test]
async fn tls_mismatch_is_named_in_both_directions() {
    let address = answering(b"-ERR Protocol error\r\n").await;
    let fault = fault_of(
        &format!("rediss://{address}"),
        SharedCacheSettings::default(),
    )
    .await;
    assert!(
        text(fault.state).contains("does not speak TLS") && fault.text.contains("write redis://"),
        "{}",
        fault.text
    );
    let refused = answering(b"\x15\x03\x03\x00\x02\x02\x28").await;
    let fault = fault_of(
        &format!("rediss://{refused}"),
        SharedCacheSettings::default(),
    )
    .await;
    assert!(
        text(fault.state).contains("TLS handshake") && fault.text.contains("caFile"),
        "{}",
        fault.text
    );
}

/// OpenSSL closes a connection without a handshake, and Redis leaves a handshake without an answer.
#[tokio::test]
async fn silent_or_closing_server_suggests_tls() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            drop(listener.accept().await.unwrap());
        }
    });
    let fault = fault_of(
        &format!("redis://{address}"),
        SharedCacheSettings::default(),
    )
    .await;
    assert!(
        text(fault.state).contains("closes each connection"),
        "{}",
        text(fault.state)
    );
    assert!(
        fault.text.contains("if it speaks TLS, write rediss://"),
        "{}",
        fault.text
    );
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = silent.local_addr().unwrap();
    let fault = fault_of(
        &format!("rediss://{address}"),
        SharedCacheSettings::default(),
    )
    .await;
    assert!(
        text(fault.state).contains("does not speak TLS"),
        "{}",
        text(fault.state)
    );
    assert!(
        fault.text.contains("write redis:// in cache.shared.url"),
        "{}",
        fault.text
    );
}

#[tokio::test]
async fn unreachable_server_has_its_own_state() {
    let address = {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        listener.local_addr().unwrap()
    };
    let fault = fault_of(
        &format!("redis://{address}"),
        SharedCacheSettings::default(),
    )
    .await;
    assert_eq!(text(fault.state), NOT_CONNECTED);
    let missing = Some("/nowhere/password".into());
    let settings = SharedCacheSettings {
        password_file: missing,
        ..SharedCacheSettings::default()
    };
    let fault = fault_of(&format!("redis://{address}"), settings).await;
    assert!(
        text(fault.state).contains("a file of cache.shared"),
        "{}",
        text(fault.state)
    );
    assert!(
        fault
            .text
            .starts_with("cache.shared.passwordFile: /nowhere/password: "),
        "{}",
        fault.text
    );
}

#[test]
fn refused_writes_have_their_reasons() {
    let url: ServerUrl = "redis://cache".parse().unwrap();
    for (code, state) in [
        ("READONLY", "as it is a replica"),
        ("OOM", "memory is full"),
        ("MISCONF", "cannot save"),
        ("NOREPLICAS", "cannot save"),
        ("NOPERM", "lacks rights"),
        ("ERR", "takes no writes, see the log"),
    ] {
        let error = redis::make_extension_error(code.to_owned(), Some("why".to_owned()));
        let fault = Fault::of(&error, &url, Failed::Write);
        assert!(
            text(fault.state).contains(state),
            "{code}: {}",
            text(fault.state)
        );
        assert!(!text(fault.state).contains("no server answers"));
    }
}

#[tokio::test]
async fn server_that_is_no_cluster_is_named() {
    for (scheme, reply, state, advice) in [
        (
            "redis",
            &b"-ERR This instance has cluster support disabled\r\n"[..],
            "no cluster",
            "write redis:// in",
        ),
        (
            "redis",
            b"-CLUSTERDOWN The cluster is down\r\n",
            "the cluster is down",
            "CLUSTER INFO",
        ),
        (
            "redis",
            b"-NOAUTH Authentication required.\r\n",
            "passwordFile",
            "set cache.shared.passwordFile",
        ),
        (
            "redis",
            b"-DENIED Redis is running in protected mode\r\n",
            "protected mode",
            "requirepass",
        ),
        (
            "redis",
            b"-NOPERM User x has no permissions to run the 'cluster|slots' command\r\n",
            "lacks rights",
            "+cluster|slots",
        ),
        (
            "redis",
            b"-LOADING Redis is loading\r\n",
            "loading",
            "tried again",
        ),
        (
            "redis",
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "no Valkey or Redis",
            "write rediss://",
        ),
        (
            "rediss",
            b"-ERR Protocol error\r\n",
            "does not speak TLS",
            "write redis://",
        ),
        (
            "rediss",
            b"\x15\x03\x03\x00\x02\x02\x28",
            "TLS handshake",
            "caFile",
        ),
    ] {
        let address = answering(reply).await;
        let fault = fault_of(
            &format!("{scheme}+cluster://{address}"),
            SharedCacheSettings::default(),
        )
        .await;
        assert!(
            text(fault.state).contains(state),
            "{}: {}",
            reply.escape_ascii(),
            text(fault.state)
        );
        assert!(
            fault.text.contains(advice),
            "{}: {}",
            reply.escape_ascii(),
            fault.text
        );
    }
}
