//! What must hold for every input, one function a fuzz target: each takes arbitrary bytes and panics when its invariant is
//! broken, and tells whether it was something that is read at all. The tests run the committed seeds through them, so that
//! none of it rots between fuzzing runs. Invariants that need the inside of a crate stand there, behind its feature `testing`.

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

/// A reference's normal form is its own normal form, and every part of it can stand in a URL.
pub fn reference(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let Ok(image) = text.parse::<ImageRef>() else {
        return false;
    };
    let again: ImageRef = image
        .as_str()
        .parse()
        .unwrap_or_else(|error| panic!("{image}: {error}"));
    assert_eq!(again, image, "{text}");
    assert_eq!(
        (again.host(), again.repository(), again.target()),
        (image.host(), image.repository(), image.target())
    );
    let mark = if image.digest().is_some() { '@' } else { ':' };
    assert_eq!(
        format!(
            "{}/{}{mark}{}",
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

/// What was read of YAML, written as JSON, which is YAML too, is read as the same again.
pub fn yaml(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let read = |text: &str| yaml::read(text, Dialect::Kubernetes);
    let nodes = read(text).unwrap_or_default();
    for node in &nodes {
        let value = node.value();
        let json = value.to_string();
        if json.contains(is_no_text_of_yaml) {
            continue;
        }
        match read(&json).as_deref() {
            Ok([again]) => assert_eq!(again.value(), value, "{json}"),
            other => panic!("{json}: {other:?}"),
        }
    }
    !nodes.is_empty()
}

/// Returns whether YAML refuses a character, or takes it for the end of a line, that JSON may have in a text.
fn is_no_text_of_yaml(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
        )
}

/// Returns the number of lines of a text, as libyaml counts them, and one more: what is missing at the end is missing on
/// the line after it.
fn lines(text: &str) -> usize {
    text.matches(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'])
        .count()
        + 2
}

/// What a valid configuration is printed as, is the same configuration.
pub fn config(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    match Sources::default().read(text) {
        Ok(loaded) => {
            let printed = loaded.to_yaml();
            let again = Sources::default()
                .read(&printed)
                .unwrap_or_else(|faults| panic!("{faults:?}\n{printed}"));
            assert_eq!(again.config, loaded.config, "{printed}");
            true
        }
        Err(faults) => {
            let lines = lines(text);
            for fault in faults {
                assert!(
                    matches!(fault.place, Location::Line(line) if (1..=lines).contains(&line)),
                    "{fault}"
                );
            }
            false
        }
    }
}

/// Every fault is on a line of the file, and the patch of every Pod in it is one that the API server applies.
pub fn check(data: &[u8]) -> bool {
    let lines = lines(&String::from_utf8_lossy(data));
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
