use super::*;

#[test]
fn redirects_stay_where_they_may() {
    let url = |text: &str| Url::parse(text).unwrap();
    for (from, to, leaves, expected) in [
        ("https://a.b/v2/x", "/v2/y", false, Some("https://a.b/v2/y")),
        ("https://a.b/v2/x", "https://a.b:443/y", false, Some("https://a.b/y")),
        ("https://a.b/v2/x", "https://a.b:5000/y", false, None),
        ("https://a.b/v2/x", "https://c.d/y", false, None),
        ("https://a.b/v2/x", "https://c.d/y", true, Some("https://c.d/y")),
        ("https://a.b/v2/x", "//c.d/y", true, Some("https://c.d/y")),
        ("https://a.b/v2/x", "http://a.b/y", true, None),
        ("https://a.b/v2/x", "http://c.d/y", true, None),
        ("http://a.b/v2/x", "http://c.d/y", true, Some("http://c.d/y")),
        ("http://a.b/v2/x", "https://c.d/y", true, Some("https://c.d/y")),
        ("https://a.b/v2/x", "https://u:p@c.d/y", true, None),
        ("https://a.b/v2/x", "https://u@a.b/y", false, None),
        ("https://a.b/v2/x", "file:///etc/passwd", true, None),
        ("https://a.b/v2/x", "data:,x", true, None),
        ("https://a.b/v2/x", "https://", true, None),
    ] {
        let found = redirect(&url(from), to, leaves);
        assert_eq!(found.as_ref().map(Url::as_str), expected, "{from} to {to}");
    }
}
