//! Amounts of resources, read as in Kubernetes (k8s.io/apimachinery `resource.ParseQuantity`).

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

use std::ops::Add;

use serde::de::{Deserialize, Deserializer, Error};

/// Maximum number of digits after the point that are read.
const FRACTION: usize = 12;
const NANO: u128 = 1_000_000_000;

/// An amount of a resource in billionths, the precision of Kubernetes. A negative amount counts as zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(u128);

impl Quantity {
    /// One unit: one core, or one node.
    pub const ONE: Self = Self(NANO);

    /// Returns whole units, rounded up: bytes of memory.
    pub fn units(self) -> u64 {
        self.in_parts(NANO)
    }

    /// Returns thousandths, rounded up: millicores.
    pub fn millis(self) -> u64 {
        self.in_parts(NANO / 1000)
    }

    fn in_parts(self, part: u128) -> u64 {
        u64::try_from(self.0.div_ceil(part)).unwrap_or(u64::MAX)
    }

    /// Reads a quantity; `None` if Kubernetes does not accept the text.
    pub fn parse(text: &str) -> Option<Self> {
        let is_negative = text.starts_with('-');
        let text = text.strip_prefix(['-', '+']).unwrap_or(text);
        let suffix = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number = &text[..text.len().saturating_sub(suffix.len())];
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let scale = Scale::of(suffix)?;
        if is_negative {
            return Some(Self::default());
        }
        let fraction = &fraction[..fraction.len().min(FRACTION)];
        let digits = ["0", whole, fraction].concat();
        // Kubernetes stores any number of digits: too many are the only reason to fail here.
        let amount = digits.parse().unwrap_or(u128::MAX);
        let fraction_digits = i32::try_from(fraction.len()).ok()?;
        let exponent = scale.exponent.saturating_add(9);
        let exponent = exponent.saturating_sub(fraction_digits);
        Some(Self(scaled(amount.saturating_mul(scale.factor), exponent)))
    }
}

/// Meaning of a suffix.
struct Scale {
    factor: u128,
    /// Power of ten.
    exponent: i32,
}

impl Scale {
    fn of(suffix: &str) -> Option<Self> {
        let factor = match suffix {
            "Ki" => 1 << 10,
            "Mi" => 1 << 20,
            "Gi" => 1 << 30,
            "Ti" => 1 << 40,
            "Pi" => 1 << 50,
            "Ei" => 1 << 60,
            _ => 1,
        };
        let exponent = match suffix {
            "n" => -9,
            "u" => -6,
            "m" => -3,
            "" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei" => 0,
            "k" => 3,
            "M" => 6,
            "G" => 9,
            "T" => 12,
            "P" => 15,
            "E" => 18,
            _ => suffix.strip_prefix(['e', 'E'])?.parse().ok()?,
        };
        Some(Self { factor, exponent })
    }
}

/// Multiplies by a power of ten, and rounds up.
fn scaled(amount: u128, exponent: i32) -> u128 {
    let power = 10_u128.saturating_pow(exponent.unsigned_abs());
    if exponent > 0 {
        amount.saturating_mul(power)
    } else {
        amount.div_ceil(power)
    }
}

impl Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?)
            .ok_or_else(|| D::Error::custom("not a quantity"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sums_never_overflow(
            text in "[+-]?[0-9]{0,60}(\\.[0-9]{0,60})?([eE][+-]?[0-9]{1,11}|[numkMGTPE]|[KMGTPE]i)?",
            other in "[0-9]{1,60}(E|Ei)?",
        ) {
            let one = Quantity::parse(&text).unwrap_or_default();
            let other = Quantity::parse(&other).unwrap_or_default();
            let sum = one + other;
            prop_assert!(sum >= one.max(other));
            prop_assert!(sum.millis() >= one.millis().max(other.millis()));
            prop_assert!(sum.units() >= one.units().max(other.units()));
        }
    }

    #[test]
    fn valid_quantities_are_read() {
        for (text, millis, units) in [
            ("0", 0, 0),
            ("100m", 100, 1),
            ("1", 1000, 1),
            ("1.5", 1500, 2),
            (".5", 500, 1),
            ("2.", 2000, 2),
            ("+3", 3000, 3),
            ("-3", 0, 0),
            ("1k", 1_000_000, 1000),
            ("128Mi", 134_217_728_000, 134_217_728),
            ("1.5Gi", 1_610_612_736_000, 1_610_612_736),
            ("129e6", 129_000_000_000, 129_000_000),
            ("129E+6", 129_000_000_000, 129_000_000),
            ("12E-1", 1200, 2),
            ("1P", 1_000_000_000_000_000_000, 1_000_000_000_000_000),
            ("1E", u64::MAX, 1_000_000_000_000_000_000),
            ("128974848", 128_974_848_000, 128_974_848),
            ("1u", 1, 1),
            ("1n", 1, 1),
            ("0.0000000001", 1, 1),
            ("1e-99", 1, 1),
        ] {
            let quantity = Quantity::parse(text).unwrap();
            assert_eq!(quantity.millis(), millis, "{text}");
            assert_eq!(quantity.units(), units, "{text}");
        }
        for text in ["9999999999999999999999999Ei", "1e99"] {
            assert_eq!(Quantity::parse(text).unwrap().units(), u64::MAX, "{text}");
        }
    }

    #[test]
    fn invalid_quantities_are_refused() {
        for text in [
            "", ".", "m", "1 Gi", "1gi", "1K", "1.2.3", "1e", "1e1.5", "0x1", "é", "--1", "1Mi ",
        ] {
            assert_eq!(Quantity::parse(text), None, "{text:?}");
        }
    }

    /// The API server stores a Pod with any number of digits, and a list with this Pod has to be read.
    #[test]
    fn quantities_of_any_length_are_read() {
        for digits in [28, 40, 100_000] {
            assert!(
                Quantity::parse(&"1".repeat(digits)).unwrap() > Quantity::parse("1E").unwrap(),
                "{digits}"
            );
            let small = format!("0.{}1", "0".repeat(digits));
            assert_eq!(Quantity::parse(&small), Some(Quantity(0)), "{digits}");
        }
    }

    #[test]
    fn sums_are_exact() {
        let third = Quantity::parse("0.1m").unwrap();
        assert_eq!((third + third + third).millis(), 1);
    }
}
