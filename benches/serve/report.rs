//! The results as a table with a column for each process.

use super::target::Target;
use crate::support::Result;

/// Prints the table, and the share of the ceiling that each process reaches. The ceiling is the last target.
pub(crate) fn report(targets: &[Target]) -> Result<()> {
    let row = |what: &str, cell: &dyn Fn(&Target) -> String| {
        let cells: String = targets
            .iter()
            .map(|target| format!("{:<28}", cell(target)))
            .collect();
        println!("{}", format!("{what:<26}{cells}").trim_end());
    };
    row("", &|target| target.name.to_owned());
    row("reviews per CPU-second", &|target| spread(&target.rates, 0));
    row("CPU per review", &|target| {
        format!("{:.1} µs", 1e6 / median(&target.rates))
    });
    row("sleeps per review", &|target| {
        format!(
            "{:.2}",
            target.sleeps as f64 / target.latencies.len() as f64
        )
    });
    row("latency p50, p99", &|target| {
        let mut latencies = target.latencies.clone();
        latencies.sort_unstable();
        let at = |share: usize| {
            latencies
                .get(latencies.len() * share / 100)
                .copied()
                .unwrap_or_default()
        };
        format!(
            "{:.2} ms, {:.2} ms",
            at(50).as_secs_f64() * 1e3,
            at(99).as_secs_f64() * 1e3
        )
    });
    let resident = targets
        .iter()
        .map(Target::resident)
        .collect::<Result<Vec<f64>>>()?;
    let cells: String = resident
        .iter()
        .map(|mebibytes| format!("{:<28}", format!("{mebibytes:.1} MiB")))
        .collect();
    println!("{}\n", format!("{:<26}{cells}", "resident").trim_end());
    let Some((ceiling, others)) = targets.split_last() else {
        return Ok(());
    };
    for target in others {
        let share = |(rate, most): (&f64, &f64)| 100.0 * rate / most;
        let shares: Vec<f64> = target.rates.iter().zip(&ceiling.rates).map(share).collect();
        println!(
            "{} reaches {} % of its ceiling.",
            target.name,
            spread(&shares, 1)
        );
    }
    for pair in others.windows(2) {
        let [this, other] = pair else { continue };
        let share = |(rate, other): (&f64, &f64)| 100.0 * other / rate;
        let shares: Vec<f64> = this.rates.iter().zip(&other.rates).map(share).collect();
        println!(
            "A review costs {} {} % of the CPU that it costs {}.",
            this.name,
            spread(&shares, 1),
            other.name
        );
    }
    Ok(())
}

/// Returns the median, and the range of the middle half of the values.
fn spread(values: &[f64], digits: usize) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |quarter: usize| {
        sorted
            .get(sorted.len() * quarter / 4)
            .copied()
            .unwrap_or(f64::NAN)
    };
    format!(
        "{:.digits$} ({:.digits$}..{:.digits$})",
        median(values),
        at(1),
        at(3)
    )
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        _ if sorted.is_empty() => f64::NAN,
        0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    }
}
