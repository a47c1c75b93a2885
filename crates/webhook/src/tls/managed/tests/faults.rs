//! Objects that others damage, and objects or rights that are missing.

use super::*;

#[tokio::test]
async fn missing_configuration_does_not_affect_the_others() {
    let api = cluster().await;
    let names = ["zz-tolerarch", "not-installed"]
        .map(|name| ObjectName::new(name).unwrap())
        .to_vec();
    let mut issuer = Issuer::new(&api);
    let mut replica = Replica::new(&api);
    issuer.issuer.settings.webhook_configurations = names;
    issuer.settle(&api, START).await;
    replica.check(&api).await;
    assert!(replica.is_trusted(&api, START + 6));
    api.delete(WEBHOOKS);
    issuer.check().await;
    assert!(issuer.issuer.failing.is_some());
}

/// Returns the number of CAs in the bundle of each webhook.
fn bundle_sizes(api: &Objects) -> Vec<usize> {
    let bundles = bundles(api);
    let sizes = bundles
        .iter()
        .map(|text| authority::read_bundle(text).len());
    sizes.collect()
}

#[tokio::test]
async fn damaged_bundle_is_repaired() {
    let api = cluster().await;
    let mut issuer = Issuer::new(&api);
    let mut replica = Replica::new(&api);
    issuer.settle(&api, START).await;
    replica.check(&api).await;
    let mut now = START + 60;
    api.set_time(now);

    // A bundle without a certificate, and one with a foreign certificate, which stays there for a while.
    let foreign = Authority::new(Duration::from_secs(now), Duration::from_secs(99 * DAY)).unwrap();
    for bundle in [
        "no certificate\n".to_owned(),
        foreign.to_pem().0.to_string(),
    ] {
        let mut webhooks = api.get(WEBHOOKS).unwrap();
        webhooks["webhooks"][1]["clientConfig"]["caBundle"] = {
            use base64::Engine;
            base64::prelude::BASE64_STANDARD.encode(bundle).into()
        };
        api.put(WEBHOOKS, webhooks);
        assert!(!replica.is_trusted(&api, now));
        issuer.check().await;
        assert!(replica.is_trusted(&api, now));
    }
    assert_eq!(bundle_sizes(&api), [2, 2]);

    // Some time after the lifetime of a leaf the bundles are clean again.
    for _ in 0..2 {
        now += 46 * DAY;
        api.set_time(now);
        issuer.check().await;
        replica.check(&api).await;
    }
    assert!(replica.is_trusted(&api, now));
    assert_eq!(bundle_sizes(&api), [1, 1]);
}

#[tokio::test]
async fn damaged_secrets_are_repaired() {
    let api = cluster().await;
    let mut issuer = Issuer::new(&api);
    let mut replica = Replica::new(&api);
    issuer.settle(&api, START).await;
    replica.check(&api).await;
    let mut now = START + 60;
    api.set_time(now);

    // Secrets that are deleted, damaged, or have another pair: every served certificate is trusted at any time.
    let faults: [fn(&Objects); 7] = [
        |api| api.delete(SECRET),
        |api| api.delete(SERVING),
        |api| {
            [SECRET, SERVING]
                .into_iter()
                .for_each(|path| api.delete(path));
        },
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
            let mut secret = api.get(SERVING).unwrap();
            secret["data"]["tls.key"] = data(api)["ca.key"].clone();
            api.put(SERVING, secret);
        },
        |api| {
            let mut secret = api.get(SERVING).unwrap();
            secret["data"] = Value::Null;
            api.put(SERVING, secret);
        },
    ];
    for (at, fault) in faults.into_iter().enumerate() {
        let old = replica.leaf();
        fault(&api);
        replica.check(&api).await;
        assert_eq!(replica.leaf(), old, "{at}: there is nothing better");
        for _ in 0..4 {
            now += 10;
            api.set_time(now);
            issuer.check().await;
            assert!(replica.is_trusted(&api, now), "{at}");
            replica.check(&api).await;
            assert!(replica.is_trusted(&api, now), "{at}");
        }
        assert_ne!(replica.leaf(), old, "{at}");
        assert!(replica.is_well(), "{at}");
    }
    // Some time after the lifetime of a leaf the bundles are clean again.
    for _ in 0..2 {
        now += 46 * DAY;
        api.set_time(now);
        issuer.check().await;
        replica.check(&api).await;
    }
    assert!(replica.is_trusted(&api, now));
    assert_eq!(bundle_sizes(&api), [1, 1]);
}

