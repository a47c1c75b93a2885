//! A personality, played: its hosts on an [`Internet`], each with the images that it has.

use std::collections::HashMap;

use super::{DigestHeader, Login, Personality, Post, host_of};
use crate::auth::Auth;
use crate::fault::Fault;
use crate::internet::Internet;
use crate::record::{Kind, Request};
use crate::registry::Registry;
use crate::reply::Reply;
use crate::repo::Repo;

/// Who may pull what is private.
pub const USER: &str = "user";
/// Their password.
pub const PASSWORD: &str = "the-password";

/// The hosts of a personality, which has `multi`, an image for linux/amd64 and linux/arm64, and `single` for linux/amd64.
pub struct Staged {
    hosts: HashMap<&'static str, Registry>,
    repo: Repo,
}

impl Staged {
    /// Where its images are, for further ones.
    pub fn repo(&self) -> &Repo {
        &self.repo
    }

    /// The digest of a tag.
    pub fn digest_of(&self, tag: &str) -> String {
        self.repo.digest_of(tag).expect("a tag of the stage")
    }

    /// All requests so far, with the host that got them.
    pub fn requests(&self) -> Vec<(&'static str, Request)> {
        let of = |(host, registry): (&&'static str, &Registry)| {
            registry
                .requests()
                .into_iter()
                .map(|request| (*host, request))
                .collect::<Vec<_>>()
        };
        self.hosts.iter().flat_map(of).collect()
    }
}

impl Personality {
    /// Its hosts, for as long as the stage is kept.
    pub async fn stage(&self, internet: &Internet, private: bool) -> Staged {
        let dialled = self.dialled.unwrap_or(self.host());
        let mut hosts = HashMap::new();
        for host in self.others().into_iter().chain([dialled]) {
            hosts.insert(host, internet.host(host).await);
        }
        let name = self
            .image
            .split_once('/')
            .map(|(_, name)| name)
            .expect("an image with a repository");
        let mut at = dialled;
        let mut repo = hosts[dialled].repo(name);
        for hop in self.moves {
            let (host, name) = hop.to.split_once('/').expect("a repository at a host");
            // Within a host as relative as it comes.
            let base = if host == at {
                String::new()
            } else {
                format!("https://{host}")
            };
            repo.fault(Some(moved(hop.status, format!("{base}/v2/{name}"))));
            at = host;
            repo = hosts[host].repo(name);
        }
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
            let stored = |(reference, bytes, own): (String, _, String)| {
                let content_type = storage.content_type.unwrap_or(&own);
                (reference, hosts[storage.host].store(bytes, content_type))
            };
            let urls: HashMap<String, String> =
                repo.all_manifests().into_iter().map(stored).collect();
            repo.fault(Some(Fault::custom(move |request| {
                let url = urls.get(request.reference.as_deref()?)?;
                let redirected = storage.heads || request.method == "GET";
                redirected.then(|| Fault::redirect(storage.status, url).only_manifests())
            })));
        }
        if let Some(auth) = self.auth(&hosts, private) {
            repo.require(auth);
        }
        Staged { hosts, repo }
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
                let auth = Auth::bearer()
                    .realm(realm)
                    .service(service)
                    .fields(self.fields);
                let auth = auth.expires_in(self.expires_in);
                let moved_within = self.moves.iter().any(|hop| hop.to.starts_with(self.host()));
                let auth = if moved_within {
                    auth.by_project()
                } else {
                    auth
                };
                let auth = if challenges.is_empty() {
                    auth
                } else {
                    auth.challenges(challenges)
                };
                let path = realm.splitn(4, '/').nth(3).unwrap_or_default();
                hosts[host_of(realm)].serve_tokens_at(&format!("/{path}"), &auth);
                if private {
                    auth.credentials(USER, PASSWORD)
                } else {
                    auth
                }
            }
        };
        let auth = match self.refusal {
            Some((content_type, body)) => auth.refusal(content_type, body),
            None => auth,
        };
        Some(match self.post {
            Post::Welcome => auth.oauth(),
            Post::Refused(status) => with_post(auth, Fault::status(status)),
            Post::Anonymous => {
                let answer = serde_json::json!({"token": "anonymous", "access_token": "anonymous"});
                with_post(auth, Fault::reply(Reply::new(200).json(&answer)))
            }
        })
    }
}

fn with_post(auth: Auth, fault: Fault) -> Auth {
    auth.fault(Some(Fault::custom(move |request| {
        (request.method == "POST").then(|| fault.clone())
    })));
    auth
}

/// Redirects manifests and blobs to another repository.
fn moved(status: u16, to: String) -> Fault {
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
