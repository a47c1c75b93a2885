//! A directory with one TOML file a registry: `registry.example.com:5000.toml` with `user` and `secret`.

use std::path::Path;

use serde::Deserialize;

use super::credential::{Credential, Sensitive};
use tolerarch_core::image::{ImageRef, canonical_host, is_docker_hub};

/// What one file says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Registry {
    user: String,
    secret: Sensitive,
}

/// The host that a file is for: `None` for what is not meant for us, such as the links of a mounted Secret.
///
/// # Errors
/// What is wrong with the name.
pub(super) fn host(file: &Path) -> Result<Option<String>, &'static str> {
    const NAME: &str = "a file is called <host>.toml or <host>:<port>.toml";
    let name = file.file_name().and_then(|name| name.to_str()).ok_or(NAME)?;
    if name.starts_with('.') {
        return Ok(None);
    }
    let host = name.strip_suffix(".toml").ok_or(NAME)?;
    // A host is well-formed if it can stand in front of an image.
    let image: ImageRef = format!("{host}/x/y").parse().map_err(|_| NAME)?;
    let is_host = image.host().eq_ignore_ascii_case(host) || is_docker_hub(host);
    if is_host { Ok(Some(canonical_host(image.host()))) } else { Err(NAME) }
}

/// What a file says.
///
/// # Errors
/// What is wrong with it, without its values.
pub(super) fn read(text: &str) -> Result<Credential, String> {
    let registry: Registry = toml::from_str(text).map_err(|error| fault(text, &error))?;
    let Registry { user, secret } = registry;
    if user.is_empty() || secret.reveal().is_empty() {
        return Err("user and secret must not be empty".into());
    }
    Ok(Credential::Basic { user, password: secret })
}

/// Where, and no more: a parser's words quote what it reads.
fn fault(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.map(|before| before.matches('\n').count() + 1);
    let place = line.map_or_else(String::new, |line| format!("line {line}: "));
    format!("{place}write two lines, user = \"…\" and secret = \"…\", and nothing else")
}