/// A restored certificate may have expired. API servers trust the CA of the unexpired one.
#[tokio::test]
async fn replica_loads_no_expired_certificate() {
    let api = cluster().await;
    let mut issuer = Issuer::new(&api);
    // By this machine's clock, which is also the API server's.
    let today = now().as_secs();
    issuer.settle(&api, today - 40 * DAY).await;
    let older = api.get(SERVING).unwrap();
    issuer.settle(&api, today - 20 * DAY).await;
    let mut replica = Replica::new(&api);
    let current = replica.leaf();
    assert!(replica.is_trusted(&api, today));
    api.put(SERVING, older);
    replica.check(&api).await;
    assert_eq!(replica.leaf(), current);
    assert!(matches!(replica.watch.state.get(), State::Degraded(_)));
    issuer.settle(&api, today).await;
    replica.check(&api).await;
    assert!(replica.leaf() != current && replica.is_trusted(&api, today + 6));
    assert_eq!(replica.watch.state.get(), State::Healthy);
    // A certificate from the future, issued while the clock was wrong, is replaced by a valid one.
    issuer.settle(&api, today + 400 * DAY).await;
    replica.check(&api).await;
    let future = replica.leaf();
    issuer.settle(&api, today + DAY).await;
    replica.check(&api).await;
    assert!(replica.leaf() != future && replica.is_trusted(&api, today + DAY + 6));
}

/// API servers judge a certificate by their own clocks.
#[tokio::test]
async fn replica_with_a_fast_clock_follows_the_issuer() {
    let api = cluster().await;
    let mut issuer = Issuer::new(&api);
    let real = now().as_secs() - 100 * DAY;
    issuer.settle(&api, real).await;
    let mut replica = Replica::new(&api);
    let first = replica.leaf();
    issuer.settle(&api, real + 20 * DAY).await;
    replica.check(&api).await;
    assert!(replica.leaf() != first && replica.is_trusted(&api, real + 20 * DAY + 6));
}

#[tokio::test]
async fn certificate_is_served_without_rights_or_api_server() {
    let api = cluster().await;
    let mut issuer = Issuer::new(&api);
    let mut replica = Replica::new(&api);
    let failures = |metrics: &Metrics, operation: &str| {
        metric(
            metrics,
            &format!("tolerarch_managed_certificate_failures_total{{operation=\"{operation}\"}}"),
        )
    };
    // Without one of the rights at the start the replica is not ready.
    for (method, path, operation) in [
        (
            Method::GET,
            "/mutatingwebhookconfigurations/",
            "read-webhooks",
        ),
        (Method::GET, "/secrets/", "read-secret"),
        (Method::PATCH, "/secrets/", "create-secret"),
        (
            Method::PATCH,
            "/mutatingwebhookconfigurations/",
            "write-webhooks",
        ),
    ] {
        api.refuse(Some((method, path, 403)));
        issuer.check().await;
        issuer.check().await;
        assert_eq!(failures(&issuer.metrics, operation), 2, "{operation}");
        assert!(
            issuer
                .issuer
                .failing
                .as_ref()
                .unwrap()
                .contains("forbidden")
        );
        assert!(matches!(issuer.issuer.state.get(), State::Degraded(_)));
    }
    replica.check(&api).await;
    assert!(replica.leaf().is_none());
    api.refuse(None);
    issuer.settle(&api, START).await;
    replica.check(&api).await;
    assert!(replica.is_trusted(&api, START + 6) && issuer.issuer.failing.is_none());
    assert_eq!(issuer.issuer.state.get(), State::Healthy);

    // Later the issuer loses its rights to write, then those to read, and then there is no API server at all.
    let now = START + 16 * DAY;
    api.set_time(now);
    api.refuse(Some((Method::PATCH, "", 403)));
    issuer.check().await;
    replica.check(&api).await;
    assert_eq!(failures(&issuer.metrics, "write-secret"), 1);
    assert!(replica.is_trusted(&api, now));
    api.refuse(Some((Method::GET, "", 500)));
    for away in [false, true] {
        if away {
            let gone = Objects::start().await;
            issuer.issuer.cluster = gone.cluster();
            gone.stop().await;
        }
        issuer.check().await;
        replica.check(&api).await;
        assert!(replica.is_trusted(&api, now) && replica.is_well());
    }
    assert_eq!(failures(&issuer.metrics, "read-webhooks"), 4);
}
