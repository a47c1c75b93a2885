//! The values that name registries: mirrors, patterns, hosts.

use std::borrow::Cow;

use serde_json::{Value as Json, json};

use super::shape::Value;
use super::values::taken;
use tolerarch_core::image::{ImageRef, NamePattern, canonical_host, is_docker_hub};
use tolerarch_images::registry::Mirror;

/// What `is_docker_hub` takes, for schemas; in lower case.
const DOCKER_HUB: &str = r"(https://)?(index\.|registry-1\.)?docker\.io(:443)?(/v[12])?/*";

impl Value for Mirror {
    fn expected(&self) -> Cow<'static, str> {
        "host, host:port or https://host/prefix (without TLS: plainHttp of that host)".into()
    }

    fn schema(&self) -> Json {
        json!({"type": "string", "pattern": r"^(https://)?[A-Za-z0-9.:\[\]-]+(/[a-z0-9._/-]*)?$", "examples": ["https://cache.example.com/hub"]})
    }

    fn read(&mut self, text: &str) -> bool {
        taken(self, text.parse().ok())
    }

    fn written(&self) -> Json {
        json!(self.to_string())
    }
}

impl Value for NamePattern {
    fn expected(&self) -> Cow<'static, str> {
        "host[/path] as in docker.io/library/nginx, with * for a part and ** for any number of them".into()
    }

    fn schema(&self) -> Json {
        json!({"type": "string", "pattern": format!(r"^([A-Za-z0-9.:*\[\]-]+(/[a-z0-9._*-]+)*|{DOCKER_HUB})$"), "examples": ["ghcr.io/my-org"]})
    }

    fn read(&mut self, text: &str) -> bool {
        taken(self, text.parse().ok())
    }

    fn written(&self) -> Json {
        json!(self.to_string())
    }
}

/// Whether this can stand in front of an image, or means Docker Hub.
pub(super) fn is_host(text: &str) -> bool {
    let named = || format!("{text}/x").parse::<ImageRef>();
    is_docker_hub(text) || named().is_ok_and(|image| image.host().eq_ignore_ascii_case(text))
}

/// One host, as it is compared.
#[derive(Default)]
pub(super) struct HostName(String);

impl From<HostName> for String {
    fn from(HostName(host): HostName) -> Self {
        host
    }
}

impl Value for HostName {
    fn expected(&self) -> Cow<'static, str> {
        "host or host:port, without https://".into()
    }

    fn schema(&self) -> Json {
        json!({"type": "string", "pattern": format!(r"^([A-Za-z0-9.:\[\]-]+|{DOCKER_HUB})$"), "examples": ["auth.example.com"]})
    }

    fn read(&mut self, text: &str) -> bool {
        taken(&mut self.0, is_host(text).then(|| canonical_host(text)))
    }

    fn written(&self) -> Json {
        json!(self.0)
    }
}
