use super::*;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use hickory_resolver::config::NameServerConfig;
use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::{RData, Record};
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

const NAME: &str = "a_registry.test";
const V4: &str = "10.9.8.7";
const V6: &str = "2001:db8::7";

/// Answer of a name server.
#[derive(Clone)]
enum Answer {
    Address(&'static str),
    Code(ResponseCode),
    Truncated,
    Silence,
    /// This address, once there is a permit.
    Held(Arc<Semaphore>, &'static str),
}

use Answer::{Address, Code, Held, Silence, Truncated};

impl Answer {
    async fn of(self, query: &[u8]) -> Option<Vec<u8>> {
        let mut message = Message::from_vec(query).unwrap().into_response();
        match self {
            Silence => return None,
            Code(code) => message.metadata.response_code = code,
            Truncated => message.metadata.truncation = true,
            Address(address) => add(&mut message, address),
            Held(permits, address) => {
                permits.acquire().await.unwrap().forget();
                add(&mut message, address);
            }
        }
        Some(message.to_vec().unwrap())
    }
}

fn add(message: &mut Message, address: &str) {
    let name = message.queries[0].name().clone();
    let data = match address.parse().unwrap() {
        IpAddr::V4(address) => RData::A(address.into()),
        IpAddr::V6(address) => RData::AAAA(address.into()),
    };
    message.add_answer(Record::from_rdata(name, 60, data));
}

/// Starts a name server that gives these answers, by name (with a trailing dot) and family.
async fn name_server(answer: impl Fn(&str, RecordType) -> Answer + Send + 'static) -> SocketAddr {
    let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut answers = JoinSet::new();
        let mut query = [0; 512];
        while let Ok((length, peer)) = socket.recv_from(&mut query).await {
            let query = query[..length].to_vec();
            let message = Message::from_vec(&query).unwrap();
            let [question] = message.queries.as_slice() else {
                panic!("one question")
            };
            let name = question.name().to_ascii().to_lowercase();
            let answer = answer(&name, question.query_type());
            let socket = Arc::clone(&socket);
            answers.spawn(async move {
                if let Some(answer) = answer.of(&query).await {
                    _ = socket.send_to(&answer, peer).await;
                }
            });
        }
    });
    address
}

/// Answers 10.9.8.7 for [`NAME`], and is silent for every other name.
fn healthy(name: &str, family: RecordType) -> Answer {
    match family {
        _ if name != "a_registry.test." => Silence,
        RecordType::A => Address(V4),
        _ => Code(ResponseCode::NoError),
    }
}

/// Makes a resolver whose own timeout for a hanging name is 20 minutes: 20 attempts of one minute each.
fn resolver_for(servers: &[SocketAddr], search: &[&str]) -> NameResolver {
    let servers = servers.iter().map(|server| {
        let mut config = NameServerConfig::udp(server.ip());
        config.connections[0].port = server.port();
        config
    });
    let search = search
        .iter()
        .map(|domain| Name::from_ascii(domain).unwrap())
        .collect();
    let mut options = ResolverOpts::default();
    options.timeout = Duration::from_secs(60);
    options.attempts = 20;
    options.ndots = 5;
    let config = ResolverConfig::from_parts(None, search, servers.collect());
    NameResolver::new(config, options).unwrap()
}

/// Resolves [`NAME`] to the addresses that arrive first. Tries again after a failure, because on a busy machine an
/// answer may take longer than `NAME_TIME`.
async fn first_addresses(resolver: &NameResolver) -> Vec<String> {
    let resolved = async {
        loop {
            if let Ok(stream) = resolver.resolve(NAME).await {
                break stream;
            }
        }
    };
    let resolved = timeout(Duration::from_secs(60), resolved).await;
    let mut stream = pin!(resolved.expect("it hangs"));
    let mut addresses = Vec::new();
    while let Some(Some(address)) = stream.next().now_or_never() {
        addresses.push(address.to_string());
    }
    addresses
}

#[tokio::test]
async fn addresses_of_one_family_suffice() {
    for (v4, v6, expected) in [
        (Address(V4), Address(V6), &[V6, V4][..]),
        (Address(V4), Code(ResponseCode::NoError), &[V4]),
        (Address(V4), Silence, &[V4]),
        (Address(V4), Code(ResponseCode::ServFail), &[V4]),
        (Address(V4), Code(ResponseCode::NXDomain), &[V4]),
        (Address(V4), Truncated, &[V4]),
        (Silence, Address(V6), &[V6]),
        (Code(ResponseCode::ServFail), Address(V6), &[V6]),
        (Truncated, Address(V6), &[V6]),
    ] {
        let server = name_server(move |_, family| {
            if family == RecordType::A {
                v4.clone()
            } else {
                v6.clone()
            }
        })
        .await;
        assert_eq!(
            first_addresses(&resolver_for(&[server], &[])).await,
            expected
        );
    }
}

#[tokio::test]
async fn later_addresses_are_used_as_well() {
    let permits = Arc::new(Semaphore::new(0));
    let held = Held(Arc::clone(&permits), V4);
    let server = name_server(move |_, family| {
        if family == RecordType::A {
            held.clone()
        } else {
            Address(V6)
        }
    })
    .await;
    let resolver = resolver_for(&[server], &[]);
    let mut addresses = pin!(resolver.resolve(NAME).await.unwrap());
    assert_eq!(addresses.next().await, Some(V6.parse().unwrap()));
    permits.add_permits(Semaphore::MAX_PERMITS);
    assert_eq!(addresses.next().await, Some(V4.parse().unwrap()));
    assert_eq!(addresses.next().await, None);
}

