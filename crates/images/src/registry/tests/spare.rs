//! Round trips of the first lookup at a registry whose indexes are verified, and servers that mistreat the spare
//! connection of that lookup.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_rustls::TlsAcceptor;

use super::*;

/// Duration of a round trip, on a paused clock.
const ROUND_TRIP: Duration = Duration::from_millis(100);

/// Maximum time for which a request waits for the spare connection before a new one is opened.
const HEAD_START: Duration = Duration::from_millis(250);
const FOUR: [&str; 4] = ["linux/amd64", "linux/arm64", "linux/s390x", "linux/ppc64le"];

/// How connections that are begun at the same time are opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opens {
    AtOnce,
    /// Each connection is begun when the one before it is open, as if the kernel did not answer a SYN at once.
    InTurn,
}

/// A slow connection to a registry.
struct Wire {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Wire {
    async fn start(remote: &Remote, opens: Opens) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let to = remote.socket_addr();
        let connections = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&connections);
        let opening = Arc::<AtomicUsize>::default();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                let others = match opens {
                    Opens::AtOnce => 0,
                    Opens::InTurn => opening.fetch_add(1, Ordering::Relaxed),
                };
                let opening = Arc::clone(&opening);
                tokio::spawn(async move {
                    for _ in 0..=others {
                        sleep(ROUND_TRIP).await;
                    }
                    if opens == Opens::InTurn {
                        opening.fetch_sub(1, Ordering::Relaxed);
                    }
                    forward(near, to).await;
                });
            }
        });
        Self {
            address,
            connections,
        }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Forwards a connection, and delays everything that it carries.
async fn forward(near: TcpStream, to: SocketAddr) {
    let far = TcpStream::connect(to).await.unwrap();
    near.set_nodelay(true).unwrap();
    far.set_nodelay(true).unwrap();
    let (near_in, near_out) = near.into_split();
    let (far_in, far_out) = far.into_split();
    tokio::join!(delay(near_in, far_out), delay(far_in, near_out));
}

async fn delay(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let (sender, mut pieces) = mpsc::unbounded_channel();
    let read = async move {
        let mut piece = [0; 16 << 10];
        while let Ok(length @ 1..) = from.read(&mut piece).await {
            let due = Instant::now() + ROUND_TRIP / 2;
            sender.send((due, piece[..length].to_vec())).unwrap();
        }
    };
    let write = async {
        while let Some((due, piece)) = pieces.recv().await {
            sleep_until(due).await;
            // The peer may have closed the connection.
            let _ = to.write_all(&piece).await;
        }
        let _ = to.shutdown().await;
    };
    tokio::join!(read, write);
}

/// Returns a client that does not verify certificates at these addresses, and verifies entries for these platforms.
fn verifying(addresses: &[SocketAddr], verified: &[&str]) -> Registry {
    let mut hosts = Vec::new();
    for address in addresses {
        let settings = HostSettings {
            skip_verify: true,
            ..HostSettings::default()
        };
        hosts.push((address.to_string(), settings));
    }
    let guard = AddressGuard {
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        deny: vec![],
    };
    let client = Registry::new(hosts, guard, registry_metrics()).unwrap();
    client.verifying(VerifiedPlatforms {
        manifests: platforms(verified),
        ..VerifiedPlatforms::default()
    })
}

/// Cost of one lookup.
#[derive(Debug, PartialEq, Eq)]
struct Cost {
    round_trips: u128,
    /// New connections to the registry, and to the server that it names.
    connections: [usize; 2],
}

struct Case {
    name: &'static str,
    verified: &'static [&'static str],
    first: Cost,
    /// Cost of another image of the repository.
    next: Cost,
}

