//! FP8 weights with block scales: products on every device against f64, loading and what it refuses.

use std::sync::Arc;

use safetensors::tensor::Dtype;
use seam_conformance::tolerance::PRODUCT;
use seam_cpu::CpuDevice;
use seam_device::{BufferUse, DType, Device, HostBytes, Lane, e4m3};
use seam_kernels::tables::ROWS;
use seam_ops::{BlockScales, Linear, OpError, Operation, PassBuilder, RunSpec, Tensor, Weight};
use seam_tests::{cpu, devices};

use crate::experts::refused;

/// Bytes of all values but the two that are no numbers.
fn byte(i: usize) -> u8 {
    match (i * 89 + i / 251) as u8 {
        0x7f | 0xff => 0x38,
        byte => byte,
    }
}

/// `out = x·Wᵀ`, or `+=` on ones, of some rows, against f64.
fn product(device: &Arc<dyn Device>, rows: usize, [n, k]: [usize; 2], shift: u32, accumulate: bool) {
    let mut pass = PassBuilder::new(0, 0, 1.0);
    pass.run(&RunSpec { tokens: &vec![0; rows], pos: 0, origin: 0, kv: &[], spans: (0, 0), history: &[] }).unwrap();
    let pass = pass.finish().unwrap();
    let tables = device.alloc("tables", pass.words.len() as u64 * 4, BufferUse::Storage).unwrap().all();
    device.write(&tables, bytemuck::cast_slice(&pass.words)).unwrap();
    let [capacity, n32, k32] = [pass.shape.rows, n as u32, k as u32];
    let bytes: Vec<u8> = (0..n * k).map(byte).collect();
    let (block_rows, block_columns) = (n.div_ceil(1 << shift), k.div_ceil(128));
    let values: Vec<f32> = (0..block_rows * block_columns).map(|i| 0.001 + 0.0005 * i as f32).collect();
    let scales = BlockScales { shift, values: values.clone() };
    let weight =
        Weight::load(&**device, "W", DType::F8E4M3, n32, k32, &HostBytes::from_vec(bytes.clone()), Some(&scales));
    let weight = weight.unwrap();
    let a: Vec<f32> = (0..capacity as usize * k).map(|i| (i as f32 * 0.7).sin()).collect();
    let x = Tensor::constant(&**device, "x", capacity, k32, &a).unwrap();
    let out = Tensor::new(&**device, "out", capacity, n32).unwrap();
    device.write(&out.range(), bytemuck::cast_slice(&vec![1f32; capacity as usize * n])).unwrap();
    let mut recorder = device.recorder();
    Linear { rows: (&tables, ROWS), x: &x, weight: &weight, out: &out, accumulate }
        .record(&mut *recorder, device.caps())
        .unwrap();
    let ticket = device.submit(&recorder.finish().unwrap(), Lane::Compute, &[]).unwrap();
    let found = device.read(&out.range(), &[ticket]).unwrap().wait().unwrap();
    let found: &[f32] = bytemuck::cast_slice(&found);
    for r in 0..rows {
        let exact: Vec<f64> = (0..n)
            .map(|j| {
                let term = |i: usize| {
                    let scale = values[(j >> shift) * block_columns + i / 128];
                    f64::from(a[r * k + i]) * f64::from(e4m3(bytes[j * k + i])) * f64::from(scale)
                };
                (0..k).map(term).sum::<f64>() + if accumulate { 1.0 } else { 0.0 }
            })
            .collect();
        let off: f64 = exact.iter().zip(&found[r * n..]).map(|(e, f)| (e - f64::from(*f)).powi(2)).sum();
        let size: f64 = exact.iter().map(|e| e * e).sum();
        let (error, bound) = (off.sqrt(), PRODUCT.bound(size.sqrt()));
        let what = format!("{} of {rows} rows, [{n}, {k}], shift {shift}, row {r}", device.caps().kind);
        assert!(error <= bound, "{what}: {error:e} > {bound:e}");
    }
}

