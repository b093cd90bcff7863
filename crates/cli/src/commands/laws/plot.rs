//! The laws as pictures: one panel a family.

use anyhow::Result;
use seam_algebra::laws::{Law, LawReport, Verdict};

use super::families::Document;
use super::summary::Summary;
use crate::report::{Gauge, GaugePanel, GaugeRow, gauges};

/// A panel of one device.
pub(super) fn of_device(name: &str, laws: &[LawReport]) -> Result<String> {
    let row = |law: &LawReport| GaugeRow { name: law.law.clone(), gauges: vec![gauge(0, law)], empty: String::new() };
    let panel = GaugePanel {
        title: format!("gated_delta_rule on {name}"),
        note: format!("{} of {} laws hold", laws.iter().filter(|law| law.passed).count(), laws.len()),
        rows: laws.iter().map(row).collect(),
    };
    gauges(&["device".to_owned()], &[panel])
}

/// A panel a family, the device beside the oracle.
pub(super) fn of_families(document: &Document) -> Result<String> {
    let panels: Vec<GaugePanel> =
        document.families.chunk_by(|a, b| a.family == b.family).map(|subjects| panel(document, subjects)).collect();
    let device = document.device.as_ref().map(|device| device.name.clone());
    gauges(&std::iter::once("float64 oracle".to_owned()).chain(device).collect::<Vec<_>>(), &panels)
}

/// The panel of a family, of which these are the subjects.
fn panel(document: &Document, subjects: &[Summary]) -> GaugePanel {
    let mut says: Vec<&str> = subjects.iter().map(|subject| subject.says.as_str()).collect();
    says.dedup();
    let mut rows: Vec<GaugeRow> =
        Law::ALL.iter().map(|law| GaugeRow { name: law.name().into(), gauges: vec![], empty: "-".into() }).collect();
    for (series, subject) in subjects.iter().enumerate() {
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
    let title = subjects.first().map(|subject| subject.family.clone()).unwrap_or_default();
    GaugePanel { title, note: says.join("; "), rows }
}

fn gauge(series: usize, law: &LawReport) -> Gauge {
    Gauge { series, value: law.worst_error, limit: law.tolerance, failed: !law.passed }
}
