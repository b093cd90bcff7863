//! The demo as text.

use std::time::Duration;

use super::{Report, Row};
use crate::report::{Column, Table, bytes, count, duration, heading, short};

fn time(ms: f64) -> String {
    duration(Duration::from_secs_f64(ms.max(0.0) / 1e3))
}

pub(super) fn text(report: &Report) -> String {
    let mut out = format!(
        "{}\n\n\
         Each document is computed once, alone, and kept as an entry: keys and values of the attention layers, and for\n\
         each linear layer an operator (T, S) that maps any incoming state to the state after the document. Every question\n\
         below has the documents in another order; \"spliced\" reuses the entries at their new places and computes only the\n\
         first {} tokens of each document (the seam) and the question, \"full\" computes every token.\n\n",
        heading("Seam: documents computed once, reused in any order"),
        report.seam,
    );
    out += &format!("model {}, device {}\n\n", report.model, report.device.name);

    out += &format!("{}\n", heading("Documents, computed by the first question"));
    let mut table =
        Table::new(&[Column::Left("name"), Column::Right("tokens"), Column::Right("entry"), Column::Left("begins")]);
    for d in &report.documents {
        table.row([d.name.clone(), count(d.tokens as u64), bytes(d.entry_bytes), d.begins.clone()]);
    }
    out += &format!("{}\n{}\n", table.render(), heading("Questions"));

    let mut table = Table::new(&[Column::Right("#"), Column::Left("question")]);
    for (i, row) in report.questions.iter().enumerate() {
        table.row([(i + 1).to_string(), row.question.clone()]);
    }
    out += &format!("{}\n{}\n", table.render(), heading("Answers"));

    let mut table = Table::new(&[
        Column::Right("#"),
        Column::Left("order"),
        Column::Left("spliced"),
        Column::Left("full"),
        Column::Left("agree"),
        Column::Left("correct answer"),
        Column::Right("reused"),
        Column::Right("computed"),
        Column::Right("TTFT spliced"),
        Column::Right("TTFT full"),
    ]);
    for (i, row) in report.questions.iter().enumerate() {
        table.row([
            (i + 1).to_string(),
            row.order.clone(),
            short(&row.spliced, 24),
            short(&row.full, 24),
            if row.agree { "yes" } else { "NO" }.to_owned(),
            short(&row.gold, 24),
            count(row.reused),
            count(row.computed),
            time(row.ttft_spliced_ms),
            time(row.ttft_full_ms),
        ]);
    }
    out += &table.render();
    out += "reused, computed: tokens of the prompt. TTFT: time to the first token of the answer.\n\n";
    out + &summary(report)
}

fn summary(report: &Report) -> String {
    let s = &report.summary;
    let part = 100.0 * s.computed_spliced as f64 / s.computed_full.max(1) as f64;
    let mut out = format!(
        "{}\n\
         tokens computed       {} spliced, {} in full ({part:.0} %)\n\
         median TTFT           {} spliced, {} in full",
        heading("Summary"),
        count(s.computed_spliced),
        count(s.computed_full),
        time(s.median_ttft_spliced_ms),
        time(s.median_ttft_full_ms),
    );
    if s.median_ttft_spliced_ms > 0.0 {
        out += &format!(" ({:.1} times)", s.median_ttft_full_ms / s.median_ttft_spliced_ms);
    }
    out += &format!(
        "\nanswers that agree    {} of {}\ncorrect answers       {} spliced, {} in full\n",
        s.agree, s.questions, s.spliced_correct, s.full_correct
    );
    let differing: Vec<String> = report.questions.iter().enumerate().filter(|(_, r)| !r.agree).map(differs).collect();
    out += &if differing.is_empty() {
        "No answer differs here.".to_owned()
    } else {
        format!("They differ in {}.", differing.join("; "))
    };
    out + "\n" + s.note + "\n"
}

fn differs((i, row): (usize, &Row)) -> String {
    format!("question {}: {} spliced, {} in full, {} is correct", i + 1, row.spliced, row.full, row.gold)
}

#[cfg(test)]
mod tests {
    use seam_pic::Mode;

    use super::super::{DeviceInfo, Document, Summary, median};
    use super::*;

    fn row(spliced: &str, full: &str, ttft: f64) -> Row {
        Row {
            order: "BA".into(),
            question: "What?".into(),
            gold: "x".into(),
            spliced: spliced.into(),
            full: full.into(),
            agree: spliced == full,
            spliced_correct: spliced == "x",
            full_correct: full == "x",
            prompt_tokens: 1000,
            reused: 900,
            computed: 100,
            ttft_spliced_ms: ttft,
            ttft_full_ms: 40.0,
        }
    }

    fn report(questions: Vec<Row>) -> Report {
        Report {
            device: DeviceInfo { kind: "cpu".into(), name: "cpu, 2 threads".into(), driver: "d".into() },
            model: "m".into(),
            mode: Mode::Transition,
            seam: 8,
            documents: vec![Document { name: "A".into(), tokens: 450, entry_bytes: 1 << 20, begins: "Once".into() }],
            summary: Summary::of(&questions),
            questions,
        }
    }

    #[test]
    fn disagreement_is_said_and_counted() {
        let report = report(vec![row("x", "x", 10.0), row("y", "x", 30.0)]);
        assert_eq!((report.summary.agree, report.summary.spliced_correct, report.summary.full_correct), (1, 1, 2));
        let text = text(&report);
        for wanted in [
            "1 of 2",
            "question 2: y spliced, x in full, x is correct",
            "200 spliced, 2,000 in full (10 %)",
            "(2.0 times)",
        ] {
            assert!(text.contains(wanted), "{wanted} in\n{text}");
        }
        assert!(
            text.lines().any(|l| l
                .split_whitespace()
                .eq(["2", "BA", "y", "x", "NO", "x", "900", "100", "30.0", "ms", "40.0", "ms"])),
            "{text}"
        );
    }

    #[test]
    fn agreement_claims_no_exactness() {
        assert!(text(&report(vec![row("x", "x", 10.0)])).contains(super::super::NOTE));
    }

    #[test]
    fn the_json_has_what_scripts_need() {
        let json = serde_json::to_value(report(vec![row("x", "x", 10.0)])).unwrap();
        assert_eq!(json["questions"][0]["agree"], true);
        assert_eq!(json["summary"]["computed_full"], 1000);
        assert!(json["summary"]["note"].as_str().is_some_and(|n| n.contains("chosen")));
        assert_eq!(json["documents"][0]["entry_bytes"], 1 << 20);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(
            [vec![], vec![3.0], vec![1.0, 9.0, 2.0], vec![1.0, 2.0, 3.0, 9.0]].map(median),
            [0.0, 3.0, 2.0, 2.5]
        );
    }
}
