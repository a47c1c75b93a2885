//! The costs of Pods by their requests, with prices of a vCPU-hour and a GiB-hour for each architecture.

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

use super::amount::Amount;
use tolerarch_core::image::PlatformSet;

/// Hours of a month as in the price calculators of AWS, Azure and Google: 365 × 24 / 12.
const HOURS: u128 = 730;
/// Billionths of the currency in a price of 1.
const NANO: u64 = 1_000_000_000;
/// Maximum number of decimals of a price.
const DECIMALS: usize = 9;
/// Maximum price of an hour. A higher price is taken for a mistake.
const LARGEST: u64 = 1_000_000;
const GIB: u128 = 1 << 30;

/// An amount of money a month, in millionths of the currency. Sums saturate, as requests are untrusted input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Money(u64);

impl Money {
    pub fn millionths(self) -> u64 {
        self.0
    }

    /// Returns the amount in the currency. It is exact to the millionth up to a billion.
    pub fn value(self) -> f64 {
        self.0 as f64 / 1e6
    }

    pub fn add(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }

    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// The prices of an hour, in billionths of the currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    pub vcpu: u64,
    pub gib: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PriceError {
    #[error("a price is a decimal number with a point and up to nine decimals, such as 0.0345")]
    Form,
    #[error("a price of an hour is at most {LARGEST}")]
    TooLarge,
}

impl Price {
    /// Parses the price of an hour into billionths.
    pub fn parse(text: &str) -> Result<u64, PriceError> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        if whole.is_empty() || text.ends_with('.') || fraction.len() > DECIMALS {
            return Err(PriceError::Form);
        }
        let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) {
            return Err(PriceError::Form);
        }
        let Ok(whole) = whole.parse::<u64>() else {
            return Err(PriceError::TooLarge);
        };
        let fraction = format!("{fraction:0<DECIMALS$}");
        let Ok(fraction) = fraction.parse::<u64>() else {
            return Err(PriceError::Form);
        };
        let price = whole.saturating_mul(NANO).saturating_add(fraction);
        if price > LARGEST.saturating_mul(NANO) {
            return Err(PriceError::TooLarge);
        }
        Ok(price)
    }

    /// Returns the cost of these requests a month, rounded to the millionth; a half is rounded up.
    pub fn of(self, requests: Amount) -> Money {
        let millis = u128::from(requests.cpu_millis);
        let bytes = u128::from(requests.memory_bytes);
        // Both terms are in billionths an hour, multiplied by 1,000 × GIB.
        let vcpus = u128::from(self.vcpu).saturating_mul(millis);
        let vcpus = vcpus.saturating_mul(GIB);
        let gibs = u128::from(self.gib).saturating_mul(bytes);
        let gibs = gibs.saturating_mul(1000);
        let cost = vcpus.saturating_add(gibs).saturating_mul(HOURS);
        // A millionth is a thousand billionths.
        let millionth = GIB * 1000 * 1000;
        let rounded = cost.saturating_add(millionth / 2) / millionth;
        Money(u64::try_from(rounded).unwrap_or(u64::MAX))
    }
}

/// Prices by architecture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prices {
    by_platform: Vec<(PlatformSet, Price)>,
}

impl Prices {
    pub fn add(&mut self, platforms: PlatformSet, price: Price) {
        self.by_platform.push((platforms, price));
    }

    pub fn is_empty(&self) -> bool {
        self.by_platform.is_empty()
    }

    /// Returns the prices, each with the platforms of one architecture.
    pub fn by_platform(&self) -> &[(PlatformSet, Price)] {
        &self.by_platform
    }

    /// Returns the cost of these requests on the cheapest of the platforms; `None` if no platform has a price.
    pub fn cheapest(&self, platforms: PlatformSet, requests: Amount) -> Option<Money> {
        let mut least: Option<Money> = None;
        for (priced, price) in &self.by_platform {
            if !priced.intersects(platforms) {
                continue;
            }
            let cost = price.of(requests);
            least = match least {
                Some(least) => Some(least.min(cost)),
                None => Some(cost),
            };
        }
        least
    }
}

/// The costs of Pods a month, by their requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Costs on the nodes where the Pods run.
    pub today: Money,
    /// Costs if each Pod ran on the cheapest platform where it may run.
    pub after: Money,
    /// Further savings if the images of the other Pods ran on all platforms of their pools.
    pub kept: Money,
    /// Number of Pods without costs: they have no node, or a node without a price.
    pub uncounted: u64,
}

impl Costs {
    pub fn saved(self) -> Money {
        self.today.less(self.after)
    }

    pub(super) fn add(&mut self, other: Self) {
        self.today.add(other.today);
        self.after.add(other.after);
        self.kept.add(other.kept);
        self.uncounted = self.uncounted.saturating_add(other.uncounted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_decimal_numbers() {
        for (text, expected) in [
            ("0", Ok(0)),
            ("1", Ok(NANO)),
            ("0.0345", Ok(34_500_000)),
            ("0.000000001", Ok(1)),
            ("00.5", Ok(NANO / 2)),
            ("1000000", Ok(LARGEST * NANO)),
            ("1000000.000000001", Err(PriceError::TooLarge)),
            ("99999999999999999999", Err(PriceError::TooLarge)),
            ("0.0000000001", Err(PriceError::Form)),
            ("", Err(PriceError::Form)),
            (".5", Err(PriceError::Form)),
            ("5.", Err(PriceError::Form)),
            ("-1", Err(PriceError::Form)),
            ("+1", Err(PriceError::Form)),
            ("1e3", Err(PriceError::Form)),
            ("0,5", Err(PriceError::Form)),
            ("0.5.5", Err(PriceError::Form)),
            ("NaN", Err(PriceError::Form)),
        ] {
            assert_eq!(Price::parse(text), expected, "{text:?}");
        }
    }

    #[test]
    fn monthly_cost_is_exact_to_the_millionth() {
        let price = Price {
            vcpu: Price::parse("0.04048").unwrap(),
            gib: Price::parse("0.004445").unwrap(),
        };
        let requests = |cpu_millis, memory_bytes| Amount {
            cpu_millis,
            memory_bytes,
            pods: 1,
        };
        // 730 × (0.25 × 0.04048 + 0.5 × 0.004445)
        assert_eq!(price.of(requests(250, 1 << 29)).millionths(), 9_010_025);
        assert_eq!(price.of(requests(0, 0)), Money::default());
        let cent = Price { vcpu: 1, gib: 1 };
        // 730 billionths for a core are 0.73 millionths, half of that 0.365.
        assert_eq!(cent.of(requests(1000, 0)).millionths(), 1);
        assert_eq!(cent.of(requests(500, 0)).millionths(), 0);
        let most = Price {
            vcpu: LARGEST * NANO,
            gib: LARGEST * NANO,
        };
        let saturated = most.of(requests(u64::MAX, u64::MAX));
        assert!(saturated.millionths() > 1 << 60, "{saturated:?}");
    }
}
