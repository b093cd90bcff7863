//! Quality as tables and plots.

use std::collections::BTreeSet;

use seam_engine::quality::Row;
use seam_pic::Mode;

use super::Document;
use crate::reference::{Comparison, Difference};
use crate::report::{Column, Panel, Scale, Series, Table, count, heading, verdict};

/// The order in which types of questions are listed; others follow by name.
const TYPES: [&str; 7] = ["single", "reverse", "twohop", "compare", "count", "which", "yesno"];

pub(super) fn text(document: &Document<'_>) -> String {
    let mut out = format!(
        "{}\n{}",
        heading("Exact match in percent by type of question; agreement, KL and NLL over all"),
        table(document.rows)
    );
    out += &format!(
        "\n{} prompts in {:.1} s on {}. =full: percent of answers equal to those of full recomputation. KL(full‖mode) and\n\
         NLL of the answer in nats, mean over its tokens.\n",
        count(document.prompts as u64),
        document.seconds,
        document.device.name,
    );
    if let Some(comparison) = document.reference {
        out += &format!("\n{}\n{}", heading("Against the reference (found / reference)"), differences(comparison));
    }
    out
}

/// The types that occur, in order.
fn types(rows: &[Row]) -> Vec<&str> {
    let mut left: BTreeSet<&str> = rows.iter().flat_map(|r| r.by_type.keys()).map(String::as_str).collect();
    let mut out: Vec<&str> = TYPES.into_iter().filter(|t| left.remove(t)).collect();
    out.extend(left);
    out
}

fn table(rows: &[Row]) -> String {
    let types = types(rows);
    let mut table = Table::new(&[Column::Left("")]);
    for kind in types.iter().chain(&["all", "=full", "KL", "NLL"]) {
        table.right(kind);
    }
    if let Some(first) = rows.first() {
        let counts = types.iter().map(|t| first.by_type.get(*t).map_or(0, |t| t.prompts)).chain([first.all.prompts]);
        table.row(std::iter::once("prompts".to_owned()).chain(counts.map(|n| n.to_string())));
    }
    for row in rows {
        let exact = types
            .iter()
            .map(|t| row.by_type.get(*t).map_or_else(|| "-".into(), |t| format!("{:.1}", t.exact_percent())));
        let all = &row.all;
        let rest = [
            format!("{:.1}", all.exact_percent()),
            format!("{:.1}", all.agree_percent()),
            format!("{:.4}", all.mean_kl()),
            format!("{:.4}", all.mean_nll()),
        ];
        table.row(std::iter::once(row.setting.to_string()).chain(exact).chain(rest));
    }
    table.render()
}

fn differences(comparison: &Comparison) -> String {
    let mut table = Table::new(&[
        Column::Left(""),
        Column::Right("exact"),
        Column::Right("=full"),
        Column::Right("KL"),
        Column::Right("NLL"),
        Column::Left("verdict"),
    ]);
    let percent = |[a, b]: [f64; 2]| format!("{a:.1} / {b:.1}");
    let nats = |[a, b]: [f64; 2]| format!("{a:.4} / {b:.4}");
    for d in &comparison.differences {
        let Difference { setting, exact, agree, kl, nll, misses } = d;
        let verdict = if misses.is_empty() { "ok" } else { "FAILED" };
        table.row([setting.clone(), percent(*exact), percent(*agree), nats(*kl), nats(*nll), verdict.to_owned()]);
    }
    let mut out = table.render();
    for d in comparison.differences.iter().filter(|d| !d.misses.is_empty()) {
        out += &format!("{}: {}\n", d.setting, d.misses.join("; "));
    }
    if !comparison.without_reference.is_empty() {
        out += &format!("not in the reference: {}\n", comparison.without_reference.join(", "));
    }
    let summary =
        if comparison.passed { "within the bounds of the reference" } else { "NOT within the bounds of the reference" };
    out + &verdict(comparison.passed, summary) + "\n"
}

