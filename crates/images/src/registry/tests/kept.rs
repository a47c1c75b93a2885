//! Reused connections that close just when the next request is sent.

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use testregistry::Request;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;

fn is_blob(request: &Request) -> bool {
    request.kind == Kind::Blob
}

type End = (&'static str, fn() -> Fault);

/// Ways in which a server ends a connection: a FIN, and TLS without `close_notify`; an RST; a 408, which servers send
/// to close an idle connection.
const ENDS: [End; 3] = [
    ("closed", Fault::close),
    ("reset", Fault::reset),
    ("408", || Fault::status(408)),
];

#[tokio::test]
async fn request_is_repeated_once_if_a_reused_connection_closes() {
    let ends = |is_plain| ENDS.map(|end| (is_plain, end));
    for (is_plain, (end, fault)) in [true, false].into_iter().flat_map(ends) {
        let case = format!("{end}, plain HTTP: {is_plain}");
        let mut builder = Remote::builder();
        if is_plain {
            builder = builder.plain_http();
        }
        let remote = builder.start().await;
        let repo = remote.repo("team/app");
        repo.image("linux/amd64", Some("v1"));
        let image: ImageRef = repo.reference("v1").parse().unwrap();
        let amd64 = kind(&Ok(Support::Single(platforms(&["linux/amd64"]))));
        let (client, _dir) = client(&remote);
        let traces = Traces::default();
        let fetch = async || trace::scope(Some(&traces), &image, client.fetch(&image, None)).await;

        repo.fault(Some(fault().only_blobs().first(1)));
        let support = fetch().await.map(|found| found.support);
        assert_eq!(kind(&support), amd64, "{case}: between manifest and config");
        let outcomes: Vec<_> = traces
            .trace_of(&image)
            .requests
            .iter()
            .map(|request| (request.kind, request.outcome))
            .collect();
        let expected = [
            (RequestKind::Manifest, Some(Ok(200))),
            (RequestKind::Config, Some(Err("closed"))),
            (RequestKind::Config, Some(Ok(200))),
        ];
        assert_eq!(outcomes, expected, "{case}");

        client.head(&image, None).await.unwrap();
        remote.forget_requests();
        repo.fault(Some(fault().only_manifests().only_get().first(1)));
        let support = fetch().await.map(|found| found.support);
        assert_eq!(kind(&support), amd64, "{case}: between HEAD and GET");
        let manifests = remote.count(|request| request.kind == Kind::Manifest);
        assert_eq!(manifests, 2, "{case}");
    }
}

#[tokio::test]
async fn unanswered_request_on_a_new_connection_is_a_fault() {
    for (end, fault) in ENDS {
        let expected = match end {
            "408" => "unexpected",
            _ => "unreachable",
        };
        let remote = Remote::start().await;
        let repo = remote.repo("team/app");
        repo.image("linux/amd64", Some("v1"));
        repo.fault(Some(fault().first(1)));
        assert_eq!(kind(&lookup(&remote, &repo, "v1").await), expected, "{end}");
        let count = remote.requests().len();
        assert_eq!(count, 1, "{end}: the request is not repeated");

        remote.forget_requests();
        repo.fault(Some(fault().only_blobs()));
        assert_eq!(
            kind(&lookup(&remote, &repo, "v1").await),
            expected,
            "{end}: on the new connection as well"
        );
        assert_eq!(remote.count(is_blob), 2, "{end}: repeated only once");
    }
}

#[tokio::test]
async fn only_idempotent_token_requests_are_repeated() {
    let password = || Credential::Basic {
        user: "user".into(),
        password: "password".to_owned().into(),
    };
    let identity = || Credential::Identity("identity".to_owned().into());
    for (case, auth, credential, expected) in [
        ("GET", Auth::bearer(), None, 2),
        (
            "POST of a password",
            Auth::bearer().credentials("user", "password").oauth(),
            Some(password()),
            2,
        ),
        (
            "POST of a refresh token",
            Auth::bearer().identity_token("identity"),
            Some(identity()),
            1,
        ),
    ] {
        for (end, fault) in ENDS {
            let remote = Remote::start().await;
            let repo = remote.repo("team/app");
            repo.index(Some("v1"), BOTH);
            repo.require(auth.clone());
            auth.fault(Some(fault().first(1)));
            let (client, _dir) = client(&remote);
            let image: ImageRef = repo.reference("v1").parse().unwrap();
            let found = client.fetch(&image, credential.as_ref()).await;
            let support = found.map(|found| found.support);
            let answer = match expected {
                2 => kind(&Ok(Support::Index(platforms(&BOTH)))),
                _ => "unreachable".to_owned(),
            };
            assert_eq!(kind(&support), answer, "{case}, {end}");
            let tokens = remote.count(|request| request.kind == Kind::Token);
            assert_eq!(tokens, expected, "{case}, {end}");
        }
    }
}

/// Forwards connections to a registry. Returns the forwarder's address, each connection, and an event for each
/// connection that the client closes.
fn forward(
    remote: &Remote,
) -> (
    SocketAddr,
    UnboundedReceiver<TcpStream>,
    UnboundedReceiver<()>,
) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let behind = remote.socket_addr();
    let (opened, connections) = unbounded_channel();
    let (ended, ends) = unbounded_channel();
    std::thread::spawn(move || {
        for near in listener.incoming() {
            let mut near = near.unwrap();
            let mut far = TcpStream::connect(behind).unwrap();
            let mut answers = far.try_clone().unwrap();
            let mut to_client = near.try_clone().unwrap();
            let _ = opened.send(near.try_clone().unwrap());
            let ended = ended.clone();
            std::thread::spawn(move || std::io::copy(&mut answers, &mut to_client));
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut near, &mut far);
                let _ = ended.send(());
            });
        }
    });
    (address, connections, ends)
}

/// The 408 arrives before the next request is sent, whether the client notices it or not.
#[tokio::test]
async fn unrequested_408_is_no_answer() {
    for is_noticed in [false, true] {
        let remote = Remote::builder().plain_http().start().await;
        remote.repo("team/app").index(Some("v1"), BOTH);
        let (address, mut connections, mut ends) = forward(&remote);
        let settings = HostSettings {
            plain_http: true,
            ..HostSettings::default()
        };
        let guard = AddressGuard {
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            deny: vec![],
        };
        let hosts = [(address.to_string(), settings)];
        let client = Registry::new(hosts, guard, registry_metrics()).unwrap();
        let image: ImageRef = format!("{address}/team/app:v1").parse().unwrap();
        client.head(&image, None).await.unwrap();
        let mut connection = connections.recv().await.unwrap();
        let timeout = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\n\r\n";
        connection.write_all(timeout).unwrap();
        if is_noticed {
            ends.recv().await.unwrap();
        } else {
            connection.shutdown(Shutdown::Write).unwrap();
        }
        let support = client.fetch(&image, None).await.map(|found| found.support);
        assert_eq!(
            kind(&support),
            kind(&Ok(Support::Index(platforms(&BOTH)))),
            "noticed before the request: {is_noticed}"
        );
    }
}
