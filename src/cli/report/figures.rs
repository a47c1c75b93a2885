//! Numbers as people read them.

use tolerarch_engine::census::Amount;

/// `12.5`: cores with at most three decimals.
pub(super) fn cores(amount: Amount) -> String {
    amount.cpu_cores().to_string()
}

/// `1.5Gi`, in the unit that gives one to four digits.
pub(super) fn memory(amount: Amount) -> String {
    let mut tenths = u128::from(amount.memory_bytes) * 10;
    let mut units = ["", "Ki", "Mi", "Gi", "Ti", "Pi"].into_iter().peekable();
    while let Some(unit) = units.next() {
        if tenths < 10_240 || units.peek().is_none() {
            let decimal =
                if tenths % 10 == 0 || tenths >= 1000 { String::new() } else { format!(".{}", tenths % 10) };
            return format!("{}{decimal}{unit}", tenths / 10);
        }
        tenths = (tenths + 512) / 1024;
    }
    String::new()
}

/// Of a whole, rounded; nothing of nothing.
pub(super) fn percent(part: u64, whole: u64) -> u64 {
    let (part, whole) = (u128::from(part), u128::from(whole));
    u64::try_from((part * 200 + whole) / (whole * 2).max(1)).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let of = |cpu_millis, memory_bytes| Amount { cpu_millis, memory_bytes, pods: 1 };
        for (millis, text) in
            [(0, "0"), (1, "0.001"), (250, "0.25"), (1000, "1"), (12_500, "12.5"), (100_000, "100")]
        {
            assert_eq!(cores(of(millis, 0)), text);
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
        for (part, whole, expected) in
            [(0, 0, 0), (1, 3, 33), (2, 3, 67), (3, 3, 100), (u64::MAX, u64::MAX, 100)]
        {
            assert_eq!(percent(part, whole), expected);
        }
    }
}
