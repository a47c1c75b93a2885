//! The same cases through containerd's code and through this client: `e2e/conformance`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use url::Url;

use super::*;
use crate::registry::hosts::{Endpoint, in_order};
use ::conformance::assert_agreement;

#[derive(Deserialize)]
struct Index {
    entries: Vec<Entry>,
    /// True if the reference names the only image itself, without an index.
    #[serde(default)]
    single: bool,
    /// Media types of the document, if they are unusual.
    types: Option<Types>,
    /// Nodes that get an image of their architecture.
    runs: Vec<String>,
}

#[derive(Deserialize)]
struct Types {
    announced: String,
    document: String,
}

/// A single image, or a nested index.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(default)]
    descriptor: serde_json::Map<String, Value>,
    config: Option<Value>,
    config_type: Option<String>,
    artifact_type: Option<String>,
    entries: Option<Vec<Entry>>,
}

fn push(repo: &Repo, mut document: Value, types: Option<Types>, tag: Option<&str>) -> Value {
    let usual = document["mediaType"].as_str().unwrap().to_owned();
    let types = types.unwrap_or(Types {
        announced: usual.clone(),
        document: usual,
    });
    document["mediaType"] = types.document.into();
    repo.manifest(document.to_string(), &types.announced, tag)
}

fn push_index(repo: &Repo, entries: Vec<Entry>, types: Option<Types>, tag: Option<&str>) -> Value {
    let pushed: Vec<Value> = entries
        .into_iter()
        .map(|entry| push_entry(repo, entry, None, None))
        .collect();
    push(
        repo,
        json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": pushed}),
        types,
        tag,
    )
}

fn push_entry(repo: &Repo, entry: Entry, types: Option<Types>, tag: Option<&str>) -> Value {
    let Entry {
        descriptor,
        config,
        config_type,
        artifact_type,
        entries,
    } = entry;
    let mut pushed = match entries {
        Some(entries) => push_index(repo, entries, types, None),
        None => {
            let config = config
                .or_else(|| descriptor.get("platform").cloned())
                .unwrap();
            let config = repo.blob(
                config.to_string(),
                config_type.as_deref().unwrap_or(OCI_CONFIG),
            );
            let mut manifest = json!({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": []});
            if let Some(artifact_type) = artifact_type {
                manifest["artifactType"] = artifact_type.into();
            }
            push(repo, manifest, types, tag)
        }
    };
    pushed.as_object_mut().unwrap().extend(descriptor);
    pushed
}

/// Returns whether tolerarch is stricter on purpose, in an entry or below it: containerd reads an empty `os` of a
/// config as the node's own. The image spec requires one, and tolerarch does not guess.
fn is_stricter(
    Entry {
        descriptor,
        config,
        entries,
        ..
    }: &Entry,
) -> bool {
    // In these cases an entry's config has the entry's platform. The config is read if the entry may be no image.
    let config = config.as_ref().or(descriptor
        .get("artifactType")
        .and(descriptor.get("platform")));
    let lacks_os = config.is_some_and(|config| config["os"] == "");
    lacks_os || entries.iter().flatten().any(is_stricter)
}

#[tokio::test]
async fn indexes_run_where_containerd_runs_them() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    let (client, _dir) = client(&remote);
    let mut answers = Vec::new();
    for (number, case) in ::conformance::cases("indexes").into_iter().enumerate() {
        let (tag, case): (_, Value) = (format!("v{number}"), case);
        let Index {
            mut entries,
            single,
            types,
            runs,
        } = Index::deserialize(&case).unwrap();
        let text = format!("{} {}", case["entries"], case["types"]);
        if entries.iter().any(is_stricter) {
            continue;
        }
        match single.then(|| entries.pop()).flatten() {
            Some(entry) => push_entry(&repo, entry, types, Some(&tag)),
            None => push_index(&repo, entries, types, Some(&tag)),
        };
        let found = client
            .fetch(&repo.reference(&tag).parse().unwrap(), None)
            .await;
        let theirs = platforms(&runs.iter().map(String::as_str).collect::<Vec<_>>());
        // No support and an unknown platform are equivalent here.
        let ours = found
            .ok()
            .and_then(|found| found.support.runs_on())
            .unwrap_or_default();
        answers.push((text, ours.to_string(), theirs.to_string()));
    }
    assert_agreement(answers);
}

/// A document with capitals, duplicate members and wrong types.
#[derive(Deserialize)]
struct Document {
    kind: String,
    json: String,
    #[serde(default)]
    gives: Vec<String>,
    /// True if the document has the list of an index twice.
    #[serde(default)]
    mixed: bool,
}

/// Pushes a document with the digests of its parts filled in, as the Go program fills them in.
fn push_document(repo: &Repo, kind: &str, json: &[u8], tag: &str) {
    let manifest = |config: &Value| {
        json!({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": []})
            .to_string()
    };
    let config = |architecture: &str| {
        repo.blob(
            json!({"os": "linux", "architecture": architecture}).to_string(),
            OCI_CONFIG,
        )
    };
    if kind == "platform" {
        let config = repo.blob(json.to_owned(), OCI_CONFIG);
        let part = repo.manifest(manifest(&config), OCI_MANIFEST, None);
        let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [part]});
        repo.manifest(index.to_string(), OCI_INDEX, Some(tag));
        return;
    }
    let mut placeholders = vec![("$config", config("arm64"))];
    for (placeholder, architecture) in [("$amd64", "amd64"), ("$arm64", "arm64")] {
        let manifest = manifest(&config(architecture));
        let descriptor = repo.manifest(manifest, OCI_MANIFEST, None);
        placeholders.push((placeholder, descriptor));
    }
    let mut document = replace(json, b"$size", b"0");
    for (placeholder, descriptor) in placeholders {
        let digest = descriptor["digest"].as_str().unwrap();
        document = replace(&document, placeholder.as_bytes(), digest.as_bytes());
    }
    let media_type = match kind {
        "index" => OCI_INDEX,
        _ => OCI_MANIFEST,
    };
    repo.manifest(document, media_type, Some(tag));
}

/// Replaces all occurrences of a placeholder in a document, which may not be UTF-8.
fn replace(document: &[u8], placeholder: &[u8], by: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::new();
    let mut rest = document;
    let length = placeholder.len();
    while let Some(at) = rest.windows(length).position(|part| part == placeholder) {
        replaced.extend_from_slice(&rest[..at]);
        replaced.extend_from_slice(by);
        rest = &rest[at + length..];
    }
    replaced.extend_from_slice(rest);
    replaced
}

#[tokio::test]
async fn odd_documents_run_where_containerd_runs_them() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    let (client, _dir) = client(&remote);
    let mut answers = Vec::new();
    for (number, case) in ::conformance::cases("documents").into_iter().enumerate() {
        let Document {
            kind,
            json,
            gives,
            mixed,
        } = case;
        if !["index", "manifest", "platform"].contains(&&*kind) {
            continue;
        }
        let json = STANDARD.decode(json).unwrap();
        let text = format!("{kind} {}", String::from_utf8_lossy(&json));
        let tag = format!("v{number}");
        push_document(&repo, &kind, &json, &tag);
        let found = client
            .fetch(&repo.reference(&tag).parse().unwrap(), None)
            .await;
        let theirs = platforms(&gives.iter().map(String::as_str).collect::<Vec<_>>());
        // tolerarch is stricter on purpose: Go merges the entries of two lists, takes an empty `os` for the node's, and
        // skips entries with neither a platform nor a digest if the node needs none of them.
        let has_bad_digest = matches!(found, Err(Error::BadManifest(ManifestError::Descriptor)));
        let may_be_stricter = mixed || has_bad_digest || lacks_os(&json);
        let ours = found
            .ok()
            .and_then(|found| found.support.runs_on())
            .unwrap_or_default();
        if !may_be_stricter || !ours.is_empty() {
            answers.push((text, ours.to_string(), theirs.to_string()));
        }
    }
    assert_agreement(answers);
}

