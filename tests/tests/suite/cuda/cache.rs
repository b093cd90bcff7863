//! The folder of compiled kernels: whatever is in it, devices work.

use std::path::Path;

use seam_cuda::{CudaDevice, KernelCache, Options};
use seam_device::{BufferUse, DType, Device, Gemm, Lane};
use seam_tests::own_cuda;

fn open(dir: &Path) -> Option<std::sync::Arc<CudaDevice>> {
    own_cuda(&Options { cache: KernelCache::Dir(dir.to_path_buf()), ..Options::default() })
}

/// Runs kernels of both kinds of products and checks what they compute.
fn works(device: &CudaDevice) {
    for m in [2u32, 40] {
        let (n, k) = (8u32, 8u32);
        let upload = |label: &str, values: &[f32]| {
            let buffer = device.alloc(label, values.len() as u64 * 4, BufferUse::Storage).expect("alloc");
            device.write(&buffer.all(), bytemuck::cast_slice(values)).expect("write");
            buffer.all()
        };
        let a: Vec<f32> = (0..m * k).map(|i| i as f32).collect();
        let mut twice = vec![0.0; (n * k) as usize];
        (0..n as usize).for_each(|i| twice[i * k as usize + i] = 2.0);
        let (x, w, c) = (upload("a", &a), upload("w", &twice), upload("c", &vec![f32::NAN; (m * n) as usize]));
        let mut recorder = device.recorder();
        let gemm = Gemm {
            m,
            n,
            k,
            lda: k,
            ldc: n,
            c_column: 0,
            weight: DType::F32,
            accumulate: false,
            a: x,
            w,
            c: c.clone(),
            scales: None,
            rows: None,
        };
        recorder.gemm(gemm).expect("gemm");
        let ticket = device.submit(&recorder.finish().expect("list"), Lane::Compute, &[]).expect("submit");
        let bytes = device.read(&c, &[ticket]).expect("read").wait().expect("wait");
        let doubled: Vec<u8> = a.iter().flat_map(|x| (2.0 * x).to_le_bytes()).collect();
        assert_eq!(bytes, doubled, "m = {m}");
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("folder");
    let mut names: Vec<String> =
        entries.map(|e| e.expect("entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn damaged_files_are_compiled_anew() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let Some(device) = open(dir.path()) else { return };
    works(&device);
    let kept = names(dir.path());
    assert_eq!(kept.len(), 2, "{kept:?}");
    let whole: Vec<Vec<u8>> = kept.iter().map(|n| std::fs::read(dir.path().join(n)).expect("file")).collect();
    type Damage = fn(&[u8]) -> Vec<u8>;
    let damages: [Damage; 5] = [
        |_| Vec::new(),
        |file| file[..20].to_vec(),
        |file| file[..file.len() - 1].to_vec(),
        |file| file.iter().enumerate().map(|(i, b)| if i == 100 { b ^ 1 } else { *b }).collect(),
        |file| [file, b"more"].concat(),
    ];
    for (i, damage) in damages.iter().enumerate() {
        for (name, file) in kept.iter().zip(&whole) {
            std::fs::write(dir.path().join(name), damage(file)).expect("write");
        }
        works(&open(dir.path()).expect("a device"));
        assert_eq!(names(dir.path()), kept, "damage {i}");
        for (name, file) in kept.iter().zip(&whole) {
            assert!(&std::fs::read(dir.path().join(name)).expect("file") == file, "damage {i}: {name} is whole again");
        }
    }
}

/// A folder that cannot be written, also as root: a file stands in its place, or it may only be read.
#[test]
fn folders_that_cannot_be_written_cost_only_time() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let file = dir.path().join("file");
    std::fs::write(&file, b"not a folder").expect("write");
    let locked = dir.path().join("locked");
    std::fs::create_dir(&locked).expect("folder");
    let mut permissions = std::fs::metadata(&locked).expect("metadata").permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&locked, permissions).expect("permissions");
    for place in [&file, &file.join("below"), &locked] {
        let Some(device) = open(place) else { return };
        works(&device);
    }
    assert_eq!(std::fs::read(&file).expect("file"), b"not a folder");
}

/// Devices that find nothing and compile the same kernels at once, into one folder.
#[test]
fn compiling_at_once_leaves_whole_files() {
    let dir = tempfile::tempdir().expect("temporary folder");
    if open(dir.path()).is_none() {
        return;
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| works(&open(dir.path()).expect("a device")));
        }
    });
    assert_eq!(names(dir.path()).len(), 2, "a file a kernel, and nothing left aside");
    works(&open(dir.path()).expect("a device"));
}
