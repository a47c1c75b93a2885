//! `cache`: what each replica keeps, and what replicas share.

use serde_json::json;

use super::shape::{Shape, Slot, at_start, key, key_as};
use super::values::Kind;
use tolerarch_engine::warm_start::WarmSettings;
use tolerarch_images::resolver::CacheSettings;
use tolerarch_images::shared_cache::{ParseUrlError, ServerUrl, SharedCacheSettings};

/// The section, whose parts belong to several rooms.
pub(super) fn cache<'a>(
    own: &'a mut CacheSettings,
    shared: &'a mut SharedCacheSettings,
    warm: &'a mut WarmSettings,
) -> Shape<'a> {
    let CacheSettings { not_found, denied, throttled, timeout, unreachable, bad_manifest, .. } = own;
    let negative = Shape::section(vec![
        key("notFound", not_found).means("no such image"),
        key("denied", denied).means("access is denied"),
        key("throttled", throttled).means("429: at least so long; Retry-After counts if longer"),
        key("timeout", timeout).means("no answer in time"),
        key("unreachable", unreachable).means("no connection, or a status of 500 and more"),
        key("badManifest", bad_manifest).means("what came is no image"),
    ]);
    let CacheSettings { capacity, tag, stale_while_revalidate, stale_if_error, .. } = own;
    Shape::section(vec![
        key("capacity", capacity).means("images").at_start(),
        key("tagTtl", tag).means("how long a tag counts before the registry is asked again"),
        key("staleWhileRevalidate", stale_while_revalidate)
            .means("after that: answers at once, while one refresh runs"),
        key("staleIfError", stale_if_error).means("after that: answers while the registry fails"),
        key_as("negative", negative).means("how long failures count"),
        key("shared", shared).means("a Valkey or Redis in which replicas share what they know"),
        key("warm", warm).means("which images are looked up at the start, behind everything else"),
    ])
}

impl Slot for WarmSettings {
    fn shape(&mut self) -> Shape<'_> {
        Shape::section(at_start(vec![
            key("fromPods", &mut self.from_pods)
                .means("those of running Pods, which takes the right to list Pods"),
            key("perSecond", &mut self.per_second).means("how many a second, at most"),
        ]))
    }
}

impl Slot for SharedCacheSettings {
    fn shape(&mut self) -> Shape<'_> {
        Shape::section(at_start(vec![
            key_as("url", server_url().of(&mut self.url)).means(
                "redis:// or rediss://host:port/database, redis+cluster://hosts; none: nothing is shared",
            ),
            key("usernameFile", &mut self.username_file).means("a file with the user's name"),
            key("passwordFile", &mut self.password_file)
                .means("a file with the password; read at each connection"),
            key("caFile", &mut self.ca_file).means("certificate authorities, PEM, instead of the system's"),
            key("keyFile", &mut self.key_file).means(
                "a secret of all replicas, 32 random bytes: proves what they wrote; without it nothing is \
                 shared that a credential gave",
            ),
            key("timeout", &mut self.timeout)
                .means("how long one operation may take; slower or broken: as if it were not there"),
            key_as("prefix", prefix().of(&mut self.prefix))
                .means("what every key there begins with; clusters that share a server need one each"),
        ]))
    }
}

/// A URL that may be missing, written as `""`.
fn server_url() -> Kind<Option<ServerUrl>> {
    Kind::new(
        ParseUrlError::Form.to_string(),
        json!({
            "type": "string",
            "pattern": r"^((redis|rediss|valkey|valkeys)(\+cluster)?://[^@?#\s]+)?$",
            "examples": ["rediss://valkey.example.com:6380"],
        }),
        |text| text.parse().ok(),
        |url: &ServerUrl| json!(url.as_str()),
    )
    .hinting(|text| {
        let fault = text.parse::<ServerUrl>().err().filter(|fault| *fault != ParseUrlError::Form);
        fault.map(|fault| fault.to_string())
    })
    .optional("")
}

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
