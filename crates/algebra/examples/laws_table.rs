//! The table of all families and laws on their f64 oracles: `cargo run --release --example laws_table -- [cases] [seed]`.

use seam_algebra::families;
use seam_algebra::laws::{Options, family_verdict, oracle_table, render};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let cases = numbers.next().transpose()?.unwrap_or(40) as usize;
    let seed = numbers.next().transpose()?.unwrap_or(0);
    let rows = oracle_table(&Options { seed, cases, max_len: 300 }, &mut |_, _| ());
    let mut text = render(&rows);
    for family in families::all() {
        text += &format!("{}: {}\n", family.name(), family_verdict(*family, &rows));
    }
    for report in rows.iter().map(|row| &row.report) {
        text += &report.test().unwrap_or_default();
    }
    std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes())?;
    Ok(())
}
