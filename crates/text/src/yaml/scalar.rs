//! The meaning of scalars.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use serde_json::Number;

use super::events::Refusal;
use super::node::Data;

/// Prefix of the tags that YAML itself defines; in documents, `!!`.
const CORE: &str = "tag:yaml.org,2002:";

/// Base64 as Go decodes it: trailing bits may be set.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Returns a scalar of [`super::Dialect::Text`]: null if it is plain and a null, otherwise a text.
pub(super) fn as_written(text: String, is_plain: bool) -> Data {
    if is_plain && is_null(&text) {
        Data::Null
    } else {
        Data::Text(text)
    }
}

/// Interprets a scalar as sigs.k8s.io/yaml does (`resolve` of go-yaml v2): by its tag, or by YAML 1.1 if it is plain.
pub(super) fn resolve(text: String, is_plain: bool, tag: Option<&str>) -> Result<Data, Refusal> {
    let wanted = match tag {
        None if is_plain => None,
        None => return Ok(Data::Text(text)),
        Some(tag) => match tag.strip_prefix(CORE) {
            Some("binary") => return binary(&text),
            Some(kind @ ("bool" | "int" | "float" | "null")) => Some(kind),
            // Go reads a scalar with any other tag as a text.
            _ => return Ok(Data::Text(text)),
        },
    };
    let data = by_form(text)?;
    let is_allowed = match wanted {
        None => true,
        Some("bool") => matches!(data, Data::Bool(_)),
        Some("null") => matches!(data, Data::Null),
        Some("float") => matches!(data, Data::Number(_)),
        _ => matches!(&data, Data::Number(number) if !number.is_f64()),
    };
    if !is_allowed {
        return Err(Refusal::Invalid("a value that its tag does not allow"));
    }
    Ok(data)
}

/// Interprets a plain scalar by YAML 1.1, except for numbers to base 60.
fn by_form(text: String) -> Result<Data, Refusal> {
    match &*text {
        _ if is_null(&text) => Ok(Data::Null),
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "true" | "True" | "TRUE" => {
            Ok(Data::Bool(true))
        }
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "false" | "False" | "FALSE" => {
            Ok(Data::Bool(false))
        }
        _ if is_beyond_json(&text) => Err(Refusal::Unsupported("a number that JSON does not have")),
        _ => match number(&text) {
            Some(number) => Ok(Data::Number(number)),
            None => Ok(Data::Text(text)),
        },
    }
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// Returns whether a text is an infinity or NaN, which Go cannot encode as JSON.
fn is_beyond_json(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN")
}

/// Decodes base64 as Go does, which ignores line ends.
fn binary(text: &str) -> Result<Data, Refusal> {
    let text = text.replace(['\r', '\n'], "");
    let Ok(bytes) = BASE64.decode(text) else {
        return Err(Refusal::Invalid("!!binary that is not base64"));
    };
    let text = String::from_utf8_lossy(&bytes);
    Ok(Data::Text(text.into_owned()))
}

fn number(text: &str) -> Option<Number> {
    let sign = if text.starts_with('-') { "-" } else { "" };
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let may_begin = |c: char| c.is_ascii_digit() || c == '.';
    if !unsigned.starts_with(may_begin) || unsigned.starts_with("._") {
        return None;
    }
    let digits = unsigned.replace('_', "");
    let (whole, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', b'o' | b'O', ..] => (&digits[2..], 8),
        [b'0', b'b' | b'B', ..] => (&digits[2..], 2),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (&*digits, 10),
    };
    if whole.bytes().all(|b| b.is_ascii_alphanumeric()) {
        let signed = format!("{sign}{whole}");
        if let Ok(number) = i64::from_str_radix(&signed, radix) {
            return Some(number.into());
        }
        if text.starts_with(|c: char| c.is_ascii_digit())
            && let Ok(number) = u64::from_str_radix(whole, radix)
        {
            return Some(number.into());
        }
    }
    let float = format!("{sign}{digits}").parse().ok()?;
    Number::from_f64(float)
}
