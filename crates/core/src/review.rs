//! The bytes of an AdmissionReview, read in one pass, partial and borrowed, and answered (k8s.io/api admission/v1).
//!
//! What cannot be read of a Pod never costs the answer: as long as there is a uid, there is a review.

mod daemon_set;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::pod::{self, DAEMON_SET, Pod, Text};
use tolerarch_text::json::{self, Object, push_text};

pub use daemon_set::DaemonSet;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
/// Bytes of an answer without its patch, roughly.
const ANSWER: usize = 400;

/// A review that can be answered.
#[derive(Debug)]
pub struct Review<'a> {
    /// By this the API server knows the answer as its own.
    pub uid: Text<'a>,
    /// Where the object is to be created.
    pub namespace: Text<'a>,
    pub subject: Subject<'a>,
}

/// What is to be reviewed.
#[derive(Debug)]
pub enum Subject<'a> {
    /// The creation of a Pod.
    Pod(Box<Pod<'a>>),
    /// The creation or the update of a DaemonSet.
    DaemonSet(Box<DaemonSet<'a>>),
    /// A Pod or a DaemonSet that does not decode.
    Malformed,
    Other,
}

impl Subject<'_> {
    fn into_owned(self) -> Subject<'static> {
        match self {
            Self::Pod(pod) => Subject::Pod(Box::new(pod.into_owned())),
            Self::DaemonSet(set) => Subject::DaemonSet(Box::new(set.into_owned())),
            Self::Malformed => Subject::Malformed,
            Self::Other => Subject::Other,
        }
    }
}

impl Review<'_> {
    /// The same, without the body that it was read from.
    pub fn into_owned(self) -> Review<'static> {
        let subject = self.subject.into_owned();
        Review { uid: self.uid.into_owned(), namespace: self.namespace.into_owned(), subject }
    }

    /// Bytes that it holds while the Pod waits, or a few more.
    pub fn held(&self) -> usize {
        let subject = match &self.subject {
            Subject::Pod(pod) => pod.held(),
            Subject::DaemonSet(set) => set.held(),
            Subject::Malformed | Subject::Other => 0,
        };
        self.uid.as_str().len() + self.namespace.as_str().len() + subject
    }
}

/// Why a body is no review that could be answered. The texts quote nothing of the body.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// Not JSON, or not the JSON of a review.
    #[error("the body is no AdmissionReview: {kind} at line {line}, column {column}")]
    Decode {
        kind: &'static str,
        /// Where, from 1.
        line: usize,
        column: usize,
    },
    /// A value that is not the JSON of a review.
    #[error("{field} of the AdmissionReview has another type than it should")]
    Value {
        /// As a path: `request.uid`.
        field: String,
    },
    #[error("the body is no {KIND} of {API_VERSION}")]
    Kind,
    /// Without a request or a uid there is nothing to answer.
    #[error("the AdmissionReview has no request with a uid")]
    NoUid,
}

impl From<serde_json::Error> for ReviewError {
    fn from(error: serde_json::Error) -> Self {
        let kind = match error.classify() {
            serde_json::error::Category::Eof => "unexpected end",
            serde_json::error::Category::Syntax => "a syntax error",
            serde_json::error::Category::Data | serde_json::error::Category::Io => "an unexpected value",
        };
        Self::Decode { kind, line: error.line(), column: error.column() }
    }
}

/// What a body is read as.
///
/// The Pod is boxed as soon as it is read: it is large, and would be moved at each level.
pub(crate) type Decoded<'a> = Object<Envelope<'a, Object<Box<Pod<'a>>>>>;

/// The same for an object that is no Pod.
type Podless<'a> = Object<Envelope<'a, IgnoredAny>>;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Envelope<'a, O> {
    #[serde(borrow)]
    api_version: Option<Text<'a>>,
    #[serde(borrow)]
    kind: Option<Text<'a>>,
    #[serde(borrow, bound(deserialize = "Request<'a, O>: Deserialize<'de>"))]
    request: Option<Request<'a, O>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a, O> {
    #[serde(borrow)]
    uid: Option<Text<'a>>,
    #[serde(borrow)]
    kind: Option<Kind<'a>>,
    #[serde(borrow)]
    resource: Option<Resource<'a>>,
    #[serde(borrow)]
    sub_resource: Option<Text<'a>>,
    #[serde(borrow)]
    operation: Option<Text<'a>>,
    #[serde(borrow)]
    namespace: Option<Text<'a>>,
    object: Option<O>,
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Kind<'a> {
    group: Option<Text<'a>>,
    kind: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Resource<'a> {
    group: Option<Text<'a>>,
    version: Option<Text<'a>>,
    resource: Option<Text<'a>>,
}

