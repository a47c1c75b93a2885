//! Certificates as a TLS client verifies them.

use std::time::{Duration, SystemTime};

use rustls::CertificateError::{ExpiredContext, NotValidForNameContext, UnknownIssuer};
use rustls::{CertificateError, Error};
use testregistry::{Leaf, Pki, Registry};

use crate::client::{dial, tls};

async fn verify(registry: &Registry, pki: &Pki, name: &str) -> Result<(), CertificateError> {
    let Err(error) = tls(dial(registry).await, pki, name).await.map(drop) else {
        return Ok(());
    };
    let Some(Error::InvalidCertificate(error)) =
        error.get_ref().and_then(|error| error.downcast_ref())
    else {
        unreachable!("another error: {error:?}");
    };
    Err(error.clone())
}

#[tokio::test]
async fn certificate_is_trusted_only_for_its_names() {
    let registry = Registry::builder().names(&["registry.test"]).start().await;
    let pki = registry.pki();
    for name in ["127.0.0.1", "localhost", "registry.test"] {
        assert_eq!(verify(&registry, &pki, name).await, Ok(()), "{name}");
    }
    let other = verify(&registry, &pki, "other.test").await;
    assert!(
        matches!(other, Err(NotValidForNameContext { .. })),
        "{other:?}"
    );
    assert_eq!(
        verify(&registry, &Pki::new(), "localhost").await,
        Err(UnknownIssuer)
    );
}

#[tokio::test]
async fn leaf_until_the_past_has_expired() {
    let pki = std::sync::Arc::new(Pki::new());
    let leaf = pki.leaf_until(&["localhost"], SystemTime::now() - Duration::from_secs(60));
    let registry = Registry::builder()
        .pki(pki.clone())
        .leaf(leaf)
        .start()
        .await;
    let expired = verify(&registry, &pki, "localhost").await;
    assert!(matches!(expired, Err(ExpiredContext { .. })), "{expired:?}");
}

#[test]
fn write_creates_certificate_and_key() {
    let dir = std::env::temp_dir().join(format!("testregistry-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let leaf = Pki::new().leaf(&["localhost"]);
    leaf.write(&dir).unwrap();
    let read = |name| std::fs::read_to_string(dir.join(name)).unwrap();
    let written = Leaf {
        cert_pem: read("tls.crt"),
        key_pem: read("tls.key"),
    };
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(
        (&written.cert_pem, &written.key_pem),
        (&leaf.cert_pem, &leaf.key_pem)
    );
    written.server_config();
}
