//! The values that name registries: mirrors, patterns, hosts.

use serde_json::json;

use super::values::{Kind, Scalar, shown};
use tolerarch_core::image::{ImageRef, NamePattern, canonical_host, is_docker_hub};
use tolerarch_images::registry::Mirror;

/// What `is_docker_hub` takes, for schemas; in lower case.
const DOCKER_HUB: &str = r"(https://)?(index\.|registry-1\.)?docker\.io(:443)?(/v[12])?/*";

impl Scalar for Mirror {
    fn kind() -> Kind<Self> {
        Kind::new(
            "host, host:port or https://host/prefix (without TLS: plainHttp of that host)",
            json!({"type": "string", "pattern": r"^(https://)?[A-Za-z0-9.:\[\]-]+(/[a-z0-9._/-]*)?$", "examples": ["https://cache.example.com/hub"]}),
            |text| text.parse().ok(),
            shown,
        )
    }
}

impl Scalar for NamePattern {
    fn kind() -> Kind<Self> {
        Kind::new(
            "host[/path] as in docker.io/library/nginx, with * for a part and ** for any number of them",
            json!({"type": "string", "pattern": format!(r"^([A-Za-z0-9.:*\[\]-]+(/[a-z0-9._*-]+)*|{DOCKER_HUB})$"), "examples": ["ghcr.io/my-org"]}),
            |text| text.parse().ok(),
            shown,
        )
    }
}

/// One host, as it is compared.
pub(super) fn host_name() -> Kind<String> {
    Kind::new(
        "host or host:port, without https://",
        json!({"type": "string", "pattern": format!(r"^([A-Za-z0-9.:\[\]-]+|{DOCKER_HUB})$"), "examples": ["auth.example.com"]}),
        |text| is_host(text).then(|| canonical_host(text)),
        |host| json!(host),
    )
}

/// Whether this can stand in front of an image, or means Docker Hub.
pub(super) fn is_host(text: &str) -> bool {
    let named = || format!("{text}/x").parse::<ImageRef>();
    is_docker_hub(text) || named().is_ok_and(|image| image.host().eq_ignore_ascii_case(text))
}
