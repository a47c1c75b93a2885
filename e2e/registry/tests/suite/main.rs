//! The registry as its clients see it: each thing that it can do, once, over real connections.

mod auth;
mod client;
mod content;
mod faults;
mod pki;
