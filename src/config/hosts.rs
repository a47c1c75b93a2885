//! Values that name registries (mirrors, patterns, hosts) or the server of the shared cache.

use serde_json::json;

use super::values::{Codec, Scalar, matches, pattern};
use tolerarch_core::image::{ImageRef, NamePattern, canonical_host, is_docker_hub};
use tolerarch_images::registry::Mirror;
use tolerarch_images::shared_cache::{ParseUrlError, ServerUrl};

/// Pattern of the texts that `is_docker_hub` accepts, for schemas; in lower case.
const DOCKER_HUB: &str = r"(https://)?(index\.|registry-1\.)?docker\.io(:443)?(/v[12])?/*";

impl Scalar for Mirror {
    fn codec() -> Codec<Self> {
        Codec::text(
            "host, host:port or https://host/prefix (without TLS: plainHttp of that host)",
            json!({"type": "string", "pattern": r"^(https://)?[A-Za-z0-9.:\[\]-]+(/[a-z0-9._/-]*)?$", "examples": ["https://cache.example.com/hub"]}),
        )
    }
}

impl Scalar for NamePattern {
    fn codec() -> Codec<Self> {
        Codec::text(
            "host[/path] as in docker.io/library/nginx, with * for a part and ** for any number of them",
            json!({"type": "string", "pattern": format!(r"^([A-Za-z0-9.:*\[\]-]+(/[a-z0-9._*-]+)*|{DOCKER_HUB})$"), "examples": ["ghcr.io/my-org"]}),
        )
    }
}

/// Returns the codec of a host, which is stored in canonical form.
pub(super) fn host_name() -> Codec<String> {
    Codec::new(
        "host or host:port, without https://",
        json!({"type": "string", "pattern": format!(r"^([A-Za-z0-9.:\[\]-]+|{DOCKER_HUB})$"), "examples": ["auth.example.com"]}),
        |text| is_host(text).then(|| canonical_host(text)),
        |host| json!(host),
    )
}

/// Returns whether a text can be the host of an image, or is a name of Docker Hub.
pub(super) fn is_host(text: &str) -> bool {
    let named = || format!("{text}/x").parse::<ImageRef>();
    is_docker_hub(text) || named().is_ok_and(|image| image.host().eq_ignore_ascii_case(text))
}

impl Scalar for ServerUrl {
    fn codec() -> Codec<Self> {
        Codec::new(
            ParseUrlError::Form.to_string(),
            json!({
                "type": "string",
                "pattern": r"^(redis|rediss|valkey|valkeys)(\+cluster)?://[^@?#\s]+$",
                "examples": ["rediss://valkey.example.com:6380"],
            }),
            |text| text.parse().ok(),
            |url: &ServerUrl| json!(url.as_str()),
        )
        .with_hint(|text| match text.parse::<ServerUrl>() {
            Ok(_) | Err(ParseUrlError::Form) => None,
            Err(fault) => Some(fault.to_string()),
        })
    }
}

/// Returns the codec of the prefix of a cache's keys.
pub(super) fn prefix() -> Codec<String> {
    const PATTERN: &str = "^[!-~]{0,64}$";
    let read = |text: &str| matches(PATTERN, text).then(|| text.to_owned());
    let expected = "up to 64 printable characters without spaces";
    Codec::new(expected, pattern(PATTERN), read, |prefix| json!(prefix))
}
