//! Servers that die, hang, are full or send false answers: a Pod gets its answer from the registry, and waits at most
//! once.

use std::sync::atomic::{AtomicU64, Ordering};

use testregistry::Pki;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// Returns the time of two lookups, together, of a replica whose server does not answer.
async fn two_answers(replica: &Replica, name: &str) -> Duration {
    let begun = Instant::now();
    for number in ["1", "2"] {
        let (_, image) = multi(&replica.remote, &format!("{name}{number}"));
        assert_eq!(replica.look_up(&image).await, Ok(BOTH));
    }
    begun.elapsed()
}

#[tokio::test]
async fn dead_server_is_skipped_until_it_is_back() {
    let Some(mut redis) = Redis::start(&[]).await else {
        return;
    };
    let remote = remote().await;
    let one = Replica::new(&remote, &redis).await;
    assert_eq!(one.look_up(&multi(&remote, "app").1).await, Ok(BOTH));
    redis.kill().await;
    for round in 0..5 {
        two_answers(&one, &format!("dead-{round}-")).await;
    }
    let failed = one.operation_count("get", "error") + one.operation_count("get", "timeout");
    assert!(failed <= 2, "{failed} Pods met the dead server");
    one.is(false).await;
    assert!(one.operation_count("get", "skipped") >= 5);

    redis.restart().await;
    one.is(true).await;
    let before = one.operation_count("set", "ok");
    two_answers(&one, "back").await;
    one.wrote(before + 4).await;
}

#[tokio::test]
async fn replica_starts_without_its_server_and_connects_later() {
    let Some(mut redis) = Redis::start(&[]).await else {
        return;
    };
    redis.kill().await;
    let remote = remote().await;
    let one = Replica::new(&remote, &redis).await;
    two_answers(&one, "app").await;
    assert_eq!(one.operation_count("get", "error"), 0, "nothing was sent");
    redis.restart().await;
    one.is(true).await;
}

#[tokio::test]
async fn hanging_server_costs_one_timeout() {
    let Some(redis) = Redis::start(&[]).await else {
        return;
    };
    let remote = remote().await;
    let one = Replica::with(&remote, &redis.url(), |settings, _| {
        settings.timeout = SECOND;
    })
    .await;
    redis.signal("STOP");
    for round in 0..5 {
        two_answers(&one, &format!("hangs-{round}-")).await;
    }
    let timeouts = one.operation_count("get", "timeout");
    assert!((1..=2).contains(&timeouts), "{timeouts} Pods waited");
    redis.signal("CONT");
    one.is(true).await;
    two_answers(&one, "again").await;
}

#[tokio::test]
async fn full_server_still_answers() {
    let Some(redis) = Redis::start(&[]).await else {
        return;
    };
    let remote = remote().await;
    let one = Replica::new(&remote, &redis).await;
    let (_, image) = multi(&remote, "app");
    assert_eq!(one.look_up(&image).await, Ok(BOTH));
    one.wrote(2).await;
    redis.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    redis.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    two_answers(&one, "more").await;
    one.is(false).await;
    let two = Replica::new(&remote, &redis).await;
    assert_eq!(two.look_up(&image).await, Ok(BOTH));
    assert_eq!(two.lookup_count("shared"), 1);
    redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    let mut rounds = 0;
    while one.state.get() != State::Healthy {
        rounds += 1;
        two_answers(&one, &format!("room-{rounds}-")).await;
    }
}

#[tokio::test]
async fn read_only_replica_still_answers() {
    let Some(primary) = Redis::start(&[]).await else {
        return;
    };
    let Some(copy) = Redis::start(&["--replicaof", "127.0.0.1", &primary.port.to_string()]).await
    else {
        return;
    };
    let remote = remote().await;
    let (_, image) = multi(&remote, "app");
    let one = Replica::new(&remote, &primary).await;
    assert_eq!(one.look_up(&image).await, Ok(BOTH));
    one.wrote(2).await;
    until("the replication", || copy.keys().len() == 2).await;
    let two = Replica::new(&remote, &copy).await;
    assert_eq!(two.look_up(&image).await, Ok(BOTH));
    assert_eq!(two.lookup_count("shared"), 1);
    two_answers(&two, "more").await;
    two.is(false).await;
    assert!(two.operation_count("set", "error") >= 1);
    assert_eq!(two.operation_count("get", "error"), 0);
    // A failover makes the copy the primary.
    copy.cli(&["REPLICAOF", "NO", "ONE"]);
    until("the next write", || {
        copy.cli(&["ROLE"]).starts_with("master")
    })
    .await;
    let mut rounds = 0;
    while two.operation_count("set", "ok") == 0 {
        rounds += 1;
        two_answers(&two, &format!("after-{rounds}-")).await;
    }
}

