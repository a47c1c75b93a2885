//! A repository: its content, and its behaviour.
//!
//! Every digest and size is that of the served bytes, so that clients can verify them. Only layers are missing, as no
//! client pulls them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use hyper::Method;
use hyper::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};

use crate::auth::Auth;
use crate::fault::Fault;
use crate::record::{Kind, Log, Request};
use crate::reply::{Reply, header_name, header_value};
use crate::{
    DOCKER_CONFIG, DOCKER_LIST, DOCKER_MANIFEST, OCI_CONFIG, OCI_INDEX, OCI_MANIFEST, lock, sha256,
    sha512,
};

/// An entry of an index.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A platform like `linux/arm64/v8`, for which an image is pushed.
    Platform(String),
    /// A descriptor, which is written to the index unchanged.
    Descriptor(Value),
}

impl From<&str> for Entry {
    fn from(platform: &str) -> Self {
        Self::Platform(platform.to_owned())
    }
}

impl From<&String> for Entry {
    fn from(platform: &String) -> Self {
        Self::Platform(platform.clone())
    }
}

impl From<Value> for Entry {
    fn from(descriptor: Value) -> Self {
        Self::Descriptor(descriptor)
    }
}

/// A repository of a [`Registry`](crate::Registry). Clones are the same repository.
#[derive(Clone)]
pub struct Repo {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    address: String,
    log: Arc<Log>,
    state: Mutex<State>,
    bytes_sent: Arc<AtomicU64>,
}

#[derive(Default)]
struct State {
    manifests: HashMap<String, (Bytes, String)>,
    blobs: HashMap<String, Bytes>,
    tags: HashMap<String, String>,
    headers: Vec<(HeaderName, Option<HeaderValue>)>,
    negotiates: bool,
    blobs_at: Option<String>,
    auth: Option<Auth>,
    fault: Option<Fault>,
}

