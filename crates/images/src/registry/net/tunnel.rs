//! Advice on what a proxy answers where it opens no tunnel.

use tolerarch_support::tunnel::{Answer, Form};

/// Returns what the answer means: `answers 407: …`. `authorized` is set if credentials were sent, and `variable` has the
/// proxy.
pub(super) fn explain(answer: &Answer, host: &str, variable: &str, authorized: bool) -> String {
    match answer.form() {
        Form::Status(status) => explain_status(status, host, variable, authorized),
        Form::Tls => format!("speaks TLS; write https:// for it in {variable}"),
        Form::Nothing => format!(
            "closes the connection without an answer; if it speaks TLS, write https:// for it in {variable}"
        ),
        Form::Other => {
            format!("answers with something else than HTTP; see its host and port in {variable}")
        }
    }
}

/// Returns what a proxy's refusal of a request for this host means.
pub(super) fn explain_status(status: u16, host: &str, variable: &str, authorized: bool) -> String {
    let advice = match status {
        407 if authorized => format!("it refuses the user or the password of {variable}"),
        407 => format!(
            "it wants credentials; write user and password before an @ into the URL of {variable}, in the cluster from a Secret"
        ),
        401 => format!(
            "it may be no proxy, but a server that wants credentials; see host and port in {variable}"
        ),
        403 => format!(
            "its rules do not let {host} through; have it allowed there, or exempt it with NO_PROXY if it can be reached without"
        ),
        429 => "it throttles".to_owned(),
        502..=504 => format!(
            "it does not reach {host} itself; see its DNS and its way out, or exempt the host with NO_PROXY if it can be reached without"
        ),
        400 | 404 | 405 | 501 => {
            format!(
                "it opens no tunnels (CONNECT), so it may be no proxy; see host and port in {variable}"
            )
        }
        _ => format!("it opens no tunnel to {host}"),
    };
    format!("answers {status}: {advice}")
}
