//! Links to the next page of a list (RFC 8288). A registry may link to any host and path, so only the query of the link
//! is used; scheme, host and path stay those of the first page. Pure.

use http::HeaderMap;
use http::header::LINK;
use url::form_urlencoded;

/// Maximum bytes of a query. Some registries sign or encrypt the position in the list, which takes some hundred bytes.
const MAX_QUERY: usize = 4 << 10;

/// Reads the query of the next page, without `ns`, the parameter that names a repository's registry to a mirror. An
/// error is a link that cannot be followed.
pub(super) fn next_query(headers: &HeaderMap) -> Result<Option<String>, UnusableLink> {
    for value in headers.get_all(LINK) {
        let text = value.to_str().map_err(|_| UnusableLink)?;
        if let Some(target) = next_target(text) {
            return query(target).map(Some);
        }
    }
    Ok(None)
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnusableLink;

/// Finds the target of the relation `next` in a list of links.
fn next_target(links: &str) -> Option<&str> {
    let mut rest = links;
    while let Some((_, link)) = rest.split_once('<') {
        let (target, after) = link.split_once('>')?;
        let (mut parameters, others) = split_unquoted(after, ',');
        while !parameters.is_empty() {
            let (parameter, more) = split_unquoted(parameters, ';');
            if is_next(parameter) {
                return Some(target);
            }
            parameters = more;
        }
        rest = others;
    }
    None
}

/// Returns whether a parameter is `rel=next`, which may be one of several relations in quotes.
fn is_next(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else {
        return false;
    };
    let relations = value.trim().trim_matches('"');
    name.trim().eq_ignore_ascii_case("rel")
        && relations
            .split_ascii_whitespace()
            .any(|relation| relation.eq_ignore_ascii_case("next"))
}

fn query(target: &str) -> Result<String, UnusableLink> {
    let target = target.split('#').next().unwrap_or_default();
    let Some((_, query)) = target.split_once('?') else {
        return Err(UnusableLink);
    };
    if query.len() > MAX_QUERY {
        return Err(UnusableLink);
    }
    let mut parts: Vec<&str> = query.split('&').collect();
    parts.retain(|part| {
        let mut names = form_urlencoded::parse(part.as_bytes()).map(|(name, _)| name);
        !names.any(|name| name.eq_ignore_ascii_case("ns"))
    });
    Ok(parts.join("&"))
}

/// Splits at the first `at` outside of quotes.
fn split_unquoted(text: &str, at: char) -> (&str, &str) {
    let mut is_quoted = false;
    let mut is_escaped = false;
    for (index, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = is_quoted,
            '"' => is_quoted = !is_quoted,
            _ if c == at && !is_quoted => return (&text[..index], &text[index + c.len_utf8()..]),
            _ => {}
        }
    }
    (text, "")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(links: &[&str]) -> HeaderMap {
        let links = links
            .iter()
            .map(|link| (LINK, HeaderValue::from_str(link).unwrap()));
        links.collect()
    }

    fn read(links: &[&str]) -> Result<Option<String>, UnusableLink> {
        next_query(&headers(links))
    }

    #[test]
    fn reads_the_query_of_each_registrys_link() {
        for (links, expected) in [
            // distribution, Docker Hub
            (
                &["</v2/shop/web/tags/list?last=v1.9&n=1000>; rel=\"next\""][..],
                "last=v1.9&n=1000",
            ),
            // Quay
            (
                &[
                    "<https://quay.io/v2/coreos/etcd/tags/list?next_page=gAAA%3D%3D&n=50>; rel=\"next\"",
                ],
                "next_page=gAAA%3D%3D&n=50",
            ),
            (&["<?last=a,b;c&n=5#part>;REL=next"], "last=a,b;c&n=5"),
            (&["<?n=1>; rel=\"prev\", <?n=2>; rel=\"last next\""], "n=2"),
            (
                &[
                    "<?n=1>; rel=\"prev\"",
                    "<?n=2>; title=\"a, b; rel=x\" ; rel = \"Next\"",
                ],
                "n=2",
            ),
            (
                &["<?n=1>; title=\"\\\"; rel=next\", <?n=2>;rel=next"],
                "n=2",
            ),
            (&["</v2/x/tags/list?>; rel=next"], ""),
        ] {
            assert_eq!(read(links), Ok(Some(expected.to_owned())), "{links:?}");
        }
    }

    #[test]
    fn other_links_and_long_queries_are_not_followed() {
        for links in [
            &[][..],
            &[""],
            &["<?n=1>"],
            &["<?n=1>; rel=\"prev\""],
            &["<?n=1>; rel=nextpage"],
            &["<?n=1>; title=\"rel=next\""],
            &["?n=1; rel=next"],
            &["<?n=1; rel=next"],
            &["<?n=1>; norel=next, rel=next"],
        ] {
            assert_eq!(read(links), Ok(None), "{links:?}");
        }
        let long = format!("<?last={}>; rel=next", "a".repeat(MAX_QUERY));
        for link in ["</v2/x/tags/list>; rel=next", &long] {
            assert_eq!(read(&[link]), Err(UnusableLink), "{link}");
        }
    }

    #[test]
    fn parameter_ns_is_removed_from_links() {
        for (link, expected) in [
            ("<?ns=internal.test&last=a>; rel=next", "last=a"),
            ("<?last=a&n%73=internal.test&NS=b&ns>; rel=next", "last=a"),
            ("<?ns=internal.test>; rel=next", ""),
            ("<?nsx=1&last=ns>; rel=next", "nsx=1&last=ns"),
        ] {
            assert_eq!(read(&[link]), Ok(Some(expected.to_owned())), "{link}");
        }
    }
}
