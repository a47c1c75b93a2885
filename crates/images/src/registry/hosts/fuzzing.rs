//! Invariants of every `hosts.toml`.

#![allow(clippy::panic, reason = "a broken invariant has to end the run")]

use std::collections::BTreeMap;
use std::path::Path;

use super::directory::Namespace;
use super::{Hosts, HostsDirectory, Mirror, in_order};
use tolerarch_core::image::ImageRef;

/// Checks that, whatever the file says, an image has a bounded number of URLs of HTTP, each of which ends in the
/// image's path or in that of its rewritten name, without a user; and that an error quotes nothing of the file.
pub fn hosts(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let namespace = match Namespace::parse(text, Path::new("/etc/containerd/certs.d/registry.test"))
    {
        Ok(namespace) => namespace,
        Err(why) => {
            let words = text
                .split(|c: char| !c.is_ascii_alphanumeric())
                .filter(|word| word.len() > 24);
            words.for_each(|word| assert!(!why.contains(word), "{why}"));
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
        for endpoint in [Some(&*endpoint), endpoint.fallback.as_deref()]
            .into_iter()
            .flatten()
        {
            let Ok(name) = endpoint.name(&image) else {
                continue;
            };
            let url = endpoint
                .url(&image, "manifests/v1")
                .unwrap_or_else(|| panic!("no URL: {text}"));
            assert!(
                matches!(url.scheme(), "http" | "https") && url.has_host(),
                "{url}"
            );
            assert!(
                url.path().ends_with(&format!("/{name}/manifests/v1")),
                "{url}"
            );
            assert!(
                url.username().is_empty() && url.password().is_none() && url.fragment().is_none(),
                "{url}"
            );
        }
    }
    true
}
