//! Price file: the currency, and the hourly prices of a vCPU and of a GiB of memory on each architecture.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tolerarch_core::image::PlatformSet;
use tolerarch_engine::census::{Price, Prices};
use tolerarch_text::yaml::{self, Data, Dialect, Node};

/// Maximum bytes of the file.
const BYTES: u64 = 64 << 10;
/// Maximum number of characters of the currency, which is in the titles of tables.
const CURRENCY: usize = 16;
const EXAMPLE: &str = "such as amd64: {vcpuHour: 0.04, gibHour: 0.005}";

#[derive(Debug, Default)]
pub(super) struct PriceList {
    /// Name or sign of the currency, such as `USD`.
    pub(super) currency: String,
    pub(super) prices: Prices,
}

#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum PriceListError {
    #[error("--prices {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("--prices {}: {}", path.display(), faults.join("; "))]
    Invalid { path: PathBuf, faults: Vec<String> },
}

impl PriceList {
    pub(super) fn load(path: &Path) -> Result<Self, PriceListError> {
        let text = read(path).map_err(|error| PriceListError::Unreadable {
            path: path.to_owned(),
            error,
        })?;
        Self::parse(&text).map_err(|faults| PriceListError::Invalid {
            path: path.to_owned(),
            faults,
        })
    }

    /// Parses the file; fails with all faults, each with its line.
    fn parse(text: &str) -> Result<Self, Vec<String>> {
        let mut documents = yaml::read(text, Dialect::Text)
            .map_err(|fault| vec![format!("line {}: {}", fault.line, fault.message)])?;
        let document = documents.pop().filter(|_| documents.is_empty());
        let Some(Node {
            data: Data::Map(members),
            ..
        }) = document
        else {
            return Err(vec![
                "a price file is one document with currency and architectures".to_owned(),
            ]);
        };
        let mut list = Self::default();
        let mut faults = Vec::new();
        for (key, value) in &members {
            match key.text.as_str() {
                "currency" => list.read_currency(value, &mut faults),
                "architectures" => list.read_architectures(value, &mut faults),
                other => faults.push(format!(
                    "line {}: {other:?} is no key; keys are currency and architectures",
                    key.line
                )),
            }
        }
        if faults.is_empty() && list.currency.is_empty() {
            faults.push("currency is missing, such as currency: USD".to_owned());
        }
        if faults.is_empty() && list.prices.is_empty() {
            faults.push(format!("architectures has no price, {EXAMPLE}"));
        }
        if faults.is_empty() {
            Ok(list)
        } else {
            Err(faults)
        }
    }

    fn read_currency(&mut self, node: &Node, faults: &mut Vec<String>) {
        match &node.data {
            Data::Text(text) if is_currency(text.trim()) => {
                text.trim().clone_into(&mut self.currency);
            }
            _ => faults.push(format!(
                "line {}: currency is a text of up to {CURRENCY} letters, digits, spaces, hyphens, currency signs, and \
                 points at the end of words, such as USD",
                node.line
            )),
        }
    }

    fn read_architectures(&mut self, node: &Node, faults: &mut Vec<String>) {
        let Data::Map(members) = &node.data else {
            faults.push(format!(
                "line {}: architectures has a key for each architecture, {EXAMPLE}",
                node.line
            ));
            return;
        };
        let mut named = PlatformSet::EMPTY;
        for (key, value) in members {
            let name = key.text.as_str();
            let platforms = PlatformSet::of_architecture(name);
            let prefix = format!("line {}: architectures.{name}", key.line);
            if platforms.is_empty() {
                let architectures = PlatformSet::ALL.architectures().join(", ");
                faults.push(format!(
                    "{prefix} is not an architecture of nodes: {architectures}"
                ));
            } else if platforms.intersects(named) {
                faults.push(format!("{prefix} is repeated; remove one of the two"));
            } else if let Some(price) = read_price(value, &prefix, faults) {
                self.prices.add(platforms, price);
            }
            named |= platforms;
        }
    }
}

/// Returns whether a text can be the name of a currency. Such a text has no mention, link, markup or control character.
pub(super) fn is_currency(text: &str) -> bool {
    let is_word = |word: &str| {
        let letters = word.strip_suffix('.').unwrap_or(word);
        letters.chars().all(is_in_currency)
    };
    !text.trim().is_empty() && text.chars().count() <= CURRENCY && text.split(' ').all(is_word)
}

fn is_in_currency(character: char) -> bool {
    let is_sign = matches!(character, '$' | '¢'..='¥' | '฿' | '៛' | '₠'..='\u{20cf}' | '﷼');
    character.is_alphanumeric() || character == '-' || is_sign
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = fs::File::open(path)?
        .take(BYTES + 1)
        .read_to_string(&mut text)?;
    if read as u64 > BYTES {
        let message = format!("larger than {BYTES} bytes: a price file has a few lines");
        return Err(io::Error::other(message));
    }
    Ok(text)
}

