//! Embedding, and the rows that want logits.

use std::sync::Arc;

use half::bf16;
use seam_conformance::tolerance::EXACT;
use seam_device::Device;
use seam_ops::{Embed, GatherRows, PassBuilder, RunSpec};

use crate::case::{Case, Cost};
use crate::error::BenchError;
use crate::lab::Lab;
use crate::random::Random;
use crate::reference::{compare, output, sampled};
use crate::registry::Scale;

/// Every so many rows one wants logits.
const EVERY: u32 = 4;

/// Rows, vocabulary and width. The real vocabulary is cut: of the table only the rows' tokens are read.
fn sizes(scale: Scale) -> (u32, u32, u32) {
    match scale {
        Scale::Small => (60, 512, 256),
        Scale::Real => (512, 16384, 4096),
    }
}

pub(crate) fn shape(scale: Scale) -> String {
    let (rows, vocab, width) = sizes(scale);
    format!("{rows} rows of [{vocab}, {width}] bf16, {} gathered", rows / EVERY)
}

pub(crate) fn prepare(name: &'static str, device: &Arc<dyn Device>, scale: Scale) -> Result<Case, BenchError> {
    let (rows, vocab, width) = sizes(scale);
    let mut random = Random::new(10);
    let tokens: Vec<u32> = (0..rows).map(|_| random.below(vocab)).collect();
    let values: Vec<bf16> = (0..vocab * width).map(|_| bf16::from_f32(random.real(-1.0, 1.0))).collect();
    let mut pass = PassBuilder::new(0, 0, 1.0);
    pass.run(&RunSpec { tokens: &tokens, pos: 0, origin: 0, kv: &[], spans: (0, 0), history: &[] })?;
    let wanted: Vec<u32> = (0..rows / EVERY).map(|i| rows - 1 - i * EVERY).collect();
    for row in &wanted {
        pass.logit(*row);
    }
    let pass = pass.finish()?;

    let mut lab = Lab::new(device);
    let tables = lab.tables(&pass)?;
    let table = lab.weight("embedding", vocab, width, &values)?;
    let out = lab.output("rows", pass.shape.rows, rows, width)?;
    let gathered = lab.output("gathered", pass.shape.logits, wanted.len() as u32, width)?;
    lab.record(&Embed { tables: &tables, table: &table, out: &out })?;
    lab.record(&GatherRows { tables: &tables, x: &out, out: &gathered })?;
    let (rows64, wanted64) = (u64::from(rows), wanted.len() as u64);
    let cost = Cost { bytes: Some(u64::from(width) * (6 * rows64 + 8 * wanted64)), ..Cost::default() };
    lab.finish(name, cost, move |outputs| {
        let row = |token: u32| -> Vec<f64> {
            values[(token * width) as usize..][..width as usize].iter().map(|v| v.to_f64()).collect()
        };
        let some = sampled(scale, rows);
        let gathered = sampled(scale, wanted.len() as u32);
        Ok(vec![
            compare("rows", output(outputs, 0), (width, width), &some, EXACT, |r| row(tokens[r])),
            compare("gathered", output(outputs, 1), (width, width), &gathered, EXACT, |i| {
                row(tokens[wanted[i] as usize])
            }),
        ])
    })
}
