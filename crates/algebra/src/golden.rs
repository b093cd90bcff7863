//! The committed goldens of the recurrences, for the tests of the families.

use crate::family::{DecayKind, Family};
use crate::inputs::Inputs;
use crate::matrix::{distance, frobenius};
use crate::sizes::Sizes;
use std::path::Path;

/// A safetensors file of f32 and f64 arrays.
pub(crate) struct Golden {
    header: String,
    data: Vec<u8>,
}

pub(crate) struct Array {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f64>,
}

impl Golden {
    pub(crate) fn open(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/kernels");
        let bytes = std::fs::read(folder.join(format!("{name}.safetensors"))).unwrap();
        let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        Self { header: String::from_utf8(bytes[8..header].to_vec()).unwrap(), data: bytes[header..].to_vec() }
    }

    pub(crate) fn get(&self, name: &str) -> Option<Array> {
        // {"name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}, …}
        let (_, entry) = self.header.split_once(&format!("\"{name}\":{{"))?;
        let list = |key: &str| -> Vec<usize> {
            let (_, rest) = entry.split_once(&format!("\"{key}\":[")).unwrap();
            let inner = rest.split_once(']').unwrap().0;
            inner.split(',').filter(|n| !n.is_empty()).map(|n| n.parse().unwrap()).collect()
        };
        let range = list("data_offsets");
        let data = &self.data[range[0]..range[1]];
        let dtype = entry.split_once("\"dtype\":\"").unwrap().1;
        let values = if dtype.starts_with("F32") {
            data.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect()
        } else {
            assert!(dtype.starts_with("F64"), "{name} is neither F32 nor F64");
            data.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect()
        };
        Some(Array { shape: list("shape"), values })
    }

    /// Values of an array that is there.
    pub(crate) fn values(&self, name: &str) -> Vec<f64> {
        self.get(name).unwrap_or_else(|| panic!("no {name}")).values
    }

    /// Names of the cases, those before `/s0`.
    pub(crate) fn cases(&self) -> Vec<String> {
        let parts: Vec<&str> = self.header.split("/s0\":{").collect();
        parts[..parts.len() - 1].iter().map(|p| p[p.rfind('"').unwrap() + 1..].to_string()).collect()
    }

    /// The inputs q, k, v, g, beta of a case, and its start state.
    pub(crate) fn inputs(&self, case: &str, decay: DecayKind) -> (Inputs, Vec<f64>) {
        let get = |name: &str| self.get(&format!("{case}/{name}"));
        let (k, v) = (get("k").unwrap(), get("v").unwrap());
        let sizes = Sizes {
            tokens: k.shape[0],
            key_heads: k.shape[1],
            value_heads: v.shape[1],
            key_dim: k.shape[2],
            value_dim: v.shape[2],
        };
        let optional = |name: &str| get(name).map_or(vec![], |a| a.values);
        let scale = (sizes.key_dim as f64).powf(-0.5);
        let plain = Inputs::new(sizes, get("q").unwrap().values, k.values, v.values, scale);
        (Inputs { g: optional("g"), beta: optional("beta"), decay, ..plain }, get("s0").unwrap().values)
    }

    /// Outputs, end states, operators of all cases against `family`; returns the number of cases. Inputs are exact, so the
    /// f64 arrays must agree but for the order of additions (130 tokens of rounding 1e-16, transitions that contract), and
    /// the outputs but for the one rounding to f32 that the file holds (6e-8).
    pub(crate) fn hold(&self, family: &dyn Family, decay: DecayKind) -> usize {
        let cases = self.cases();
        for case in &cases {
            let (x, s0) = self.inputs(case, decay);
            let run = family.run(&x, &s0).unwrap();
            let golden = |name: &str| self.values(&format!("{case}/{name}"));
            outputs(case, &run.o, &golden("o"), &x, &s0);
            same(case, "s_final", &run.state, &golden("s_final"));
            let operators = family.operator(&x, 0..x.sizes.tokens).unwrap();
            let own: Vec<f64> = operators.iter().flat_map(|o| o.state().to_vec()).collect();
            same(case, "s_zero", &own, &golden("s_zero"));
            let t = golden("t_c");
            for (operator, t) in operators.iter().zip(t.chunks_exact(t.len() / operators.len())) {
                let k = x.sizes.key_dim;
                let dense = operator.transition().to_dense(k);
                let diagonal: Vec<f64> = dense.iter().step_by(k + 1).copied().collect();
                let smallest = if t.len() == 1 { &diagonal[..1] } else { &diagonal };
                same(case, "t_c", if t.len() == k * k { &dense } else { smallest }, t);
            }
        }
        cases.len()
    }
}

fn same(case: &str, name: &str, got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len(), "{case}/{name}");
    let error = distance(got, want) / frobenius(want).max(1e-300);
    // An underflowed decay leaves nothing to be relative to.
    assert!(error < 1e-12 || frobenius(want) < 1e-290, "{case}/{name}: {error:e}");
}

pub(crate) fn outputs(case: &str, got: &[f64], want: &[f64], x: &Inputs, s0: &[f64]) {
    assert_eq!(got.len(), want.len(), "{case}/o");
    // Outputs that nearly cancel keep the rounding of their terms.
    let largest = |x: &[f64]| x.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
    let terms = largest(&x.q) * (largest(&x.v) * largest(&x.k) + largest(s0)) * x.sizes.key_dim as f64;
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (got - want).abs();
        assert!(error <= 6e-8 * want.abs() + 1e-12 * terms, "{case}/o[{i}]: {got:e} against {want:e}");
    }
}
