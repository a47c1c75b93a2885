//! Registries and repositories that lookups may reach. Pure.

use tolerarch_core::image::{ImageRef, NamePattern};

/// Patterns of images that may be looked up. `deny` takes precedence over `allow`, and an empty `allow` allows
/// everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedImages {
    pub allow: Vec<NamePattern>,
    pub deny: Vec<NamePattern>,
}

impl AllowedImages {
    /// Returns whether the image may be looked up. Allocates nothing, because it runs for each image of each Pod.
    pub fn admits(&self, image: &ImageRef) -> bool {
        let covers = |pattern: &NamePattern| pattern.covers(image);
        if self.deny.iter().any(covers) {
            return false;
        }
        self.allow.is_empty() || self.allow.iter().any(covers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(texts: &[&str]) -> Vec<NamePattern> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn deny_takes_precedence_over_allow() {
        let image = |text: &str| text.parse::<ImageRef>().unwrap();
        let allowed = AllowedImages {
            allow: patterns(&["ghcr.io", "a.b"]),
            deny: patterns(&["ghcr.io/evil"]),
        };
        for (name, expected) in [
            ("ghcr.io/x", true),
            ("a.b/x", true),
            ("ghcr.io/evil/x", false),
            ("nginx", false),
        ] {
            assert_eq!(allowed.admits(&image(name)), expected, "{name}");
        }
        assert!(AllowedImages::default().admits(&image("nginx")));
        let allowed = AllowedImages {
            allow: vec![],
            deny: patterns(&["127.0.0.1", "[::1]"]),
        };
        for host in [
            "127.0.0.1",
            "127.1",
            "0x7f000001:443",
            "2130706433:443",
            "0177.0.0.1",
            "[::1]",
            "[0::1]",
            "[::ffff:7f00:1]",
        ] {
            let image = format!("{host}/x").parse::<ImageRef>();
            assert!(!image.is_ok_and(|image| allowed.admits(&image)), "{host}");
        }
        let allowed = AllowedImages {
            allow: vec![],
            deny: patterns(&["docker.io"]),
        };
        assert!(!allowed.admits(&image("nginx")) && allowed.admits(&image("a.b/x")));
    }
}
