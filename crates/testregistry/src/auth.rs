//! Authentication: the challenge of a registry, and the token endpoint.
//!
//! An [`Auth`] is both sides of the distribution token protocol, the challenge of the registry and the service at its
//! realm, because tests change either. Scopes are compared as text: a token is valid only for the repository that it was
//! issued for.

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

/// Bearer or Basic authentication. Clones share their state, so a test can change it while the registry uses it.
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
    /// Issues tokens to everybody, at `/token` of the registry, in the field `token`. Their `expires_in` is 300 seconds,
    /// but they are valid until they are revoked.
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

    /// Requires user and password with each request. [`Auth::credentials`] adds users.
    pub fn basic(user: &str, password: &str) -> Self {
        Self::bearer()
            .with(|state| state.basic = true)
            .credentials(user, password)
    }

    /// Issues tokens only to this user. More calls add users. Wrong credentials are always refused.
    pub fn credentials(self, user: &str, password: &str) -> Self {
        self.with(|state| {
            state
                .accounts
                .push(STANDARD.encode(format!("{user}:{password}")));
            state.anonymous = false;
        })
    }

    /// Makes a token valid for all repositories with the same first path element, as in Harbor.
    pub fn by_project(self) -> Self {
        self.with(|state| state.by_project = true)
    }

    /// Also issues tokens without credentials.
    pub fn or_anonymous(self) -> Self {
        self.with(|state| state.anonymous = true)
    }

    /// Accepts POST, OAuth2 with `grant_type=password`. Otherwise POST is answered with 405.
    pub fn oauth(self) -> Self {
        self.with(|state| state.oauth = true)
    }

    /// Also accepts POST with `grant_type=refresh_token` and this identity token.
    pub fn identity_token(self, token: &str) -> Self {
        self.oauth().with(|state| {
            state.identity = Some(token.to_owned());
            state.anonymous = false;
        })
    }

    /// Sets the URL in the challenge, for instance the one of [`Registry::serve_tokens`](crate::Registry::serve_tokens) of
    /// another registry. It may be relative.
    pub fn realm(self, url: &str) -> Self {
        self.with(|state| state.realm = Some(url.to_owned()))
    }

    /// Sets the service in the challenge. By default it is the address of the registry.
    pub fn service(self, service: &str) -> Self {
        self.with(|state| state.service = Some(service.to_owned()))
    }

    /// Sets the values of the WWW-Authenticate headers, one header for each value. `{realm}`, `{service}` and `{scope}` are
    /// replaced by the usual values.
    pub fn challenges(self, values: &[&str]) -> Self {
        self.with(|state| state.challenges = Some(values.iter().map(ToString::to_string).collect()))
    }

    /// Sets the content type and the body of the 401 answer, instead of those of the specification.
    pub fn refusal(self, content_type: &str, body: &str) -> Self {
        self.with(|state| state.refusal = Some((content_type.to_owned(), body.to_owned())))
    }

    /// Sets the names of the fields with the token: `token`, `access_token`, both or none.
    pub fn fields(self, names: &[&str]) -> Self {
        self.with(|state| state.fields = names.iter().map(ToString::to_string).collect())
    }

    /// Sets `expires_in` in the answer of the token endpoint. The token is valid for its [`Auth::lifetime`].
    pub fn expires_in(self, seconds: Option<u64>) -> Self {
        self.with(|state| match seconds {
            Some(seconds) => _ = state.extra.insert("expires_in".into(), seconds.into()),
            None => _ = state.extra.remove("expires_in"),
        })
    }

    /// Sets another field in the answer of the token endpoint.
    pub fn extra(self, name: &str, value: impl Into<Value>) -> Self {
        self.with(|state| _ = state.extra.insert(name.to_owned(), value.into()))
    }

    /// Sets how long the registry accepts a token.
    pub fn lifetime(self, lifetime: Duration) -> Self {
        self.with(|state| state.lifetime = Some(lifetime))
    }

    /// Makes the registry refuse all tokens and credentials, while the token endpoint still issues tokens.
    pub fn refuse(self, refuse: bool) -> Self {
        self.with(|state| state.refuses = refuse)
    }

    /// Sets the text of each token, instead of a random one. It need not be valid in a header.
    pub fn token_text(self, text: &str) -> Self {
        self.with(|state| state.token = Some(text.to_owned()))
    }

    /// Sets how the text of each token is made from its scopes, for a registry that verifies tokens itself.
    pub fn mint(self, mint: impl Fn(&[String]) -> String + Send + Sync + 'static) -> Self {
        self.with(|state| state.mint = Some(Arc::new(mint)))
    }

    /// Makes each token longer by this many bytes.
    pub fn padding(self, bytes: usize) -> Self {
        self.with(|state| state.padding = bytes)
    }

    /// Sets or removes the fault of the token endpoint.
    pub fn fault(&self, fault: Option<Fault>) {
        lock(&self.state).fault = fault;
    }

    /// Revokes all tokens that were issued so far.
    pub fn revoke_all(&self) {
        lock(&self.state).tokens.clear();
    }

    /// Returns how many tokens were issued so far.
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
        if scheme != "bearer" {
            return false;
        }
        let Some(token) = state.tokens.get(value) else {
            return false;
        };
        if token.until.is_some_and(|until| Instant::now() >= until) {
            return false;
        }
        let project = |scope: &str| scope.split('/').next().map(str::to_owned);
        let required = scope(repo);
        let is_sufficient = |scope: &String| {
            *scope == required || state.by_project && project(scope) == project(&required)
        };
        token.scopes.iter().any(is_sufficient)
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
        let mut refusal = match &state.refusal {
            Some((content_type, body)) => Reply::new(401)
                .header("Content-Type", content_type)
                .body(body.clone()),
            None => Reply::error(401, "UNAUTHORIZED"),
        };
        for challenge in challenges {
            let value = challenge
                .replace("{realm}", &realm)
                .replace("{service}", service)
                .replace("{scope}", &scope(repo));
            refusal = refusal.add_header("WWW-Authenticate", &value);
        }
        refusal
    }

    /// Returns the answer of the token endpoint.
    pub(crate) fn issue(&self, request: &Request) -> Reply {
        let mut state = lock(&self.state);
        let is_post = request.method == "POST";
        let is_supported = if is_post {
            state.oauth
        } else {
            request.method == "GET"
        };
        if !is_supported {
            return Reply::error(405, "UNSUPPORTED");
        }
        if !state.accepts_credentials_of(request) {
            return Reply::error(401, "UNAUTHORIZED");
        }
        let form = if is_post {
            &request.body
        } else {
            request.query.as_bytes()
        };
        let mut scopes: Vec<String> = Vec::new();
        for (name, value) in form_urlencoded::parse(form) {
            if name == "scope" {
                scopes.extend(value.split(' ').map(str::to_owned));
            }
        }
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
        for field in &state.fields {
            answer.insert(field.clone(), text.clone().into());
        }
        Reply::new(200).json(&answer.into())
    }
}

impl State {
    /// Whether a token request has valid credentials, or needs none.
    fn accepts_credentials_of(&self, request: &Request) -> bool {
        if request.method == "POST" {
            let form = |key| request.form_value(key);
            return match form("grant_type").as_deref() {
                Some("password") => match (form("username"), form("password")) {
                    (Some(user), Some(password)) => {
                        let account = STANDARD.encode(format!("{user}:{password}"));
                        self.accounts.contains(&account)
                    }
                    _ => false,
                },
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

/// Returns the scope that a pull from a repository needs.
fn scope(repo: &str) -> String {
    format!("repository:{repo}:pull")
}

/// Returns scheme and credentials of a request, empty if there are none.
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
    let mut text = "token-".to_owned();
    for byte in bytes {
        text += &format!("{byte:02x}");
    }
    text
}