/// Opening a connection takes two round trips: one for TCP, one for TLS 1.3.
#[tokio::test(start_paused = true)]
async fn manifests_of_an_index_take_one_round_trip() {
    let cost = |round_trips, registry, named| Cost {
        round_trips,
        connections: [registry, named],
    };
    for case in [
        Case {
            name: "index",
            verified: &BOTH,
            first: cost(4, 2, 0),
            next: cost(2, 0, 0),
        },
        Case {
            name: "index, one entry",
            verified: &["linux/amd64"],
            first: cost(4, 1, 0),
            next: cost(2, 0, 0),
        },
        Case {
            name: "index, not verified",
            verified: &[],
            first: cost(3, 1, 0),
            next: cost(1, 0, 0),
        },
        Case {
            // The third and fourth manifest are requested on the first connections that are free again.
            name: "index, four entries",
            verified: &FOUR,
            first: cost(5, 4, 0),
            next: cost(2, 0, 0),
        },
        Case {
            name: "single image",
            verified: &BOTH,
            first: cost(4, 2, 0),
            next: cost(2, 0, 0),
        },
        Case {
            name: "token",
            verified: &BOTH,
            first: cost(6, 2, 0),
            next: cost(2, 0, 0),
        },
        Case {
            name: "token of another host",
            verified: &BOTH,
            first: cost(8, 2, 1),
            next: cost(2, 0, 0),
        },
        Case {
            name: "redirect",
            verified: &BOTH,
            first: cost(9, 2, 2),
            next: cost(4, 0, 0),
        },
    ] {
        let remote = Remote::start().await;
        let named = Remote::start().await;
        let wires = [
            Wire::start(&remote, Opens::InTurn).await,
            Wire::start(&named, Opens::InTurn).await,
        ];
        let repo = remote.repo("team/app");
        for tag in ["v1", "v2"] {
            if case.name == "single image" {
                repo.image("linux/amd64", Some(tag));
            } else if case.verified == FOUR {
                repo.index(Some(tag), FOUR);
            } else {
                repo.index(Some(tag), BOTH);
                named.repo("team/app").index(Some(tag), BOTH);
            }
        }
        let [wire, named_wire] = &wires;
        match case.name {
            "token" => {
                let realm = format!("https://{}/token", wire.address);
                repo.require(Auth::bearer().realm(&realm));
            }
            "token of another host" => {
                let realm = format!("https://{}/token", named_wire.address);
                let auth = Auth::bearer().realm(&realm);
                named.serve_tokens(&auth);
                repo.require(auth);
            }
            "redirect" => {
                let target = named_wire.address;
                repo.fault(Some(Fault::custom(move |request| {
                    let location = format!("https://{target}{}", request.path);
                    Some(Fault::redirect(307, &location))
                })));
            }
            _ => {}
        }
        let client = verifying(&wires.each_ref().map(|wire| wire.address), case.verified);
        for (tag, expected) in [("v1", &case.first), ("v2", &case.next)] {
            let before = wires.each_ref().map(Wire::connections);
            let image = format!("{}/team/app:{tag}", wire.address).parse().unwrap();
            let begun = Instant::now();
            client.fetch(&image, None).await.unwrap();
            let took = begun.elapsed() + ROUND_TRIP / 2;
            let after = wires.each_ref().map(Wire::connections);
            let cost = Cost {
                round_trips: took.as_millis() / ROUND_TRIP.as_millis(),
                connections: [after[0] - before[0], after[1] - before[1]],
            };
            assert_eq!(&cost, expected, "{}, {tag}", case.name);
        }
    }
}

/// What a server does with the second connection.
#[derive(Clone, Copy, Debug)]
enum Hostility {
    NoHandshake,
    CloseBeforeHandshake,
    CloseAfterHandshake,
    CloseOnRequest,
    TimeoutOnRequest,
    EarlyAnswer,
}

/// A TLS proxy in front of a plain HTTP registry, which mistreats the second connection.
struct Front {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    /// Completes when the second connection is closed.
    has_ended: oneshot::Receiver<()>,
}