#[tokio::test]
async fn one_answering_name_server_suffices() {
    for other in [
        Silence,
        Truncated,
        Code(ResponseCode::ServFail),
        Code(ResponseCode::Refused),
    ] {
        let other = name_server(move |_, _| other.clone()).await;
        let healthy = name_server(healthy).await;
        for servers in [[other, other, healthy], [healthy, other, other]] {
            assert_eq!(first_addresses(&resolver_for(&servers, &[])).await, [V4]);
        }
    }
}

#[tokio::test]
async fn search_list_is_followed_past_silent_names() {
    let nothing = || Code(ResponseCode::NXDomain);
    for (case, within, itself, expected) in [
        (
            "the first name counts",
            (Address(V4), nothing()),
            (nothing(), Address(V6)),
            V4,
        ),
        (
            "the first name is missing for one family and silent for the other",
            (nothing(), Silence),
            (Address(V4), Silence),
            V4,
        ),
        (
            "the reverse",
            (Silence, nothing()),
            (Silence, Address(V6)),
            V6,
        ),
        (
            "no address of one family",
            (Code(ResponseCode::NoError), Address(V6)),
            (Address(V4), nothing()),
            V6,
        ),
    ] {
        let server = name_server(move |name, family| {
            let (v4, v6) = if name == "a_registry.test.a.b." {
                &within
            } else {
                &itself
            };
            if family == RecordType::A {
                v4.clone()
            } else {
                v6.clone()
            }
        });
        assert_eq!(
            first_addresses(&resolver_for(&[server.await], &["a.b"])).await,
            [expected],
            "{case}"
        );
    }
}

/// RFC 4074, section 4.2.
#[tokio::test]
async fn name_denied_for_one_family_may_exist_for_the_other() {
    let permits = Arc::new(Semaphore::new(0));
    let held = Held(Arc::clone(&permits), V4);
    let (next_name, mut is_at_next_name) = tokio::sync::mpsc::unbounded_channel();
    let server = name_server(move |name, family| match (name, family) {
        ("a_registry.test.a.b.", RecordType::A) => held.clone(),
        ("a_registry.test.a.b.", _) => Code(ResponseCode::NXDomain),
        _ => {
            next_name.send(()).unwrap();
            Code(ResponseCode::NXDomain)
        }
    });
    let resolver = resolver_for(&[server.await], &["a.b"]);
    let (addresses, ()) = tokio::join!(first_addresses(&resolver), async {
        is_at_next_name.recv().await.unwrap();
        permits.add_permits(Semaphore::MAX_PERMITS);
    });
    assert_eq!(addresses, [V4]);
}

#[tokio::test(start_paused = true)]
async fn silent_name_server_times_out_before_connect_time() {
    let silent = resolver_for(&[name_server(|_, _| Silence).await], &[]);
    let begun = Instant::now();
    assert_eq!(
        silent.resolve(NAME).await.err().unwrap().kind(),
        io::ErrorKind::TimedOut
    );
    assert_eq!(begun.elapsed().as_secs(), NAME_TIME.as_secs());
    assert!(NAME_TIME < super::super::connect::CONNECT_TIME);
}

#[tokio::test]
async fn missing_name_is_an_error() {
    let nothing = resolver_for(
        &[name_server(|_, _| Code(ResponseCode::NXDomain)).await],
        &["a.b"],
    );
    assert_eq!(
        nothing.resolve(NAME).await.err().unwrap().kind(),
        io::ErrorKind::Other
    );
    assert!(nothing.resolve("a..b").await.is_err());
}

/// Counts the threads of this process that have this name.
fn threads(name: &str) -> usize {
    let mut count = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        // A thread may end in between.
        let Ok(thread_name) = std::fs::read_to_string(task.unwrap().path().join("comm")) else {
            continue;
        };
        count += usize::from(thread_name.trim_end() == name);
    }
    count
}

#[test]
fn hanging_names_use_no_threads_and_delay_no_others() {
    // Distinguishes this runtime's threads from those of other tests in the process.
    let thread_name = "of-names";
    let runtime = tokio::runtime::Builder::new_current_thread()
        .thread_name(thread_name)
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let resolver = Arc::new(resolver_for(&[name_server(healthy).await], &[]));
        let mut hanging = JoinSet::new();
        for number in 0..600 {
            let resolver = Arc::clone(&resolver);
            let name = format!("hangs-{number}.test");
            // `find` has no `NAME_TIME`, so a busy machine does not query all names again and again.
            hanging.spawn(async move { resolver.find(&name).await.is_ok() });
            // Lets the server receive the request. An unreceived request might be dropped, and sent again only later.
            tokio::task::yield_now().await;
        }
        for _ in 0..20 {
            assert_eq!(first_addresses(&resolver).await, [V4]);
            tokio::task::yield_now().await;
        }
        assert!(hanging.try_join_next().is_none(), "all of them still hang");
        assert_eq!(threads(thread_name), 0);
        let blocking = tokio::task::spawn_blocking(move || threads(thread_name));
        assert_eq!(blocking.await.unwrap(), 1, "threads are counted by name");
    });
}

#[tokio::test]
async fn addresses_are_not_queried() {
    let resolver = resolver_for(&["127.0.0.1:1".parse().unwrap()], &[]);
    for address in ["127.0.0.1", "::1", "2001:db8::1"] {
        let resolved: Vec<IpAddr> = resolver.resolve(address).await.unwrap().collect().await;
        assert_eq!(resolved, [address.parse::<IpAddr>().unwrap()]);
    }
}
