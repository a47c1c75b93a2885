//! Requests that are refused before they are sent, dialled or redirected, and requests through proxies.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// Maximum bytes of one response on the wire.
const RESPONSE: usize = RequestKind::Tags.limit() + (1 << 20);

async fn lookup_kind(client: &Registry, image: &str) -> String {
    let found = client.fetch(&image.parse().unwrap(), None).await;
    kind(&found.map(|found| found.support))
}

fn nets(nets: &[&str]) -> Vec<ipnet::IpNet> {
    nets.iter().map(|net| net.parse().unwrap()).collect()
}

#[tokio::test]
async fn denied_image_is_not_requested() {
    let remote = Remote::start().await;
    let settings = Settings {
        allowed: AllowedImages {
            allow: vec![],
            deny: vec!["127.0.0.1:*/evil".parse().unwrap()],
        },
        guard: AddressGuard {
            allow: nets(&["127.0.0.0/8"]),
            deny: vec![],
        },
        ..Settings::default()
    };
    let client = Registry::load(settings, registry_metrics()).unwrap();
    let image = format!("{}/evil/app:v1", remote.address());
    assert!(matches!(
        client.fetch(&image.parse().unwrap(), None).await,
        Err(Error::NotAllowed)
    ));
    assert!(matches!(
        client.head(&image.parse().unwrap(), None).await,
        Err(Error::NotAllowed)
    ));
    assert_eq!(remote.connections(), 0);
    assert_eq!(
        lookup_kind(&client, &image.replace("evil", "good")).await,
        "unreachable",
        "connected, but the certificate is not trusted"
    );
    assert_eq!(remote.connections(), 1);
}

#[tokio::test]
async fn no_spelling_of_an_address_bypasses_the_guard() {
    let remote = Remote::start().await;
    let other = Remote::builder()
        .listen("127.0.0.2:0".parse().unwrap())
        .start()
        .await;
    let (client, _dir) = client_with(
        &remote,
        AddressGuard {
            allow: nets(&["127.0.0.1/32"]),
            deny: vec![],
        },
    );
    let repo = remote.repo("team/app");
    repo.image("linux/amd64", Some("v1"));
    let image = repo.reference("v1");
    for host in [
        "127.0.0.2",
        "127.2",
        "2130706434",
        "0x7f000002",
        "0x7f.2",
        "0177.0.0.2",
        "127.0.0.2.",
        "127.000.000.002",
        "[::ffff:127.0.0.2]",
        "[::ffff:7f00:2]",
        "[::127.0.0.2]",
        "[64:ff9b::127.0.0.2]",
        "[2002:7f00:2::]",
    ] {
        let elsewhere = format!("https://{host}:{}", other.port());
        repo.require_nothing();
        repo.redirect_blobs_to(&elsewhere);
        assert_eq!(
            lookup_kind(&client, &image).await,
            "address-not-allowed",
            "redirect to {host}"
        );
        let manifest = format!("{elsewhere}/v2/team/app/manifests/v1");
        repo.fault(Some(Fault::redirect(307, &manifest).only_manifests()));
        assert_eq!(
            lookup_kind(&client, &image).await,
            "address-not-allowed",
            "redirect of a manifest to {host}"
        );
        repo.fault(None);
        repo.require(Auth::bearer().realm(&format!("{elsewhere}/token")));
        assert_eq!(
            lookup_kind(&client, &image).await,
            "address-not-allowed",
            "realm at {host}"
        );
        let named = format!("{host}:{}/team/app:v1", other.port());
        if named.parse::<ImageRef>().is_ok() {
            assert_eq!(
                lookup_kind(&client, &named).await,
                "address-not-allowed",
                "image of {host}"
            );
        }
        if let Ok(mirror) = format!("{host}:{}", other.port()).parse() {
            let mirrored = HostSettings {
                mirrors: vec![mirror],
                ..HostSettings::default()
            };
            let guard = AddressGuard {
                allow: nets(&["127.0.0.1/32"]),
                deny: vec![],
            };
            let hosts = [("127.0.0.1:1".to_owned(), mirrored)];
            let client = Registry::new(hosts, guard, registry_metrics()).unwrap();
            assert_eq!(
                lookup_kind(&client, "127.0.0.1:1/x").await,
                "unexpected",
                "mirror at {host}"
            );
        }
    }
    for host in [
        "[fe80::1%25eth0]",
        "[::1%eth0]",
        "127.0.0.2%00",
        "user@127.0.0.2",
    ] {
        repo.require_nothing();
        repo.redirect_blobs_to(&format!("https://{host}:{}", other.port()));
        assert_eq!(
            lookup_kind(&client, &image).await,
            "unexpected",
            "redirect to {host}"
        );
        repo.fault(Some(
            Fault::redirect(307, &format!("https://{host}:{}/x", other.port())).only_manifests(),
        ));
        assert_eq!(
            lookup_kind(&client, &image).await,
            "unexpected",
            "redirect of a manifest to {host}"
        );
        repo.fault(None);
    }
    assert_eq!(other.connections(), 0);
}

