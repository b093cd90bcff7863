//! The report of an answer as text.

use std::time::Duration;

use seam_engine::Stop;
use seam_pic::Tier;

use super::{Report, Verified};
use crate::report::{Column, Table, bytes, count, duration, heading, ratio, short};

pub(super) fn tier(tier: Tier) -> &'static str {
    match tier {
        Tier::Device => "device",
        Tier::Host => "host",
        Tier::Disk => "disk",
    }
}

/// Everything below the answer. `decode` turns tokens into text.
pub(super) fn text(report: &Report, decode: impl Fn(&[u32]) -> String) -> String {
    let mut table = Table::new(&[
        Column::Right("#"),
        Column::Left("segment"),
        Column::Right("tokens"),
        Column::Right("reused"),
        Column::Right("computed"),
        Column::Right("entry"),
        Column::Left("cache"),
    ]);
    for segment in &report.segments {
        let r = &segment.report;
        let cache = match (r.hit, r.miss) {
            (Some(hit), _) => format!("hit, {}", tier(hit)),
            (None, Some(miss)) => format!("miss, {miss}: {}", r.why.as_deref().unwrap_or_default()),
            (None, None) => "-".to_owned(),
        };
        table.row([
            r.index.to_string(),
            short(&segment.what, 48),
            count(r.tokens as u64),
            count(r.reused as u64),
            count(r.computed as u64),
            if r.bytes == 0 { "-".to_owned() } else { bytes(r.bytes) },
            cache,
        ]);
    }
    let mut out = table.render();
    let time = |ms: f64| duration(Duration::from_secs_f64(ms.max(0.0) / 1e3));
    out += &format!(
        "\nmode {}, seam {}: {} of {} prompt tokens reused, {} computed in the prompt, {} computed alone for new entries\n",
        report.mode,
        report.seam,
        count(report.work.reused_tokens),
        count(report.prompt_tokens as u64),
        count(report.work.prompt_rows),
        count(report.work.cold_rows),
    );
    let rate = report.tokens_per_second.map_or_else(String::new, |r| format!(", then {r:.1} tokens/s"));
    let stop = match report.stop {
        Stop::Token => "the model ended the answer",
        Stop::Length => "the limit of new tokens ended the answer",
    };
    out += &format!("first token after {}{rate}; {} tokens, {stop}\n", time(report.ttft_ms), report.tokens.len());
    if !report.cache_warnings.is_empty() {
        out += &format!("\n{}\n", heading("Cache warnings"));
        for warning in &report.cache_warnings {
            out += &format!("{}: {}\n", tier(warning.tier), warning.what);
        }
    }
    if let Some(verified) = &report.verify {
        out += &drift(verified, report, decode);
    }
    out
}

fn drift(verified: &Verified, report: &Report, decode: impl Fn(&[u32]) -> String) -> String {
    let drift = &verified.drift;
    let mut table = Table::new(&[
        Column::Right("layer"),
        Column::Left("kind"),
        Column::Right("drift of hidden states"),
        Column::Right("drift of the state"),
    ]);
    for layer in &drift.layers {
        table.row([
            layer.layer.to_string(),
            if layer.full_attention { "full attention" } else { "linear" }.to_owned(),
            ratio(Some(layer.hidden)),
            ratio(layer.state),
        ]);
    }
    let mut out =
        format!("\n{}\n{}\n", heading("Drift against full recomputation (relative, at the question)"), table.render());
    out += &format!("KL(full‖{}) of the first answer token: {} nats\n", report.mode, ratio(Some(drift.kl)));
    match drift.first_difference {
        None => out += "the answers are the same, token by token\n",
        Some(at) => {
            let token = |tokens: &[u32]| match tokens.get(at) {
                Some(&t) => format!("{:?}", decode(&[t])),
                None => "the end".to_owned(),
            };
            let (own, full) = (token(&report.tokens), token(&drift.full_tokens));
            out += &format!("the answers differ from token {at} on: {own} here, {full} in full recomputation\n");
            out += &format!(
                "  {:<11} {}\n  {:<11} {}\n",
                report.mode,
                report.answer.trim(),
                "full",
                verified.full_answer.trim()
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use seam_engine::{Drift, LayerDrift, SegmentReport, Work};
    use seam_pic::{Mode, Role, Warning};

    use super::super::{DeviceInfo, Segment};
    use super::*;

    fn report() -> Report {
        let segment = |index, what: &str, hit, miss: Option<&'static str>| Segment {
            what: what.into(),
            report: SegmentReport {
                index,
                role: Some(Role::of(index)),
                tokens: 1200,
                reused: 1192,
                computed: 8,
                hit,
                miss,
                why: miss.map(|_| "it is new".into()),
                bytes: 1 << 20,
            },
        };
        Report {
            device: DeviceInfo { kind: "cpu".into(), name: "n".into(), driver: "d".into() },
            model: "m".into(),
            mode: Mode::Transition,
            seam: 8,
            answer: " a b".into(),
            tokens: vec![7, 8],
            stop: Stop::Token,
            prompt_tokens: 2400,
            segments: vec![segment(0, "a.txt", Some(Tier::Disk), None), segment(1, "b.txt", None, Some("absent"))],
            ttft_ms: 12.5,
            total_ms: 20.0,
            tokens_per_second: Some(80.0),
            work: Work { reused_tokens: 2384, ..Work::default() },
            cache_warnings: vec![Warning { tier: Tier::Disk, what: "full".into() }],
            verify: Some(Verified {
                full_answer: " a c".into(),
                drift: Drift {
                    layers: vec![
                        LayerDrift { layer: 0, full_attention: false, hidden: 1e-3, state: Some(2e-3) },
                        LayerDrift { layer: 1, full_attention: true, hidden: 3e-3, state: None },
                    ],
                    kl: 4e-5,
                    full_tokens: vec![7, 9],
                    first_difference: Some(1),
                },
            }),
        }
    }

    #[test]
    fn hits_misses_warnings_and_drift_are_all_said() {
        let text = text(&report(), |tokens| format!("t{}", tokens[0]));
        for wanted in ["hit, disk", "miss, absent: it is new", "12.5 ms", "80.0 tokens/s", "disk: full", "2.0e-3"] {
            assert!(text.contains(wanted), "{wanted} in\n{text}");
        }
        assert!(text.contains("differ from token 1 on: \"t8\" here, \"t9\" in full"), "{text}");
    }

    #[test]
    fn an_answer_that_ends_earlier_differs_at_its_end() {
        let mut report = report();
        report.tokens.pop();
        let text = text(&report, |tokens| format!("t{}", tokens[0]));
        assert!(text.contains("the end here, \"t9\""), "{text}");
    }

    #[test]
    fn the_json_is_flat_where_scripts_look() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["segments"][0]["hit"], "disk");
        assert_eq!(json["segments"][1]["miss"], "absent");
        assert_eq!(json["segments"][1]["what"], "b.txt");
        assert_eq!(json["verify"]["first_difference"], 1);
        assert_eq!((json["mode"].as_str(), json["stop"].as_str()), (Some("transition"), Some("token")));
    }
}
