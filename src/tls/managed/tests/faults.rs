//! What others break, and what is missing.

use super::*;

/// This machine's clock does not count: it may be set at any time.
#[tokio::test]
async fn only_the_api_servers_clock_says_whether_the_certificate_is_valid() {
    let api = cluster().await;
    let mut replica = Replica::new(&api);
    replica.look().await;
    api.set_time(START + 6);
    replica.look().await;
    assert_eq!(replica.served.state(), State::Healthy);
    // Nothing can be written, so the certificate expires.
    api.refuse(Some((Method::GET, SECRET, 403)));
    let end = i64::try_from(START + DAY).unwrap();
    replica.served.told(end + 1);
    assert!(matches!(replica.served.state(), State::Failed(_)));
    replica.served.told(end - 1);
    assert!(!matches!(replica.served.state(), State::Failed(_)));
    // Each look updates it with the API server's time.
    replica.served.told(end + 1);
    api.refuse(None);
    replica.look().await;
    assert_eq!(replica.served.state(), State::Healthy);
}

#[tokio::test]
async fn a_configuration_that_is_not_there_does_not_matter_to_the_others() {
    let api = cluster().await;
    let names = ["zz-tolerarch", "not-installed"].map(|name| ObjectName::new(name).unwrap()).to_vec();
    let mut replica = Replica::new(&api);
    replica.managed.configurations = names;
    replica.look().await;
    assert!(replica.is_trusted(&api, START));
    api.delete(WEBHOOKS);
    let mut other = Replica::new(&api);
    other.look().await;
    assert_eq!(other.leaf(), None);
}

#[tokio::test]
async fn what_others_break_is_repaired() {
    let api = cluster().await;
    let [mut a, mut b] = [(); 2].map(|()| Replica::new(&api));
    a.look().await;
    b.look().await;
    let mut now = START + 60;
    api.set_time(now);

    // A bundle that was reset, and one with rubbish and a foreign certificate, which stays for a while.
    let foreign = Authority::new(Duration::from_secs(now), Duration::from_secs(9 * DAY)).unwrap();
    for bundle in ["no certificate\n".to_owned(), foreign.written().0] {
        let mut webhooks = api.get(WEBHOOKS).unwrap();
        webhooks["webhooks"][1]["clientConfig"]["caBundle"] = {
            use base64::Engine;
            base64::prelude::BASE64_STANDARD.encode(bundle).into()
        };
        api.put(WEBHOOKS, webhooks);
        assert!(!a.is_trusted(&api, now));
        a.look().await;
        assert!(a.is_trusted(&api, now) && b.is_trusted(&api, now));
    }
    let count = |api: &Objects| {
        bundles(api).iter().map(|text| authority::read_bundle(text).len()).collect::<Vec<_>>()
    };
    assert_eq!(count(&api), [2, 2]);

    // A Secret that is gone, damaged, or holds another pair: a new CA, and at no time one that is not trusted.
    let faults: [fn(&Objects); 4] = [
        |api| api.delete(SECRET),
        |api| {
            let mut secret = api.get(SECRET).unwrap();
            secret["data"]["ca.key"] = "AAAA".into();
            api.put(SECRET, secret);
        },
        |api| {
            let mut secret = api.get(SECRET).unwrap();
            secret["data"] = json!({"ca.crt": "no base64", "other": "AAAA"});
            api.put(SECRET, secret);
        },
        |api| {
            let mut secret = api.get(SECRET).unwrap();
            secret["data"] = Value::Null;
            api.put(SECRET, secret);
        },
    ];
    for fault in faults {
        let old = data(&api)["ca.crt"].clone();
        fault(&api);
        for _ in 0..4 {
            now += 10;
            api.set_time(now);
            a.look().await;
            assert!(a.is_trusted(&api, now) && b.is_trusted(&api, now));
            b.look().await;
            assert!(a.is_trusted(&api, now) && b.is_trusted(&api, now));
        }
        assert_ne!(data(&api)["ca.crt"], old);
        let (leaf, _) = a.managed.own.clone().unwrap();
        assert_eq!(Some(leaf.ca), a.managed.own.as_ref().map(|(_, authority)| authority.ca));
    }
    // After the life of a leaf, and more, nothing is left of all that.
    for _ in 0..2 {
        now += 37 * HOUR;
        api.set_time(now);
        a.look().await;
        b.look().await;
    }
    assert!(a.is_trusted(&api, now) && b.is_trusted(&api, now));
    assert_eq!(count(&api), [1, 1]);
}

#[tokio::test]
async fn without_rights_or_api_server_what_there_is_goes_on_and_is_renewed() {
    let api = cluster().await;
    let mut replica = Replica::new(&api);
    let failures = |replica: &Replica, operation: &str| {
        replica.metric(&format!("tolerarch_managed_certificate_failures_total{{operation=\"{operation}\"}}"))
    };
    // No right at the start: not ready, whatever it is.
    for (method, path, operation) in [
        (Method::GET, "/mutatingwebhookconfigurations/", "read-webhooks"),
        (Method::GET, "/secrets/", "read-secret"),
        (Method::PATCH, "/secrets/", "create-secret"),
        (Method::PATCH, "/mutatingwebhookconfigurations/", "write-webhooks"),
    ] {
        api.refuse(Some((method, path, 403)));
        replica.look().await;
        replica.look().await;
        assert_eq!(failures(&replica, operation), 2, "{operation}");
        assert!(replica.managed.failing.as_ref().unwrap().contains("forbidden"));
        assert!(!replica.served.is_trusted());
    }
    api.refuse(None);
    replica.look().await;
    api.set_time(START + 6);
    replica.look().await;
    assert!(replica.served.is_trusted() && replica.managed.failing.is_none());

    // The rights to change anything are lost later.
    let mut now = START + 200 * DAY;
    api.set_time(now);
    api.refuse(Some((Method::PATCH, "", 403)));
    replica.look().await;
    assert!(replica.is_trusted(&api, now));
    now = START + 300 * DAY;
    api.set_time(now);
    replica.look().await;
    assert_eq!(failures(&replica, "write-secret"), 1);
    assert!(replica.is_trusted(&api, now), "by the old CA");
    // No right to read, and then no API server at all.
    api.refuse(Some((Method::GET, "", 500)));
    for away in [false, true] {
        if away {
            let gone = Objects::start().await;
            replica.managed.cluster = gone.cluster();
            gone.stop().await;
        }
        now += DAY;
        replica.managed.clock.0 = Some((Duration::from_secs(now), Instant::now()));
        replica.look().await;
        assert!(replica.is_trusted(&api, now) && replica.served.is_trusted());
    }
    assert_eq!(failures(&replica, "read-webhooks"), 4);
}