#[tokio::test]
async fn registries_are_queried_again_after_a_flush() {
    let Some(redis) = Redis::start(&[]).await else {
        return;
    };
    let remote = remote().await;
    let (_, image) = multi(&remote, "app");
    let one = Replica::new(&remote, &redis).await;
    assert_eq!(one.look_up(&image).await, Ok(BOTH));
    one.wrote(2).await;
    redis.cli(&["FLUSHALL"]);
    let two = Replica::new(&remote, &redis).await;
    assert_eq!(two.look_up(&image).await, Ok(BOTH));
    assert_eq!(
        (
            two.operation_count("get", "miss"),
            two.lookup_count("fetched")
        ),
        (1, 1)
    );
}

#[tokio::test]
async fn invalid_values_are_ignored() {
    let Some(redis) = Redis::start(&[]).await else {
        return;
    };
    let remote = remote().await;
    let (_, image) = multi(&remote, "app");
    let one = Replica::new(&remote, &redis).await;
    assert_eq!(one.look_up(&image).await, Ok(BOTH));
    one.wrote(2).await;
    let large = "x".repeat(100_000);
    let garbage: [&[&str]; 5] = [
        &["SET", "", "garbage"],
        &["SET", "", &large],
        &["SETRANGE", "", "0", "\u{7f}"],
        &["APPEND", "", "x"],
        &["LPUSH", "", "a", "list"],
    ];
    for command in garbage {
        for key in redis.keys() {
            if command[0] == "LPUSH" {
                redis.cli(&["DEL", &key]);
            }
            let mut command = command.to_vec();
            command[1] = &key;
            redis.cli(&command);
        }
        let two = Replica::new(&remote, &redis).await;
        assert_eq!(two.look_up(&image).await, Ok(BOTH), "{command:?}");
        assert_eq!(
            (
                two.operation_count("get", "invalid"),
                two.lookup_count("fetched")
            ),
            (1, 1),
            "{command:?}"
        );
        two.is(true).await;
        two.wrote(2).await;
    }
}

/// Starts a cluster of two nodes, each with half of the keys. Also returns the URL of the first one.
async fn cluster() -> Option<([Redis; 2], String)> {
    let started =
        async || Redis::start(&["--cluster-enabled", "yes", "--cluster-node-timeout", "500"]).await;
    let nodes = [started().await?, started().await?];
    for (node, [first, last]) in nodes.iter().zip([["0", "8191"], ["8192", "16383"]]) {
        assert_eq!(node.cli(&["CLUSTER", "ADDSLOTSRANGE", first, last]), "OK");
    }
    let bus = nodes[1].cli(&["CONFIG", "GET", "cluster-port"]);
    let bus = bus.lines().last().unwrap();
    nodes[0].cli(&[
        "CLUSTER",
        "MEET",
        "127.0.0.1",
        &nodes[1].port.to_string(),
        bus,
    ]);
    let joined = |node: &Redis| node.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok");
    until("the cluster", || nodes.iter().all(joined)).await;
    let url = format!("redis+cluster://127.0.0.1:{}", nodes[0].port);
    Some((nodes, url))
}

#[tokio::test]
async fn cluster_is_shared_like_one_server() {
    let Some((nodes, url)) = cluster().await else {
        return;
    };
    // Nodes that hear nothing from each other for that time, as on a busy machine, refuse commands.
    for node in &nodes {
        assert_eq!(
            node.cli(&["CONFIG", "SET", "cluster-node-timeout", "60000"]),
            "OK"
        );
    }
    let remote = remote().await;
    let one = Replica::with(&remote, &url, |_, _| {}).await;
    let images: Vec<ImageRef> = (0..20)
        .map(|name| multi(&remote, &format!("app-{name}")).1)
        .collect();
    for image in &images {
        assert_eq!(one.look_up(image).await, Ok(BOTH));
    }
    one.wrote(40).await;
    assert!(
        nodes.iter().all(|node| !node.keys().is_empty()),
        "each node has some"
    );
    let two = Replica::with(&remote, &url, |_, _| {}).await;
    let three = Replica::with(&remote, &url, |_, _| {}).await;
    for image in &images {
        assert_eq!(two.look_up(image).await, Ok(BOTH));
    }
    assert_eq!(two.lookup_count("shared"), 20);

    // One slot moves to the other node, which a replica learns when it queries the slot. A node that imports a slot
    // gets the newest epoch with it: otherwise the other node's gossip could take the slot back.
    let key = nodes[0].keys().remove(0);
    let [old, new] = [0, 1].map(|node: usize| nodes[node].cli(&["CLUSTER", "MYID"]));
    let slot = nodes[0].cli(&["CLUSTER", "KEYSLOT", &key]);
    assert_eq!(
        nodes[1].cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &old]),
        "OK"
    );
    for node in nodes.iter().rev() {
        node.cli(&["FLUSHALL"]);
        assert_eq!(node.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &new]), "OK");
    }
    until("the new owner", || {
        nodes[0].cli(&["GET", &key]).starts_with("MOVED") && nodes[1].cli(&["GET", &key]).is_empty()
    })
    .await;
    for image in &images {
        assert_eq!(three.look_up(image).await, Ok(BOTH));
    }
    until("the key at its new node", || nodes[1].keys().contains(&key)).await;
    for failure in ["error", "timeout"] {
        assert_eq!(
            (
                three.operation_count("get", failure),
                three.operation_count("set", failure)
            ),
            (0, 0),
            "{failure}"
        );
    }
}

