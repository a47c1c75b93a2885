use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::*;

fn proxies(pairs: &[(&str, &str)]) -> Result<Proxies, ProxyError> {
    Proxies::of(|name| {
        pairs
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| (*value).to_owned())
    })
}

fn url(scheme: &str, host: &str, port: u16) -> Url {
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    Url::parse(&format!("{scheme}://{host}:{port}/")).unwrap()
}

#[test]
fn hosts_are_exempt_as_in_go() {
    for (exempt, host, port, proxied) in [
        ("", "a.b", 443, true),
        ("", "localhost", 443, false),
        ("", "127.0.0.1", 443, false),
        ("", "::1", 443, false),
        ("*", "a.b", 443, false),
        ("a.b", "a.b", 443, false),
        ("a.b", "A.B", 443, false),
        ("a.b", "a.b.", 443, true),
        ("a.b.", "a.b.", 443, false),
        ("2.3", "10.1.2.3", 443, true),
        ("a.b", "x.a.b", 443, false),
        ("a.b", "xa.b", 443, true),
        (".a.b", "a.b", 443, true),
        (".a.b", "x.a.b", 443, false),
        ("*.a.b", "x.a.b", 443, false),
        ("*.a.b", "a.b", 443, true),
        (" x.y , a.b ", "a.b", 443, false),
        ("a.b:5000", "a.b", 5000, false),
        ("a.b:5000", "a.b", 443, true),
        (".svc,.cluster.local", "r.ns.svc.cluster.local", 443, false),
        ("10.0.0.0/8", "10.1.2.3", 443, false),
        ("10.0.0.0/8", "11.1.2.3", 443, true),
        ("10.0.0.0/8", "ten.example.com", 443, true),
        ("10.1.2.3", "10.1.2.3", 5000, false),
        ("10.1.2.3:443", "10.1.2.3", 5000, true),
        ("fd00::/8", "fd12::1", 443, false),
        ("fd12::1", "fd12::1", 443, false),
        ("[fd12::1]:5000", "fd12::1", 5000, false),
        (",,. ,*.", "a.b", 443, true),
    ] {
        let proxies = proxies(&[("HTTPS_PROXY", "proxy:3128"), ("no_proxy", exempt)]).unwrap();
        assert_eq!(
            proxies.find(&url("https", host, port)).is_some(),
            proxied,
            "{exempt:?}: {host}:{port}"
        );
        assert!(
            proxies.find(&url("http", host, port)).is_none(),
            "the proxy is only for HTTPS"
        );
    }
}

#[test]
fn proxies_are_parsed_and_credentials_not_printed() {
    let proxies_of_http = proxies(&[
        ("HTTPS_PROXY", ""),
        ("https_proxy", "http://canary:p%40ss+word@proxy.example.com"),
        ("HTTP_PROXY", "https://10.0.0.1:8443/"),
    ])
    .unwrap();
    let https = proxies_of_http.find(&url("https", "a.b", 443)).unwrap();
    assert_eq!(https.url.as_str(), "http://proxy.example.com/");
    let expected = format!("Basic {}", BASE64.encode("canary:p@ss+word"));
    assert_eq!(https.authorization.as_ref().unwrap(), &expected);
    let http = proxies_of_http.find(&url("http", "a.b", 80)).unwrap();
    assert_eq!(
        (http.url.as_str(), &http.authorization),
        ("https://10.0.0.1:8443/", &None)
    );
    let socks = proxies(&[("HTTPS_PROXY", "socks5h://canary:p%40ss+word@10.0.0.1")]).unwrap();
    let socks = socks.find(&url("https", "a.b", 443)).unwrap();
    assert_eq!(
        (socks.url.as_str(), &socks.authorization),
        ("socks5h://10.0.0.1:1080", &None)
    );
    assert_eq!(socks.login.as_ref().unwrap().password.as_str(), "p@ss+word");
    let debug = format!("{proxies_of_http:?} {https:?} {socks:?}");
    for secret in ["canary", "ss+word", "Basic"] {
        assert!(!debug.contains(secret), "{debug}");
    }
}

#[test]
fn unusable_proxy_is_an_error_without_its_value() {
    for text in [
        "socks4://u:canary@a",
        "http://",
        "http://u:canary@a:99999",
        "u:canary@a b",
    ] {
        let error = proxies(&[("HTTPS_PROXY", text)]).unwrap_err().to_string();
        assert!(
            error.contains("HTTPS_PROXY") && !error.contains("canary"),
            "{error}"
        );
    }
    let error = proxies(&[("HTTPS_PROXY", ""), ("https_proxy", "::::")])
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("https_proxy names no usable proxy"),
        "{error}"
    );
    assert!(
        proxies(&[])
            .unwrap()
            .find(&url("https", "a.b", 443))
            .is_none()
    );
}
