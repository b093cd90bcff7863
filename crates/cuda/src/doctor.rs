//! What CUDA needs, what was found of it, and what is missing.

use std::path::PathBuf;

use libloading::Library;

use crate::blas::Blas;
use crate::cache::default_dir;
use crate::driver::{Described, Driver};
use crate::find::{Candidate, Search};
use crate::nvrtc::Nvrtc;

/// Oldest CUDA version of a driver, as 1000·major + 10·minor.
const OLDEST_DRIVER: u32 = 12_000;

/// Oldest chip: bf16 arithmetic and asynchronous copies.
const OLDEST_CHIP: (u32, u32) = (8, 0);

/// One GPU of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuReport {
    /// Its number in the driver's order.
    pub gpu: u32,
    /// Its name.
    pub name: String,
    /// Its memory in bytes.
    pub memory: u64,
    /// Compute capability.
    pub capability: (u32, u32),
    /// Whether it can be opened, or why not.
    pub usable: Result<(), String>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Newest CUDA version that the driver supports, such as 13.0, or why there is no driver.
    pub driver: Result<(u32, u32), String>,
    /// Version of NVRTC and what it was loaded from, or what was tried.
    pub nvrtc: Result<((u32, u32), String), String>,
    /// Version of cublasLt and what it was loaded from, or what was tried. Without it products are own kernels.
    pub cublas_lt: Result<((u32, u32), String), String>,
    /// The GPUs; none without a driver.
    pub gpus: Vec<GpuReport>,
    /// Where compiled kernels are kept, unless a device is told otherwise.
    pub cache: Option<PathBuf>,
}

impl Report {
    /// What is missing for a device to open, in the user's terms; nothing if one does.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        if let Err(why) = &self.driver {
            missing.push(format!("CUDA: {why}"));
        } else if self.gpus.is_empty() {
            missing.push("CUDA: the driver sees no GPU".to_owned());
        }
        for (gpu, why) in self.gpus.iter().filter_map(|g| Some((g, g.usable.as_ref().err()?))) {
            missing.push(format!("CUDA: {} cannot be used: {why}", gpu.name));
        }
        if let Err(why) = &self.nvrtc
            && self.gpus.iter().any(|g| g.usable.is_ok())
        {
            missing.push(format!(
                "CUDA: NVRTC was not found; install the toolkit or the package nvidia-cuda-nvrtc, or name its folder in \
                 {}: {why}",
                crate::LIBRARIES
            ));
        }
        missing
    }

    /// What would make a device that opens faster, in the user's terms.
    #[must_use]
    pub fn advice(&self) -> Vec<String> {
        let opens = self.driver.is_ok() && self.nvrtc.is_ok() && self.gpus.iter().any(|g| g.usable.is_ok());
        let lacks = self.cublas_lt.as_ref().err().filter(|_| opens);
        let words = |why: &String| {
            format!(
                "CUDA: cublasLt was not found, so products are own kernels without tensor cores; install the toolkit or the \
                 package nvidia-cublas, or name its folder in {}: {why}",
                crate::LIBRARIES
            )
        };
        lacks.map(words).into_iter().collect()
    }
}

/// Looks for everything; never fails, and opens no device.
#[must_use]
pub fn report() -> Report {
    report_of(&Search::from_env())
}

/// [`report`] by way of a search.
fn report_of(search: &Search) -> Report {
    let driver = find_driver(search);
    let describe = |driver: Driver, gpu: u32| match driver.describe(gpu) {
        Ok(found) => {
            let usable = usable(&found);
            GpuReport { gpu, name: found.name, memory: found.memory, capability: found.capability, usable }
        }
        Err(refusal) => {
            let usable = Err(refusal.to_string());
            GpuReport { gpu, name: format!("GPU {gpu}"), memory: 0, capability: (0, 0), usable }
        }
    };
    let gpus = match &driver {
        Ok((driver, _)) => (0..driver.count().unwrap_or(0)).map(|i| describe(*driver, i)).collect(),
        Err(_) => Vec::new(),
    };
    let major = driver.as_ref().ok().map(|(_, version)| version / 1000);
    Report {
        nvrtc: Nvrtc::find(search, major).map(|found| (found.version, found.origin)),
        cublas_lt: Blas::find(search, major).map(|found| (found.version, found.origin)),
        driver: driver.map(|(_, version)| (version / 1000, version % 1000 / 10)),
        gpus,
        cache: default_dir(),
    }
}

/// Whether the kernels run on a chip.
pub(crate) fn usable(gpu: &Described) -> Result<(), String> {
    let ((major, minor), (least, least_minor)) = (gpu.capability, OLDEST_CHIP);
    if gpu.capability < OLDEST_CHIP {
        return Err(format!("compute capability {major}.{minor}, {least}.{least_minor} is needed"));
    }
    Ok(())
}

