//! Kubernetes' rules for names and labels.

/// Checks by `IsValidLabelValue` of k8s.io/apimachinery.
pub fn is_label_value(text: &str) -> bool {
    text.len() <= 63
        && text.trim_matches(['-', '_', '.']) == text
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// Checks by `IsQualifiedName` of k8s.io/apimachinery: an optional DNS subdomain, a slash, and a name.
pub fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text
        .rsplit_once('/')
        .map_or((None, text), |(prefix, name)| (Some(prefix), name));
    !name.is_empty() && is_label_value(name) && prefix.is_none_or(is_name)
}

/// Checks for a DNS subdomain, as most objects' names must be (RFC 1123). No such name is a step of a path.
pub fn is_name(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let is_label = |label: &str| {
        !label.is_empty() && label.trim_matches('-') == label && label.bytes().all(plain)
    };
    text.len() <= 253 && text.split('.').all(is_label)
}
