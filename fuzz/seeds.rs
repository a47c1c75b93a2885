//! The committed seeds fulfil the invariants of fuzzing.

#![allow(
    clippy::too_many_lines,
    clippy::cognitive_complexity,
    reason = "a test tells one story, however long"
)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod invariants;

use std::path::{Path, PathBuf};

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    entries.map(|entry| entry.unwrap().path()).collect()
}

type Target = (&'static str, fn(&[u8]) -> bool);

#[test]
fn every_seed_fulfils_its_invariant() {
    let targets: [Target; 11] = [
        ("challenge", invariants::challenge),
        ("check", invariants::check),
        ("config", invariants::config),
        ("docker", invariants::docker),
        ("hosts", invariants::hosts),
        ("json", invariants::json),
        ("manifest", invariants::manifest),
        ("reference", invariants::reference),
        ("review", invariants::review),
        ("secret", invariants::secret),
        ("yaml", invariants::yaml),
    ];
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    assert_eq!(files(&fuzz.join("targets")).len(), targets.len());
    for (name, target) in targets {
        let seeds = files(&fuzz.join("seeds").join(name));
        let read = seeds
            .iter()
            .filter(|seed| target(&std::fs::read(seed).unwrap()))
            .count();
        assert!(read > 0, "no seed of {name} is read");
    }
}