/// KL and agreement against the seam width, a line for each mode.
pub(super) fn panels(rows: &[Row]) -> Vec<Panel> {
    let panel = |title: &str, scale, value: fn(&Row) -> f64| {
        let series = |mode: Mode| {
            let of_mode = rows.iter().filter(|r| r.setting.mode == mode);
            let mut points: Vec<(f64, f64)> = of_mode.map(|r| (f64::from(r.setting.seam), value(r))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Series { name: mode.name().to_owned(), points }
        };
        let modes = Mode::ALL.into_iter().filter(|m| *m != Mode::Full);
        let series = modes.map(series).filter(|s| !s.points.is_empty()).collect();
        Panel { title: title.to_owned(), x: "seam width in tokens".to_owned(), scale, series }
    };
    vec![
        panel("KL(full‖mode), nats", Scale::Log, |r| r.all.mean_kl()),
        panel("answers equal to full, percent", Scale::Linear, |r| r.all.agree_percent()),
    ]
}

#[cfg(test)]
mod tests {
    use seam_engine::quality::{Evaluation, PromptScores, Scores, Setting};

    use super::*;
    use crate::commands::DeviceInfo;

    fn evaluation() -> Evaluation {
        let mut out = Evaluation::new(&Setting::grid(&[Mode::Transition, Mode::Addition], &[8, 0]));
        for (index, kind) in ["yesno", "single", "other", "single"].into_iter().enumerate() {
            let score = |row| Scores { exact: index != 1, agree: row < 3, kl: 0.001 * f64::from(row), nll: 0.25 };
            let scores = (0..5).map(score).collect();
            out.add(PromptScores { index, kind: kind.into(), tokens: 10, docs: 1, scores });
        }
        out
    }

    #[test]
    fn the_table_has_a_row_for_each_setting_and_known_types_first() {
        let e = evaluation();
        let text = table(&e.rows);
        let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["single", "yesno", "other", "all", "=full", "KL", "NLL"]);
        assert_eq!(lines[2], ["prompts", "2", "1", "1", "4"]);
        assert_eq!(lines[3], ["full", "50.0", "100.0", "100.0", "75.0", "100.0", "0.0000", "0.2500"]);
        assert_eq!(lines[6], ["addition", "w=8", "50.0", "100.0", "100.0", "75.0", "0.0", "0.0030", "0.2500"]);
        assert_eq!(lines.len(), 8);
    }

    #[test]
    fn plots_have_a_line_for_each_mode_in_order_of_the_seam() {
        let panels = panels(&evaluation().rows);
        assert_eq!(panels.len(), 2);
        let names: Vec<&str> = panels[0].series.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["transition", "addition"]);
        assert_eq!(panels[0].series[0].points, [(0.0, 0.002), (8.0, 0.001)]);
        let svg = crate::report::svg(&panels).unwrap();
        // Each mode in the legend of each panel.
        assert_eq!(svg.matches("\naddition\n").count(), 2, "{svg}");
    }

    #[test]
    fn misses_are_named_below_the_table() {
        let difference = Difference {
            setting: "addition w=0".into(),
            exact: [59.8, 62.0],
            agree: [81.6, 81.6],
            kl: [0.05, 0.0358],
            nll: [0.2, 0.2],
            misses: vec!["exact match differs by 2.2 points".into()],
        };
        let comparison = Comparison {
            passed: false,
            differences: vec![difference],
            without_reference: vec!["last-state w=0".into()],
        };
        let e = evaluation();
        let document = Document {
            device: DeviceInfo { kind: "cpu".into(), name: "n".into(), driver: "d".into() },
            model: "m".into(),
            set: "s".into(),
            prompts: 4,
            seconds: 1.0,
            rows: &e.rows,
            reference: Some(&comparison),
        };
        let text = text(&document);
        assert!(text.contains("59.8 / 62.0") && text.contains("FAILED"), "{text}");
        assert!(text.contains("addition w=0: exact match differs by 2.2 points"));
        assert!(text.contains("not in the reference: last-state w=0") && text.contains("NOT within"));
        let json = serde_json::to_value(&document).unwrap();
        assert_eq!(json["rows"][1]["mode"], "transition");
        assert_eq!(json["rows"][1]["seam"], 8);
        assert_eq!(json["rows"][1]["all"]["prompts"], 4);
        assert_eq!(json["reference"]["passed"], false);
    }
}
