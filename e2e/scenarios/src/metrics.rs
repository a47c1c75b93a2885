//! What the API server counts.

use kube::Client;

/// How often the API server has called a webhook of this name.
pub(crate) async fn calls(client: &Client, webhook: &str) -> u64 {
    sum(
        client,
        "apiserver_admission_webhook_request_total{",
        &format!("name=\"{webhook}\""),
    )
    .await
}

/// How often the API server went on without a webhook of this name, as calling it failed.
pub(crate) async fn failed_open(client: &Client, webhook: &str) -> u64 {
    sum(
        client,
        "apiserver_admission_webhook_fail_open_count{",
        &format!("name=\"{webhook}\""),
    )
    .await
}

async fn sum(client: &Client, metric: &str, label: &str) -> u64 {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let text = client.request_text(request).await.unwrap();
    let lines = text
        .lines()
        .filter(|line| line.starts_with(metric) && line.contains(label));
    lines
        .map(|line| {
            line.rsplit(' ')
                .next()
                .expect("a value")
                .parse::<u64>()
                .expect("a count")
        })
        .sum()
}