#[tokio::test]
async fn at_most_five_redirects_are_followed() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    repo.index(Some("v1"), BOTH);
    let (client, _dir) = client(&remote);
    for (times, expected) in [
        (5, format!("{:?}", Support::Index(platforms(&BOTH)))),
        (6, "unexpected".into()),
    ] {
        repo.fault(Some(
            Fault::redirect(307, "/v2/team/app/manifests/v1").first(times),
        ));
        remote.forget_requests();
        assert_eq!(
            lookup_kind(&client, &repo.reference("v1")).await,
            expected,
            "{times}"
        );
        assert_eq!(remote.requests().len(), 6);
    }
}

#[tokio::test]
async fn rate_limit_is_exported_as_a_metric() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    repo.index(Some("v1"), BOTH);
    let metrics = Metrics::new([remote.address().as_str()]).unwrap();
    let plain = HostSettings {
        skip_verify: true,
        ..HostSettings::default()
    };
    let guard = AddressGuard {
        allow: nets(&["127.0.0.0/8"]),
        deny: vec![],
    };
    let client = Registry::new(
        [(remote.address(), plain)],
        guard,
        RegistryMetrics::register(&metrics).unwrap(),
    )
    .unwrap();
    let exported = || {
        let text = metrics.render().unwrap();
        let mut lines = text.lines();
        let line =
            lines.find(|line| line.starts_with("tolerarch_registry_ratelimit_remaining{"))?;
        let value = line.rsplit(' ').next()?;
        Some(value.to_owned())
    };
    for (value, expected) in [
        ("none", None),
        ("20;w=21600", Some("20")),
        (" 7 ; w=1", Some("7")),
        ("-1;w=21600", Some("7")),
        ("99999999999999999999", Some("7")),
        ("0", Some("0")),
    ] {
        repo.header("ratelimit-remaining", Some(value));
        client
            .fetch(&repo.reference("v1").parse().unwrap(), None)
            .await
            .unwrap();
        assert_eq!(exported().as_deref(), expected, "{value}");
    }
}

/// Starts a proxy that forwards any request to `target`. Returns the proxy's address, and the heads of its requests.
pub(super) async fn proxy(target: String) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let heads = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let heads = Arc::clone(&heads);
            let target = target.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let text = String::from_utf8(head.clone()).unwrap();
                let tunnel = text.starts_with("CONNECT ");
                heads.lock().unwrap().push(text);
                let mut onward = TcpStream::connect(target).await.unwrap();
                if tunnel {
                    stream
                        .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
                        .await
                        .unwrap();
                } else {
                    onward.write_all(&head).await.unwrap();
                }
                let _ = copy_bidirectional(&mut stream, &mut onward).await;
            });
        }
    });
    (address, seen)
}

#[tokio::test]
async fn requests_go_through_the_proxy() {
    let secure = Remote::builder().names(&["registry.test"]).start().await;
    let plain = Remote::builder().plain_http().start().await;
    for (remote, begins) in [
        (&secure, "CONNECT registry.test:5000 HTTP/1.1"),
        (
            &plain,
            "GET http://registry.test:5000/v2/team/app/manifests/v1 HTTP/1.1",
        ),
    ] {
        remote.repo("team/app").index(Some("v1"), BOTH);
        let (address, seen) = proxy(remote.address()).await;
        let dir = tempfile::tempdir().unwrap();
        let ca = dir.path().join("ca.crt");
        std::fs::write(&ca, remote.pki().ca_pem()).unwrap();
        let plain_http = remote.url().starts_with("http:");
        let host = HostSettings {
            ca_file: Some(ca),
            plain_http,
            ..HostSettings::default()
        };
        let proxies = Proxies::of(|name| match name {
            "HTTPS_PROXY" | "HTTP_PROXY" => Some(format!("http://user:canary@{address}")),
            _ => None,
        });
        let settings = Settings {
            hosts: [("registry.test:5000".to_owned(), host)].into(),
            proxies: proxies.unwrap(),
            // The guard does not judge the proxy's address, because the operator chose the proxy.
            ..Settings::default()
        };
        let client = Registry::load(settings, registry_metrics()).unwrap();
        let both = format!("{:?}", Support::Index(platforms(&BOTH)));
        let support = lookup_kind(&client, "registry.test:5000/team/app:v1").await;
        assert_eq!(support, both, "{begins}");
        let heads = seen.lock().unwrap().clone();
        assert_eq!(heads.len(), 1);
        assert!(heads[0].starts_with(begins), "{}", heads[0]);
        let head = heads[0].to_ascii_lowercase();
        assert!(head.contains("proxy-authorization: basic "), "{head}");
        for request in remote.requests() {
            let has_header = request.headers.contains_key("proxy-authorization");
            assert!(plain_http || !has_header);
        }

        // The guard judges a host that is named by its address, and requests to localhost do not go to the proxy.
        for (image, expected) in [
            ("169.254.169.254/x/y", "address-not-allowed"),
            ("[64:ff9b::a9fe:a9fe]/x/y", "address-not-allowed"),
            ("localhost:1/x/y", "address-not-allowed"),
        ] {
            assert_eq!(lookup_kind(&client, image).await, expected, "{image}");
        }
        assert_eq!(seen.lock().unwrap().len(), 1);
    }
}

