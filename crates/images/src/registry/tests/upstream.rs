//! The same cases through containerd and through ours: `e2e/conformance`.

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
    /// True if the image is no index, but its one image.
    #[serde(default)]
    single: bool,
    /// Media types of the document, if unusual.
    types: Option<Types>,
    /// Nodes that get an image of their own architecture.
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
    // The platform of an entry is that of its config as well, which is read if the entry may be no image.
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
        // No platform and an unknown platform come to the same.
        let ours = found
            .ok()
            .and_then(|found| found.support.runs_on())
            .unwrap_or_default();
        answers.push((text, ours.to_string(), theirs.to_string()));
    }
    assert_agreement(answers);
}

/// A document with capitals, doubled members and wrong types.
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
    let mut places = vec![("$config", config("arm64"))];
    for (place, architecture) in [("$amd64", "amd64"), ("$arm64", "arm64")] {
        places.push((
            place,
            repo.manifest(manifest(&config(architecture)), OCI_MANIFEST, None),
        ));
    }
    let mut document = replace(json, b"$size", b"0");
    for (place, descriptor) in places {
        let digest = descriptor["digest"].as_str().unwrap();
        document = replace(&document, place.as_bytes(), digest.as_bytes());
    }
    repo.manifest(
        document,
        if kind == "index" {
            OCI_INDEX
        } else {
            OCI_MANIFEST
        },
        Some(tag),
    );
}

/// Replaces all places in a document that may be no text.
fn replace(document: &[u8], place: &[u8], by: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::new();
    let mut rest = document;
    while let Some(at) = rest.windows(place.len()).position(|found| found == place) {
        replaced.extend_from_slice(&rest[..at]);
        replaced.extend_from_slice(by);
        rest = &rest[at + place.len()..];
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
        // Stricter on purpose: Go mixes the entries of two lists, reads an empty `os` as the node's own, and passes
        // over entries without a platform and a digest where a node needs none of them.
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
    /// URLs for a tag, in their order, with headers.
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
                    asked(&hosts, &host, is_tag)?,
                    theirs,
                ))
            })
        },
    );
    assert_agreement(answers.flatten());
}

/// Lists the requests. `None` where a key is not understood: upstream skips it, and its forks may not, so nobody is
/// asked (`unclear.rs`).
fn asked(hosts: &Hosts, host: &str, tag: bool) -> Option<Vec<String>> {
    let image: ImageRef = format!("{host}/team/app:v1").parse().unwrap();
    let request = |endpoint: &Endpoint| {
        let headers = endpoint
            .headers
            .keys()
            .filter(|name| name.as_str().starts_with("x-"));
        let headers = headers.map(|name| {
            let values: Vec<_> = endpoint
                .headers
                .get_all(name)
                .iter()
                .map(|value| value.to_str().unwrap())
                .collect();
            format!(" {name}={}", values.join(","))
        });
        let mut headers: Vec<String> = headers.collect();
        headers.sort_unstable();
        Some(format!(
            "{}{}",
            endpoint.url(&image, "manifests/v1")?,
            headers.concat()
        ))
    };
    let asked = in_order(hosts.endpoints(host), &image, 0, tag);
    asked
        .iter()
        .flat_map(|endpoint| [Some(&**endpoint), endpoint.fallback.as_deref()])
        .flatten()
        .map(request)
        .collect()
}

/// Normalizes a request to our form of URLs: lower-case hosts, without the usual port.
fn normal_request(request: &str) -> String {
    let (url, headers) = request.split_at(request.find(' ').unwrap_or(request.len()));
    Url::parse(url).map_or_else(|_| request.to_owned(), |url| format!("{url}{headers}"))
}
