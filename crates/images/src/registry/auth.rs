//! Authorises requests with a token or with a password. Tokens follow distribution's token specification and its OAuth2
//! form.

mod challenge;
mod exchange;
#[cfg(any(test, feature = "testing"))]
pub(super) mod fuzzing;
mod owner;
mod realm;
mod token;

pub(super) use exchange::TokenRequest;
pub(super) use realm::may_redirect;
pub(super) use token::Tokens;
