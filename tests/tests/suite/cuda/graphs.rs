//! Lists as graphs: captured when they are submitted again, with the results of their commands one by one.

use seam_cuda::{CudaDevice, GraphCounts, Options};
use seam_device::{Buffer, BufferUse, CommandList, DType, Device, Gemm, Lane};
use seam_tests::own_cuda;

const WORDS: u64 = 1 << 10;

fn words(device: &CudaDevice, buffer: &Buffer) -> Vec<u32> {
    let bytes = device.read(&buffer.all(), &[]).expect("read").wait().expect("wait");
    bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect()
}

/// `c += a·wᵀ` by an own kernel (f32) and by the library (bf16), `b = a`, and the end of `b` zeroed.
fn mixed(device: &CudaDevice) -> (CommandList, [Buffer; 4]) {
    let [a, b, c, w] = ["a", "b", "c", "w"].map(|l| device.alloc(l, WORDS * 4, BufferUse::Storage).expect("alloc"));
    device.write(&w.all(), bytemuck::cast_slice(&[0x3f80_3f80u32; WORDS as usize])).expect("write");
    let mut recorder = device.recorder();
    for (m, weight) in [(4, DType::F32), (16, DType::BF16)] {
        let (n, k) = (16, 16);
        let (a, w, c) = (a.all(), w.all(), c.all());
        let gemm =
            Gemm { m, n, k, lda: k, ldc: n, c_column: 0, weight, accumulate: true, a, w, c, scales: None, rows: None };
        recorder.gemm(gemm).expect("gemm");
    }
    recorder.copy(&a.all(), &b.all()).expect("copy");
    recorder.zero(&b.range(WORDS * 4 - 64, 64).expect("range")).expect("zero");
    (recorder.finish().expect("list"), [a, b, c, w])
}

#[test]
fn graphs_do_what_their_lists_do() {
    let mut results = Vec::new();
    for graphs in [false, true] {
        let Some(device) = own_cuda(&Options { graphs, ..Options::default() }) else { return };
        let (list, [a, b, c, _w]) = mixed(&device);
        let mut seen = Vec::new();
        for round in 1..=6u32 {
            let value = round as f32;
            device.write(&a.all(), bytemuck::cast_slice(&[value; WORDS as usize])).expect("write");
            let lane = if round % 3 == 0 { Lane::Copy } else { Lane::Compute };
            let ticket = device.submit(&list, lane, &[]).expect("submit");
            device.wait(ticket).expect("wait");
            let (b, c) = (words(&device, &b), words(&device, &c));
            assert!(b[..WORDS as usize - 16].iter().all(|w| *w == value.to_bits()), "round {round}");
            assert!(b[WORDS as usize - 16..].iter().all(|w| *w == 0), "round {round}");
            seen.push(c);
            let expected = GraphCounts { captured: 1, refused: 0, launches: u64::from(round) - 1 };
            let expected = if graphs && round > 1 { expected } else { GraphCounts::default() };
            assert_eq!(device.graphs(), expected, "round {round}");
            if let Some(time) = device.elapsed(ticket) {
                assert!(time.as_secs() < 10, "{time:?}");
            }
        }
        // A list may go while its graph runs.
        for _ in 0..20 {
            let (list, buffers) = mixed(&device);
            for _ in 0..3 {
                device.submit(&list, Lane::Compute, &[]).expect("submit");
            }
            drop((list, buffers));
        }
        assert_eq!(device.graphs().refused, 0);
        results.push(seen);
    }
    assert!(results[0] == results[1], "the same bits with and without graphs");
}

/// Two lists with graphs on two lanes, and threads that allocate meanwhile: captures disturb nobody.
#[test]
fn captures_beside_other_threads() {
    let Some(device) = own_cuda(&Options::default()) else { return };
    let Some(other) = own_cuda(&Options::default()) else { return };
    std::thread::scope(|scope| {
        for device in [&device, &other] {
            scope.spawn(move || {
                for _ in 0..30 {
                    let (list, [a, b, ..]) = mixed(device);
                    device.write(&a.all(), bytemuck::cast_slice(&[2.0f32; WORDS as usize])).expect("write");
                    for _ in 0..4 {
                        device.submit(&list, Lane::Compute, &[]).expect("submit");
                    }
                    assert_eq!(words(device, &b)[..4], [2.0f32.to_bits(); 4]);
                }
            });
        }
    });
    for device in [&device, &other] {
        let counts = device.graphs();
        assert_eq!((counts.captured, counts.refused, counts.launches), (30, 0, 90));
    }
}
