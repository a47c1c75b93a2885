//! Metrics in Prometheus' text format, as far as the checks read them.

/// The samples of a metric, each with its labels as they are written.
pub(super) fn samples<'m>(text: &'m str, metric: &'m str) -> impl Iterator<Item = (&'m str, f64)> {
    text.lines().filter_map(move |line| {
        let (labels, value) = line.strip_prefix(metric)?.rsplit_once(' ')?;
        (labels.is_empty() || labels.starts_with('{')).then_some((labels, value.parse().ok()?))
    })
}

/// The value of a label; no value of those that are read here has a quote.
pub(super) fn label<'m>(labels: &'m str, name: &str) -> &'m str {
    let value = labels.split(['{', ',']).find_map(|label| label.strip_prefix(name)?.strip_prefix("=\""));
    value.and_then(|value| value.split('"').next()).unwrap_or_default()
}

/// The sum of the samples of a metric that have this label.
pub(super) fn sum(text: &str, metric: &str, name: &str, value: &str) -> f64 {
    samples(text, metric).filter(|(labels, _)| label(labels, name) == value).map(|(_, sample)| sample).sum()
}
