//! Which experts a row goes to, and with which weights.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use seam_device::KernelId;

use crate::manifest::{Binding, Constant, Kernel, Workgroup};
use crate::tables::{ROWS, View};
use crate::twin::{Args, sigmoid};

/// Most experts of one router.
pub const MOST_EXPERTS: u32 = 1024;
/// Most experts that a row may go to, and most groups.
pub const MOST_CHOSEN: u32 = 64;

/// MODE: softmax over all experts, the k most probable ones.
pub const MODE_SOFTMAX: u32 = 0;
/// MODE: the k largest logits, softmax over them.
pub const MODE_CHOSEN_SOFTMAX: u32 = 1;
/// MODE: sigmoid scores; chosen by score + bias, within the best groups.
pub const MODE_SIGMOID: u32 = 2;

/// Parameters of [`ROUTER`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct RouterParams {
    /// Experts E, at most [`MOST_EXPERTS`].
    pub experts: u32,
    /// Experts k that a row goes to, at most [`MOST_CHOSEN`].
    pub top: u32,
    /// Sigmoid: groups of E/groups consecutive experts, at most [`MOST_CHOSEN`]. Otherwise 1.
    pub groups: u32,
    /// Sigmoid: groups that are kept, those with the largest sum of their two best choices. Otherwise 1.
    pub keep: u32,
    /// 1: the weights of a row are divided by their sum (plus 1e-20 for sigmoid scores).
    pub renormalise: u32,
    /// What the weights are multiplied by at last.
    pub scale: f32,
    /// Zeros.
    pub pad: [u32; 2],
}

/// The k experts of each row, best first, and their weights.
///
/// `logits` is `[rows, E]`, `bias` `[E]` (read in the sigmoid mode only), `index` `[rows, k]` u32, `weight` `[rows, k]` f32.
/// Equal choices go to the lower index; values that are no numbers have a fixed place in the order too, so that the result
/// is always k different experts. Grid: x = rows.
pub static ROUTER: Kernel = Kernel {
    id: KernelId(20),
    name: "router",
    wgsl: Some("router/router.wgsl"),
    cuda: Some("router/router.cu"),
    twin: Some(router),
    bindings: &[
        Binding::read("tables"),
        Binding::read("logits"),
        Binding::read("bias"),
        Binding::write("index"),
        Binding::write("weight"),
    ],
    params: size_of::<RouterParams>(),
    workgroup: Workgroup::new(64, 9216),
    constants: &[Constant { name: "MODE", legal: &[MODE_SOFTMAX, MODE_CHOSEN_SOFTMAX, MODE_SIGMOID] }],
};

/// A word that orders as the number does, for every bit pattern; 0 and −0 are equal. The lowest word is left free.
fn order(x: f32) -> u32 {
    let bits = if x == 0.0 { 0 } else { x.to_bits() };
    (if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }).max(1)
}

/// Indices of `keys`, largest first, equal ones in their order.
fn ranked(keys: &[u32]) -> Vec<usize> {
    let mut ranked: Vec<usize> = (0..keys.len()).collect();
    ranked.sort_by_key(|&i| std::cmp::Reverse(keys[i]));
    ranked
}

/// The sum of the two largest.
fn best_two(choices: &[f32]) -> f32 {
    let (mut first, mut second) = (f32::MIN, f32::MIN);
    for &x in choices {
        second = second.max(first.min(x));
        first = first.max(x);
    }
    first + second
}

fn router(args: &mut Args<'_>) {
    let p: RouterParams = args.params();
    let mode = args.constant(0);
    let (t, logits, bias, index, weight) =
        (View(args.words(0)), args.floats(1), args.floats(2), args.take_words(3), args.take(4));
    let (experts, top) = (p.experts as usize, p.top as usize);
    let size = experts / p.groups as usize;
    let rows = index.par_chunks_mut(top).zip(weight.par_chunks_mut(top)).take(t.header(ROWS)).enumerate();
    rows.for_each(|(r, (index, weight))| {
        let logits = &logits[r * experts..][..experts];
        let mut keys: Vec<u32> = logits.iter().map(|x| order(*x)).collect();
        if mode == MODE_SIGMOID {
            let choice: Vec<f32> = logits.iter().zip(bias).map(|(x, bias)| sigmoid(*x) + bias).collect();
            keys = choice.iter().map(|x| order(*x)).collect();
            let groups: Vec<u32> = choice.chunks(size).map(|group| order(best_two(group))).collect();
            for group in &ranked(&groups)[p.keep as usize..] {
                keys[group * size..][..size].fill(0);
            }
        }
        let chosen = &ranked(&keys)[..top];
        let largest = logits[chosen[0]];
        let score = |x: f32| if mode == MODE_SIGMOID { sigmoid(x) } else { (x - largest).exp() };
        for ((index, weight), &expert) in index.iter_mut().zip(weight.iter_mut()).zip(chosen) {
            (*index, *weight) = (expert as u32, score(logits[expert]));
        }
        let total = match mode {
            MODE_SIGMOID if p.renormalise == 1 => weight.iter().sum::<f32>() + 1e-20,
            MODE_SIGMOID => 1.0,
            MODE_SOFTMAX if p.renormalise == 0 => logits.iter().map(|x| score(*x)).sum(),
            _ => weight.iter().sum(),
        };
        weight.iter_mut().for_each(|w| *w = *w / total * p.scale);
    });
}