/// Starts a SOCKS proxy with logins that connects to one address, whatever the client requests. Returns the proxy's
/// address, and the client's messages: the second is the login, and the third names the host.
async fn socks_proxy(to: String) -> (SocketAddr, Arc<Mutex<Vec<Vec<u8>>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let messages = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&messages);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut read = [0; 512];
            let mut answer = async |client: &mut TcpStream, reply: &[u8]| {
                let count = client.read(&mut read).await.unwrap();
                seen.lock().unwrap().push(read[..count].to_vec());
                client.write_all(reply).await.unwrap();
            };
            answer(&mut client, &[5, 2]).await;
            answer(&mut client, &[1, 0]).await;
            answer(&mut client, &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await;
            let mut server = TcpStream::connect(&to).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await });
        }
    });
    (address, messages)
}

/// Go's client, and thus containerd, also reads such proxies from these variables.
#[tokio::test]
async fn requests_go_through_a_socks_proxy() {
    let secure = Remote::builder().names(&["registry.test"]).start().await;
    let plain = Remote::builder().plain_http().start().await;
    for (remote, name, port) in [
        (&secure, "registry.test", 443_u16),
        (&plain, "registry.test", 80),
    ] {
        remote.repo("team/app").index(Some("v1"), BOTH);
        let (address, messages) = socks_proxy(remote.address()).await;
        let dir = tempfile::tempdir().unwrap();
        let ca = dir.path().join("ca.crt");
        std::fs::write(&ca, remote.pki().ca_pem()).unwrap();
        let plain_http = remote.url().starts_with("http:");
        let host = HostSettings {
            ca_file: Some(ca),
            plain_http,
            ..HostSettings::default()
        };
        let proxies = Proxies::of(|name| {
            matches!(name, "HTTPS_PROXY" | "HTTP_PROXY")
                .then(|| format!("socks5://user:canary@{address}"))
        });
        let settings = Settings {
            hosts: [(name.to_owned(), host)].into(),
            proxies: proxies.unwrap(),
            ..Settings::default()
        };
        let client = Registry::load(settings, registry_metrics()).unwrap();
        let support = lookup_kind(&client, &format!("{name}/team/app:v1")).await;
        assert_eq!(support, format!("{:?}", Support::Index(platforms(&BOTH))));
        let messages = messages.lock().unwrap().clone();
        assert_eq!(messages[1], b"\x01\x04user\x06canary");
        let host = [&[5, 1, 0, 3, 13], name.as_bytes(), &port.to_be_bytes()].concat();
        assert_eq!(messages[2], host);
        for request in remote.requests() {
            assert!(!request.headers.contains_key("proxy-authorization"));
        }
        assert_eq!(
            lookup_kind(&client, "169.254.169.254/x/y").await,
            "address-not-allowed"
        );
    }
}

