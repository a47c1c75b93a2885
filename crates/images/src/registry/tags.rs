//! Lists the tags of a repository page by page. All pages come from the endpoint that served the first one.

use std::collections::BTreeSet;

use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::Registry;
use super::client::{Answered, Pull};
use super::error::Error;
use super::link::{UnusableLink, next_query};
use super::metrics::RequestKind;
use super::response::HttpResponse;
use tolerarch_core::image::is_tag;
use tolerarch_text::json::{First, Object};

/// Query of the first page. Most registries that bound `n` send shorter pages, or refuse a larger `n` than this.
const FIRST_QUERY: &str = "n=1000";
/// Maximum number of pages. Quay sends a hundred tags a page, whatever `n` is.
const MAX_PAGES: usize = 50;
/// Maximum number of tags, and of their bytes: more than large public repositories have (Calico's has 8,000).
const MAX_TAGS: usize = 20_000;
const MAX_BYTES: usize = 1 << 20;

/// Tags that a registry lists for a repository. A listed tag need not exist.
#[derive(Debug, Default)]
pub struct TagList {
    pub tags: BTreeSet<Box<str>>,
    /// False if the registry may have more tags.
    pub is_complete: bool,
    /// Failure of a page after the first one.
    pub failure: Option<Error>,
    /// Bytes of the tags.
    bytes: usize,
}

struct Page {
    tags: Vec<String>,
    /// Query of the next page.
    next: Result<Option<String>, UnusableLink>,
}

#[derive(Deserialize)]
struct Document {
    /// Null in an empty repository.
    tags: Option<First<String, MAX_TAGS>>,
}

impl Registry {
    /// Lists the tags of an image's repository. The list is incomplete if the deadline, a bound or a failure cuts it
    /// off. A failure of the first page is an error.
    pub(crate) async fn tags(&self, pull: Pull<'_>, deadline: Instant) -> Result<TagList, Error> {
        let first = timeout_at(deadline, self.first_page(pull)).await;
        let Answered {
            endpoint,
            answer: mut page,
        } = first.unwrap_or(Err(Error::Timeout)).map_err(of_list)?;
        let mut list = TagList::default();
        for pages_left in (0..MAX_PAGES).rev() {
            let tags_before = list.tags.len();
            let Page { tags, next } = page;
            let is_whole = list.add(tags);
            let query = match next {
                Ok(Some(query)) => query,
                Ok(None) => {
                    list.is_complete = is_whole;
                    break;
                }
                Err(UnusableLink) => break,
            };
            // A page without a new tag was listed before: the links lead in a circle.
            let is_repeated = list.tags.len() == tags_before;
            if pages_left == 0 || !is_whole || is_repeated {
                break;
            }
            let next = self.request_from(&endpoint, pull, RequestKind::Tags, &query, &read_page);
            let next = timeout_at(deadline, next).await;
            match next.unwrap_or(Err(Error::Timeout)) {
                Ok(next_page) => page = next_page,
                Err(error) => {
                    list.failure = Some(of_list(error));
                    break;
                }
            }
        }
        Ok(list)
    }

    /// Requests the first page, and once more without `n` if that is refused. Older distributions with `tags.maxtags`
    /// refuse it.
    async fn first_page(&self, pull: Pull<'_>) -> Result<Answered<Page>, Error> {
        let kind = RequestKind::Tags;
        match self.request(pull, kind, FIRST_QUERY, read_page).await {
            Err(error) if matches!(error.cause(), Error::Unexpected(_)) => {
                self.request(pull, kind, "", read_page).await
            }
            page => page,
        }
    }
}

impl TagList {
    /// Adds the well-formed tags of a page. Returns false if a bound keeps some of them out.
    fn add(&mut self, tags: Vec<String>) -> bool {
        // The page is parsed up to one tag more than the bound, which shows that there are more.
        let is_whole = tags.len() <= MAX_TAGS;
        for tag in tags {
            if !is_tag(&tag) || self.tags.contains(&*tag) {
                continue;
            }
            self.bytes += tag.len();
            if self.tags.len() == MAX_TAGS || self.bytes > MAX_BYTES {
                return false;
            }
            self.tags.insert(tag.into());
        }
        is_whole
    }
}

fn read_page(response: &HttpResponse) -> Result<Page, Error> {
    let document = serde_json::from_slice(&response.body.bytes);
    let Object(Document { tags }) = document
        .map_err(|_| Error::Unexpected("the registry's list of tags is not JSON".into()))?;
    let First(tags) = tags.unwrap_or(First(Vec::new()));
    Ok(Page {
        tags,
        next: next_query(&response.headers),
    })
}

/// Rewords an error about a manifest, because a list of tags is none.
fn of_list(error: Error) -> Error {
    match error {
        Error::BadManifest(error) => {
            Error::Unexpected(format!("the registry's list of tags: {error}"))
        }
        error => error,
    }
}
