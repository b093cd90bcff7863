//! Attention over spans against its twin: every head size, spans in several slabs, launches that continue each other.

use bytemuck::bytes_of;
use seam_kernels::attention::{ATTENTION, AttentionParams, HEAD_SIZES};
use seam_kernels::tables::{ANGLE_TABLE, ATTENTION_LAUNCHES, ROW_TABLE, RUN_TABLE, SPAN_TABLE};

use crate::harness::{Case, Random, Tables, compare, floats, gpus};

/// Softmax weights and values of order 1: two exp of 3 ulp, and sums over up to 200 keys.
const MARGIN: f32 = 2e-6;

/// Spans of two runs in slabs 5, 9, 2, 7 and 11 (which no launch binds), read by two launches.
fn case(random: &mut Random, head: usize, heads: usize, kv_heads: usize, rot: usize) -> Case {
    let (rows, capacity, kv_rows) = (7, 9, 220);
    let mut tables = Tables::new(rows, 0);
    // Run, position, query angle.
    let places = [(0, 150), (0, 151), (0, 152), (1, 0), (1, 1), (2, 300), (2, 301), (0, 0), (0, 0)];
    tables.put(
        ROW_TABLE,
        places.iter().enumerate().flat_map(|(r, &(run, position))| [run, position, r as u32 % 5, 0, 0, 0, 0, 0]),
    );
    // Slab, first KV row, keys, position of the first, origin angle. Run 0 sees its own keys causally (the last span),
    // one span lies after its rows, and one is empty; run 1 sees one key, then two; run 2 reads an unbound slab only.
    let spans = [
        [5, 3, 64, 0, 5],
        [9, 10, 65, 64, 6],
        [2, 0, 21, 129, 7],
        [9, 100, 0, 150, 5],
        [7, 40, 3, 150, 8],
        [5, 0, 30, 400, 6],
        [7, 80, 2, 0, 5],
        [11, 0, 200, 0, 5],
    ];
    tables.put(SPAN_TABLE, spans.iter().flat_map(|s| s.iter().copied().chain([0, 0, 0])));
    tables.put(RUN_TABLE, [[0, 6], [6, 1], [7, 1]].iter().flat_map(|s| [0, 0, s[0], s[1], 0, 0, 0, 0]));
    let angles: Vec<u32> = (0..9)
        .flat_map(|_| {
            let angles: Vec<f32> = (0..rot / 2).map(|_| random.real(0.0, 6.3)).collect();
            angles.iter().map(|a| a.cos()).chain(angles.iter().map(|a| a.sin())).map(f32::to_bits).collect::<Vec<_>>()
        })
        .collect();
    tables.put(ANGLE_TABLE, angles);
    tables.put(ATTENTION_LAUNCHES, [2, 0, 0, 0, 5, 9, 11, 11, 2, 0, 0, 0, 2, 7, 5, 9]);
    let width = kv_heads * head;
    let mut slab = || random.words(kv_rows * 2 * width);
    let (kv0, kv1, kv2, kv3) = (slab(), slab(), slab(), slab());
    let out = capacity * heads * head;
    let params = AttentionParams {
        heads: heads as u32,
        kv_heads: kv_heads as u32,
        rot: rot as u32,
        launch: 0,
        first: 1,
        last: 0,
        scale: 3.0 * (head as f32).powf(-0.5),
        pad: 0,
    };
    Case {
        kernel: &ATTENTION,
        constants: vec![head as u32],
        params: bytes_of(&params).to_vec(),
        data: vec![
            tables.0,
            random.words(out),
            random.words(capacity * heads * 2),
            random.words(out),
            kv0,
            kv1,
            kv2,
            kv3,
        ],
        grid: [heads as u32, capacity as u32, 1],
    }
}

/// The launch that continues `first` from what it left.
fn second(first: &Case, left: &[Option<Vec<u32>>]) -> Case {
    let mut params: AttentionParams = bytemuck::pod_read_unaligned(&first.params);
    (params.launch, params.first, params.last) = (1, 0, 1);
    let mut data = first.data.clone();
    for i in [2, 3] {
        data[i] = left[i].clone().unwrap();
    }
    Case {
        kernel: first.kernel,
        constants: first.constants.clone(),
        params: bytes_of(&params).to_vec(),
        data,
        grid: first.grid,
    }
}

#[test]
fn every_head_size_over_two_launches() {
    let mut random = Random::new(30);
    for &head in HEAD_SIZES {
        let head = head as usize;
        for (heads, kv_heads, rot) in [(2, 1, head / 2), (2, 2, head), (3, 1, 0)] {
            let first = case(&mut random, head, heads, kv_heads, rot);
            let expected = second(&first, &first.check(MARGIN)).twin();
            for device in gpus().into_iter().flatten() {
                // Each side continues its own first launch.
                let got = second(&first, &first.device(device)).device(device);
                for i in [2, 3] {
                    let [got, want] = [&got, &expected].map(|x| floats(x[i].as_ref().unwrap()));
                    compare(&format!("attention {head} continued, binding {i}"), &got, &want, MARGIN);
                }
            }
        }
    }
}

/// Against the definition in f64, so that twin and kernel cannot be wrong together: run 1's second row sees two keys.
#[test]
fn two_keys_by_hand() {
    let mut random = Random::new(31);
    let head = 16;
    let case = second(&case(&mut random, head, 1, 1, 0), &case(&mut random, head, 1, 1, 0).twin());
    let mut params: AttentionParams = bytemuck::pod_read_unaligned(&case.params);
    params.first = 1;
    let case = Case { params: bytes_of(&params).to_vec(), ..case };
    let slab = floats(&case.data[5]);
    let row = 4;
    let q: Vec<f64> = floats(&case.data[1])[row * head..][..head].iter().map(|&x| f64::from(x)).collect();
    let part = |token: usize, which: usize| -> Vec<f64> {
        slab[(token * 2 + which) * head..][..head].iter().map(|&x| f64::from(x)).collect()
    };
    let logits = [80, 81].map(|t| f64::from(params.scale) * q.iter().zip(part(t, 0)).map(|(a, b)| a * b).sum::<f64>());
    let weights = logits.map(|l| (l - logits[0]).exp());
    let want: Vec<f32> = (0..head)
        .map(|d| ((weights[0] * part(80, 1)[d] + weights[1] * part(81, 1)[d]) / (weights[0] + weights[1])) as f32)
        .collect();
    let twin = case.twin();
    compare("twin", &floats(twin[3].as_ref().unwrap())[row * head..][..head], &want, MARGIN);
    for device in gpus().into_iter().flatten() {
        let got = case.device(device);
        compare("kernel", &floats(got[3].as_ref().unwrap())[row * head..][..head], &want, MARGIN);
    }
}
