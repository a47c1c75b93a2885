//! Who may pull, and the token endpoint that says so.
//!
//! An [`Auth`] is both sides of the distribution token protocol, the challenge of the registry and the service at its
//! realm, because a test wants to bend either. Scopes are compared as text: a token is good for the repository that it
//! was issued for and for no other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::fault::Fault;
use crate::lock;
use crate::record::Request;
use crate::reply::Reply;

/// Bearer or Basic authentication. Clones are the same thing, so that a test can keep one and change it while the
/// registry uses it.
#[derive(Clone)]
pub struct Auth {
    state: Arc<Mutex<State>>,
}

struct State {
    basic: bool,
    realm: Option<String>,
    service: Option<String>,
    challenges: Option<Vec<String>>,
    refusal: Option<(String, String)>,
    /// Basic credentials, encoded.
    accounts: Vec<String>,
    identity: Option<String>,
    by_project: bool,
    anonymous: bool,
    oauth: bool,
    fields: Vec<String>,
    extra: Map<String, Value>,
    token: Option<String>,
    mint: Option<Mint>,
    padding: usize,
    lifetime: Option<Duration>,
    refuses: bool,
    fault: Option<Fault>,
    issued: usize,
    tokens: HashMap<String, Token>,
}

/// Makes the token for these scopes.
type Mint = Arc<dyn Fn(&[String]) -> String + Send + Sync>;

struct Token {
    scopes: Vec<String>,
    until: Option<Instant>,
}

