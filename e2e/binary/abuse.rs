//! Clients that abuse the ports. They may hold a connection for some seconds, and must not delay reviews of other clients.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde_json::json;
use testregistry::Registry;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, interval};

use super::program::Program;
use crate::support::https::{Client, request};
use crate::support::review::{Verdict, opted_out, post, review};
use crate::support::until;

fn simple_review() -> Vec<u8> {
    post("/mutate", &review("u-1", &opted_out()))
}

#[tokio::test]
async fn connection_without_tls_is_closed_and_counted() {
    let program = Program::start(&Registry::start().await, json!({})).await;
    let plain = Client::plain(program.webhook.address());
    for bytes in [request("GET", "/mutate", &[], b""), vec![0; 1000]] {
        let mut connection = plain.connect().await;
        connection.send(&bytes).await.unwrap();
        assert!(!connection.end().await.starts_with(b"HTTP"));
    }
    let mut hangs_up_within_the_handshake = plain.connect().await;
    hangs_up_within_the_handshake
        .send(b"\x16\x03\x01\x02\x00")
        .await
        .unwrap();
    drop(hangs_up_within_the_handshake);
    until("all are counted", async || {
        program.metric("tolerarch_tls_handshake_errors_total").await == "3"
    })
    .await;
    assert_eq!(program.review(&opted_out()).await.reason, "opted-out");
}

#[tokio::test]
async fn connection_beyond_the_limit_is_closed_at_once() {
    let program = Program::start(
        &Registry::start().await,
        json!({"server": {"maxConnections": 2}}),
    )
    .await;
    let mut first = program.webhook.connect().await;
    let mut second = program.webhook.connect().await;
    for _ in 0..3 {
        // A connection that has been idle for seconds would be closed in favour of a new one.
        for connection in [&mut first, &mut second] {
            connection.exchange(&simple_review()).await;
        }
        assert!(program.webhook.try_connect().await.is_err());
    }
    assert_eq!(
        program
            .logged("server.maxConnections reached: new connections are closed")
            .await["level"],
        "WARN"
    );
    assert_eq!(
        Verdict::of(&second.exchange(&simple_review()).await).reason,
        "opted-out"
    );
    drop(first);
    until("a connection is free", async || {
        program.webhook.try_connect().await.is_ok()
    })
    .await;
}

/// All cases run concurrently, as each takes ten to fifteen seconds.
#[tokio::test]
async fn only_stalled_connections_are_cut_off() {
    let program = Program::start(&Registry::start().await, json!({})).await;
    let connect = || program.webhook.connect();
    let mut idle = connect().await;
    idle.exchange(&simple_review()).await;

    let handshake = async {
        let silent = TcpStream::connect(program.webhook.address()).await.unwrap();
        silent.readable().await.unwrap();
        assert_eq!(silent.try_read(&mut [0]).unwrap(), 0);
    };
    let head = async {
        let mut connection = connect().await;
        connection
            .send(b"POST /mutate HTTP/1.1\r\nHost: x\r\n")
            .await
            .unwrap();
        assert!(connection.end().await.is_empty());
    };
    let second_head = async {
        let mut connection = connect().await;
        connection.exchange(&simple_review()).await;
        connection.send(b"P").await.unwrap();
        assert!(connection.end().await.is_empty());
    };
    let dripping_head = async {
        let mut connection = connect().await;
        let mut ticks = interval(Duration::from_millis(500));
        while connection.send(b"P").await.is_ok() {
            ticks.tick().await;
        }
    };
    let body = async {
        let mut connection = connect().await;
        let request = simple_review();
        let answer = connection.exchange(&request[..request.len() - 1]).await;
        assert_eq!((answer.status, answer.header("retry-after")), (408, None));
        assert!(answer.closes());
        connection.end().await;
    };
    let answers = async {
        let mut connection = connect().await;
        // Unread answers must not pile up in the server: it stops reading requests.
        let request = post("/mutate", &review(&"u".repeat(4096), &opted_out()));
        let mut sent = 0;
        while connection.send(&request).await.is_ok() {
            sent += request.len();
            assert!(sent < 64 << 20, "more than the buffers of both sides take");
        }
    };
    tokio::join!(handshake, head, second_head, dripping_head, body, answers);

    assert_eq!(
        Verdict::of(&idle.exchange(&simple_review()).await).reason,
        "opted-out"
    );
    assert_eq!(
        program.metric("tolerarch_tls_handshake_errors_total").await,
        "1"
    );
}

