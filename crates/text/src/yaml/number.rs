//! Numbers as Go writes them.

use serde_json::Number;

/// Largest whole number up to which Go writes a float without an exponent.
const WHOLE: f64 = 1e21;

/// Returns a number as what reads Go's JSON sees it: Go writes a float without a fraction if it has none.
pub(super) fn in_json(number: &Number) -> Number {
    let Some(float) = float(number) else {
        return number.clone();
    };
    if float.fract() == 0.0
        && float.abs() < WHOLE
        && !(float == 0.0 && float.is_sign_negative())
        && let Ok(whole) = format!("{float:.0}").parse()
    {
        return whole;
    }
    number.clone()
}

fn float(number: &Number) -> Option<f64> {
    if number.is_f64() {
        number.as_f64()
    } else {
        None
    }
}

/// Returns a number as sigs.k8s.io/yaml writes it where a text belongs: a float with the precision of 32 bits, and with an
/// exponent if that is below -4 or above 5 (`strconv.FormatFloat(number, 'g', -1, 32)`).
pub(super) fn as_text(number: &Number) -> String {
    let Some(float) = float(number) else {
        return number.to_string();
    };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "Go rounds to 32 bits as well"
    )]
    let float = float as f32;
    if float.is_infinite() {
        return if float > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
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