impl Auth {
    /// Tokens for everybody, from `/token` of the registry that asks for them, in the field `token`, said to expire
    /// after 300 seconds, good until they are revoked.
    pub fn bearer() -> Self {
        let state = State {
            basic: false,
            realm: None,
            service: None,
            challenges: None,
            refusal: None,
            accounts: Vec::new(),
            identity: None,
            by_project: false,
            anonymous: true,
            oauth: false,
            fields: vec!["token".into()],
            extra: Map::from_iter([("expires_in".into(), 300.into())]),
            token: None,
            mint: None,
            padding: 0,
            lifetime: None,
            refuses: false,
            fault: None,
            issued: 0,
            tokens: HashMap::new(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// User and password with each request. [`Auth::credentials`] adds further ones.
    pub fn basic(user: &str, password: &str) -> Self {
        Self::bearer()
            .with(|state| state.basic = true)
            .credentials(user, password)
    }

    /// Gives tokens only to this user. Further calls add users. Wrong credentials are always refused.
    pub fn credentials(self, user: &str, password: &str) -> Self {
        self.with(|state| {
            state
                .accounts
                .push(STANDARD.encode(format!("{user}:{password}")));
            state.anonymous = false;
        })
    }

    /// A token for a repository is good for all that begin with the same word, as Harbor has it.
    pub fn by_project(self) -> Self {
        self.with(|state| state.by_project = true)
    }

    /// Gives tokens to those without credentials as well.
    pub fn or_anonymous(self) -> Self {
        self.with(|state| state.anonymous = true)
    }

    /// Serves POST, OAuth2 with `grant_type=password`, which is answered 405 otherwise.
    pub fn oauth(self) -> Self {
        self.with(|state| state.oauth = true)
    }

    /// Serves POST also with `grant_type=refresh_token` and this identity token.
    pub fn identity_token(self, token: &str) -> Self {
        self.oauth().with(|state| {
            state.identity = Some(token.to_owned());
            state.anonymous = false;
        })
    }

    /// The URL in the challenge, for instance [`Registry::serve_tokens`](crate::Registry::serve_tokens) of another
    /// registry, or a relative one.
    pub fn realm(self, url: &str) -> Self {
        self.with(|state| state.realm = Some(url.to_owned()))
    }

    /// The service in the challenge; the address of the registry by default.
    pub fn service(self, service: &str) -> Self {
        self.with(|state| state.service = Some(service.to_owned()))
    }

    /// The values of the WWW-Authenticate headers, one header each and none for an empty list. `{realm}`, `{service}`
    /// and `{scope}` stand for what would have been there.
    pub fn challenges(self, values: &[&str]) -> Self {
        self.with(|state| state.challenges = Some(values.iter().map(ToString::to_string).collect()))
    }

    /// The type and the body of its 401, instead of those of the specification.
    pub fn refusal(self, content_type: &str, body: &str) -> Self {
        self.with(|state| state.refusal = Some((content_type.to_owned(), body.to_owned())))
    }

    /// The names of the fields with the token: `token`, `access_token`, both or none.
    pub fn fields(self, names: &[&str]) -> Self {
        self.with(|state| state.fields = names.iter().map(ToString::to_string).collect())
    }

    /// What the token endpoint says about the expiry, in seconds. The token is good for its [`Auth::lifetime`].
    pub fn expires_in(self, seconds: Option<u64>) -> Self {
        self.with(|state| match seconds {
            Some(seconds) => _ = state.extra.insert("expires_in".into(), seconds.into()),
            None => _ = state.extra.remove("expires_in"),
        })
    }

    /// Another field in the answer of the token endpoint, in place of any of that name.
    pub fn extra(self, name: &str, value: impl Into<Value>) -> Self {
        self.with(|state| _ = state.extra.insert(name.to_owned(), value.into()))
    }

    /// How long the registry accepts a token.
    pub fn lifetime(self, lifetime: Duration) -> Self {
        self.with(|state| state.lifetime = Some(lifetime))
    }

    /// Whether the registry refuses all tokens and credentials, although the token endpoint goes on issuing tokens.
    pub fn refuse(self, refuse: bool) -> Self {
        self.with(|state| state.refuses = refuse)
    }

    /// The text of each token, instead of a random one. It may be nothing that fits into a header.
    pub fn token_text(self, text: &str) -> Self {
        self.with(|state| state.token = Some(text.to_owned()))
    }

    /// Makes the text of each token from its scopes, for a registry that verifies it by itself.
    pub fn mint(self, mint: impl Fn(&[String]) -> String + Send + Sync + 'static) -> Self {
        self.with(|state| state.mint = Some(Arc::new(mint)))
    }

    /// Makes tokens longer by this many bytes.
    pub fn padding(self, bytes: usize) -> Self {
        self.with(|state| state.padding = bytes)
    }

    /// Breaks the token endpoint, or heals it.
    pub fn fault(&self, fault: Option<Fault>) {
        lock(&self.state).fault = fault;
    }

    /// Makes all tokens that were issued so far invalid.
    pub fn revoke_all(&self) {
        lock(&self.state).tokens.clear();
    }

    /// How many tokens were issued so far.
    pub fn issued(&self) -> usize {
        lock(&self.state).issued
    }

    fn with(self, change: impl FnOnce(&mut State)) -> Self {
        change(&mut lock(&self.state));
        self
    }

    pub(crate) fn current_fault(&self) -> Option<Fault> {
        lock(&self.state).fault.clone()
    }

    pub(crate) fn admits(&self, request: &Request, repo: &str) -> bool {
        let state = lock(&self.state);
        let (scheme, value) = credentials(request);
        if state.refuses {
            return false;
        }
        if state.basic {
            return scheme == "basic" && state.accounts.iter().any(|account| account == value);
        }
        let project = |scope: &str| scope.split('/').next().map(str::to_owned);
        let wanted = scope(repo);
        let opens = |scope: &String| {
            *scope == wanted || state.by_project && project(scope) == project(&wanted)
        };
        let good = |token: &Token| {
            token.until.is_none_or(|until| Instant::now() < until) && token.scopes.iter().any(opens)
        };
        scheme == "bearer" && state.tokens.get(value).is_some_and(good)
    }

    pub(crate) fn challenge(&self, url: &str, repo: &str) -> Reply {
        let state = lock(&self.state);
        let address = url.split_once("://").map_or(url, |(_, address)| address);
        let realm = state
            .realm
            .clone()
            .unwrap_or_else(|| format!("{url}/token"));
        let service = state.service.as_deref().unwrap_or(address);
        let usual = match state.basic {
            true => r#"Basic realm="{service}""#,
            false => r#"Bearer realm="{realm}",service="{service}",scope="{scope}""#,
        };
        let challenges = state
            .challenges
            .clone()
            .unwrap_or_else(|| vec![usual.to_owned()]);
        let refusal = match &state.refusal {
            Some((content_type, body)) => Reply::new(401)
                .header("Content-Type", content_type)
                .body(body.clone()),
            None => Reply::error(401, "UNAUTHORIZED"),
        };
        challenges.iter().fold(refusal, |reply, value| {
            let value = value
                .replace("{realm}", &realm)
                .replace("{service}", service)
                .replace("{scope}", &scope(repo));
            reply.add_header("WWW-Authenticate", &value)
        })
    }

    /// The answer of the token endpoint.
    pub(crate) fn issue(&self, request: &Request) -> Reply {
        let mut state = lock(&self.state);
        let post = request.method == "POST";
        if post && !state.oauth || !post && request.method != "GET" {
            return Reply::error(405, "UNSUPPORTED");
        }
        if !state.welcomes(request) {
            return Reply::error(401, "UNAUTHORIZED");
        }
        let form = if post {
            &request.body
        } else {
            request.query.as_bytes()
        };
        let scopes: Vec<String> = form_urlencoded::parse(form)
            .filter(|(name, _)| name == "scope")
            .flat_map(|(_, value)| value.split(' ').map(str::to_owned).collect::<Vec<_>>())
            .collect();
        let text = match (&state.mint, &state.token) {
            (Some(mint), _) => mint(&scopes),
            (None, Some(text)) => text.clone(),
            (None, None) => random(),
        };
        let text = text + &"x".repeat(state.padding);
        let until = state.lifetime.map(|lifetime| Instant::now() + lifetime);
        let token = state.tokens.entry(text.clone()).or_insert(Token {
            scopes: Vec::new(),
            until,
        });
        token.until = until;
        token.scopes.extend(scopes);
        state.issued += 1;
        let mut answer = state.extra.clone();
        answer.extend(
            state
                .fields
                .iter()
                .map(|name| (name.clone(), text.clone().into())),
        );
        Reply::new(200).json(&answer.into())
    }
}

impl State {
    fn welcomes(&self, request: &Request) -> bool {
        if request.method == "POST" {
            let form = |key| request.form_value(key);
            return match form("grant_type").as_deref() {
                Some("password") => {
                    form("username")
                        .zip(form("password"))
                        .is_some_and(|(user, password)| {
                            self.accounts
                                .contains(&STANDARD.encode(format!("{user}:{password}")))
                        })
                }
                Some("refresh_token") => {
                    self.identity.is_some() && form("refresh_token") == self.identity
                }
                _ => false,
            };
        }
        match credentials(request) {
            ("", _) => self.anonymous,
            (scheme, value) => {
                scheme == "basic" && self.accounts.iter().any(|account| account == value)
            }
        }
    }
}

/// The scope that a pull from this repository needs.
fn scope(repo: &str) -> String {
    format!("repository:{repo}:pull")
}

/// Scheme and credentials of a request, empty if there are none.
fn credentials(request: &Request) -> (&'static str, &str) {
    let (scheme, value) = request
        .authorization
        .as_deref()
        .and_then(|it| it.split_once(' '))
        .unwrap_or_default();
    match scheme {
        "" if request.authorization.is_none() => ("", ""),
        _ if scheme.eq_ignore_ascii_case("basic") => ("basic", value),
        _ if scheme.eq_ignore_ascii_case("bearer") => ("bearer", value),
        _ => ("other", value),
    }
}

fn random() -> String {
    let mut bytes = [0; 16];
    rand::fill(&mut bytes).expect("random bytes");
    format!(
        "token-{}",
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    )
}
