//! The running hosts of a row of the table on an [`Internet`], with its images.

use std::collections::HashMap;

use super::{DigestHeader, Login, Personality, Post, Storage, host_of};
use crate::auth::Auth;
use crate::fault::Fault;
use crate::internet::Internet;
use crate::record::{Kind, Request};
use crate::registry::Registry;
use crate::reply::Reply;
use crate::repo::Repo;

/// The user who may pull private images.
pub const USER: &str = "user";
/// The password of [`USER`].
pub const PASSWORD: &str = "the-password";

/// The running hosts of a row of the table. Its repository has `multi`, an image for linux/amd64 and linux/arm64, and
/// `single` for linux/amd64.
pub struct RunningRegistry {
    hosts: HashMap<&'static str, Registry>,
    repo: Repo,
}

impl RunningRegistry {
    /// Returns the repository of its images.
    pub fn repo(&self) -> &Repo {
        &self.repo
    }

    /// Returns the digest of a tag.
    pub fn digest_of(&self, tag: &str) -> String {
        self.repo.digest_of(tag).expect("a tag of the repository")
    }

    /// Returns all requests so far, each with the host that received it.
    pub fn requests(&self) -> Vec<(&'static str, Request)> {
        let mut requests = Vec::new();
        for (host, registry) in &self.hosts {
            for request in registry.requests() {
                requests.push((*host, request));
            }
        }
        requests
    }
}

impl Personality {
    /// Starts the hosts of this row.
    pub async fn start(&self, internet: &Internet, private: bool) -> RunningRegistry {
        let dialled = self.dialled.unwrap_or(self.host());
        let mut hosts = HashMap::new();
        for host in self.others().into_iter().chain([dialled]) {
            hosts.insert(host, internet.host(host).await);
        }
        let repo = self.redirects(&hosts, dialled);
        repo.index(Some("multi"), ["linux/amd64", "linux/arm64"]);
        repo.image("linux/amd64", Some("single"));
        match self.digest {
            DigestHeader::Right => {}
            DigestHeader::Missing => repo.header("docker-content-digest", None),
            DigestHeader::Blank => repo.header("docker-content-digest", Some("")),
        }
        if let Some(blobs) = self.blobs {
            repo.redirect_blobs_to(&hosts[blobs].cdn_of(&repo));
        }
        if let Some(storage) = self.storage {
            redirect_to_storage(&repo, storage, &hosts[storage.host]);
        }
        if let Some(auth) = self.auth(&hosts, private) {
            repo.require(auth);
        }
        RunningRegistry { hosts, repo }
    }

    /// Sets up the redirects. Returns the last repository, which has the images.
    fn redirects(&self, hosts: &HashMap<&'static str, Registry>, dialled: &'static str) -> Repo {
        let (_, name) = self
            .image
            .split_once('/')
            .expect("an image with a repository");
        let mut current_host = dialled;
        let mut repo = hosts[dialled].repo(name);
        for redirect in self.moves {
            let (host, name) = redirect.to.split_once('/').expect("a repository at a host");
            // A redirect within a host is relative.
            let base = if host == current_host {
                String::new()
            } else {
                format!("https://{host}")
            };
            let to = format!("{base}/v2/{name}");
            repo.fault(Some(redirected(redirect.status, to)));
            current_host = host;
            repo = hosts[host].repo(name);
        }
        repo
    }

    fn auth(&self, hosts: &HashMap<&'static str, Registry>, private: bool) -> Option<Auth> {
        let auth = match self.login {
            Login::Nothing => return None,
            Login::Password { challenge } => Auth::basic(USER, PASSWORD).challenges(&[challenge]),
            Login::Token {
                realm,
                service,
                challenges,
            } => {
                let mut auth = Auth::bearer()
                    .realm(realm)
                    .service(service)
                    .fields(self.fields)
                    .expires_in(self.expires_in);
                let own_host = self.host();
                if self
                    .moves
                    .iter()
                    .any(|redirect| redirect.to.starts_with(own_host))
                {
                    auth = auth.by_project();
                }
                if !challenges.is_empty() {
                    auth = auth.challenges(challenges);
                }
                let path = realm.splitn(4, '/').nth(3).unwrap_or_default();
                hosts[host_of(realm)].serve_tokens_at(&format!("/{path}"), &auth);
                if private {
                    auth = auth.credentials(USER, PASSWORD);
                }
                auth
            }
        };
        let auth = match self.refusal {
            Some((content_type, body)) => auth.refusal(content_type, body),
            None => auth,
        };
        Some(match self.post {
            Post::Accepted => auth.oauth(),
            Post::Refused(status) => with_post(auth, Fault::status(status)),
            Post::Anonymous => {
                let answer = serde_json::json!({"token": "anonymous", "access_token": "anonymous"});
                with_post(auth, Fault::reply(Reply::new(200).json(&answer)))
            }
        })
    }
}

/// Stores the manifests of a repository, and redirects requests for them.
fn redirect_to_storage(repo: &Repo, storage: Storage, registry: &Registry) {
    let mut urls: HashMap<String, String> = HashMap::new();
    for (reference, bytes, media_type) in repo.all_manifests() {
        let content_type = storage.content_type.unwrap_or(&media_type);
        urls.insert(reference, registry.store(bytes, content_type));
    }
    repo.fault(Some(Fault::custom(move |request| {
        let url = urls.get(request.reference.as_deref()?)?;
        if !storage.heads && request.method != "GET" {
            return None;
        }
        Some(Fault::redirect(storage.status, url).only_manifests())
    })));
}

/// Adds a fault for POST to the token endpoint.
fn with_post(auth: Auth, fault: Fault) -> Auth {
    auth.fault(Some(Fault::custom(move |request| {
        (request.method == "POST").then(|| fault.clone())
    })));
    auth
}

/// Returns a fault that redirects manifests and blobs to another repository.
fn redirected(status: u16, to: String) -> Fault {
    Fault::custom(move |request| {
        let kind = if request.kind == Kind::Manifest {
            "manifests"
        } else {
            "blobs"
        };
        let reference = request.reference.as_deref()?;
        Some(Fault::redirect(status, &format!("{to}/{kind}/{reference}")))
    })
}
