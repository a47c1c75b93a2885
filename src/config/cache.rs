//! `cache`: what each replica keeps, and what replicas share.

use serde_json::json;

use super::shape::{Section, Shape, Slot, key, key_as};
use super::values::Kind;
use tolerarch_engine::warm_start::WarmSettings;
use tolerarch_images::resolver::CacheSettings;
use tolerarch_images::shared_cache::{ParseUrlError, ServerUrl, SharedCacheSettings};

/// The section, whose parts belong to several rooms.
pub(super) struct CacheSection<'a> {
    pub(super) own: &'a mut CacheSettings,
    pub(super) shared: &'a mut SharedCacheSettings,
    pub(super) warm: &'a mut WarmSettings,
}

impl Slot for CacheSection<'_> {
    fn shape(&mut self) -> Shape<'_> {
        let CacheSettings { not_found, denied, throttled, timeout, unreachable, bad_manifest, .. } = self.own;
        let negative = Section(vec![
            key("notFound", "no such image", not_found),
            key("denied", "access is denied", denied),
            key("throttled", "429: at least so long; Retry-After counts if longer", throttled),
            key("timeout", "no answer in time", timeout),
            key("unreachable", "no connection, or a status of 500 and more", unreachable),
            key("badManifest", "what came is no image", bad_manifest),
        ]);
        let CacheSettings { capacity, tag, stale_while_revalidate, stale_if_error, .. } = self.own;
        Shape::Section(vec![
            key("capacity", "images", capacity).at_start(),
            key("tagTtl", "how long a tag counts before the registry is asked again", tag),
            key(
                "staleWhileRevalidate",
                "after that: answers at once, while one refresh runs",
                stale_while_revalidate,
            ),
            key("staleIfError", "after that: answers while the registry fails", stale_if_error),
            key_as("negative", "how long failures count", negative),
            key("shared", "a Valkey or Redis in which replicas share what they know", self.shared),
            key("warm", "which images are looked up at the start, behind everything else", self.warm),
        ])
    }
}

impl Slot for WarmSettings {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key("fromPods", "those of running Pods, which takes the right to list Pods", &mut self.from_pods)
                .at_start(),
            key("perSecond", "how many a second, at most", &mut self.per_second).at_start(),
        ])
    }
}

impl Slot for SharedCacheSettings {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key_as(
                "url",
                "redis:// or rediss://host:port/database, redis+sentinel://hosts/name, redis+cluster://hosts; none: nothing is shared",
                server_url().of(&mut self.url),
            )
            .at_start(),
            key("usernameFile", "a file with the user's name", &mut self.username_file).at_start(),
            key("passwordFile", "a file with the password; read at each connection", &mut self.password_file)
                .at_start(),
            key("caFile", "certificate authorities, PEM, instead of the system's", &mut self.ca_file).at_start(),
            key(
                "keyFile",
                "a secret of all replicas, 32 random bytes: proves what they wrote; without it nothing is shared that a credential gave",
                &mut self.key_file,
            )
            .at_start(),
            key("timeout", "how long one operation may take; slower or broken: as if it were not there", &mut self.timeout)
                .at_start(),
            key_as("prefix", "what every key there begins with; clusters that share a server need one each", prefix().of(&mut self.prefix))
                .at_start(),
        ])
    }
}

/// A URL that may be missing, written as `""`.
fn server_url() -> Kind<Option<ServerUrl>> {
    Kind::new(
        ParseUrlError::Form.to_string(),
        json!({
            "type": "string",
            "pattern": r"^((redis|rediss|valkey|valkeys)(\+sentinel|\+cluster)?://[^@?#\s]+)?$",
            "examples": ["rediss://valkey.example.com:6380"],
        }),
        |text| if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) },
        |url: &Option<ServerUrl>| json!(url.as_ref().map_or("", ServerUrl::as_str)),
    )
    .hinting(|text| {
        let credentials = text.parse::<ServerUrl>() == Err(ParseUrlError::Credentials);
        credentials.then(|| ParseUrlError::Credentials.to_string())
    })
}

/// What keys begin with.
fn prefix() -> Kind<String> {
    Kind::new(
        "up to 64 printable characters without spaces",
        json!({"type": "string", "pattern": "^[!-~]{0,64}$"}),
        |text| {
            let usable = text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_graphic());
            usable.then(|| text.to_owned())
        },
        |prefix| json!(prefix),
    )
}