#[tokio::test]
async fn proxy_refusals_are_explained() {
    for (scheme, user, reply, expected) in [
        (
            "http",
            "user:canary@",
            &b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"[..],
            "answers 407: it refuses the user or the password of HTTPS_PROXY",
        ),
        (
            "http",
            "",
            b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
            "answers 407: it wants credentials",
        ),
        (
            "http",
            "",
            b"HTTP/1.0 403 Forbidden\r\nContent-Length: 5\r\n\r\nno, a",
            "answers 403: its rules do not let a.b through",
        ),
        (
            "http",
            "",
            b"HTTP/1.1 502 Bad Gateway\r\n\r\n",
            "answers 502: it does not reach a.b itself",
        ),
        (
            "http",
            "",
            b"HTTP/1.1 503 Service Unavailable\r\n\r\n",
            "answers 503: it does not reach a.b itself",
        ),
        (
            "http",
            "",
            b"HTTP/1.1 405 Method Not Allowed\r\n\r\n",
            "answers 405: it opens no tunnels (CONNECT)",
        ),
        (
            "http",
            "",
            b"HTTP/1.1 302 Found\r\nLocation: http://login/\r\n\r\n",
            "answers 302: it opens no tunnel to a.b",
        ),
        (
            "http",
            "",
            b"SSH-2.0-OpenSSH_9.2\r\n",
            "answers with something else than HTTP",
        ),
        (
            "http",
            "",
            b"\x15\x03\x01\x00\x02\x02\x16",
            "speaks TLS; write https:// for it in HTTPS_PROXY",
        ),
        (
            "http",
            "",
            b"",
            "closes the connection without an answer; if it speaks TLS",
        ),
        (
            "https",
            "user:canary@",
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "does not speak TLS; write http:// for it in HTTPS_PROXY",
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = [0; 4096];
                let _ = stream.read(&mut head).await;
                let _ = stream.write_all(reply).await;
            }
        });
        let read =
            |name: &str| (name == "HTTPS_PROXY").then(|| format!("{scheme}://{user}{address}"));
        let settings = Settings {
            proxies: Proxies::of(read).unwrap(),
            ..Settings::default()
        };
        let client = Registry::load(settings, registry_metrics()).unwrap();
        let error = client
            .fetch(&"a.b/x".parse().unwrap(), None)
            .await
            .unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(matches!(error, Error::NoConnection(_)), "{text}");
        let expected = format!(
            "a.b cannot be reached: its proxy {scheme}://{address} (HTTPS_PROXY) {expected}"
        );
        assert!(text.contains(&expected), "{text}");
        assert!(!text.contains("canary"), "{text}");
        assert!(!text.contains("user:"), "{text}");
    }
}

/// Without TLS the proxy answers the request itself; 407 is the only status that no registry sends.
#[tokio::test]
async fn status_407_over_plain_http_is_the_proxys() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            let refusal =
                b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n";
            let _ = stream.write_all(refusal).await;
        }
    });
    let read = |name: &str| (name == "HTTP_PROXY").then(|| address.to_string());
    let plain = HostSettings {
        plain_http: true,
        ..HostSettings::default()
    };
    let settings = Settings {
        hosts: [("a.b".to_owned(), plain)].into(),
        proxies: Proxies::of(read).unwrap(),
        ..Settings::default()
    };
    let client = Registry::load(settings, registry_metrics()).unwrap();
    let error = client
        .fetch(&"a.b/x".parse().unwrap(), None)
        .await
        .unwrap_err();
    let expected =
        format!("its proxy http://{address} (HTTP_PROXY) answers 407: it wants credentials");
    assert!(matches!(error, Error::NoConnection(_)), "{error}");
    assert!(error.to_string().contains(&expected), "{error}");
}

#[tokio::test]
async fn response_is_bounded_including_its_headers() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (mut peer, _) = listener.accept().await.unwrap();
        peer.read_exact(&mut [0; 4]).await.unwrap();
        let hints = "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n".repeat(1000);
        let mut sent = 0;
        while sent < 4 * RESPONSE && peer.write_all(hints.as_bytes()).await.is_ok() {
            sent += hints.len();
        }
        sent
    });
    let plain = HostSettings {
        plain_http: true,
        ..HostSettings::default()
    };
    let guard = AddressGuard {
        allow: nets(&["127.0.0.0/8"]),
        deny: vec![],
    };
    let client = Registry::new([(address.to_string(), plain)], guard, registry_metrics()).unwrap();
    let image = format!("{address}/x:v1");
    assert_eq!(lookup_kind(&client, &image).await, "TooLarge");
    // The count includes bytes that only the kernel has accepted.
    let sent = server.await.unwrap();
    assert!(sent < 4 * RESPONSE, "{sent} bytes were accepted");
}

#[tokio::test]
async fn byte_limit_of_a_connection_is_per_response() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    // Three of these responses have more bytes than one response may have.
    let filler = "x".repeat(RESPONSE / 3 + 1);
    repo.manifest(
        format!(r#"{{"manifests": [], "filler": "{filler}"}}"#),
        OCI_INDEX,
        Some("v1"),
    );
    let (client, _dir) = client(&remote);
    for _ in 0..3 {
        let support = lookup_kind(&client, &repo.reference("v1")).await;
        assert_eq!(support, format!("{:?}", Support::Index(PlatformSet::EMPTY)));
    }
    assert_eq!(remote.connections(), 1);
}
