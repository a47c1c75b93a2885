//! Numbers as Go writes them.

use serde_json::Number;

/// Go writes floats below this number without an exponent.
const WHOLE: f64 = 1e21;

/// Returns a number as it is in Go's JSON: Go writes a float without a fraction as a whole number.
pub(super) fn in_json(number: &Number) -> Number {
    let Some(float) = float(number) else {
        return number.clone();
    };
    let is_negative_zero = float == 0.0 && float.is_sign_negative();
    if float.fract() != 0.0 || float.abs() >= WHOLE || is_negative_zero {
        return number.clone();
    }
    match format!("{float:.0}").parse() {
        Ok(whole) => whole,
        Err(_) => number.clone(),
    }
}

fn float(number: &Number) -> Option<f64> {
    if number.is_f64() {
        number.as_f64()
    } else {
        None
    }
}

/// Returns a number as sigs.k8s.io/yaml writes it into a text field. A float has the precision of 32 bits, and an exponent
/// if that is below -4 or above 5 (`strconv.FormatFloat(number, 'g', -1, 32)`).
pub(super) fn as_text(number: &Number) -> String {
    let Some(float) = float(number) else {
        return number.to_string();
    };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "Go rounds to 32 bits as well"
    )]
    let float = float as f32;
    if float == f32::INFINITY {
        return "+Inf".to_owned();
    }
    if float == f32::NEG_INFINITY {
        return "-Inf".to_owned();
    }
    let scientific = format!("{float:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => float.to_string(),
    }
}
