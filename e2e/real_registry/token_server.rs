//! A token server for a real registry, by distribution's token specification (`spec/auth/jwt`). Its JSON Web Tokens are signed
//! with ES256, and contain the certificate of the signing key.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use testregistry::{Auth, Pki, Registry, Request};

/// Service and issuer that registry and token server share.
pub(crate) const SERVICE: &str = "registry.test";
pub(crate) const ISSUER: &str = "token.test";

/// The only user.
pub(crate) const USER: &str = "user";
pub(crate) const PASSWORD: &str = "password";

/// Lifetime of a token, in seconds.
const LIFE: u64 = 300;

/// A server that issues tokens to the only user.
pub(crate) struct TokenServer {
    server: Registry,
    url: String,
}

impl TokenServer {
    /// Starts a server that issues tokens by GET, and with `by_post` also by POST in the OAuth2 form.
    pub(crate) async fn start(by_post: bool) -> Self {
        Self::start_with(Arc::new(Pki::new()), |auth| {
            if by_post { auth.oauth() } else { auth }
        })
        .await
    }

    /// Starts a server with a certificate of this authority. `change` adapts how it authenticates.
    pub(crate) async fn start_with(pki: Arc<Pki>, change: impl FnOnce(Auth) -> Auth) -> Self {
        let server = Registry::builder().pki(pki).start().await;
        let signer = server.pki().leaf(&[ISSUER]);
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der(&signer.key_pem))
            .unwrap();
        let certificate = STANDARD.encode(der(&signer.cert_pem));
        let auth = Auth::bearer()
            .credentials(USER, PASSWORD)
            .expires_in(Some(LIFE));
        let auth = auth.mint(move |scopes| token(&key, &certificate, scopes));
        let url = server.serve_tokens(&change(auth));
        Self { server, url }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn address(&self) -> String {
        self.server.address()
    }

    pub(crate) fn pki(&self) -> Arc<Pki> {
        self.server.pki()
    }

    /// Returns the requests since the last call.
    pub(crate) fn take_requests(&self) -> Vec<Request> {
        let requests = self.server.requests();
        self.server.forget_requests();
        requests
    }
}

/// Returns a token that grants these scopes.
fn token(key: &EcdsaKeyPair, certificate: &str, scopes: &[String]) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let header = json!({"typ": "JWT", "alg": "ES256", "x5c": [certificate]});
    let claims = json!({
        "iss": ISSUER, "sub": USER, "aud": SERVICE, "jti": now.to_string(),
        "iat": now, "nbf": now - 10, "exp": now + LIFE,
        "access": scopes.iter().filter_map(|scope| access(scope)).collect::<Vec<_>>(),
    });
    let part = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let text = format!("{}.{}", part(&header), part(&claims));
    let signature = key.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Returns a scope such as `repository:team/app:pull,push` as a claim.
fn access(scope: &str) -> Option<Value> {
    let (kind, rest) = scope.split_once(':')?;
    let (name, actions) = rest.rsplit_once(':')?;
    Some(json!({"type": kind, "name": name, "actions": actions.split(',').collect::<Vec<_>>()}))
}

/// Decodes the content of a PEM file.
fn der(pem: &str) -> Vec<u8> {
    STANDARD
        .decode(
            pem.lines()
                .filter(|line| !line.starts_with("-----"))
                .collect::<String>(),
        )
        .unwrap()
}
