//! Namespaces, with the fields that selectors use.

use serde::Deserialize;

use super::metadata::Metadata;
use super::watch::Followed;

#[derive(Clone, Debug, Deserialize)]
pub struct Namespace {
    pub metadata: Metadata,
}

impl Followed for Namespace {
    const LIST: &'static str = "/api/v1/namespaces";

    fn key(&self) -> String {
        self.metadata.key()
    }
}