#[tokio::test]
async fn cluster_without_a_node_costs_one_timeout_at_a_time() {
    let Some((mut nodes, url)) = cluster().await else {
        return;
    };
    let remote = remote().await;
    let one = Replica::with(&remote, &url, |settings, _| settings.timeout = SECOND).await;
    two_answers(&one, "whole").await;
    one.wrote(4).await;
    nodes[1].kill().await;
    for round in 0..5 {
        two_answers(&one, &format!("half-{round}-")).await;
    }
    one.is(false).await;
    let failed = one.operation_count("get", "error") + one.operation_count("get", "timeout");
    assert!(failed <= 5, "{failed} Pods met the dead node");
    nodes[1].restart().await;
    one.is(true).await;
}

#[tokio::test]
async fn password_is_read_again_and_tls_is_verified() {
    read_anew_and_verified("rediss", &[], &[]).await;
}

#[tokio::test]
async fn cluster_supports_passwords_and_tls() {
    read_anew_and_verified(
        "rediss+cluster",
        &["--cluster-enabled", "yes", "--tls-cluster", "yes"],
        &["+cluster|slots"],
    )
    .await;
}

async fn read_anew_and_verified(scheme: &str, arguments: &[&str], rights: &[&str]) {
    let pki = Pki::new();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    pki.leaf(&["127.0.0.1"]).write(directory.path()).unwrap();
    std::fs::write(path("ca.crt"), pki.ca_pem()).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
        .to_string();
    let text = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
    let certificate = text(path("tls.crt"));
    let key = text(path("tls.key"));
    let mut arguments = arguments.to_vec();
    arguments.extend([
        "--tls-port",
        &port,
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
    ]);
    let authorities = text(path("ca.crt"));
    arguments.extend([
        "--tls-ca-cert-file",
        &authorities,
        "--tls-auth-clients",
        "no",
    ]);
    let Some(redis) = Redis::start(&arguments).await else {
        return;
    };
    // Refused on a server that is no cluster.
    redis.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    let user = |password: &str| {
        let mut command = vec!["ACL", "SETUSER", "arch", "reset", "on", password];
        command.extend(["~tolerarch:*", "+getrange", "+set", "+del", "+select"]);
        command.extend(rights);
        assert_eq!(redis.cli(&command), "OK");
        redis.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    };
    user(">one");
    std::fs::write(path("user"), "arch").unwrap();
    let remote = remote().await;
    let url = format!("{scheme}://127.0.0.1:{port}");
    let change = |settings: &mut SharedCacheSettings, _: &mut CacheSettings| {
        settings.ca_file = Some(path("ca.crt"));
        settings.username_file = Some(path("user"));
        settings.password_file = Some(path("password"));
    };
    let one = Replica::with(&remote, &url, change).await;
    two_answers(&one, "without").await;
    one.is(false).await;
    std::fs::write(path("password"), "one\n").unwrap();
    one.is(true).await;
    two_answers(&one, "first").await;
    one.wrote(4).await;

    user(">two");
    until("the loss", || {
        let (_, image) = multi(&remote, "rotated");
        let _ = futures_util::FutureExt::now_or_never(one.look_up(&image));
        one.state.get() != State::Healthy
    })
    .await;
    std::fs::write(path("password"), "two\n").unwrap();
    one.is(true).await;
    two_answers(&one, "second").await;
    one.wrote(8).await;

    let strict = Replica::with(&remote, &url, |settings, cache| {
        change(settings, cache);
        std::fs::write(path("other.crt"), Pki::new().ca_pem()).unwrap();
        settings.ca_file = Some(path("other.crt"));
    })
    .await;
    two_answers(&strict, "strict").await;
    assert_ne!(
        strict.state.get(),
        State::Healthy,
        "a certificate of another authority"
    );
}

