use super::*;

#[test]
fn finds_registries_and_their_settings() {
    let plain = HostSettings {
        plain_http: true,
        ..HostSettings::default()
    };
    let own = HostSettings {
        ca_file: Some("/ca.crt".into()),
        ..HostSettings::default()
    };
    let mirrors = ["plain:5000", "https://c.d/hub"]
        .map(|text| text.parse().unwrap())
        .to_vec();
    let mirrored = HostSettings {
        mirrors,
        ..HostSettings::default()
    };
    let settings = [
        ("plain:5000".into(), plain.clone()),
        ("p80:80".into(), plain.clone()),
        ("docker.io".into(), own.clone()),
        ("A.b:443".into(), own.clone()),
        ("mirrored".into(), mirrored),
    ];
    let hosts = Hosts::new(BTreeMap::from(settings), HostsDirectory::default());
    for (host, endpoint) in [
        ("docker.io", "https://registry-1.docker.io/"),
        ("plain:5000", "http://plain:5000/"),
        ("plain", "https://plain/"),
        ("[::1]:5000", "https://[::1]:5000/"),
    ] {
        let [found] = &*hosts.endpoints(host) else {
            panic!("one place")
        };
        assert_eq!(found.origin.as_str(), endpoint);
    }
    assert_eq!(hosts.settings("registry-1.docker.io"), Some(&own));
    assert_eq!(hosts.settings("a.b"), Some(&own));
    assert_eq!(hosts.settings("a.b:5000"), None);
    assert_eq!(hosts.settings("PLAIN:5000"), Some(&plain));
    for (url, expected) in [
        ("http://plain:5000/x", true),
        ("http://p80/x", true),
        ("http://p80:81/x", false),
        ("https://p80/", false),
    ] {
        assert_eq!(
            hosts.is_plain_at(&Url::parse(url).unwrap()),
            expected,
            "{url}"
        );
    }
    let found = hosts.endpoints("mirrored:443");
    let found: Vec<&str> = found
        .iter()
        .map(|endpoint| endpoint.origin.as_str())
        .collect();
    assert_eq!(
        found,
        ["http://plain:5000/", "https://c.d/", "https://mirrored/"]
    );
}
