//! AdmissionReviews and their answers (k8s.io/api admission/v1). A review is decoded in one pass, in part, and borrows from
//! the body. A body with a uid gets an answer even if its Pod is malformed.

mod template;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::decision::Decision;
use crate::pod::{self, Pod, Retain, Text, retain};
use crate::reason::Reason;
use tolerarch_text::escape::shortened;
use tolerarch_text::json::Object;

pub use template::{Template, TemplateChange, TemplateKind};

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
const MALFORMED: Subject<'_> = Subject::Skipped(Reason::Malformed);
/// Rough number of bytes of an answer without its patch.
const ANSWER: usize = 400;

/// A decoded review.
#[derive(Debug)]
pub struct Review<'a> {
    /// The ID by which the API server matches the answer to its request.
    pub uid: Text<'a>,
    pub namespace: Text<'a>,
    pub subject: Subject<'a>,
}

#[derive(Debug)]
pub enum Subject<'a> {
    /// The creation of a Pod.
    Pod(Box<Pod<'a>>),
    /// The creation or the update of an object with a template.
    Template(Box<TemplateChange<'a>>),
    /// Anything else, or an object that cannot be decoded. The object stays unchanged for this reason.
    Skipped(Reason),
}

impl<'a> Subject<'a> {
    /// Returns the Pod, and the JSON pointer to the Pod in the object under review.
    pub fn pod(&self) -> Option<(&'static str, &Pod<'a>)> {
        match self {
            Self::Pod(pod) => Some(("", pod)),
            Self::Template(change) => Some((change.kind.template_pointer(), &change.template.pod)),
            Self::Skipped(_) => None,
        }
    }
}

impl Retain for Subject<'_> {
    type Owned = Subject<'static>;

    fn into_owned(self) -> Subject<'static> {
        match self {
            Self::Pod(pod) => Subject::Pod(Box::new(pod.into_owned())),
            Self::Template(change) => Subject::Template(Box::new(change.into_owned())),
            Self::Skipped(reason) => Subject::Skipped(reason),
        }
    }

    fn held_bytes(&self) -> usize {
        match self {
            Self::Pod(pod) => pod.held_bytes(),
            Self::Template(change) => change.held_bytes(),
            Self::Skipped(_) => 0,
        }
    }
}

retain! {
    Review { uid, namespace, subject }
    TemplateChange { template, previous; kind }
    Template { pod, json }
}

/// Reason why a body is no review, or one that cannot be answered. The texts quote nothing of the body.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// Not JSON, or not the JSON of a review.
    #[error("the body is no AdmissionReview: {kind} at line {line}, column {column}")]
    Decode {
        kind: &'static str,
        /// Counted from 1.
        line: usize,
        column: usize,
    },
    /// The path of a field with a wrong type: `request.uid`.
    #[error("{0} of the AdmissionReview has the wrong type")]
    Value(String),
    #[error("the body is no {KIND} of {API_VERSION}")]
    Kind,
    #[error("the AdmissionReview has no request with a uid")]
    NoUid,
}

impl From<serde_json::Error> for ReviewError {
    fn from(error: serde_json::Error) -> Self {
        let kind = match error.classify() {
            serde_json::error::Category::Eof => "unexpected end",
            serde_json::error::Category::Syntax => "a syntax error",
            serde_json::error::Category::Data | serde_json::error::Category::Io => {
                "an unexpected value"
            }
        };
        Self::Decode {
            kind,
            line: error.line(),
            column: error.column(),
        }
    }
}

/// A body with a Pod. The Pod is large, so it is boxed at once, rather than moved at each level.
pub(crate) type Decoded<'a> = Object<Envelope<'a, Object<Box<Pod<'a>>>>>;

/// A body with an object that is no Pod.
type Podless<'a> = Object<Envelope<'a, IgnoredAny>>;

#[derive(Debug, Deserialize)]
#[serde(
    rename_all = "camelCase",
    bound(deserialize = "'de: 'a, O: Deserialize<'de>")
)]
pub(crate) struct Envelope<'a, O> {
    api_version: Text<'a>,
    kind: Text<'a>,
    request: Option<Request<'a, O>>,
}

#[derive(Debug, Deserialize)]
#[serde(
    rename_all = "camelCase",
    bound(deserialize = "'de: 'a, O: Deserialize<'de>")
)]
struct Request<'a, O> {
    uid: Text<'a>,
    kind: Option<Type<'a>>,
    resource: Option<Type<'a>>,
    sub_resource: Text<'a>,
    operation: Text<'a>,
    namespace: Text<'a>,
    object: Option<O>,
}

