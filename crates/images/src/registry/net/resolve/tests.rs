use super::*;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::timeout;

const HEALTHY: &[u8] = b"\x0aa_registry\x04test\0";

/// 10.9.8.7 for `a_registry.test`, and silence for every other name.
fn answer(query: &[u8]) -> Option<Vec<u8>> {
    let end = 12 + HEALTHY.len();
    if !query.get(12..end)?.eq_ignore_ascii_case(HEALTHY) {
        return None;
    }
    let is_ipv4 = query.get(end..end + 2)? == [0, 1];
    let mut answer = query.get(..end + 4)?.to_vec();
    answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(is_ipv4), 0, 0, 0, 0]);
    if is_ipv4 {
        answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 9, 8, 7]);
    }
    Some(answer)
}

async fn name_server() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut query = [0; 512];
        while let Ok((length, peer)) = socket.recv_from(&mut query).await {
            if let Some(answer) = answer(&query[..length]) {
                let _ = socket.send_to(&answer, peer).await;
            }
        }
    });
    address
}

/// A name that hangs is given up after 20 minutes: each try has one minute.
fn asking(server: SocketAddr) -> NameResolver {
    let mut config = NameServerConfig::udp(server.ip());
    config.connections[0].port = server.port();
    let mut options = ResolverOpts::default();
    (options.timeout, options.attempts) = (Duration::from_secs(60), 20);
    NameResolver::new(ResolverConfig::from_parts(None, vec![], vec![config]), options).unwrap()
}

/// The threads of this process that have this name.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
    names.filter(|own| own.as_ref().is_ok_and(|own| own.trim_end() == name)).count()
}

#[test]
fn names_that_hang_cost_no_threads_and_keep_no_other_waiting() {
    // Other tests of this process have threads as well.
    let own = "of-names";
    let runtime = tokio::runtime::Builder::new_current_thread().thread_name(own).enable_all().build();
    runtime.unwrap().block_on(async {
        let resolver = asking(name_server().await);
        let mut hanging = JoinSet::new();
        for number in 0..600 {
            let resolver = resolver.clone();
            hanging.spawn(async move { resolver.resolve(&format!("hangs-{number}.test")).await.is_ok() });
            // What is not received at once might be dropped, and is sent again after a minute.
            tokio::task::yield_now().await;
        }
        for _ in 0..20 {
            let found = timeout(Duration::from_secs(200), resolver.resolve("a_registry.test")).await;
            assert_eq!(found.expect("it hangs, too").unwrap(), ["10.9.8.7".parse::<IpAddr>().unwrap()]);
            tokio::task::yield_now().await;
        }
        assert!(hanging.try_join_next().is_none(), "all of them hang still");
        assert_eq!(threads(own), 0);
        tokio::task::spawn_blocking(move || assert_eq!(threads(own), 1, "counted by their name"))
            .await
            .unwrap();
    });
}

#[tokio::test]
async fn addresses_are_not_asked_for() {
    let resolver = asking("127.0.0.1:1".parse().unwrap());
    for address in ["127.0.0.1", "::1", "2001:db8::1"] {
        assert_eq!(resolver.resolve(address).await.unwrap(), [address.parse::<IpAddr>().unwrap()]);
    }
    assert!(resolver.resolve("a..b").await.is_err());
}
