//! Invariants that hold for every `hosts.toml`.

#![allow(clippy::panic, reason = "a broken invariant has to end the run")]

use std::collections::BTreeMap;
use std::path::Path;

use super::directory::Namespace;
use super::{Endpoint, Hosts, HostsDirectory, Mirror, in_order};
use tolerarch_core::image::ImageRef;

/// Checks that any file gives an image a bounded number of HTTP URLs. Each URL ends in the path of the image's name or
/// of its rewritten name, and has no user. Checks also that an error quotes nothing of the file.
pub fn hosts(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let path = Path::new("/etc/containerd/certs.d/registry.test");
    let namespace = match Namespace::parse(text, path) {
        Ok(namespace) => namespace,
        Err(why) => {
            for word in text.split(|c: char| !c.is_ascii_alphanumeric()) {
                assert!(word.len() <= 24 || !why.contains(word), "{why}");
            }
            return false;
        }
    };
    let directory = HostsDirectory {
        namespaces: [("registry.test".to_owned(), namespace)].into(),
        ..HostsDirectory::default()
    };
    let hosts = Hosts::new(BTreeMap::new(), directory);
    let image: ImageRef = "registry.test/team/app:v1"
        .parse()
        .unwrap_or_else(|error| panic!("{error}"));
    let endpoints = hosts.endpoints(image.host());
    assert!(endpoints.len() <= Mirror::MOST + 1, "{}", endpoints.len());
    for endpoint in in_order(endpoints, &image, 0, true) {
        check(&endpoint, &image, text);
        if let Some(fallback) = &endpoint.fallback {
            check(fallback, &image, text);
        }
    }
    true
}

fn check(endpoint: &Endpoint, image: &ImageRef, text: &str) {
    let Ok(name) = endpoint.name(image) else {
        return;
    };
    let url = endpoint
        .url(image, "manifests/v1")
        .unwrap_or_else(|| panic!("no URL: {text}"));
    let path = format!("/{name}/manifests/v1");
    assert!(matches!(url.scheme(), "http" | "https"), "{url}");
    assert!(url.has_host() && url.fragment().is_none(), "{url}");
    assert!(
        url.username().is_empty() && url.password().is_none(),
        "{url}"
    );
    assert!(url.path().ends_with(&path), "{url}");
}
