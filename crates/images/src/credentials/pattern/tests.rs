use super::*;

mod keyring;

fn means(pattern: &str, name: &str) -> bool {
    ImagePattern(pattern.into()).matches(name)
}

/// Examples of kubelet's documentation and of its `TestURLsMatch`; where both differ, those of the code.
#[test]
fn patterns_match_as_in_kubelet() {
    for (pattern, name, expected) in [
        ("*.registry.io", "prefix.registry.io", true),
        ("prefix.*.io", "prefix.registry.io", true),
        ("prefix.registry.*", "prefix.registry.io", true),
        ("*.*.*", "prefix.registry.io", true),
        ("p*.registry.io", "prefix.registry.io", true),
        (
            "*.dkr.ecr.*.amazonaws.com",
            "123456789012.dkr.ecr.eu-west-1.amazonaws.com/app",
            true,
        ),
        (
            "*.dkr.ecr.*.amazonaws.com.cn",
            "123456789012.dkr.ecr.eu-west-1.amazonaws.com/app",
            false,
        ),
        // No glob crosses a dot.
        ("*.io", "prefix.registry.io", false),
        ("*", "prefix.registry.io", false),
        ("prefix.*", "prefix.registry.io", false),
        ("*.registry.io", "registry.io", false),
        ("*.registry.io", "prefix.registry.com", false),
        // The same port, or none on both sides.
        ("registry.io:5000", "registry.io:5000/app", true),
        ("registry.io:5000", "registry.io:5001/app", false),
        ("registry.io:5000", "registry.io/app", false),
        // The documentation says that a port counts only if the pattern has one. The code compares always.
        ("registry.io", "registry.io:5000/app", false),
        (
            "*.registry.io:5000/path",
            "prefix.registry.io:5000/path/app",
            true,
        ),
        // No globs in ports.
        ("registry.io:5*", "registry.io:5000/app", false),
        // The documentation says "path". The code takes any prefix.
        ("quay.io/foo", "quay.io/foo", true),
        ("quay.io/foo", "quay.io/foo/bar", true),
        ("quay.io/foo", "quay.io/foobar", true),
        ("quay.io/foo/", "quay.io/foobar", false),
        ("quay.io/foo/bar", "quay.io/foo", false),
        ("quay.io/", "quay.io/foo", true),
        ("quay.io/foo", "quay.io", false),
        // No globs in paths.
        ("quay.io/f*", "quay.io/foo", false),
        ("quay.io/f*", "quay.io/f*", true),
        ("docker.io", "docker.io/library/nginx", true),
        ("index.docker.io", "docker.io/library/nginx", false),
        ("localhost", "localhost/x", true),
        ("localhost:*", "localhost:5000/x", false),
        ("[::1]:5000", "[::1]:5000/x", true),
        ("[::1]:5000", "[::1]:5001/x", false),
        ("registry", "registry/x", true),
        ("Registry.io", "registry.io/x", false),
    ] {
        assert_eq!(means(pattern, name), expected, "{pattern} {name}");
    }
}

/// Rows of the table of Go's path/filepath, for texts without slashes.
#[test]
fn globs_match_as_in_go() {
    for (glob, text, expected) in [
        ("abc", "abc", true),
        ("*", "abc", true),
        ("*", "", true),
        ("**", "abc", true),
        ("*c", "abc", true),
        ("a*", "a", true),
        ("a*", "abc", true),
        ("a*b*c*d*e*", "axbxcxdxe", true),
        ("a*b*c*d*e*", "axbxcxdxexxx", true),
        ("a*b*c*x", "abxbbxdbxebxczzx", true),
        ("a*b*c*x", "abxbbxdbxebxczzy", false),
        ("a*b", "a\u{263a}b", true),
        ("*x", "xxx", true),
        ("", "", true),
        ("", "x", false),
    ] {
        assert_eq!(matches(glob, text), expected, "{glob:?} {text:?}");
    }
}

#[test]
fn many_stars_match_quickly() {
    let glob = "*a".repeat(60) + "b";
    assert!(!matches(&glob, &"a".repeat(LABEL)) && !matches("*", &"a".repeat(LABEL + 1)));
}

#[test]
fn invalid_patterns_have_specific_errors() {
    for (text, fault) in [
        ("", PatternError::Host),
        ("/foo", PatternError::Host),
        (":5000", PatternError::Host),
        ("https://quay.io", PatternError::Scheme),
        ("quay.io/a b", PatternError::Character),
        ("quay.io/a?b", PatternError::Character),
        ("quay.i?", PatternError::Character),
        ("user@quay.io", PatternError::Character),
        ("quay[.io", PatternError::Class),
        ("[0-9]*.dkr.ecr.*.amazonaws.com", PatternError::Class),
        ("quay\\.io", PatternError::Class),
        ("[::1]", PatternError::Class),
    ] {
        assert_eq!(text.parse::<ImagePattern>(), Err(fault), "{text:?}");
    }
    for text in ["quay.io", "*.*.io", "a:5000/b", "[::1]:5000"] {
        assert_eq!(text.parse::<ImagePattern>().unwrap().as_str(), text);
    }
}