/// Reads both prices of an architecture. Messages on faults begin with `prefix`.
fn read_price(node: &Node, prefix: &str, faults: &mut Vec<String>) -> Option<Price> {
    let before = faults.len();
    let Data::Map(members) = &node.data else {
        faults.push(format!("{prefix} has vcpuHour and gibHour, {EXAMPLE}"));
        return None;
    };
    let mut vcpu = None;
    let mut gib = None;
    for (key, value) in members {
        let price = match key.text.as_str() {
            "vcpuHour" => &mut vcpu,
            "gibHour" => &mut gib,
            other => {
                faults.push(format!(
                    "{prefix}.{other} is no key; keys are vcpuHour and gibHour"
                ));
                continue;
            }
        };
        let text = match &value.data {
            Data::Text(text) => text,
            _ => "",
        };
        match Price::parse(text) {
            Ok(billionths) if price.is_none() => *price = Some(billionths),
            Ok(_) => faults.push(format!("{prefix}.{} is repeated", key.text)),
            Err(error) => faults.push(format!("{prefix}.{}: {error}", key.text)),
        }
    }
    match (vcpu, gib) {
        (Some(vcpu), Some(gib)) => Some(Price { vcpu, gib }),
        _ if faults.len() > before => None,
        _ => {
            faults.push(format!("{prefix} needs both vcpuHour and gibHour"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_have_their_line_and_the_allowed_values() {
        const VALID: &str = "currency: EUR\narchitectures:\n  amd64: {vcpuHour: 0.04, gibHour: '0.005'}\n  arm64: {vcpuHour: 0.03, gibHour: 0}\n";
        let list = PriceList::parse(VALID).unwrap();
        assert_eq!(list.currency, "EUR");
        for currency in [
            "US$",
            "€",
            "¥",
            "₹",
            "₿",
            "zł",
            "Kč",
            "رس",
            "円",
            "AU $ 2026",
        ] {
            let text = VALID.replacen("EUR", currency, 1);
            let list = PriceList::parse(&text);
            assert_eq!(list.unwrap().currency, currency);
        }
        for (before, after, expected) in [
            ("currency: EUR\n", "", "currency is missing"),
            ("EUR", "[EUR]", "line 1: currency is a text"),
            ("EUR", "'  '", "line 1: currency is a text"),
            (
                "EUR",
                "a currency of too many letters",
                "line 1: currency is a text",
            ),
            ("EUR", "'@octocat'", "line 1: currency is a text of up to"),
            (
                "EUR",
                "https://a.test",
                "line 1: currency is a text of up to",
            ),
            ("EUR", "a.test", "line 1: currency is a text of up to"),
            (
                "EUR",
                r#""E\u0007R""#,
                "line 1: currency is a text of up to",
            ),
            (
                "EUR",
                r#""E\u202eR""#,
                "line 1: currency is a text of up to",
            ),
            ("EUR", "'#12'", "line 1: currency is a text of up to"),
            ("EUR", "'`E`'", "line 1: currency is a text of up to"),
            ("EUR", "E|R", "line 1: currency is a text of up to"),
            ("EUR", "<b>", "line 1: currency is a text of up to"),
            ("currency:", "Currency:", "line 1: \"Currency\" is no key"),
            (
                "amd64",
                "x86",
                "line 3: architectures.x86 is not an architecture",
            ),
            ("arm64", "amd64", "line 4: architectures.amd64 is repeated"),
            (
                "0.04",
                "-1",
                "line 3: architectures.amd64.vcpuHour: a price",
            ),
            (
                "0.04",
                "[]",
                "line 3: architectures.amd64.vcpuHour: a price",
            ),
            ("0.04", "5000000", "at most 1000000"),
            (
                "vcpuHour: 0.03, ",
                "",
                "line 4: architectures.arm64 needs both",
            ),
            (
                "gibHour: 0}",
                "gb: 0}",
                "line 4: architectures.arm64.gb is no key",
            ),
        ] {
            let text = VALID.replacen(before, after, 1);
            let faults = PriceList::parse(&text).unwrap_err().join("; ");
            assert!(faults.contains(expected), "{expected} in {faults}");
        }
        for text in [
            "",
            "- a",
            "currency: EUR",
            "currency: EUR\n---\ncurrency: USD",
            "a: [",
        ] {
            assert!(PriceList::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn examples_of_the_documentation_are_valid() {
        let page = include_str!("../../../docs/report.md");
        let blocks = page.split("```yaml\n").skip(1);
        let examples: Vec<&str> = blocks
            .filter_map(|block| block.split("```").next())
            .collect();
        assert_eq!(examples.len(), 3);
        for example in examples {
            let list = PriceList::parse(example).unwrap();
            assert_eq!(list.currency, "USD", "{example}");
        }
    }
}
