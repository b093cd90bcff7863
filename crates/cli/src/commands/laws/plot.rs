//! The laws as a picture: the error of a composed state over the number of segments, a panel a family, and below it each
//! law's worst error.

use anyhow::Result;
use seam_algebra::laws::{Law, LawReport, SEGMENTS, SweepDecay, Verdict};

use super::form::label;
use super::measure::{Document, Swept};
use super::summary::Summary;
use crate::report::{Curve, CurvePanel, Gauge, GaugePanel, GaugeRow, Legend, curves, gauges, stacked};

/// The whole picture.
pub(super) fn svg(document: &Document) -> Result<String> {
    let names = subjects(document);
    let families: Vec<&[Summary]> = document.families.chunk_by(|a, b| a.family == b.family).collect();
    let legend = Legend {
        title: "Error of a composed state over the number of segments".to_owned(),
        series: names.clone(),
        styles: SweepDecay::ALL.map(|decay| decay.name().to_owned()).to_vec(),
        ticks: SEGMENTS.map(|n| n as f64).to_vec(),
        x: "segments".to_owned(),
    };
    let sweeps: Vec<CurvePanel> = families.iter().map(|subjects| over_length(document, subjects, &names)).collect();
    let laws: Vec<GaugePanel> = families.iter().map(|subjects| every_law(document, subjects, &names)).collect();
    Ok(stacked(&[curves(&legend, &sweeps)?, gauges(&names, &laws)?]))
}

/// What subjects are called, each once, the oracles first.
fn subjects(document: &Document) -> Vec<String> {
    let mut names = Vec::new();
    for name in document.sweeps.iter().map(|swept| label(&swept.subject)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn title(subjects: &[Summary]) -> String {
    subjects.first().map(|subject| subject.family.clone()).unwrap_or_default()
}

fn note(subjects: &[Summary]) -> String {
    let mut says: Vec<&str> = subjects.iter().map(|subject| subject.says.as_str()).collect();
    says.dedup();
    says.join("; ")
}

/// The lines of a family, of which these are the subjects.
fn over_length(document: &Document, subjects: &[Summary], names: &[String]) -> CurvePanel {
    let (mut curves, mut limits) = (Vec::new(), Vec::new());
    let own = |swept: &&Swept| subjects.iter().any(|s| s.family == swept.family && s.subject == swept.subject);
    for swept in document.sweeps.iter().filter(own) {
        let Some(series) = names.iter().position(|name| *name == label(&swept.subject)) else { continue };
        for (style, decay) in SweepDecay::ALL.into_iter().enumerate() {
            let points = || swept.points.iter().filter(move |point| point.decay == decay);
            if points().next().is_none() {
                continue;
            }
            // Segments are cut alike whatever the decay, so that one limit stands for all.
            if !limits.iter().any(|limit: &Curve| limit.series == series) {
                let points = points().map(|p| (p.segments as f64, p.tolerance)).collect();
                limits.push(Curve { series, style, points });
            }
            curves.push(Curve { series, style, points: points().map(|p| (p.segments as f64, p.error)).collect() });
        }
    }
    CurvePanel { title: title(subjects), note: note(subjects), curves, limits }
}

/// The laws of a family, of which these are the subjects.
fn every_law(document: &Document, subjects: &[Summary], names: &[String]) -> GaugePanel {
    let mut rows: Vec<GaugeRow> =
        Law::ALL.iter().map(|law| GaugeRow { name: law.name().into(), gauges: vec![], empty: "-".into() }).collect();
    for subject in subjects {
        let Some(series) = names.iter().position(|name| *name == label(&subject.subject)) else { continue };
        let own = document.rows.iter().map(|tested| &tested.row);
        for row in own.filter(|row| row.family == subject.family && row.report.subject == subject.subject) {
            let Some(drawn) = rows.iter_mut().find(|drawn| drawn.name == row.report.law) else { continue };
            match row.verdict {
                Verdict::Silent { .. } => drawn.empty = "says nothing".into(),
                Verdict::Impossible { .. } => drawn.empty = "impossible, and refused".into(),
                Verdict::Exact { .. } | Verdict::Fails => drawn.gauges.push(gauge(series, &row.report)),
            }
        }
    }
    GaugePanel { title: title(subjects), note: note(subjects), rows }
}

fn gauge(series: usize, law: &LawReport) -> Gauge {
    Gauge { series, value: law.worst_error, limit: law.tolerance, failed: !law.passed }
}
