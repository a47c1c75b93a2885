//! Sends one HTTP request to a registry, down to the wire. The only thing here that concerns images or tokens is the
//! kind of a request.

mod allowance;
mod authority;
mod connect;
mod guard;
mod key_exchange;
mod named;
mod no_connection;
mod resolve;
mod spare;
mod stream;
mod transport;
mod trust;
mod tunnel;
mod verifier;

pub use allowance::Allowances;
pub(super) use authority::{authority, dialled, label, names, shown_host};
pub(super) use connect::Connector;
pub use guard::AddressGuard;
pub use key_exchange::install_key_exchange;
#[cfg(any(test, feature = "testing"))]
pub(crate) use key_exchange::provider;
pub(crate) use named::{NamedServers, PARTS, on_behalf_of};
pub(super) use resolve::NameResolver;
pub(super) use spare::Spare;
pub(super) use tolerarch_support::header::{basic, sensitive};
pub use tolerarch_support::proxy::{Proxies, ProxyError};
pub(super) use transport::{HttpRequest, Server, Transport};
pub use trust::TrustError;
pub(super) use trust::{Authorities, Tls, TlsSettings};
