//! Operations by themselves: checked mode on every device, and sizes that do not fit are typed errors before anything is
//! recorded.

use std::sync::Arc;

use seam_device::{BufferRange, BufferUse, Device, Lane};
use seam_kernels::tables::ROWS;
use seam_ops::{
    Checked, ConvSilu, Finding, GatedRmsNorm, GlaGate, KdaGate, MambaGate, OpError, Operation, OutputGate, Pairing,
    PassBuilder, Rope, Router, RunSpec, Scan, Scoring, Skip, Tensor, Test,
};
use seam_tests::{cpu, devices};

/// Tables of a pass of `rows` rows.
fn tables(device: &dyn Device, rows: usize) -> BufferRange {
    let mut pass = PassBuilder::new(0, 0, 1.0);
    pass.run(&RunSpec { tokens: &vec![0; rows], pos: 0, origin: 0, kv: &[], spans: (0, 0), history: &[] }).unwrap();
    let words = pass.finish().unwrap().words;
    let tables = device.alloc("tables", words.len() as u64 * 4, BufferUse::Storage).unwrap().all();
    device.write(&tables, bytemuck::cast_slice(&words)).unwrap();
    tables
}

fn set(device: &dyn Device, tensor: &Tensor, row: u32, col: u32, value: f32) {
    let mut range = tensor.range();
    range.offset += u64::from(row * tensor.cols() + col) * 4;
    range.len = 4;
    device.write(&range, &value.to_le_bytes()).unwrap();
}

/// Findings name the tensor and the first bad value of it, in the order of the scans, and a pass without any is clean.
fn checked_mode(device: &Arc<dyn Device>) {
    let (rows, hidden, heads) = (5, 70, 3);
    let tables = tables(&**device, rows);
    // The last row of memory is past the pass.
    let h = Tensor::new(&**device, "h", rows as u32 + 1, hidden).unwrap();
    let gates = Tensor::new(&**device, "gates", rows as u32 + 1, 2 * heads).unwrap();
    for (row, head) in (0..rows as u32).flat_map(|r| (0..heads).map(move |h| (r, h))) {
        set(&**device, &gates, row, head, -0.5);
        set(&**device, &gates, row, heads + head, 0.9);
    }
    let mut checked = Checked::new(&**device, 3).unwrap();
    let mut recorder = device.recorder();
    let mut scan = |x: &Tensor, name: &str, part: (u32, u32), test: Test| {
        checked.scan(&mut *recorder, device.caps(), (&tables, ROWS), name, x, part, test)
    };
    scan(&h, "layer 0 h", (0, hidden), Test::NonFinite).unwrap();
    scan(&gates, "layer 0 g", (0, heads), Test::PositiveLogGate).unwrap();
    scan(&gates, "layer 0 beta", (heads, heads), Test::NonFinite).unwrap();
    let full = scan(&gates, "one more", (0, 1), Test::NonFinite);
    assert!(matches!(full, Err(OpError::Shape { op: "scan", .. })), "{full:?}");
    let list = recorder.finish().unwrap();
    let run = || {
        checked.reset(&**device).unwrap();
        let ticket = device.submit(&list, Lane::Compute, &[]).unwrap();
        let findings = checked.findings(&**device, &[ticket]).unwrap();
        assert_eq!(checked.verify(&**device, &[ticket]).err(), findings.first().cloned().map(OpError::Value));
        findings
    };
    set(&**device, &h, rows as u32, 0, f32::NAN);
    assert_eq!(run(), []);
    for (row, col) in [(4, 1), (2, 69), (3, 0)] {
        set(&**device, &h, row, col, f32::NAN);
    }
    set(&**device, &gates, 1, 2, 1e-9);
    set(&**device, &gates, 0, 4, f32::INFINITY);
    let found = run();
    let tensor = |name: &str| format!("layer 0 {name}");
    assert_eq!(
        found,
        [
            Finding::NonFinite { tensor: tensor("h"), row: 2, col: 69 },
            Finding::PositiveLogGate { tensor: tensor("g"), row: 1, col: 2 },
            Finding::NonFinite { tensor: tensor("beta"), row: 0, col: 4 },
        ]
    );
    assert_eq!(found[0].to_string(), "layer 0 h: the value at row 2, column 69 is not finite");
    for (row, col) in [(4, 1), (2, 69), (3, 0)] {
        set(&**device, &h, row, col, 1.0);
    }
    assert_eq!(run(), found[1..]);
}