#[tokio::test]
async fn idle_admin_connections_do_not_block_probes() {
    let program = Program::start(&Registry::start().await, json!({})).await;
    let mut idle = Vec::new();
    for _ in 0..300 {
        idle.push(TcpStream::connect(program.admin.address()).await.unwrap());
    }
    for path in ["/livez", "/readyz"] {
        assert_eq!(program.admin.get(path).await.status, 200, "{path}");
    }
}

/// Connects from a source address of its own.
async fn connect_from(source: [u8; 4], to: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((source, 0).into())?;
    socket.connect(to).await
}

/// The connections are new, and count as idle only after some seconds. One address floods the webhook's port, and several
/// flood the admin port.
#[tokio::test]
async fn flood_of_connections_does_not_block_other_addresses() {
    let program = Program::start(
        &Registry::start().await,
        json!({"server": {"maxConnections": 64}}),
    )
    .await;
    let mut flood = Vec::new();
    for i in 0..320 {
        flood.push(
            connect_from([127, 0, 0, 2], program.webhook.address())
                .await
                .unwrap(),
        );
        flood.push(
            connect_from([127, 0, 0, 3 + (i % 5) as u8], program.admin.address())
                .await
                .unwrap(),
        );
    }
    for _ in 0..20 {
        assert_eq!(program.review(&opted_out()).await.reason, "opted-out");
        assert_eq!(program.admin.get("/livez").await.status, 200);
    }
}

/// Returns a request with a review that is larger than this number of bytes.
fn large_review(bytes: usize) -> Vec<u8> {
    let mut pod = opted_out();
    pod["metadata"]["annotations"]["padding"] = json!("x".repeat(bytes));
    post("/mutate", &review("u-1", &pod))
}

#[tokio::test]
async fn stalled_large_bodies_do_not_block_other_reviews() {
    let program = Program::start(&Registry::start().await, json!({})).await;
    let request = large_review(300 << 10);
    let mut hanging = Vec::new();
    for _ in 0..32 {
        let mut connection = program.webhook.connect().await;
        connection.send(&request[..200 << 10]).await.unwrap();
        hanging.push(connection);
    }
    for size in [70 << 10, 300 << 10] {
        let verdict = Verdict::of(&program.webhook.exchange(&large_review(size)).await);
        assert_eq!(verdict.reason, "opted-out");
    }
    for mut connection in hanging {
        let answer = connection.answer().await.unwrap();
        assert_eq!(
            (answer.status, answer.header("retry-after"), answer.closes()),
            (408, None, true)
        );
    }
}

/// 63 KB of 6 MB arrive of each upload.
#[tokio::test]
#[ignore = "needs `ulimit -n 8192`; the figure counts for a release build, with `--release`"]
async fn four_thousand_unfinished_uploads_take_less_than_256_mib() {
    let program = Program::start(&Registry::start().await, json!({})).await;
    let upload = large_review(6 << 20);
    let connections = stream::iter(0..4000)
        .map(|_| program.webhook.connect())
        .buffered(32);
    let mut connections: Vec<_> = connections.collect().await;
    println!("{} MiB with idle connections", program.peak_memory());
    let uploads = stream::iter(&mut connections).for_each_concurrent(32, async |connection| {
        // The program may have refused the upload by then.
        let _ = connection.send(&upload[..63_000]).await;
    });
    let reviews = async {
        let mut longest = Duration::ZERO;
        let mut large_reviews = 0;
        for _ in 0..20 {
            let started = Instant::now();
            assert_eq!(program.review(&opted_out()).await.reason, "opted-out");
            longest = longest.max(started.elapsed());
            // Large reviews compete with the uploads for memory, and fast, small ones win.
            large_reviews += usize::from(
                program
                    .webhook
                    .exchange(&large_review(70 << 10))
                    .await
                    .status
                    == 200,
            );
        }
        (longest, large_reviews)
    };
    let ((), (longest, large_reviews)) = tokio::join!(uploads, reviews);
    let peak = program.peak_memory();
    println!(
        "{peak} MiB at the most; a review took {longest:?} at the most; {large_reviews} of 20 large reviews were answered"
    );
    assert!(peak < 256 && longest < Duration::from_secs(1));
}