impl Repo {
    pub(crate) fn new(name: &str, address: &str, log: Arc<Log>) -> Self {
        let inner = Inner {
            name: name.to_owned(),
            address: address.to_owned(),
            log,
            state: Mutex::default(),
            bytes_sent: Arc::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Its name, like `team/app`.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the reference of an image of this repository, by tag or by digest.
    pub fn reference(&self, tag_or_digest: &str) -> String {
        let separator = if tag_or_digest.contains(':') {
            '@'
        } else {
            ':'
        };
        format!(
            "{}/{}{separator}{tag_or_digest}",
            self.inner.address, self.inner.name
        )
    }

    /// Pushes a blob and returns its descriptor.
    pub fn blob(&self, bytes: impl Into<Bytes>, media_type: &str) -> Value {
        let bytes = bytes.into();
        let digest = sha256(&bytes);
        let size = bytes.len();
        let blobs = &mut lock(&self.inner.state).blobs;
        blobs.insert(sha512(&bytes), bytes.clone());
        blobs.insert(digest.clone(), bytes);
        json!({ "mediaType": media_type, "digest": digest, "size": size })
    }

    /// Pushes any bytes as a manifest, and returns its descriptor.
    pub fn manifest(&self, bytes: impl Into<Bytes>, media_type: &str, tag: Option<&str>) -> Value {
        let bytes = bytes.into();
        let digest = sha256(&bytes);
        let size = bytes.len();
        let mut state = lock(&self.inner.state);
        state
            .manifests
            .insert(sha512(&bytes), (bytes.clone(), media_type.to_owned()));
        state
            .manifests
            .insert(digest.clone(), (bytes, media_type.to_owned()));
        if let Some(tag) = tag {
            state.tags.insert(tag.to_owned(), digest.clone());
        }
        json!({ "mediaType": media_type, "digest": digest, "size": size })
    }

    /// Pushes an OCI image for a platform and returns its descriptor.
    pub fn image(&self, platform: &str, tag: Option<&str>) -> Value {
        let config = self.blob(config(platform).to_string(), OCI_CONFIG);
        self.image_of(config, OCI_MANIFEST, tag)
    }

    /// Pushes a Docker image, schema 2, for a platform and returns its descriptor.
    pub fn docker_image(&self, platform: &str, tag: Option<&str>) -> Value {
        let config = self.blob(config(platform).to_string(), DOCKER_CONFIG);
        self.image_of(config, DOCKER_MANIFEST, tag)
    }

    /// Pushes an image with this descriptor of its configuration, and returns its descriptor.
    pub fn image_of(&self, config: Value, media_type: &str, tag: Option<&str>) -> Value {
        let layer = match media_type {
            DOCKER_MANIFEST => "application/vnd.docker.image.rootfs.diff.tar.gzip",
            _ => "application/vnd.oci.image.layer.v1.tar+gzip",
        };
        let layer = json!({ "mediaType": layer, "digest": sha256(b"a layer"), "size": 7 });
        let image = json!({ "schemaVersion": 2, "mediaType": media_type, "config": config, "layers": [layer] });
        self.manifest(image.to_string(), media_type, tag)
    }

    /// Pushes an OCI image and returns its descriptor with the platform, as an entry of an index.
    pub fn entry(&self, platform: &str) -> Value {
        with_platform(self.image(platform, None), platform)
    }

    /// Pushes an attestation as BuildKit does, for the platform `unknown/unknown`, and returns its entry.
    pub fn attestation(&self, of_digest: &str) -> Value {
        let statement =
            json!({ "_type": "https://in-toto.io/Statement/v0.1", "subject": [of_digest] });
        let layer = self.blob(statement.to_string(), "application/vnd.in-toto+json");
        let config = self.blob(config("unknown/unknown").to_string(), OCI_CONFIG);
        let manifest = json!({ "schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": [layer] });
        let pushed = self.manifest(manifest.to_string(), OCI_MANIFEST, None);
        let mut entry = with_platform(pushed, "unknown/unknown");
        entry["annotations"] = json!({
            "vnd.docker.reference.digest": of_digest,
            "vnd.docker.reference.type": "attestation-manifest",
        });
        entry
    }

    /// Pushes an OCI index and returns its descriptor.
    pub fn index(
        &self,
        tag: Option<&str>,
        entries: impl IntoIterator<Item = impl Into<Entry>>,
    ) -> Value {
        let entries = self.entries(entries, Self::entry);
        self.list(OCI_INDEX, entries, tag)
    }

    /// Pushes a Docker manifest list, with Docker images for the platforms in it, and returns its descriptor.
    pub fn docker_list(
        &self,
        tag: Option<&str>,
        entries: impl IntoIterator<Item = impl Into<Entry>>,
    ) -> Value {
        let entries = self.entries(entries, |repo, platform| {
            with_platform(repo.docker_image(platform, None), platform)
        });
        self.list(DOCKER_LIST, entries, tag)
    }

    fn entries(
        &self,
        entries: impl IntoIterator<Item = impl Into<Entry>>,
        image: impl Fn(&Self, &str) -> Value,
    ) -> Vec<Value> {
        let descriptor = |entry: Entry| match entry {
            Entry::Platform(platform) => image(self, &platform),
            Entry::Descriptor(descriptor) => descriptor,
        };
        entries
            .into_iter()
            .map(|entry| descriptor(entry.into()))
            .collect()
    }

    fn list(&self, media_type: &str, entries: Vec<Value>, tag: Option<&str>) -> Value {
        let list = json!({ "schemaVersion": 2, "mediaType": media_type, "manifests": entries });
        self.manifest(list.to_string(), media_type, tag)
    }

    /// Makes a tag point at a digest, which need not exist.
    pub fn tag(&self, tag: &str, digest: &str) {
        lock(&self.inner.state)
            .tags
            .insert(tag.to_owned(), digest.to_owned());
    }

    /// Returns the digest that a tag points at.
    pub fn digest_of(&self, tag: &str) -> Option<String> {
        lock(&self.inner.state).tags.get(tag).cloned()
    }

    /// Removes all blobs.
    pub fn delete_blobs(&self) {
        lock(&self.inner.state).blobs.clear();
    }

    /// Removes all manifests. Tags stay and point at nothing.
    pub fn delete_manifests(&self) {
        lock(&self.inner.state).manifests.clear();
    }

    /// Sets or removes a header of all answers with a manifest.
    pub fn header(&self, name: &str, value: Option<&str>) {
        let name = header_name(name);
        let headers = &mut lock(&self.inner.state).headers;
        headers.retain(|(other, _)| *other != name);
        headers.push((name, value.map(header_value)));
    }

    /// Makes it behave like an old registry: a client that accepts no lists gets the first image of a list.
    pub fn negotiates(&self, negotiates: bool) {
        lock(&self.inner.state).negotiates = negotiates;
    }

    /// Redirects blobs to `{base_url}/cdn/{digest}`, see [`Registry::cdn`](crate::Registry::cdn).
    pub fn redirect_blobs_to(&self, base_url: &str) {
        lock(&self.inner.state).blobs_at = Some(base_url.to_owned());
    }

    /// Requires authentication.
    pub fn require(&self, auth: Auth) {
        lock(&self.inner.state).auth = Some(auth);
    }

    /// Requires no authentication any more.
    pub fn require_nothing(&self) {
        lock(&self.inner.state).auth = None;
    }

    /// Sets or removes the fault of manifests and blobs. There is one fault at a time; [`Fault::custom`] combines several.
    pub fn fault(&self, fault: Option<Fault>) {
        lock(&self.inner.state).fault = fault;
    }

    /// Returns how many bytes of huge bodies, see [`Fault::huge`], were sent, including some hundred KiB in the server's
    /// buffers.
    pub fn bytes_sent(&self) -> u64 {
        self.inner.bytes_sent.load(Ordering::Relaxed)
    }

    /// Returns the requests for manifests and blobs of this repository.
    pub fn requests(&self) -> Vec<Request> {
        self.inner
            .log
            .filtered(|request| request.repo.as_deref() == Some(self.name()))
    }

    /// Returns how many requests for manifests and blobs of this repository match.
    pub fn count(&self, wanted: impl Fn(&Request) -> bool) -> usize {
        self.inner
            .log
            .count(|request| request.repo.as_deref() == Some(self.name()) && wanted(request))
    }

    pub(crate) fn current_auth(&self) -> Option<Auth> {
        lock(&self.inner.state).auth.clone()
    }

    pub(crate) fn current_fault(&self) -> Option<Fault> {
        lock(&self.inner.state).fault.clone()
    }

    pub(crate) fn sent_counter(&self) -> Arc<AtomicU64> {
        self.inner.bytes_sent.clone()
    }

    pub(crate) fn all_blobs(&self) -> Vec<Bytes> {
        lock(&self.inner.state).blobs.values().cloned().collect()
    }

    /// Returns all references, each with the bytes and the media type of its manifest.
    pub(crate) fn all_manifests(&self) -> Vec<(String, Bytes, String)> {
        let state = lock(&self.inner.state);
        let digests = state.manifests.keys().map(|digest| (digest, digest));
        let mut manifests = Vec::new();
        for (reference, digest) in digests.chain(state.tags.iter()) {
            if let Some((bytes, media_type)) = state.manifests.get(digest) {
                manifests.push((reference.clone(), bytes.clone(), media_type.clone()));
            }
        }
        manifests
    }

    /// Returns the correct answer to a request for a manifest, a blob or tags.
    pub(crate) fn answer(&self, request: &Request) -> Reply {
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return Reply::error(405, "UNSUPPORTED").header("Allow", "GET, HEAD");
        }
        let reference = request.reference.as_deref().unwrap_or_default();
        match request.kind {
            Kind::Blob => self.blob_reply(reference),
            Kind::Tags => self.tags_reply(request),
            _ => self.manifest_reply(reference, request.accept.as_deref().unwrap_or_default()),
        }
    }

    fn manifest_reply(&self, reference: &str, accept: &str) -> Reply {
        let state = lock(&self.inner.state);
        let mut digest = state
            .tags
            .get(reference)
            .map_or(reference, String::as_str)
            .to_owned();
        let Some((mut bytes, mut media_type)) = state.manifests.get(&digest).cloned() else {
            return Reply::error(404, "MANIFEST_UNKNOWN");
        };
        let lists = [OCI_INDEX, DOCKER_LIST];
        let is_list = lists.contains(&media_type.as_str());
        let accepts_lists = lists.iter().any(|list| accept.contains(list));
        if state.negotiates && is_list && !accepts_lists {
            let list: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            let child = list["manifests"][0]["digest"].as_str().unwrap_or_default();
            let Some(first) = state.manifests.get(child) else {
                return Reply::error(404, "MANIFEST_UNKNOWN");
            };
            (bytes, media_type) = first.clone();
            digest = child.to_owned();
        }
        let mut reply = Reply::new(200)
            .header("Content-Type", &media_type)
            .header("Docker-Content-Digest", &digest)
            .body(bytes);
        for (name, value) in &state.headers {
            match value {
                Some(value) => _ = reply.headers.insert(name, value.clone()),
                None => _ = reply.headers.remove(name),
            }
        }
        reply
    }

    /// Returns a page of the tags as distribution does: `n` of them after `last`, and a link to the next page.
    fn tags_reply(&self, request: &Request) -> Reply {
        let last = request.query_value("last").unwrap_or_default();
        let mut tags: Vec<String> = lock(&self.inner.state).tags.keys().cloned().collect();
        tags.sort_unstable();
        tags.retain(|tag| *tag > last);
        let all = tags.len();
        let n = request.query_value("n").and_then(|n| n.parse().ok());
        tags.truncate(n.unwrap_or(all));
        let reply = Reply::new(200).json(&json!({ "name": self.name(), "tags": tags }));
        match (tags.last(), n) {
            (Some(last), Some(n)) if tags.len() < all => {
                let path = &request.path;
                reply.header("Link", &format!("<{path}?last={last}&n={n}>; rel=\"next\""))
            }
            _ => reply,
        }
    }

    fn blob_reply(&self, digest: &str) -> Reply {
        let state = lock(&self.inner.state);
        match (state.blobs.get(digest), &state.blobs_at) {
            (Some(_), Some(base)) => {
                Reply::new(307).header("Location", &format!("{base}/cdn/{digest}"))
            }
            (Some(bytes), None) => Reply::new(200)
                .header("Content-Type", "application/octet-stream")
                .header("Docker-Content-Digest", digest)
                .body(bytes.clone()),
            (None, _) => Reply::error(404, "BLOB_UNKNOWN"),
        }
    }
}

/// Returns a platform like `linux/arm64/v8` as the fields that index entries and configurations have in common.
fn platform(text: &str) -> Value {
    let mut parts = text.splitn(3, '/');
    let mut platform = json!({
        "os": parts.next().unwrap_or_default(),
        "architecture": parts.next().unwrap_or_default(),
    });
    if let Some(variant) = parts.next() {
        platform["variant"] = variant.into();
    }
    platform
}

fn with_platform(mut descriptor: Value, text: &str) -> Value {
    descriptor["platform"] = platform(text);
    descriptor
}

fn config(text: &str) -> Value {
    let mut config = platform(text);
    config["config"] = json!({ "Cmd": ["/app"] });
    config["rootfs"] = json!({ "type": "layers", "diff_ids": [sha256(b"a layer")] });
    config
}
