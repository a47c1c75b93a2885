//! What must hold for every input, one function a fuzz target (`fuzz/targets`): each takes arbitrary bytes and panics when
//! its invariant is broken. The tests run the committed seeds through them, so that none of it rots between fuzzing runs.

#![allow(clippy::panic, reason = "a broken invariant has to end the run")]

use std::fmt::Debug;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::config::{Place, Sources};
use crate::image::ImageRef;
use crate::json::{self, Object};
use crate::pod::Pod;
use crate::review;
use crate::yaml::{self, Copies, Dialect};

/// What the fast reader reads, serde_json reads to the same value; so it is never asked twice.
pub fn json(data: &[u8]) {
    agrees::<IgnoredAny>(data);
    agrees::<Object<Pod<'_>>>(data);
    agrees::<review::Decoded<'_>>(data);
}

/// Asserts that, and says whether the fast reader read it at all.
pub(crate) fn agrees<'a, T: Deserialize<'a> + Debug>(json: &'a [u8]) -> bool {
    let Ok(read) = json::read::<T>(json) else { return false };
    let expected = serde_json::from_slice::<T>(json);
    let text = || String::from_utf8_lossy(json);
    let expected = expected.unwrap_or_else(|error| panic!("{error}: {}", text()));
    assert_eq!(format!("{read:?}"), format!("{expected:?}"), "{}", text());
    true
}

/// A reference's normal form is its own normal form, and every part of it can stand in a URL.
pub fn reference(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(image) = text.parse::<ImageRef>() else { return };
    let again: ImageRef = image.as_str().parse().unwrap_or_else(|error| panic!("{image}: {error}"));
    assert_eq!(again, image, "{text}");
    assert_eq!(
        (again.host(), again.repository(), again.target()),
        (image.host(), image.repository(), image.target())
    );
    let mark = if image.digest().is_some() { '@' } else { ':' };
    assert_eq!(format!("{}/{}{mark}{}", image.host(), image.repository(), image.target()), image.as_str());
    let path = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"./_-".contains(&b);
    assert!(image.repository().bytes().all(path) && !image.repository().contains(".."), "{image}");
    assert!(image.repository().split('/').all(|part| !part.is_empty() && part != "."), "{image}");
    let target = |b: u8| b.is_ascii_alphanumeric() || b"._-:".contains(&b);
    assert!(image.target().bytes().all(target) && !image.target().starts_with(['.', '-']), "{image}");
    let host = |b: u8| b.is_ascii_alphanumeric() || b".-:[]_".contains(&b);
    assert!(image.host().bytes().all(host), "{image}");
    if image.host().contains(['.', ':']) {
        assert!(!image.host().bytes().any(|b| b.is_ascii_uppercase()), "{image}");
    }
}

/// What was read of YAML, written as JSON, which is YAML too, is read as the same again.
pub fn yaml(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let read = |text: &str| yaml::read(text, Dialect::Kubernetes, &mut Copies::default());
    for node in read(text).unwrap_or_default() {
        let value = node.value();
        let json = value.to_string();
        match read(&json).as_deref() {
            Ok([again]) => assert_eq!(again.value(), value, "{json}"),
            other => panic!("{json}: {other:?}"),
        }
    }
}

/// What a valid configuration is printed as, is the same configuration.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Sources::default().read(text) {
        Ok(loaded) => {
            let printed = loaded.to_yaml();
            let again =
                Sources::default().read(&printed).unwrap_or_else(|faults| panic!("{faults:?}\n{printed}"));
            assert_eq!(again.config, loaded.config, "{printed}");
        }
        Err(faults) => {
            // A carriage return alone ends a line, too; what is missing at the end is missing on the line after it.
            let lines = text.matches(['\n', '\r']).count() + 2;
            for fault in faults {
                assert!(matches!(fault.place, Place::Line(line) if (1..=lines).contains(&line)), "{fault}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    fn files(directory: &Path) -> Vec<PathBuf> {
        let entries =
            std::fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    type Target = (&'static str, fn(&[u8]));

    #[test]
    fn every_seed_holds() {
        let targets: [Target; 4] = [
            ("json", super::json),
            ("reference", super::reference),
            ("yaml", super::yaml),
            ("config", super::config),
        ];
        let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
        assert_eq!(files(&fuzz.join("targets")).len(), targets.len());
        for (name, target) in targets {
            let seeds = files(&fuzz.join("seeds").join(name));
            assert!(!seeds.is_empty(), "{name}");
            for seed in seeds {
                target(&std::fs::read(seed).unwrap());
            }
        }
    }
}