/// Starts a server that answers properly this many times, and then without end. Returns its port, the number of its
/// connections, and the number of bytes that it could send.
async fn endless(
    proper: usize,
    answer: &'static str,
    more: &'static str,
) -> (u16, Arc<[AtomicU64; 2]>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let sent = Arc::<[AtomicU64; 2]>::default();
    let counted = Arc::clone(&sent);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let sent = Arc::clone(&counted);
            sent[0].fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let mut command = [0; 4096];
                for _ in 0..proper {
                    if stream.read(&mut command).await.unwrap_or(0) == 0 {
                        return;
                    }
                    stream.write_all(b"$0\r\n\r\n").await.unwrap();
                }
                if stream.read(&mut command).await.unwrap_or(0) == 0 {
                    return;
                }
                let first = answer.as_bytes();
                let block = more.repeat((64 << 10) / more.len());
                let mut next = first;
                while stream.write_all(next).await.is_ok() {
                    sent[1].fetch_add(next.len() as u64, Ordering::Relaxed);
                    next = block.as_bytes();
                }
            });
        }
    });
    (port, sent)
}

/// The client library reads answers without a limit.
#[tokio::test]
async fn endless_answer_breaks_the_connection() {
    let remote = remote().await;
    let directory = tempfile::tempdir().unwrap();
    let password = directory.path().join("password");
    std::fs::write(&password, "secret").unwrap();
    // Proper answers: to the greeting, the probe of a new connection, and a lookup.
    for (proper, with_password) in [(0, true), (0, false), (1, false)] {
        for (answer, more) in [
            ("$999999999999\r\n", "x"),
            ("+", "x"),
            ("*999999999999\r\n", "+\r\n"),
            ("*1\r\n", "*1\r\n"),
            ("", "+OK\r\n"),
        ] {
            let (port, sent) = endless(proper, answer, more).await;
            let url = format!("redis://127.0.0.1:{port}");
            let one = Replica::with(&remote, &url, |settings, _| {
                settings.timeout = SECOND;
                settings.password_file = with_password.then(|| password.clone());
            })
            .await;
            let failures = ["error", "timeout", "invalid"];
            let is_left = || {
                failures
                    .iter()
                    .any(|result| one.operation_count("get", result) > 0)
            };
            let mut round = 0;
            while one.state.get() == State::Healthy && !is_left() {
                two_answers(&one, &format!("endless-{port}-{}-{round}-", more.len())).await;
                round += 1;
            }
            two_answers(&one, &format!("endless-{port}-{}-end-", more.len())).await;
            let [connections, sent] = [0, 1].map(|of| sent[of].load(Ordering::Relaxed));
            // Bytes in the kernel's buffers count as sent.
            assert!(
                sent < connections * (8 << 20),
                "{url} {answer:?}: {} MiB",
                sent >> 20
            );
        }
    }
}

/// Real servers answer so. A replica whose server refuses it reports why, and works without it.
#[tokio::test]
async fn refused_commands_have_other_states_than_silence() {
    for (arguments, path, reason) in [
        (vec!["--cluster-enabled", "yes"], "", "cluster"),
        (vec!["--requirepass", "canary"], "", "passwordFile"),
        (vec![], "", "lacks rights"),
        (vec!["--databases", "2"], "/7", "no such database"),
        (vec!["--maxclients", "1"], "", "maxclients"),
    ] {
        let Some(redis) = Redis::start(&arguments).await else {
            return;
        };
        if reason == "lacks rights" {
            redis.cli(&["ACL", "SETUSER", "default", "-getrange"]);
        }
        let _taken = if reason == "maxclients" {
            let stream = tokio::net::TcpStream::connect(("127.0.0.1", redis.port))
                .await
                .unwrap();
            // The connection counts once the server has accepted it.
            let mut stream = stream;
            stream.write_all(b"PING\r\n").await.unwrap();
            stream.read_u8().await.unwrap();
            Some(stream)
        } else {
            None
        };
        let remote = remote().await;
        let one = Replica::with(&remote, &format!("{}{path}", redis.url()), |_, _| {}).await;
        two_answers(&one, "app").await;
        let is_reported =
            || matches!(one.state.get(), State::Degraded(text) if text.contains(reason));
        until(reason, is_reported).await;
    }
}