/// Without a uid there is no answer that the API server would take.
pub fn decode(body: &[u8]) -> Result<Review<'_>, ReviewError> {
    // What the API server sends is read fast; over anything else serde_json decides.
    match json::read::<Decoded<'_>>(body).or_else(|_| serde_json::from_slice(body)) {
        // The Pod is a little smaller than the review around it.
        Ok(envelope) => read(envelope, |pod| of_pod(pod, pod::size_of_json(body)), || daemon_set::read(body)),
        // Perhaps only the object is odd; then there is a uid all the same.
        Err(_) => read(
            serde_json::from_slice::<Podless<'_>>(body)?,
            |_| Subject::Malformed,
            || daemon_set::read(body),
        ),
    }
}

/// Reads a review that stands in a file.
pub fn of_value(value: &Value) -> Result<Review<'_>, ReviewError> {
    // Texts of a DaemonSet are compared, and a value has none.
    let daemon_set = || daemon_set::read(value.to_string().as_bytes()).into_owned();
    match Decoded::deserialize(value) {
        Ok(envelope) => read(envelope, |pod| of_pod(pod, pod::size_of_value(value)), daemon_set),
        Err(_) => {
            let envelope = serde_path_to_error::deserialize::<_, Podless<'_>>(value);
            let field = |error: serde_path_to_error::Error<_>| error.path().to_string();
            let envelope = envelope.map_err(|error| ReviewError::Value { field: field(error) })?;
            read(envelope, |_| Subject::Malformed, daemon_set)
        }
    }
}

fn of_pod<'a>(pod: Option<Object<Box<Pod<'a>>>>, bytes: usize) -> Subject<'a> {
    let Some(Object(mut pod)) = pod else { return Subject::Malformed };
    pod.bytes = bytes;
    Subject::Pod(pod)
}

fn read<'a, O>(
    Object(envelope): Object<Envelope<'a, O>>,
    pod: impl FnOnce(Option<O>) -> Subject<'a>,
    daemon_set: impl FnOnce() -> Subject<'a>,
) -> Result<Review<'a>, ReviewError> {
    let text = |text: &Option<Text<'a>>| text.clone().unwrap_or_default();
    if text(&envelope.api_version).as_str() != API_VERSION || text(&envelope.kind).as_str() != KIND {
        return Err(ReviewError::Kind);
    }
    let request = envelope.request.ok_or(ReviewError::NoUid)?;
    let uid = request.uid.clone().filter(|uid| !uid.is_empty()).ok_or(ReviewError::NoUid)?;
    let namespace = text(&request.namespace);
    let subject = if request.is(&["CREATE"], "", "pods", "Pod") {
        pod(request.object)
    } else if request.is(&["CREATE", "UPDATE"], "apps", "daemonsets", DAEMON_SET) {
        daemon_set()
    } else {
        Subject::Other
    };
    Ok(Review { uid, namespace, subject })
}

impl<O> Request<'_, O> {
    /// Whether it is one of these operations on objects of this kind, and not on a part of them.
    fn is(&self, operations: &[&str], group: &str, resource: &str, kind: &str) -> bool {
        let is = |text: &Option<Text<'_>>, value: &str| text.as_ref().map_or("", Text::as_str) == value;
        operations.iter().any(|operation| is(&self.operation, operation))
            && is(&self.sub_resource, "")
            && self.kind.as_ref().is_some_and(|own| is(&own.group, group) && is(&own.kind, kind))
            && self.resource.as_ref().is_some_and(|own| {
                is(&own.group, group) && is(&own.version, "v1") && is(&own.resource, resource)
            })
    }
}

/// What the audit log of the cluster shows (`<webhook name>/decision`, …).
#[derive(Debug, Default)]
pub struct Audit<'a> {
    /// What was done: `tolerated`, `placed`, `retracted` or `unchanged`.
    pub decision: &'static str,
    /// Why: the name of a [`Reason`](crate::reason::Reason).
    pub reason: &'static str,
    /// The image that decided, shortened to something that fits.
    pub image: Option<&'a str>,
}

/// The answer to the review with this uid: always allowed, with the patch unless that is empty, and with warnings.
pub fn encode(uid: &str, patch: &str, warnings: &[String], audit: &Audit<'_>) -> Vec<u8> {
    let mut answer = String::with_capacity(ANSWER + patch.len() * 4 / 3);
    answer.push_str(
        r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"allowed":true,"uid":"#,
    );
    push_text(&mut answer, uid);
    if !patch.is_empty() {
        answer.push_str(r#","patchType":"JSONPatch","patch":""#);
        BASE64.encode_string(patch, &mut answer);
        answer.push('"');
    }
    let mut before = r#","warnings":["#;
    for warning in warnings {
        answer.push_str(before);
        push_text(&mut answer, warning);
        before = ",";
    }
    if !warnings.is_empty() {
        answer.push(']');
    }
    let Audit { decision, reason, image } = audit;
    let annotations = [("decision", Some(*decision)), ("reason", Some(*reason)), ("image", *image)];
    let mut before = r#","auditAnnotations":{"#;
    for (name, text) in annotations {
        let Some(text) = text else { continue };
        for part in [before, "\"", name, "\":"] {
            answer.push_str(part);
        }
        push_text(&mut answer, text);
        before = ",";
    }
    answer.push_str("}}}");
    answer.into_bytes()
}

#[cfg(test)]
mod tests;
