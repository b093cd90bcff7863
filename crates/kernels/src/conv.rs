//! The short causal convolution of linear layers, over runs whose history lies in several places.
//!
//! A run's first rows see the last `k−1` raw inputs before it: rows of this pass (a fresh seam), words of a private
//! slot (an older chunk) or words of a cached entry's conv tail. The history table names them, oldest first.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use seam_device::KernelId;

use crate::manifest::{Binding, Constant, Kernel, Workgroup};
use crate::tables::{
    CONV_LAUNCH_WORDS, CONV_LAUNCHES, HISTORY_TABLE, LAUNCH_WORDS, ROW_TABLE, ROW_WORDS, RUN_TABLE, RUN_WORDS,
    SHARED_SLABS, SOURCE_PRIVATE, SOURCE_ROW, SOURCE_SHARED, SOURCE_WORDS, SOURCE_ZERO, TAIL_LAUNCHES, TAIL_TABLE,
    View,
};
use crate::twin::{Args, silu};

/// Parameters of [`CONV_SILU`] and [`CONV_TAIL`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct ConvParams {
    /// Channels C.
    pub channels: u32,
    /// Which conv launch, or tail launch, of the tables.
    pub launch: u32,
    /// Zeros.
    pub pad: [u32; 2],
}

const KERNEL: Constant = Constant { name: "KERNEL", legal: &[2, 3, 4, 5, 6, 7, 8] };

/// `out[t] = silu(Σ_i w[c, i]·x[t−(k−1)+i] + bias[c])`, depthwise; BIAS 0: without bias.
///
/// `x`, `out` are `[rows, C]`, `w` is `[C, KERNEL + BIAS]` f32, oldest tap first, then the bias; `private` and `shared*` hold conv tails
/// `[k−1, C]` at the word offsets of the history sources. Grid: x covers C by 64, y the rows of the launch.
pub static CONV_SILU: Kernel = Kernel {
    id: KernelId(8),
    name: "conv_silu",
    wgsl: Some("conv/conv_silu.wgsl"),
    cuda: Some("conv/conv_silu.cu"),
    twin: Some(conv_silu),
    bindings: &[
        Binding::read("tables"),
        Binding::read("x"),
        Binding::read("w"),
        Binding::write("out"),
        Binding::read("private_slab"),
        Binding::read("shared0"),
        Binding::read("shared1"),
        Binding::read("shared2"),
    ],
    params: size_of::<ConvParams>(),
    workgroup: Workgroup::new(64, 0),
    constants: &[KERNEL, Constant { name: "BIAS", legal: &[0, 1] }],
};

/// Writes conv tails `[k−1, C]` into the private slab. A tail's sources may be rows and older tails, also the one that
/// is overwritten. Grid: x covers C by 64, y the tails of the launch.
pub static CONV_TAIL: Kernel = Kernel {
    id: KernelId(9),
    name: "conv_tail",
    wgsl: Some("conv/conv_tail.wgsl"),
    cuda: Some("conv/conv_tail.cu"),
    twin: Some(conv_tail),
    bindings: &[
        Binding::read("tables"),
        Binding::read("x"),
        Binding::write("private_slab"),
        Binding::read("shared0"),
        Binding::read("shared1"),
        Binding::read("shared2"),
    ],
    params: size_of::<ConvParams>(),
    workgroup: Workgroup::new(64, 0),
    constants: &[KERNEL],
};

/// The `C` raw inputs that a source names, or `None` for zeros.
fn source<'a>(
    source: &[u32],
    channels: usize,
    x: &'a [f32],
    private: &'a [f32],
    shared: &[&'a [f32]; SHARED_SLABS],
) -> Option<&'a [f32]> {
    let at = source[1] as usize;
    let slab = match source[0] {
        SOURCE_ZERO => return None,
        SOURCE_ROW => return Some(&x[at * channels..][..channels]),
        SOURCE_PRIVATE => private,
        kind => shared[(kind - SOURCE_SHARED) as usize],
    };
    Some(&slab[at..at + channels])
}

fn conv_silu(args: &mut Args<'_>) {
    let p: ConvParams = args.params();
    let k = args.constant(0) as usize;
    let bias = args.constant(1) as usize;
    let channels = p.channels as usize;
    let t = View(args.words(0));
    let (x, w, out) = (args.floats(1), args.floats(2), args.take(3));
    let private = args.floats(4);
    let shared = [args.floats(5), args.floats(6), args.floats(7)];
    let launch = t.record(CONV_LAUNCHES, p.launch as usize, CONV_LAUNCH_WORDS);
    let (first, count) = (launch[2] as usize, launch[3] as usize);
    out.par_chunks_mut(channels).skip(first).take(count).enumerate().for_each(|(i, out)| {
        let row = first + i;
        let run = t.record(RUN_TABLE, t.record(ROW_TABLE, row, ROW_WORDS)[0] as usize, RUN_WORDS);
        let at = row - run[0] as usize;
        let taps: Vec<Option<&[f32]>> = (0..k)
            .map(|tap| {
                let back = k - 1 - tap;
                if back <= at {
                    return Some(&x[(row - back) * channels..][..channels]);
                }
                let index = run[4] as usize + (k - 1) - (back - at);
                source(t.record(HISTORY_TABLE, index, SOURCE_WORDS), channels, x, private, &shared)
            })
            .collect();
        for (c, out) in out.iter_mut().enumerate() {
            let w = &w[c * (k + bias)..][..k + bias];
            let mut sum = 0.0;
            for (tap, values) in taps.iter().enumerate() {
                if let Some(values) = values {
                    sum += w[tap] * values[c];
                }
            }
            if bias == 1 {
                sum += w[k];
            }
            *out = silu(sum);
        }
    });
}

fn conv_tail(args: &mut Args<'_>) {
    let p: ConvParams = args.params();
    let k = args.constant(0) as usize;
    let channels = p.channels as usize;
    let t = View(args.words(0));
    let x = args.floats(1);
    let private = args.take(2);
    let shared = [args.floats(3), args.floats(4), args.floats(5)];
    let launch = t.record(TAIL_LAUNCHES, p.launch as usize, LAUNCH_WORDS);
    let words = 2 + (k - 1) * SOURCE_WORDS;
    for i in launch[0]..launch[0] + launch[1] {
        let record = t.record(TAIL_TABLE, i as usize, words);
        let mut tail = vec![0.0; (k - 1) * channels];
        for (values, src) in tail.chunks_mut(channels).zip(record[2..].chunks(SOURCE_WORDS)) {
            if let Some(found) = source(src, channels, x, private, &shared) {
                values.copy_from_slice(found);
            }
        }
        private[record[0] as usize..][..tail.len()].copy_from_slice(&tail);
    }
}
