//! Section of a report: a table that marks untrusted cells, and that each format renders in its own way.

use super::bill::decimal;
use tolerarch_engine::census::{Amount, Coverage, Money};

/// Title of the section with the steps.
pub(super) const NEXT: &str = "What to do next";

pub(super) struct Section {
    pub(super) title: String,
    /// Meaning of the table, and advice.
    pub(super) intro: String,
    pub(super) columns: Vec<&'static str>,
    pub(super) rows: Vec<Vec<Cell>>,
}

#[derive(Clone)]
pub(super) enum Cell {
    /// Text of this program.
    Text(String),
    /// Untrusted text: a name from the cluster.
    Name(String),
    /// Command for a shell, which is not wrapped.
    Command(String),
    /// A number, and its sort key.
    Number(String, f64),
    Coverage(Coverage),
}

impl Cell {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Name(text) | Self::Command(text) | Self::Number(text, _) => {
                text
            }
            Self::Coverage(coverage) => coverage.as_str(),
        }
    }

    pub(super) fn number(number: u64) -> Self {
        Self::Number(number.to_string(), number as f64)
    }

    pub(super) fn money(money: Money) -> Self {
        Self::Number(decimal(money), money.millionths() as f64)
    }

    pub(super) fn name(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

/// Returns CPU, memory and number of Pods.
pub(super) fn amount_cells(amount: Amount) -> [Cell; 3] {
    [
        Cell::Number(amount.cpu_cores().to_string(), amount.cpu_millis as f64),
        Cell::Number(memory(amount), amount.memory_bytes as f64),
        Cell::number(amount.pods),
    ]
}

/// Formats memory, such as `1.5Gi`, in the unit that gives one to four digits.
pub(super) fn memory(amount: Amount) -> String {
    const UNITS: [&str; 6] = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let mut tenths = u128::from(amount.memory_bytes) * 10;
    let mut unit = 0;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths = (tenths + 512) / 1024;
        unit += 1;
    }
    let decimal = if tenths % 10 == 0 || tenths >= 1000 {
        String::new()
    } else {
        format!(".{}", tenths % 10)
    };
    format!("{}{decimal}{}", tenths / 10, UNITS[unit])
}

/// Returns the rounded percentage of a whole; 0 for a whole of 0.
pub(super) fn percent(part: u64, whole: u64) -> u64 {
    if whole == 0 {
        return 0;
    }
    let part = u128::from(part);
    let whole = u128::from(whole);
    u64::try_from((part * 200 + whole) / (whole * 2)).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_formatted_briefly() {
        let of = |cpu_millis, memory_bytes| Amount {
            cpu_millis,
            memory_bytes,
            pods: 1,
        };
        for (millis, text) in [
            (0, "0"),
            (1, "0.001"),
            (250, "0.25"),
            (1000, "1"),
            (12_500, "12.5"),
            (100_000, "100"),
        ] {
            assert_eq!(of(millis, 0).cpu_cores().to_string(), text);
        }
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1Ki"),
            (1536, "1.5Ki"),
            (128 << 20, "128Mi"),
            (1 << 30, "1Gi"),
            ((1 << 30) + (1 << 29), "1.5Gi"),
            (5000 << 30, "4.9Ti"),
            (u64::MAX, "16384Pi"),
        ] {
            assert_eq!(memory(of(0, bytes)), text, "{bytes}");
        }
        for (part, whole, expected) in [
            (0, 0, 0),
            (1000, 0, 0),
            (1, 3, 33),
            (2, 3, 67),
            (3, 3, 100),
            (u64::MAX, u64::MAX, 100),
        ] {
            assert_eq!(percent(part, whole), expected);
        }
    }
}
