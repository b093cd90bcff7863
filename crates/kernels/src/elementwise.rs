//! Gates and activations that work element by element.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use seam_device::KernelId;

use crate::manifest::{Binding, Kernel, Workgroup};
use crate::tables::{ROWS, View};
use crate::twin::{Args, sigmoid, silu, softplus};

/// Parameters of the kernels of this file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct ElementParams {
    /// Elements of a row of the result (for [`SIGMOID_GATE`]: heads times head size).
    pub width: u32,
    /// [`SIGMOID_GATE`]: head size. Otherwise 0.
    pub head: u32,
    /// Zeros.
    pub pad: [u32; 2],
}

/// `g = −exp(A_log)·softplus(a + dt_bias)`, `beta = sigmoid(b)`; softplus is the identity above 20.
///
/// `a`, `b` are `[rows, HV]`, `A_log`, `dt_bias` `[HV]`, `out` is `[rows, 2·HV]`: all g of a row, then all beta.
/// `width` = HV. Grid: x covers HV by 64, y the rows.
pub static GDN_GATE: Kernel = Kernel {
    id: KernelId(5),
    name: "gdn_gate",
    wgsl: Some("elementwise/gdn_gate.wgsl"),
    cuda: Some("elementwise/gdn_gate.cu"),
    twin: Some(gdn_gate),
    bindings: &[
        Binding::read("tables"),
        Binding::read("a"),
        Binding::read("b"),
        Binding::read("a_log"),
        Binding::read("dt_bias"),
        Binding::write("out"),
    ],
    params: size_of::<ElementParams>(),
    workgroup: Workgroup::new(64, 0),
    constants: &[],
};

fn gdn_gate(args: &mut Args<'_>) {
    let p: ElementParams = args.params();
    let (t, a, b, a_log, dt_bias, out) =
        (View(args.words(0)), args.floats(1), args.floats(2), args.floats(3), args.floats(4), args.take(5));
    let hv = p.width as usize;
    out.par_chunks_mut(2 * hv).take(t.header(ROWS)).enumerate().for_each(|(r, out)| {
        for h in 0..hv {
            out[h] = -a_log[h].exp() * softplus(a[r * hv + h] + dt_bias[h]);
            out[hv + h] = sigmoid(b[r * hv + h]);
        }
    });
}

/// `x ← x·sigmoid(gate)` in place, for the output gate of gated attention.
///
/// `qg` is `[rows, heads, 2·head]`: each head's query, then its gate; `x` is `[rows, heads·head]`.
/// Grid: x covers the width by 64, y the rows.
pub static SIGMOID_GATE: Kernel = Kernel {
    id: KernelId(6),
    name: "sigmoid_gate",
    wgsl: Some("elementwise/sigmoid_gate.wgsl"),
    cuda: Some("elementwise/sigmoid_gate.cu"),
    twin: Some(sigmoid_gate),
    bindings: &[Binding::read("tables"), Binding::read("qg"), Binding::write("x")],
    params: size_of::<ElementParams>(),
    workgroup: Workgroup::new(64, 0),
    constants: &[],
};

fn sigmoid_gate(args: &mut Args<'_>) {
    let p: ElementParams = args.params();
    let (t, qg, x) = (View(args.words(0)), args.floats(1), args.take(2));
    let (width, head) = (p.width as usize, p.head as usize);
    x.par_chunks_mut(width).take(t.header(ROWS)).enumerate().for_each(|(r, x)| {
        let qg = &qg[r * 2 * width..][..2 * width];
        for (x, qg) in x.chunks_mut(head).zip(qg.chunks(2 * head)) {
            for (x, gate) in x.iter_mut().zip(&qg[head..]) {
                *x *= sigmoid(*gate);
            }
        }
    });
}

/// `x ← silu(x)·up` in place; both `[rows, width]`. Grid: x covers the width by 64, y the rows.
pub static SWIGLU: Kernel = Kernel {
    id: KernelId(7),
    name: "swiglu",
    wgsl: Some("elementwise/swiglu.wgsl"),
    cuda: Some("elementwise/swiglu.cu"),
    twin: Some(swiglu),
    bindings: &[Binding::read("tables"), Binding::read("up"), Binding::write("x")],
    params: size_of::<ElementParams>(),
    workgroup: Workgroup::new(64, 0),
    constants: &[],
};

fn swiglu(args: &mut Args<'_>) {
    let p: ElementParams = args.params();
    let (t, up, x) = (View(args.words(0)), args.floats(1), args.take(2));
    let width = p.width as usize;
    x.par_chunks_mut(width).take(t.header(ROWS)).enumerate().for_each(|(r, x)| {
        for (x, up) in x.iter_mut().zip(&up[r * width..]) {
            *x = silu(*x) * up;
        }
    });
}
