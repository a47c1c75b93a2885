//! One HTTP request to a registry, and everything between it and the wire. Knows nothing of images and tokens.

mod authority;
mod connect;
mod guard;
mod meter;
mod no_connection;
mod proxy;
mod resolve;
mod self_signed;
mod transport;
mod trust;

pub(super) use authority::{authority, dialled, label, names, shown_host};
pub(super) use connect::Connector;
pub use guard::AddressGuard;
pub use no_connection::NoConnection;
pub use proxy::{Proxies, ProxyError};
pub(super) use resolve::NameResolver;
pub(super) use transport::{HttpRequest, HttpResponse, RequestError, Transport};
pub use trust::TrustError;
pub(super) use trust::{Tls, settings as tls_settings};
