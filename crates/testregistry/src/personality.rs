//! How registries behave that cannot be run in a test: one table, each row with its source, and the stage on which a row
//! is played by the registries of this crate.
//!
//! Hosts have their real names, so that a client finds what it knows about them; those of products that people run
//! themselves are below `example.com`. `docs/registries.md` says the same to users, and a test compares the two.

mod stage;
mod table;

pub use stage::{PASSWORD, Staged, USER};
pub use table::PERSONALITIES;

/// How one registry behaves.
#[derive(Clone, Copy)]
pub struct Personality {
    /// As people call it.
    pub name: &'static str,
    /// A repository of it, as images name it.
    pub image: &'static str,
    /// What tolerarch has to be told, beside the password of a Pod.
    pub needs: Needs,
    /// The same for a password of the operator, which is for all namespaces.
    pub operator_needs: Needs,
    /// Who says that it behaves like this: code, documentation or reports, `repository#number` on github.com.
    pub source: &'static str,
    /// Whether there are images for everybody.
    pub public: bool,
    /// Whether there are images for those with a password.
    pub private: bool,
    /// The host that is dialled, where it is not the one that images name.
    dialled: Option<&'static str>,
    /// Where requests are sent, hop by hop; the last one has the images, and asks for a login if anybody does.
    moves: &'static [Move],
    /// Where manifests lie, if not at the registry.
    storage: Option<Storage>,
    /// The host of blobs, if they are not at the registry.
    blobs: Option<&'static str>,
    login: Login,
    /// What becomes of those who ask for a token by POST.
    post: Post,
    /// In which fields of the answer a token is.
    fields: &'static [&'static str],
    /// How long a token is said to live.
    expires_in: Option<u64>,
    /// The header with the digest of a manifest.
    digest: DigestHeader,
    /// The type and the body of a 401, where they are not those of the specification.
    refusal: Option<(&'static str, &'static str)>,
}

/// What tolerarch has to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// `tokenHosts` with this host.
    TokenHosts(&'static str),
    /// `caFile`: its certificate is not of a public authority.
    CaFile,
}

/// A redirect to a repository, `host/name`. Within a host it is relative.
#[derive(Clone, Copy)]
struct Move {
    status: u16,
    to: &'static str,
}

/// Manifests lie in object storage, with URLs that are signed for GET.
#[derive(Clone, Copy)]
struct Storage {
    status: u16,
    host: &'static str,
    /// The type that they have there, instead of their own.
    content_type: Option<&'static str>,
    /// Whether HEAD is redirected, too, where it can only fail.
    heads: bool,
}

/// What a registry asks for. In challenges, `{realm}`, `{service}` and `{scope}` stand for what belongs there.
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

#[derive(Clone, Copy)]
enum Post {
    /// They get one.
    Welcome,
    /// They get this status, and have to ask by GET.
    Refused(u16),
    /// They get one that is good for nothing.
    Anonymous,
}

#[derive(Clone, Copy)]
enum DigestHeader {
    Right,
    Missing,
    Blank,
}

impl Personality {
    /// The one of this name.
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

    /// Other hosts that have to be reached: where it sends its clients.
    pub fn others(&self) -> Vec<&'static str> {
        let realm = match self.login {
            Login::Token { realm, .. } => Some(host_of(realm)),
            _ => None,
        };
        let moved = self
            .moves
            .iter()
            .map(|hop| hop.to.split('/').next().unwrap_or_default());
        let all = moved
            .chain(realm)
            .chain(self.storage.map(|storage| storage.host))
            .chain(self.blobs);
        let mut others: Vec<&str> = self.dialled.into_iter().chain(all).collect();
        others.retain(|host| *host != self.host());
        let mut seen = Vec::new();
        others.retain(|host| {
            !seen.contains(host) && {
                seen.push(*host);
                true
            }
        });
        others
    }

    /// The hosts to which a password may go.
    pub fn may_see_passwords(&self) -> Vec<&'static str> {
        let dialled = self.dialled.unwrap_or(self.host());
        match self.login {
            Login::Token { realm, .. } if self.private => vec![dialled, host_of(realm)],
            _ => vec![dialled],
        }
    }
}

/// `host` or `host:port` of a URL, without the usual port.
fn host_of(url: &'static str) -> &'static str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or_default();
    host.strip_suffix(":443").unwrap_or(host)
}
