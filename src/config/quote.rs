//! What of a text faults may show: it stands in logs and on terminals.

/// Whether a text may hold a password: that of `https://user:password@host`.
pub(super) fn may_be_secret(text: &str) -> bool {
    text.contains('@')
}

/// A text as faults quote it, unless it may hold a password.
pub(super) fn quoted(text: &str) -> String {
    if may_be_secret(text) { "a text with an @, which is not shown".to_owned() } else { format!("{text:?}") }
}
