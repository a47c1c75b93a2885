//! The API server's metrics of webhook calls.

use kube::Client;

/// Returns how often the API server has called a webhook of this name.
pub(crate) async fn calls(client: &Client, webhook: &str) -> u64 {
    sum(
        client,
        "apiserver_admission_webhook_request_total{",
        &format!("name=\"{webhook}\""),
    )
    .await
}

/// Returns how often the API server continued without a webhook of this name after a failed call.
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
    let mut sum = 0;
    for line in text.lines() {
        if line.starts_with(metric) && line.contains(label) {
            let (_, value) = line.rsplit_once(' ').expect("a value");
            sum += value.parse::<u64>().expect("a count");
        }
    }
    sum
}
