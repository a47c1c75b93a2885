//! When a request is sent again, as by client-go (`rest/with_retry.go`): the API server says so, or a connection broke
//! before it answered.

use std::error::Error;
use std::io;
use std::iter::successors;
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{Method, Response, StatusCode};

use super::error::RequestError;

/// Number of times that a request is sent again.
pub(super) const TRIES: usize = 10;
/// Pause after a connection that broke.
const BROKEN: Duration = Duration::from_secs(1);

/// Returns the pause that a response asks for: 429, or a fault of the server, with whole seconds in `Retry-After`. An
/// eviction that a budget forbids has none, and is not tried again.
pub(super) fn pause_of<B>(answer: &Response<B>) -> Option<Duration> {
    let status = answer.status();
    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
        return None;
    }
    let seconds = answer.headers().get(RETRY_AFTER)?.to_str().ok()?;
    seconds.parse().ok().map(Duration::from_secs)
}

/// Returns the pause after an error, if the request changes nothing and its connection broke.
pub(super) fn pause_after(error: &RequestError, method: &Method) -> Option<Duration> {
    let RequestError::Unreachable(_, error) = error else {
        return None;
    };
    let mut causes = successors(Some(&**error as &(dyn Error + 'static)), |&error| {
        error.source()
    });
    (method == Method::GET && causes.any(is_broken)).then_some(BROKEN)
}

fn is_broken(error: &(dyn Error + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        return error.is_incomplete_message();
    }
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    matches!(
        kind,
        Some(io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof)
    )
}

#[cfg(test)]
mod tests;
