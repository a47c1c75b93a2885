//! One HTTP request to a registry, down to the wire. Of images and tokens only the kinds of requests are known here.

mod allowance;
mod authority;
mod connect;
mod guard;
mod header;
mod key_exchange;
mod named;
mod no_connection;
mod proxy;
mod resolve;
mod transport;
mod trust;
mod tunnel;
mod verifier;

pub use allowance::Allowances;
pub(super) use authority::{authority, dialled, label, names, shown_host};
pub(super) use connect::Connector;
pub use guard::AddressGuard;
pub(super) use header::{basic, sensitive};
#[cfg(test)]
pub(crate) use key_exchange::provider;
pub(crate) use named::{NamedServers, PARTS, on_behalf_of};
pub use proxy::{Proxies, ProxyError};
pub(super) use resolve::NameResolver;
pub(super) use transport::{HttpRequest, HttpResponse, Transport};
pub use trust::TrustError;
pub(super) use trust::{Tls, TlsSettings};