/// Returns whether a config may have no `os`, or an empty one.
fn lacks_os(json: &[u8]) -> bool {
    let mut text = String::from_utf8_lossy(json)
        .to_lowercase()
        .replace('ſ', "s");
    text.retain(|letter| !letter.is_whitespace());
    !text.contains(r#""os":"linux""#) || text.contains(r#""os":"""#)
}

#[derive(Deserialize)]
struct Directory {
    host: String,
    toml: String,
    /// URLs for a tag, in the order in which they are tried, with headers.
    tag: Vec<String>,
    /// URLs for a digest, if different.
    digest: Option<Vec<String>>,
}

#[test]
fn hosts_are_requested_as_by_containerd() {
    let cases = ::conformance::cases("hosts").into_iter();
    let answers = cases.flat_map(
        |Directory {
             host,
             toml,
             tag,
             digest,
         }| {
            let root = tempfile::tempdir().unwrap();
            let directory = root.path().join(&host);
            std::fs::create_dir(&directory).unwrap();
            std::fs::write(directory.join("hosts.toml"), &toml).unwrap();
            let hosts = Hosts::new(BTreeMap::new(), HostsDirectory::load(root.path()).unwrap());
            let digest = digest.unwrap_or_else(|| tag.clone());
            [("tag", true, tag), ("digest", false, digest)].map(|(target, is_tag, theirs)| {
                let theirs = theirs
                    .iter()
                    .map(|request| normal_request(request))
                    .collect();
                Some((
                    format!("{host} by {target}:\n{toml}"),
                    requests(&hosts, &host, is_tag)?,
                    theirs,
                ))
            })
        },
    );
    assert_agreement(answers.flatten());
}

/// Lists the requests for an image of `host`. `None` if a key is not understood: upstream skips such a key, but its
/// forks may not, so no request is sent (`unclear.rs`).
fn requests(hosts: &Hosts, host: &str, is_by_tag: bool) -> Option<Vec<String>> {
    let image: ImageRef = format!("{host}/team/app:v1").parse().unwrap();
    let mut requests = Vec::new();
    for endpoint in in_order(hosts.endpoints(host), &image, 0, is_by_tag) {
        requests.push(request(&endpoint, &image)?);
        if let Some(fallback) = &endpoint.fallback {
            requests.push(request(fallback, &image)?);
        }
    }
    Some(requests)
}

/// Renders a request: its URL, and its headers `x-…`.
fn request(endpoint: &Endpoint, image: &ImageRef) -> Option<String> {
    let mut headers = Vec::new();
    for name in endpoint.headers.keys() {
        if !name.as_str().starts_with("x-") {
            continue;
        }
        let values = endpoint.headers.get_all(name).iter();
        let values: Vec<_> = values.map(|value| value.to_str().unwrap()).collect();
        headers.push(format!(" {name}={}", values.join(",")));
    }
    headers.sort_unstable();
    let url = endpoint.url(image, "manifests/v1")?;
    Some(format!("{url}{}", headers.concat()))
}

/// Normalizes a request to the form of this client's URLs: lower-case hosts, without the default port.
fn normal_request(request: &str) -> String {
    let (url, headers) = request.split_at(request.find(' ').unwrap_or(request.len()));
    Url::parse(url).map_or_else(|_| request.to_owned(), |url| format!("{url}{headers}"))
}