/// A kind or a resource, with its API group.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Type<'a> {
    group: Text<'a>,
    version: Text<'a>,
    kind: Text<'a>,
    resource: Text<'a>,
}

/// Decodes a review. A body without a uid is an error, as the API server would not accept an answer.
pub fn decode(body: &[u8]) -> Result<Review<'_>, ReviewError> {
    if let Ok(envelope) = pod::read::<Decoded<'_>>(body) {
        return read(body, envelope, |pod| {
            let Some(Object(mut pod)) = pod else {
                return MALFORMED;
            };
            // The body is a little larger than the Pod.
            pod.bytes = pod::size_of_json(body);
            Subject::Pod(pod)
        });
    }
    // The body may have a uid even if its object is malformed.
    let envelope: Podless<'_> = serde_json::from_slice(body)?;
    read(body, envelope, |_| MALFORMED)
}

/// Reads a review from a file. An error names the path of a field, as a value has no lines.
pub fn of_value(value: &Value) -> Result<Review<'static>, ReviewError> {
    if let Err(error) = serde_path_to_error::deserialize::<_, Podless<'_>>(value) {
        return Err(ReviewError::Value(error.path().to_string()));
    }
    let json = value.to_string();
    let review = decode(json.as_bytes())?;
    Ok(review.into_owned())
}

/// Reads the request in an envelope. `subject_of` makes the subject of a created Pod.
fn read<'a, O>(
    body: &'a [u8],
    Object(envelope): Object<Envelope<'a, O>>,
    subject_of: impl FnOnce(Option<O>) -> Subject<'a>,
) -> Result<Review<'a>, ReviewError> {
    if envelope.api_version != *API_VERSION || envelope.kind != *KIND {
        return Err(ReviewError::Kind);
    }
    let Some(request) = envelope.request else {
        return Err(ReviewError::NoUid);
    };
    if request.uid.is_empty() {
        return Err(ReviewError::NoUid);
    }
    let subject = if request.is(&["CREATE"], "", "pods", "Pod") {
        subject_of(request.object)
    } else if let Some(kind) = request.template_kind() {
        match template::read(kind, body) {
            Some(change) => Subject::Template(change.into()),
            None => MALFORMED,
        }
    } else {
        Subject::Skipped(Reason::NotApplicable)
    };
    Ok(Review {
        uid: request.uid,
        namespace: request.namespace,
        subject,
    })
}

impl<O> Request<'_, O> {
    /// Returns the kind of the object whose template is created or updated.
    fn template_kind(&self) -> Option<TemplateKind> {
        let mut kinds = TemplateKind::ALL.into_iter();
        kinds.find(|kind| {
            let operations = ["CREATE", "UPDATE"];
            self.is(&operations, kind.group(), kind.resource(), kind.name())
        })
    }

    /// Returns whether the request is one of these operations on objects of this kind, and not on a subresource.
    fn is(&self, operations: &[&str], group: &str, resource: &str, kind: &str) -> bool {
        let (Some(of_kind), Some(of_resource)) = (&self.kind, &self.resource) else {
            return false;
        };
        if !operations.contains(&self.operation.as_str()) || !self.sub_resource.is_empty() {
            return false;
        }
        of_kind.group == *group
            && of_kind.kind == *kind
            && of_resource.group == *group
            && of_resource.version == *"v1"
            && of_resource.resource == *resource
    }
}

/// Encodes the answer to the review with this uid. It always allows the request, and has the patch unless it is empty,
/// warnings, and audit annotations (`<webhook name>/decision`, …).
pub fn encode(uid: &str, patch: &str, decision: &Decision<'_>) -> Vec<u8> {
    // Writing to memory does not fail.
    let text = |text: &str| serde_json::to_string(text).unwrap_or_default();
    let mut answer = String::with_capacity(ANSWER + patch.len() * 4 / 3);
    answer += r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"allowed":true,"uid":"#;
    answer += &text(uid);
    if !patch.is_empty() {
        answer += r#","patchType":"JSONPatch","patch":""#;
        BASE64.encode_string(patch, &mut answer);
        answer.push('"');
    }
    if !decision.warnings.is_empty() {
        answer += r#","warnings":"#;
        answer += &Value::from(&*decision.warnings).to_string();
    }
    answer += r#","auditAnnotations":{"decision":""#;
    answer += decision.outcome();
    answer += r#"","reason":""#;
    answer += decision.reason.as_str();
    answer.push('"');
    if let Some(image) = decision.image {
        answer += r#","image":"#;
        answer += &text(shortened(image));
    }
    answer += "}}}";
    answer.into_bytes()
}

#[cfg(test)]
mod tests;
