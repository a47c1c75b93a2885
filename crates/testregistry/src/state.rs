//! The content and the requests of a registry, shared by the test's handle and the server.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use crate::auth::Auth;
use crate::lock;
use crate::record::{Log, Request};
use crate::repo::Repo;

/// The query of URLs that object storage signs for GET.
pub(crate) const SIGNATURE: &str =
    "X-Amz-Expires=1200&X-Amz-SignedHeaders=host&X-Amz-Signature=0123456789abcdef";

pub(crate) struct State {
    pub(crate) address: SocketAddr,
    /// The address or the name by which clients reach it.
    pub(crate) host: String,
    pub(crate) url: String,
    pub(crate) log: Arc<Log>,
    pub(crate) connections: AtomicUsize,
    pub(crate) repos: Mutex<HashMap<String, Repo>>,
    pub(crate) cdn: Mutex<HashMap<String, Bytes>>,
    /// Bytes and their content type, by digest.
    pub(crate) stored: Mutex<HashMap<String, (Bytes, String)>>,
    pub(crate) token_service: Mutex<Option<Auth>>,
    pub(crate) token_paths: Mutex<Vec<String>>,
}

impl State {
    pub(crate) fn find_repo(&self, name: &str) -> Option<Repo> {
        lock(&self.repos).get(name).cloned()
    }

    pub(crate) fn find_cdn(&self, digest: &str) -> Option<Bytes> {
        lock(&self.cdn).get(digest).cloned()
    }

    pub(crate) fn find_stored(&self, digest: &str, query: &str) -> Option<(Bytes, String)> {
        if query != SIGNATURE {
            return None;
        }
        lock(&self.stored).get(digest).cloned()
    }

    pub(crate) fn serves_tokens_at(&self, path: &str) -> bool {
        lock(&self.token_paths).iter().any(|served| served == path)
    }

    /// Returns who answers a token request: the authentication of the repository in its scope, or the common token service.
    pub(crate) fn token_service(&self, request: &Request) -> Option<Auth> {
        let scope = request
            .query_value("scope")
            .or_else(|| request.form_value("scope"));
        let name = scope.as_deref().and_then(|scope| scope.split(':').nth(1));
        let of_repo = name.and_then(|name| self.find_repo(name)?.current_auth());
        of_repo.or_else(|| lock(&self.token_service).clone())
    }
}
