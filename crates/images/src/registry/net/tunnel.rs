//! Explains what a proxy answers when it opens no tunnel.

use tolerarch_support::tunnel::{Answer, Form};

/// Explains an answer: `answers 407: …`. `is_authorised` is true if credentials were sent, and `variable` is the
/// environment variable that names the proxy.
pub(super) fn explain(answer: &Answer, host: &str, variable: &str, is_authorised: bool) -> String {
    match answer.form() {
        Form::Status(status) => explain_status(status, host, variable, is_authorised),
        Form::Tls => format!("speaks TLS; write https:// for it in {variable}"),
        Form::Nothing => format!(
            "closes the connection without an answer; if it speaks TLS, write https:// for it in {variable}"
        ),
        Form::Other => {
            format!("answers with something else than HTTP; check its host and port in {variable}")
        }
    }
}

/// Explains a proxy's refusal of a request for this host by the status.
pub(super) fn explain_status(
    status: u16,
    host: &str,
    variable: &str,
    is_authorised: bool,
) -> String {
    let advice = match status {
        407 if is_authorised => format!("it refuses the user or the password of {variable}"),
        407 => format!(
            "it wants credentials; write user and password before an @ into the URL of {variable}, in the cluster from a Secret"
        ),
        401 => format!(
            "it may be no proxy, but a server that wants credentials; check host and port in {variable}"
        ),
        403 => format!(
            "its rules do not let {host} through; have the host allowed there, or exempt the host with NO_PROXY if it can be reached without the proxy"
        ),
        429 => "it limits requests".to_owned(),
        502..=504 => format!(
            "it does not reach {host} itself; check its DNS and its outgoing connections, or exempt the host with NO_PROXY if it can be reached without the proxy"
        ),
        400 | 404 | 405 | 501 => {
            format!(
                "it opens no tunnels (CONNECT), so it may be no proxy; check host and port in {variable}"
            )
        }
        _ => format!("it opens no tunnel to {host}"),
    };
    format!("answers {status}: {advice}")
}