#[test]
fn checked_mode_names_what_is_wrong() {
    devices().iter().for_each(checked_mode);
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let device = cpu();
    let t = tables(&*device, 2);
    let tables = &t;
    let m = |cols: u32| Tensor::new(&*device, "m", 2, cols).unwrap();
    let w = |cols: u32| Tensor::new(&*device, "w", 1, cols).unwrap();
    let (m1, m2, m3, m4, m6, m8, m12) = (m(1), m(2), m(3), m(4), m(6), m(8), m(12));
    let (w2, w3, w6, w8) = (w(2), w(3), w(6), w(8));
    let refused = |operation: &dyn Operation, op: &str| {
        let error = operation.check();
        assert!(matches!(&error, Err(OpError::Shape { op: named, .. }) if *named == op), "{op}: {error:?}");
    };
    let fits = |operation: &dyn Operation| operation.check().unwrap();

    let gla = |out, normaliser| GlaGate { tables, x: &m6, normaliser, out };
    fits(&gla(&m6, 16.0));
    fits(&gla(&m8, 16.0));
    refused(&gla(&m4, 16.0), "gla_gate");
    for normaliser in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        refused(&gla(&m6, normaliser), "gla_gate");
    }
    let kda = |b, a_log, bound, out| KdaGate { tables, f: &m6, b, a_log, dt_bias: &w6, bound, out };
    fits(&kda(Some(&m2), &w2, Some(-5.0), &m8));
    fits(&kda(None, &w2, None, &m6));
    refused(&kda(Some(&m2), &w2, None, &m6), "kda_gate");
    refused(&kda(Some(&m3), &w2, None, &m12), "kda_gate");
    refused(&kda(None, &w8, None, &m12), "kda_gate");
    refused(&kda(None, &w2, Some(5.0), &m12), "kda_gate");
    let mamba = |limits, out| MambaGate { tables, x: &m3, a_log: &w3, dt_bias: &w3, limits, out };
    fits(&mamba((0.0, f32::INFINITY), &m6));
    refused(&mamba((0.0, f32::INFINITY), &m4), "mamba_gate");
    for limits in [(2.0, 1.0), (-1.0, 1.0), (f32::NAN, 1.0), (0.0, f32::NAN)] {
        refused(&mamba(limits, &m6), "mamba_gate");
    }
    let rope = |heads, key, rot| Rope { tables, x: &m12, heads, key, rot, pairing: Pairing::Interleaved };
    fits(&rope(1, 6, 4));
    for (heads, key, rot) in [(0, 6, 4), (1, 6, 0), (1, 6, 3), (1, 6, 8), (2, 6, 4), (u32::MAX, u32::MAX, 2)] {
        refused(&rope(heads, key, rot), "rope");
    }
    let skip = |offset, d, out| Skip { tables, qkv: &m12, offset, d, out };
    fits(&skip(6, &w3, &m6));
    refused(&skip(7, &w3, &m6), "skip");
    refused(&skip(u32::MAX, &w3, &m6), "skip");
    refused(&skip(0, &w3, &m8), "skip");
    let scan = |part, tag| Scan { rows: (tables, ROWS), x: &m6, part, test: Test::NonFinite, flag: (tables, tag) };
    fits(&scan((2, 4), 0));
    for part in [(2, 5), (0, 0), (u32::MAX, 2)] {
        refused(&scan(part, 0), "scan");
    }
    refused(&scan((2, 4), u32::MAX), "scan");
    assert!(Checked::new(&*device, 0).is_err());

    let router = |index, weight, scoring| Router { tables, logits: &m8, index, weight, scoring };
    let softmax = Scoring::Softmax { renormalise: true };
    fits(&router(&m2, &m2, softmax));
    refused(&router(&m2, &m3, softmax), "router");
    refused(&router(&m12, &m12, softmax), "router");
    let sigmoid = |groups, keep, scale| Scoring::Sigmoid { bias: &w8, groups, keep, renormalise: true, scale };
    fits(&router(&m4, &m4, sigmoid(4, 2, 2.5)));
    fits(&router(&m4, &m4, sigmoid(8, 8, 2.5)));
    for (groups, keep, scale) in
        [(0, 0, 1.0), (3, 1, 1.0), (4, 0, 1.0), (4, 5, 1.0), (4, 1, 1.0), (8, 4, 1.0), (4, 2, f32::NAN)]
    {
        refused(&router(&m4, &m4, sigmoid(groups, keep, scale)), "router");
    }
    let biased = Scoring::Sigmoid { bias: &w6, groups: 1, keep: 1, renormalise: true, scale: 1.0 };
    refused(&router(&m1, &m1, biased), "router");

    let (gate, eps) = (OutputGate::Silu, 1e-6);
    let norm =
        |weight, groups| GatedRmsNorm { tables, x: &m6, weight, z: &m6, out: &m6, groups, gate, gate_first: true, eps };
    fits(&norm(&w2, 3));
    fits(&norm(&w6, 3));
    for (weight, groups) in [(&w2, 0), (&w2, 2), (&w3, 4), (&w8, 1)] {
        refused(&norm(weight, groups), "gated_rms_norm");
    }
    let taps = Tensor::new(&*device, "taps", 6, 1).unwrap();
    let slabs = || [(); 4].map(|()| t.clone());
    let conv = |bias| ConvSilu { tables, x: &m6, weight: &taps, bias, out: &m6, launch: (0, 2), slabs: slabs() };
    refused(&conv(true), "conv");
}
