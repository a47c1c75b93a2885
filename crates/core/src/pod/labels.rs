//! Kubernetes' rules for names and labels.

/// Checks the value of a label, as `IsValidLabelValue` of k8s.io/apimachinery does.
pub fn is_label_value(text: &str) -> bool {
    if text.len() > 63 || text.trim_matches(['-', '_', '.']) != text {
        return false;
    }
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    text.bytes().all(is_allowed)
}

/// Checks the key of a label, as `IsQualifiedName` of k8s.io/apimachinery does: a name, or a DNS subdomain, a slash and a
/// name.
pub fn is_label_key(text: &str) -> bool {
    let name = match text.rsplit_once('/') {
        None => text,
        Some((prefix, name)) if is_name(prefix) => name,
        Some(_) => return false,
    };
    !name.is_empty() && is_label_value(name)
}

/// Checks for a DNS subdomain, which most objects' names must be (RFC 1123). Such a name is never `.` or `..` in a path.
pub fn is_name(text: &str) -> bool {
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let is_label = |label: &str| {
        let has_hyphen_at_end = label.trim_matches('-') != label;
        !label.is_empty() && !has_hyphen_at_end && label.bytes().all(is_allowed)
    };
    text.len() <= 253 && text.split('.').all(is_label)
}