/// The driver, initialised, with its version.
///
/// # Errors
/// Why there is none.
pub(crate) fn find_driver(search: &Search) -> Result<(Driver, u32), String> {
    let driver = Driver::present().or_else(|| {
        // Where the loader does not look, a library that is loaded already still answers to its name.
        for candidate in search.candidates("cuda", &[]) {
            if let Candidate::File(path) = candidate {
                preload(&path);
            }
        }
        Driver::present()
    });
    let driver = driver.ok_or("no NVIDIA driver: its library libcuda was not found")?;
    let version = driver.version().map_err(|e| format!("the driver does not tell its version: {e}"))?;
    if version < OLDEST_DRIVER {
        return Err(format!(
            "the driver is too old: it supports CUDA {}.{}, {}.{} is needed",
            version / 1000,
            version % 1000 / 10,
            OLDEST_DRIVER / 1000,
            OLDEST_DRIVER % 1000 / 10
        ));
    }
    driver.init().map_err(|e| format!("the driver does not start: {e}"))?;
    Ok((driver, version))
}

/// Loads a library for the rest of the process, if it can be loaded.
#[allow(unsafe_code, reason = "loading a library, see the SAFETY line")]
fn preload(path: &std::path::Path) {
    // SAFETY: the driver's initialisers may run anywhere; the user or the system put the library where it was found.
    if let Ok(library) = unsafe { Library::new(path) } {
        std::mem::forget(library);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(capability: (u32, u32)) -> Described {
        Described { name: "chip".into(), memory: 1 << 30, capability, pools: true, shared: 48 << 10 }
    }

    #[test]
    fn old_chips_are_refused_by_number() {
        assert_eq!(usable(&gpu((9, 0))), Ok(()));
        assert_eq!(usable(&gpu((8, 0))), Ok(()));
        assert!(usable(&gpu((7, 5))).unwrap_err().contains("7.5"));
    }

    #[test]
    fn what_is_missing_is_said_once_and_in_order() {
        let good = GpuReport { gpu: 0, name: "chip".into(), memory: 1, capability: (9, 0), usable: Ok(()) };
        let all = Report {
            driver: Ok((13, 0)),
            nvrtc: Ok(((13, 0), "libnvrtc.so.13".into())),
            cublas_lt: Ok(((13, 0), "libcublasLt.so.13".into())),
            gpus: vec![good],
            cache: None,
        };
        assert_eq!((all.missing(), all.advice()), (Vec::new(), Vec::new()));
        let lacks = |change: &dyn Fn(&mut Report)| {
            let mut report = all.clone();
            change(&mut report);
            report.missing().join("\n")
        };
        assert!(lacks(&|r| r.nvrtc = Err("tried".into())).contains("SEAM_CUDA_LIBS: tried"));
        assert!(lacks(&|r| r.gpus.clear()).contains("no GPU"));
        assert!(lacks(&|r| r.gpus[0].usable = Err("too old".into())).contains("chip cannot be used: too old"));
        let none = lacks(&|r| {
            r.driver = Err("no NVIDIA driver".into());
            r.nvrtc = Err("tried".into());
            r.gpus.clear();
        });
        assert_eq!(none, "CUDA: no NVIDIA driver", "a compiler is no use without a GPU");
        // A device opens without cublasLt, only slower; who has no device needs no such advice.
        let slow = Report { cublas_lt: Err("tried".into()), ..all.clone() };
        assert_eq!(slow.missing(), [""; 0]);
        let advice = slow.advice().join("\n");
        assert!(advice.contains("cublasLt") && advice.contains("SEAM_CUDA_LIBS: tried"), "{advice}");
        assert_eq!(Report { gpus: Vec::new(), ..slow.clone() }.advice(), [""; 0]);
        assert_eq!(Report { nvrtc: Err("tried".into()), ..slow }.advice(), [""; 0]);
    }

    /// A folder whose libraries are none: every one is named with the loader's reason.
    #[test]
    fn broken_libraries_are_told_by_their_files() {
        let dir = tempfile::tempdir().unwrap();
        for library in ["nvrtc", "cublasLt", "cuda"] {
            std::fs::write(dir.path().join(format!("lib{library}.so.12")), b"no library").unwrap();
        }
        let report = report_of(&Search { first: vec![dir.path().to_path_buf()], ..Search::default() });
        let told = |found: &Result<((u32, u32), String), String>, file: &str| {
            let why = found.as_ref().unwrap_err();
            assert!(why.contains(&dir.path().join(file).display().to_string()), "{why}");
        };
        told(&report.nvrtc, "libnvrtc.so.12");
        told(&report.cublas_lt, "libcublasLt.so.12");
        // With a driver that the loader knows the folder is not asked for one.
        if Driver::present().is_none() {
            assert!(report.driver.as_ref().unwrap_err().contains("libcuda was not found"), "{report:?}");
            assert_eq!(report.missing(), ["CUDA: no NVIDIA driver: its library libcuda was not found"]);
        }
        let opened = report.missing().is_empty();
        assert!(!opened, "without a compiler nothing opens: {report:?}");
    }

    #[test]
    fn the_report_agrees_with_opening() {
        let report = report();
        if report.driver.is_err() {
            assert!(report.gpus.is_empty() && report.missing().len() == 1, "{report:?}");
        }
        let opens = crate::CudaDevice::open(&crate::Options::default());
        assert_eq!(opens.is_ok(), report.missing().is_empty(), "{report:?}, {opens:?}");
    }
}
