use super::*;
use proptest::prelude::*;

fn set(platforms: &[&str]) -> PlatformSet {
    platforms
        .iter()
        .fold(PlatformSet::EMPTY, |set, p| set.union(p.parse().unwrap()))
}

fn serving(text: &str) -> PlatformSet {
    let parts: Vec<&str> = text.split('/').collect();
    PlatformSet::serving(&Platform::new(
        parts[0],
        parts[1],
        parts.get(2).copied().unwrap_or_default(),
    ))
}

#[test]
fn every_architecture_has_all_its_platforms() {
    let names = PlatformSet::ALL.architectures();
    assert!(names.is_sorted() && names.len() == 10, "{names:?}");
    let mut all = PlatformSet::EMPTY;
    for name in names {
        all |= PlatformSet::of_architecture(name);
    }
    assert_eq!(all, PlatformSet::ALL);
    assert_eq!(
        PlatformSet::of_architecture("arm"),
        set(&["linux/arm/v5", "linux/arm/v6", "linux/arm/v7"])
    );
    assert_eq!(PlatformSet::of_architecture("vax"), PlatformSet::EMPTY);
}

#[test]
fn nodes_choose_as_containerd_does() {
    for (entry, nodes) in [
        ("linux/amd64", &["linux/amd64"][..]),
        ("linux/amd64/v1", &["linux/amd64"]),
        ("linux/amd64/v2", &[]),
        ("linux/amd64/v3", &[]),
        ("linux/amd64/v4", &[]),
        ("linux/x86_64", &["linux/amd64"]),
        ("linux/x86-64", &["linux/amd64"]),
        ("Linux/AMD64", &["linux/amd64"]),
        ("/amd64", &["linux/amd64"]),
        ("linux/arm64", &["linux/arm64"]),
        ("linux/arm64/v8", &["linux/arm64"]),
        ("linux/arm64/8", &["linux/arm64"]),
        ("linux/arm64/v8.0", &["linux/arm64"]),
        ("linux/aarch64", &["linux/arm64"]),
        ("linux/arm64/v8.1", &[]),
        ("linux/arm64/v9", &[]),
        ("linux/386", &["linux/386"]),
        ("linux/i386", &["linux/386"]),
        ("linux/arm", &["linux/arm/v7"]),
        ("linux/armhf", &["linux/arm/v7"]),
        ("linux/armel", &["linux/arm/v6", "linux/arm/v7"]),
        (
            "linux/arm/v5",
            &["linux/arm/v5", "linux/arm/v6", "linux/arm/v7"],
        ),
        ("linux/arm/6", &["linux/arm/v6", "linux/arm/v7"]),
        ("linux/arm/v8", &[]),
        ("linux/s390x", &["linux/s390x"]),
        ("windows/amd64", &[]),
        ("windows/arm64", &[]),
        ("freebsd/arm64", &[]),
        ("wasip1/wasm", &[]),
        ("unknown/unknown", &[]),
        ("linux/", &[]),
    ] {
        assert_eq!(serving(entry), set(nodes), "{entry}");
    }
}

#[test]
fn platforms_of_pools_are_parsed_or_refused() {
    assert_eq!(
        "linux/x86_64".parse::<PlatformSet>().unwrap(),
        set(&["linux/amd64"])
    );
    assert_eq!(
        "linux/arm64/v8".parse::<PlatformSet>().unwrap(),
        set(&["linux/arm64"])
    );
    for text in [
        "",
        "linux",
        "linux/",
        "/amd64",
        "linux/amd64/",
        "linux/arm/v7/x",
    ] {
        assert_eq!(
            text.parse::<PlatformSet>(),
            Err(ParsePlatformError::Form),
            "{text:?}"
        );
    }
    for text in [
        "linux/amd64/v3",
        "windows/amd64",
        "linux/arm46",
        "linux/arm64/v9",
    ] {
        assert_eq!(
            text.parse::<PlatformSet>(),
            Err(ParsePlatformError::Unknown),
            "{text:?}"
        );
    }
    let message = ParsePlatformError::Unknown.to_string();
    assert!(message.contains("linux/amd64, linux/arm64"), "{message}");
}

#[test]
fn attestations_are_recognised() {
    assert!(Platform::new("unknown", "unknown", "").is_unknown());
    assert!(Platform::new("linux", "unknown", "").is_unknown());
    assert!(!Platform::new("linux", "amd64", "").is_unknown());
}

#[test]
fn sets_are_written_in_one_order() {
    assert_eq!(
        PlatformSet::AMD64_AND_ARM64.to_string(),
        "linux/amd64, linux/arm64"
    );
    assert_eq!(
        set(&["linux/arm64", "linux/amd64"]).to_string(),
        "linux/amd64, linux/arm64"
    );
    assert_eq!(PlatformSet::EMPTY.to_string(), "none");
}

proptest! {
    #[test]
    fn every_platform_parses_as_written(bit in 0..NODES.len()) {
        let node = NODES[bit].to_string();
        let read: PlatformSet = node.parse().unwrap();
        prop_assert_eq!(read.bits(), 1 << bit);
        prop_assert_eq!(read.to_string(), node);
    }

    #[test]
    fn normalising_twice_changes_nothing(
        os in "(linux|Linux|windows||macos|[a-z]{0,5})",
        architecture in "(amd64|x86_64|arm64|aarch64|arm|armhf|armel|i386|[a-zA-Z0-9_-]{0,6})",
        variant in "(v?[0-9](\\.0)?|)",
    ) {
        let once = Platform::new(&os, &architecture, &variant);
        prop_assert_eq!(&Platform::new(&once.os, &once.architecture, &once.variant), &once);
    }

    #[test]
    fn union_and_intersection_agree_with_contains(a in 0u32..4096, b in 0u32..4096) {
        let (a, b) = (PlatformSet::from_bits(a).unwrap(), PlatformSet::from_bits(b).unwrap());
        prop_assert!(a.union(b).contains(a));
        prop_assert!(a.contains(a.intersection(b)));
        prop_assert_eq!(a.contains(b), a.intersection(b) == b);
    }
}