impl Front {
    /// Starts the proxy. It answers nothing on other connections until it has mistreated the second one.
    async fn start(remote: &Remote, hostility: Hostility) -> Self {
        let acceptor = acceptor();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let behind = remote.socket_addr();
        let connections = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&connections);
        let (ended, has_ended) = oneshot::channel();
        tokio::spawn(async move {
            let (acted, has_acted) = watch::channel(false);
            let mut second = Some((acted, ended));
            while let Ok((tcp, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                let is_second = counted.fetch_add(1, Ordering::Relaxed) == 1;
                if is_second && let Some((acted, ended)) = second.take() {
                    tokio::spawn(async move {
                        treat(tcp, acceptor, hostility, acted).await;
                        let _ = ended.send(());
                    });
                } else {
                    tokio::spawn(pass(tcp, acceptor, behind, has_acted.clone()));
                }
            }
        });
        Self {
            address,
            connections,
            has_ended,
        }
    }
}

fn acceptor() -> TlsAcceptor {
    let leaf = testregistry::Pki::new().leaf(&["127.0.0.1"]);
    let certificate = CertificateDer::from_pem_slice(leaf.cert_pem.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(leaf.key_pem.as_bytes()).unwrap();
    let builder = rustls::ServerConfig::builder_with_provider(Arc::new(net::provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_no_client_auth();
    let config = builder.with_single_cert(vec![certificate], key).unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn pass(
    tcp: TcpStream,
    acceptor: TlsAcceptor,
    behind: SocketAddr,
    mut has_acted: watch::Receiver<bool>,
) {
    // The client may close a connection that it no longer needs at any time.
    let Ok(mut tls) = acceptor.accept(tcp).await else {
        return;
    };
    tls.get_ref().0.set_nodelay(true).unwrap();
    has_acted.wait_for(|has_acted| *has_acted).await.unwrap();
    let Ok(mut behind) = TcpStream::connect(behind).await else {
        return;
    };
    behind.set_nodelay(true).unwrap();
    let _ = copy_bidirectional(&mut tls, &mut behind).await;
}

async fn treat(
    mut tcp: TcpStream,
    acceptor: TlsAcceptor,
    hostility: Hostility,
    acted: watch::Sender<bool>,
) {
    tcp.set_nodelay(true).unwrap();
    match hostility {
        Hostility::NoHandshake => {
            acted.send_replace(true);
            while tcp.read(&mut [0; 4096]).await.is_ok_and(|count| count > 0) {}
        }
        Hostility::CloseBeforeHandshake => {
            drop(tcp);
            acted.send_replace(true);
        }
        Hostility::CloseAfterHandshake => {
            let mut tls = acceptor.accept(tcp).await.unwrap();
            tls.shutdown().await.unwrap();
            drop(tls);
            acted.send_replace(true);
        }
        Hostility::CloseOnRequest => {
            let mut tls = acceptor.accept(tcp).await.unwrap();
            acted.send_replace(true);
            let _ = tls.read(&mut [0; 4096]).await;
        }
        Hostility::TimeoutOnRequest => {
            let mut tls = acceptor.accept(tcp).await.unwrap();
            acted.send_replace(true);
            if tls.read(&mut [0; 4096]).await.is_ok_and(|count| count > 0) {
                let answer = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\n\r\n";
                tls.write_all(answer).await.unwrap();
                tls.shutdown().await.unwrap();
            }
        }
        Hostility::EarlyAnswer => {
            let mut tls = acceptor.accept(tcp).await.unwrap();
            let answer = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
            tls.write_all(answer).await.unwrap();
            tls.flush().await.unwrap();
            acted.send_replace(true);
            while tls.read(&mut [0; 4096]).await.is_ok_and(|count| count > 0) {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn faulty_spare_connection_neither_fails_nor_delays_lookups() {
    for closes in [false, true] {
        for hostility in [
            Hostility::NoHandshake,
            Hostility::CloseBeforeHandshake,
            Hostility::CloseAfterHandshake,
            Hostility::CloseOnRequest,
            Hostility::TimeoutOnRequest,
            Hostility::EarlyAnswer,
        ] {
            let remote = Remote::builder().plain_http().start().await;
            let repo = remote.repo("team/app");
            repo.index(Some("v1"), BOTH);
            if closes {
                // No connection is reused, so a request has only the spare one and new ones.
                repo.header("connection", Some("close"));
            }
            let front = Front::start(&remote, hostility).await;
            let client = verifying(&[front.address], &BOTH);
            let image = format!("{}/team/app:v1", front.address).parse().unwrap();
            let begun = Instant::now();
            let support = client.fetch(&image, None).await.map(|found| found.support);
            let took = begun.elapsed();
            let case = format!("{hostility:?}, each answer closes: {closes}");
            assert!(took < 2 * HEAD_START, "{case}: {took:?}");
            let both = Ok(Support::Index(platforms(&BOTH)));
            assert_eq!(kind(&support), kind(&both), "{case}");
            let requests = remote.requests();
            let methods: Vec<&str> = requests.iter().map(|r| r.method.as_str()).collect();
            assert_eq!(methods, ["GET", "HEAD", "HEAD"], "{case}");
            front.has_ended.await.unwrap();
            let connections = front.connections.load(Ordering::Relaxed);
            assert!((2..=5).contains(&connections), "{case}: {connections}");
        }
    }
}

/// A server that limits the connections of a client refuses the one that is opened after the head start.
#[tokio::test(start_paused = true)]
async fn late_spare_connection_is_used_if_a_new_one_is_refused() {
    let remote = Remote::builder().plain_http().start().await;
    let repo = remote.repo("team/app");
    repo.index(Some("v1"), BOTH);
    repo.header("connection", Some("close"));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let behind = remote.socket_addr();
    tokio::spawn(async move {
        let acceptor = acceptor();
        let (_open, is_open) = watch::channel(true);
        let (refused, is_refused) = watch::channel(false);
        for number in 1.. {
            let (tcp, _) = listener.accept().await.unwrap();
            match number {
                2 => drop(tokio::spawn({
                    let acceptor = acceptor.clone();
                    let is_open = is_open.clone();
                    let mut is_refused = is_refused.clone();
                    async move {
                        is_refused.wait_for(|refused| *refused).await.unwrap();
                        pass(tcp, acceptor, behind, is_open).await;
                    }
                })),
                1 | 3 => drop(tokio::spawn(pass(
                    tcp,
                    acceptor.clone(),
                    behind,
                    is_open.clone(),
                ))),
                _ => {
                    drop(tcp);
                    refused.send_replace(true);
                }
            }
        }
    });
    let client = verifying(&[address], &BOTH);
    let image = format!("{address}/team/app:v1").parse().unwrap();
    let found = client.fetch(&image, None).await;
    assert_eq!(
        kind(&found.map(|found| found.support)),
        kind(&Ok(Support::Index(platforms(&BOTH))))
    );
}

#[tokio::test]
async fn unused_spare_connection_closes_with_its_lookup() {
    let remote = Remote::builder().plain_http().start().await;
    let repo = remote.repo("team/app");
    repo.image("linux/amd64", Some("v1"));
    let front = Front::start(&remote, Hostility::NoHandshake).await;
    let client = verifying(&[front.address], &BOTH);
    let image = format!("{}/team/app:v1", front.address).parse().unwrap();
    client.fetch(&image, None).await.unwrap();
    front.has_ended.await.unwrap();
}

/// Seven of eight concurrent lookups get no spare connection, and images without an index need none.
#[tokio::test(start_paused = true)]
async fn burst_opens_one_spare_connection_per_host() {
    let remote = Remote::start().await;
    let wire = Wire::start(&remote, Opens::AtOnce).await;
    let repo = remote.repo("team/app");
    let client = verifying(&[wire.address], &BOTH);
    let mut images: Vec<ImageRef> = Vec::new();
    for tag in 0..8 {
        repo.image("linux/amd64", Some(&format!("v{tag}")));
        let image = format!("{}/team/app:v{tag}", wire.address);
        images.push(image.parse().unwrap());
    }
    let lookups = images.iter().map(|image| client.fetch(image, None));
    futures_util::future::try_join_all(lookups).await.unwrap();
    assert_eq!(wire.connections(), 9);
}