#[test]
fn products_on_every_device() {
    // 100 rows of 200 bytes fit into a shard: it takes 64 of them, and blocks of 128 rows become halves.
    let small: Arc<dyn Device> = CpuDevice::open(seam_cpu::Options { max_binding: Some(20_000) });
    for (shape, shift) in [([150, 200], 7), ([150, 200], 3), ([3, 132], 0), ([100, 16], 6)] {
        for (rows, accumulate) in [(1, true), (8, false), (20, true)] {
            devices().iter().for_each(|device| product(device, rows, shape, shift, accumulate));
        }
        product(&small, 9, shape, shift, true);
    }
}

#[test]
fn scales_must_fit() {
    let device = cpu();
    let load = |dtype, scales: Option<BlockScales>| {
        let bytes = HostBytes::from_vec(vec![0x38; 200 * 130 * DType::size(dtype)]);
        Weight::load(&*device, "W", dtype, 200, 130, &bytes, scales.as_ref())
    };
    let scales = |shift, n: usize| Some(BlockScales { shift, values: vec![1.0; n] });
    assert_eq!(load(DType::F8E4M3, scales(7, 4)).unwrap().shift(), 7);
    for (dtype, scales) in [
        (DType::F8E4M3, None),
        (DType::F8E4M3, scales(7, 3)),
        (DType::F8E4M3, scales(40, 4)),
        (DType::BF16, scales(7, 4)),
    ] {
        let error = load(dtype, scales).err();
        assert!(matches!(&error, Some(OpError::Shape { what, .. }) if what.contains("scales")), "{error:?}");
    }
}

#[test]
fn what_is_wrong_with_an_fp8_model_is_named() {
    let (model, layer) = ("qwen3_5_moe_fp8", "model.language_model.layers.1");
    for part in ["mlp.experts.3.up_proj.weight", "mlp.shared_expert.down_proj.weight", "linear_attn.in_proj_z.weight"] {
        let name = format!("{layer}.{part}");
        let scale = format!("{name}_scale_inv");
        let text = refused(model, &|t| drop(t.remove(&scale)));
        assert!(text.contains(&scale), "{text}");
        let text = refused(model, &|t| {
            let (_, shape, bytes) = t.get_mut(&scale).expect("scales");
            shape.push(1);
            assert!(!bytes.is_empty());
        });
        assert!(text.contains(&scale) && text.contains("the config asks for"), "{text}");
        let text = refused(model, &|t| t.get_mut(&name).expect("tensor").2[5] = 0xff);
        assert!(text.contains(&name) && text.contains("index 5"), "{text}");
        let text = refused(model, &|t| {
            let (dtype, _, bytes) = t.get_mut(&scale).expect("scales");
            *dtype = Dtype::I16;
            assert_eq!(bytes.len() % 2, 0);
        });
        assert!(text.contains(&scale), "{text}");
    }
    // A module that the config lists as not converted.
    let gate = format!("{layer}.mlp.gate.weight");
    let text = refused(model, &|t| {
        let (dtype, _, bytes) = t.get_mut(&gate).expect("tensor");
        *dtype = Dtype::F8_E4M3;
        bytes.truncate(bytes.len() / 2);
    });
    assert!(text.contains(&gate) && text.contains("quantization_config"), "{text}");
    // A norm is no matrix.
    let norm = format!("{layer}.input_layernorm.weight");
    let text = refused(model, &|t| {
        let (dtype, _, bytes) = t.get_mut(&norm).expect("tensor");
        *dtype = Dtype::F8_E4M3;
        bytes.truncate(bytes.len() / 2);
    });
    assert!(text.contains(&norm), "{text}");
    // A model that is said to have no FP8 weights.
    let down = "model.language_model.layers.1.mlp.experts.down_proj";
    let text = refused("qwen3_5_moe", &|t| {
        let (dtype, _, bytes) = t.get_mut(down).expect("tensor");
        *dtype = Dtype::F8_E4M3;
        bytes.truncate(bytes.len() / 2);
    });
    assert!(text.contains(down) && text.contains("quantization_config"), "{text}");
}
