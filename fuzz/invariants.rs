//! Invariants that hold for every input, one function for each fuzz target.
//!
//! Each function takes arbitrary bytes, panics if the invariant is broken, and returns whether the input could be parsed. The
//! tests run the committed seeds through these functions, so that they stay valid between fuzzing runs. Invariants that need
//! private parts of a crate are in that crate, behind its feature `testing`.

#![allow(
    clippy::too_many_lines,
    clippy::cognitive_complexity,
    reason = "a test tells one story, however long"
)]
#![allow(clippy::panic, reason = "a broken invariant has to end the run")]
#![allow(
    unreachable_pub,
    reason = "public to the fuzz targets, and a module of the test over their seeds"
)]

use tolerarch::cli::check::documents;
use tolerarch::cli::check::workload::{Contents, Given, InputError, Place};
use tolerarch::config::{Location, Sources};
use tolerarch_core::decision::testing;
use tolerarch_core::image::ImageRef;
use tolerarch_text::yaml::{self, Dialect};

pub use tolerarch_core::decision::testing::review;
pub use tolerarch_core::review::testing::json;
pub use tolerarch_images::credentials::fuzzing::{docker, secret};
pub use tolerarch_images::registry::fuzzing::{challenge, hosts, manifest};

/// The normal form of a reference does not change when it is parsed again, and each part of it is valid in a URL.
pub fn reference(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let Ok(image) = text.parse::<ImageRef>() else {
        return false;
    };
    let reparsed: ImageRef = image
        .as_str()
        .parse()
        .unwrap_or_else(|error| panic!("{image}: {error}"));
    assert_eq!(reparsed, image, "{text}");
    assert_eq!(
        (reparsed.host(), reparsed.repository(), reparsed.target()),
        (image.host(), image.repository(), image.target())
    );
    let separator = if image.digest().is_some() { '@' } else { ':' };
    assert_eq!(
        format!(
            "{}/{}{separator}{}",
            image.host(),
            image.repository(),
            image.target()
        ),
        image.as_str()
    );
    let path = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"./_-".contains(&b);
    assert!(
        image.repository().bytes().all(path) && !image.repository().contains(".."),
        "{image}"
    );
    assert!(
        image
            .repository()
            .split('/')
            .all(|part| !part.is_empty() && part != "."),
        "{image}"
    );
    let target = |b: u8| b.is_ascii_alphanumeric() || b"._-:".contains(&b);
    assert!(
        image.target().bytes().all(target) && !image.target().starts_with(['.', '-']),
        "{image}"
    );
    let host = |b: u8| b.is_ascii_alphanumeric() || b".-:[]_".contains(&b);
    assert!(image.host().bytes().all(host), "{image}");
    if image.host().contains(['.', ':']) {
        assert!(
            !image.host().bytes().any(|b| b.is_ascii_uppercase()),
            "{image}"
        );
    }
    true
}

/// A YAML document that is written as JSON, which is YAML as well, is parsed to the same value.
pub fn yaml(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let read = |text: &str| yaml::read(text, Dialect::Kubernetes);
    let nodes = read(text).unwrap_or_default();
    for node in &nodes {
        let value = node.value();
        let json = value.to_string();
        if json.contains(yaml_differs_from_json) {
            continue;
        }
        match read(&json).as_deref() {
            Ok([reparsed]) => assert_eq!(reparsed.value(), value, "{json}"),
            other => panic!("{json}: {other:?}"),
        }
    }
    !nodes.is_empty()
}

/// Returns whether YAML refuses a character that JSON strings may have, or reads it as the end of a line.
fn yaml_differs_from_json(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
        )
}

/// Returns the maximum line of an error: one more than the number of lines as libyaml counts them. An error about something
/// missing at the end is on the line after the text.
fn max_line(text: &str) -> usize {
    text.matches(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'])
        .count()
        + 2
}

/// A valid configuration that is printed as YAML is parsed to the same configuration.
pub fn config(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    match Sources::default().read(text) {
        Ok(loaded) => {
            let printed = loaded.to_yaml();
            let reparsed = Sources::default()
                .read(&printed)
                .unwrap_or_else(|errors| panic!("{errors:?}\n{printed}"));
            assert_eq!(reparsed.config, loaded.config, "{printed}");
            true
        }
        Err(errors) => {
            let max_line = max_line(text);
            for error in errors {
                assert!(
                    matches!(error.location, Location::Line(line) if (1..=max_line).contains(&line)),
                    "{error}"
                );
            }
            false
        }
    }
}

/// Every error has a line of the file, and the API server can apply the patch of every Pod in the file.
pub fn check(data: &[u8]) -> bool {
    let lines = max_line(&String::from_utf8_lossy(data));
    let policy = testing::policy();
    let mut objects = 0;
    for document in documents::read(data) {
        let line = document
            .as_ref()
            .map_or_else(|fault| fault.line, |node| node.line);
        assert!((1..=lines).contains(&line), "line {line} of {lines}");
        let Ok(node) = document else { continue };
        let mut contents = Contents::default();
        contents.add(&node, &Place::default(), None, &[]);
        for object in contents.objects {
            match object {
                Err(InputError { line, message, .. }) => {
                    assert!(
                        (1..=lines).contains(&line),
                        "line {line} of {lines}: {message}"
                    );
                }
                Ok(object) => {
                    objects += 1;
                    let line = object.place.line;
                    assert!((1..=lines).contains(&line), "line {line} of {lines}");
                    if !matches!(object.given, Given::Review) {
                        testing::holds(&policy, &object.value);
                    }
                }
            }
        }
    }
    objects > 0
}
