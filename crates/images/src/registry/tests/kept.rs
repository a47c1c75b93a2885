//! Connections that are kept for the next request, and end just then.

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use testregistry::Request;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;

fn is_blob(request: &Request) -> bool {
    request.kind == Kind::Blob
}

type End = (&'static str, fn() -> Fault);

/// Ends of a connection: FIN, and TLS without `close_notify`; RST; a 408, with which servers end one that was idle.
const ENDS: [End; 3] = [
    ("closed", Fault::close),
    ("reset", Fault::reset),
    ("408", || Fault::status(408)),
];

#[tokio::test]
async fn what_a_kept_connection_does_not_answer_is_asked_once_more() {
    for (is_plain, (end, fault)) in [true, false]
        .into_iter()
        .flat_map(|plain| ENDS.map(|end| (plain, end)))
    {
        let case = format!("{end}, plain HTTP: {is_plain}");
        let builder = Remote::builder();
        let remote = if is_plain {
            builder.plain_http()
        } else {
            builder
        }
        .start()
        .await;
        let repo = remote.repo("team/app");
        repo.image("linux/amd64", Some("v1"));
        let image: ImageRef = repo.reference("v1").parse().unwrap();
        let both = Ok(Support::Single(platforms(&["linux/amd64"])));
        let (client, _dir) = client(&remote);
        let traces = Traces::default();
        let fetch = async || trace::scope(Some(&traces), &image, client.fetch(&image, None)).await;

        repo.fault(Some(fault().only_blobs().first(1)));
        let found = fetch().await.map(|found| found.support);
        assert_eq!(
            kind(&found),
            kind(&both),
            "{case}: between manifest and config"
        );
        let outcomes: Vec<_> = traces
            .of(&image)
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
        let found = fetch().await.map(|found| found.support);
        assert_eq!(kind(&found), kind(&both), "{case}: between HEAD and GET");
        assert_eq!(
            remote.count(|request| request.kind == Kind::Manifest),
            2,
            "{case}"
        );
    }
}

#[tokio::test]
async fn a_fresh_connection_that_does_not_answer_is_a_fault() {
    for (end, fault) in ENDS {
        let expected = match end {
            "408" => "unexpected",
            _ => "unreachable",
        };
        let remote = Remote::start().await;
        let repo = remote.repo("team/app");
        repo.image("linux/amd64", Some("v1"));
        repo.fault(Some(fault().first(1)));
        assert_eq!(kind(&ask(&remote, &repo, "v1").await), expected, "{end}");
        assert_eq!(remote.requests().len(), 1, "{end}: it is not asked again");

        remote.forget_requests();
        repo.fault(Some(fault().only_blobs()));
        assert_eq!(
            kind(&ask(&remote, &repo, "v1").await),
            expected,
            "{end}: the fresh one as well"
        );
        assert_eq!(remote.count(is_blob), 2, "{end}: once more, and no more");
    }
}

#[tokio::test]
async fn only_a_request_for_a_token_that_uses_nothing_up_is_sent_twice() {
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
            let found = found.map(|found| found.support);
            let answer = match expected {
                2 => kind(&Ok(Support::Index(platforms(&BOTH)))),
                _ => "unreachable".to_owned(),
            };
            assert_eq!(kind(&found), answer, "{case}, {end}");
            assert_eq!(
                remote.count(|request| request.kind == Kind::Token),
                expected,
                "{case}, {end}"
            );
        }
    }
}

/// Carries connections to a registry. Returns its address, each connection, and the end of each by the client.
fn carry(
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

/// The 408 comes before the next request, noticed or not.
#[tokio::test]
async fn a_408_that_comes_unasked_is_no_answer() {
    for is_noticed in [false, true] {
        let remote = Remote::builder().plain_http().start().await;
        remote.repo("team/app").index(Some("v1"), BOTH);
        let (address, mut connections, mut ends) = carry(&remote);
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
        let mut kept = connections.recv().await.unwrap();
        let unasked = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\n\r\n";
        kept.write_all(unasked).unwrap();
        if is_noticed {
            ends.recv().await.unwrap();
        } else {
            kept.shutdown(Shutdown::Write).unwrap();
        }
        let found = client.fetch(&image, None).await;
        assert_eq!(
            kind(&found.map(|found| found.support)),
            kind(&Ok(Support::Index(platforms(&BOTH)))),
            "noticed before the request: {is_noticed}"
        );
    }
}
