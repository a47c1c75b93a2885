//! Imitations of registries that cannot run in a test: a table of their behaviour, each row with its source, and hosts that
//! behave like a row.
//!
//! Hosts have their real names, so that what clients have built in for them applies. Products that people run themselves
//! are below `example.com`. `docs/registries.md` has the same for users, and a test compares the two.

mod running;
mod table;

pub use running::{PASSWORD, RunningRegistry, USER};
pub use table::PERSONALITIES;

/// The behaviour of a registry.
#[derive(Clone, Copy)]
pub struct Personality {
    /// Its usual name.
    pub name: &'static str,
    /// One of its repositories, as images name it.
    pub image: &'static str,
    /// What must be configured in tolerarch for the password of a Pod.
    pub needs: Needs,
    /// What must be configured in tolerarch for a password of the operator, which is for all namespaces.
    pub operator_needs: Needs,
    /// The source of this row: code, documentation or reports, as `repository#number` on github.com.
    pub source: &'static str,
    /// Whether it has public images.
    pub public: bool,
    /// Whether it has images that need a password.
    pub private: bool,
    /// The host to which clients connect, if images name another one.
    dialled: Option<&'static str>,
    /// Redirects, one after the other. The last repository has the images, and requires the login if there is one.
    moves: &'static [Move],
    /// The object storage of manifests, if they are not at the registry.
    storage: Option<Storage>,
    /// The host of blobs, if they are not at the registry.
    blobs: Option<&'static str>,
    login: Login,
    /// The answer to a POST for a token.
    post: Post,
    /// The fields of the answer that have the token.
    fields: &'static [&'static str],
    /// `expires_in` in the answer, in seconds.
    expires_in: Option<u64>,
    /// The header with the digest of a manifest.
    digest: DigestHeader,
    /// The content type and the body of a 401, if they differ from the specification.
    refusal: Option<(&'static str, &'static str)>,
}

/// What must be configured in tolerarch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// `tokenHosts` with this host.
    TokenHosts(&'static str),
    /// `caFile`: no public authority has signed its certificate.
    CaFile,
}

/// A redirect to a repository, `host/name`. Within a host it is relative.
#[derive(Clone, Copy)]
struct Move {
    status: u16,
    to: &'static str,
}

/// Object storage with the manifests. Its URLs are signed for GET.
#[derive(Clone, Copy)]
struct Storage {
    status: u16,
    host: &'static str,
    /// The content type there, instead of the manifests' media types.
    content_type: Option<&'static str>,
    /// Whether HEAD is redirected, too. It fails at the storage.
    heads: bool,
}

/// The login that a registry requires. In challenges, `{realm}`, `{service}` and `{scope}` are replaced by their values.
#[derive(Clone, Copy)]
enum Login {
    Nothing,
    Password {
        challenge: &'static str,
    },
    Token {
        realm: &'static str,
        service: &'static str,
        challenges: &'static [&'static str],
    },
}

/// The answer to a POST for a token.
#[derive(Clone, Copy)]
enum Post {
    /// A token.
    Accepted,
    /// This status; clients must use GET.
    Refused(u16),
    /// A token that gives no access.
    Anonymous,
}

#[derive(Clone, Copy)]
enum DigestHeader {
    Right,
    Missing,
    Blank,
}

impl Personality {
    /// Returns the row with this name.
    pub fn named(name: &str) -> &'static Self {
        PERSONALITIES
            .iter()
            .find(|personality| personality.name == name)
            .expect("a name of the table")
    }

    /// The host that images name.
    pub fn host(&self) -> &'static str {
        self.image.split('/').next().unwrap_or_default()
    }

    /// Returns the other hosts that clients must reach.
    pub fn others(&self) -> Vec<&'static str> {
        let mut all: Vec<&str> = self.dialled.into_iter().collect();
        for redirect in self.moves {
            all.push(redirect.to.split('/').next().unwrap_or_default());
        }
        if let Login::Token { realm, .. } = self.login {
            all.push(host_of(realm));
        }
        all.extend(self.storage.map(|storage| storage.host));
        all.extend(self.blobs);
        let mut others = Vec::new();
        for host in all {
            if host != self.host() && !others.contains(&host) {
                others.push(host);
            }
        }
        others
    }

    /// Returns the hosts to which a password may be sent.
    pub fn may_see_passwords(&self) -> Vec<&'static str> {
        let dialled = self.dialled.unwrap_or(self.host());
        match self.login {
            Login::Token { realm, .. } if self.private => vec![dialled, host_of(realm)],
            _ => vec![dialled],
        }
    }
}

/// Returns `host` or `host:port` of a URL, without the default port.
fn host_of(url: &'static str) -> &'static str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or_default();
    host.strip_suffix(":443").unwrap_or(host)
}
