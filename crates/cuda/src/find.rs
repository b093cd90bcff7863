//! Where the libraries are looked for: folders that the user names, the loader's own, toolkits, Python environments.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Names folders to look into first, separated as in `PATH`.
pub const LIBRARIES: &str = "SEAM_CUDA_LIBS";

/// Versions whose libraries the loader is asked for by name, newest first.
const MAJORS: [u32; 2] = [13, 12];

/// One way to load a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Candidate {
    /// By the name alone, which the loader resolves.
    Name(String),
    /// A file.
    File(PathBuf),
}

impl std::fmt::Display for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Folders to search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Search {
    /// Named by the user: before the loader.
    pub(crate) first: Vec<PathBuf>,
    /// Whether the loader is asked as well.
    pub(crate) loader: bool,
    /// After the loader.
    pub(crate) then: Vec<PathBuf>,
}

/// Entries of a folder, sorted; none if it cannot be read.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok).map(|e| e.path()).collect();
    found.sort();
    found
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// `lib` folders of NVIDIA's wheels below the Python environment `prefix`.
fn wheels(prefix: &Path) -> Vec<PathBuf> {
    let pythons = entries(&prefix.join("lib")).into_iter().filter(|p| name(p).starts_with("python3"));
    let sites = pythons.flat_map(|p| ["site-packages", "dist-packages"].map(|site| p.join(site).join("nvidia")));
    // The newest layout first: cu13 holds everything, older wheels have a folder each.
    let mut libs: Vec<PathBuf> = sites.flat_map(|nvidia| entries(&nvidia)).map(|p| p.join("lib")).collect();
    libs.retain(|lib| lib.is_dir());
    libs.sort_by_key(|lib| !lib.parent().is_some_and(|p| name(p).starts_with("cu1")));
    libs
}

impl Search {
    /// As this process's environment says.
    pub(crate) fn from_env() -> Self {
        Self::new(&|key| std::env::var_os(key).filter(|v| !v.is_empty()), Path::new("/"))
    }

    /// As the variables of `env` say, with system folders below `root`.
    pub(crate) fn new(env: &dyn Fn(&str) -> Option<OsString>, root: &Path) -> Self {
        let split = |key: &str| env(key).map(|v| std::env::split_paths(&v).collect::<Vec<_>>()).unwrap_or_default();
        let libs = |toolkit: &Path| ["lib64", "lib", "targets/x86_64-linux/lib", "bin"].map(|l| toolkit.join(l));
        let mut then = Vec::new();
        for key in ["CUDA_PATH", "CUDA_HOME"] {
            then.extend(env(key).iter().flat_map(|home| libs(Path::new(home))));
        }
        // `cuda` is the link to the toolkit in use; the numbered ones follow, newest first.
        let local = root.join("usr/local");
        let mut toolkits: Vec<PathBuf> = entries(&local).into_iter().filter(|p| name(p).starts_with("cuda")).collect();
        toolkits.sort_by_key(|p| (name(p) != "cuda", std::cmp::Reverse(version(&name(p), "cuda-"))));
        then.extend(toolkits.iter().flat_map(|t| libs(t)));
        let mut prefixes: Vec<PathBuf> =
            ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(|k| env(k)).map(PathBuf::from).collect();
        // A Python on the path belongs to an environment, activated or not.
        let bins = split("PATH").into_iter().filter(|bin| bin.join("python3").exists());
        prefixes.extend(bins.filter_map(|bin| bin.parent().map(Path::to_path_buf)));
        prefixes.extend(env("HOME").map(|home| PathBuf::from(home).join(".local")));
        prefixes.extend(["usr/local", "usr"].map(|p| root.join(p)));
        then.extend(prefixes.iter().flat_map(|p| wheels(p)));
        then.extend(["usr/lib/x86_64-linux-gnu", "usr/lib/wsl/lib", "usr/lib64"].map(|p| root.join(p)));
        let mut seen = std::collections::HashSet::new();
        then.retain(|dir| dir.is_dir() && seen.insert(dir.clone()));
        Self { first: split(LIBRARIES), loader: true, then }
    }

    /// Ways to load `library` (`nvrtc`, `cuda`), in the order they are tried. `names` are what the loader is asked for.
    pub(crate) fn candidates(&self, library: &str, names: &[String]) -> Vec<Candidate> {
        let files = |dirs: &[PathBuf]| dirs.iter().flat_map(|d| versions(d, library)).map(Candidate::File).collect();
        let mut all: Vec<Candidate> = files(&self.first);
        all.extend(names.iter().filter(|_| self.loader).cloned().map(Candidate::Name));
        all.extend::<Vec<Candidate>>(files(&self.then));
        all
    }

    /// Ways to load NVRTC.
    pub(crate) fn nvrtc(&self) -> Vec<Candidate> {
        let name = |major: &u32| {
            if cfg!(windows) { format!("nvrtc64_{major}0_0.dll") } else { format!("libnvrtc.so.{major}") }
        };
        self.candidates("nvrtc", &MAJORS.iter().map(name).collect::<Vec<_>>())
    }

    /// Ways to load cublasLt.
    pub(crate) fn cublas_lt(&self) -> Vec<Candidate> {
        let name = |major: &u32| {
            if cfg!(windows) { format!("cublasLt64_{major}.dll") } else { format!("libcublasLt.so.{major}") }
        };
        self.candidates("cublasLt", &MAJORS.iter().map(name).collect::<Vec<_>>())
    }
}

/// The numbers behind `prefix`, compared from left to right; empty if there are none.
fn version(name: &str, prefix: &str) -> Vec<u32> {
    let numbers =
        name.strip_prefix(prefix).map(|rest| rest.split('.').map(str::parse).collect::<Result<Vec<u32>, _>>());
    numbers.and_then(Result::ok).unwrap_or_default()
}

/// Files of `dir` that are versions of a library, newest first. Variants such as `libnvrtc.alt.so.13` are none.
pub(crate) fn versions(dir: &Path, library: &str) -> Vec<PathBuf> {
    let plain = format!("lib{library}.so");
    let numbered = format!("{plain}.");
    let mut found: Vec<(Vec<u32>, PathBuf)> = entries(dir)
        .into_iter()
        .map(|path| (version(&name(&path), &numbered), path))
        .filter(|(version, path)| !version.is_empty() || name(path) == plain)
        .collect();
    // Of two names of one version the shorter is the one other libraries ask for.
    found.sort_by(|(a, _), (b, _)| b.first().cmp(&a.first()).then(a.len().cmp(&b.len())).then(b.cmp(a)));
    found.into_iter().map(|(_, path)| path).collect()
}

/// The first library among `candidates` whose major version the driver (of CUDA `driver`.x) takes.
///
/// # Errors
/// What was tried and why it did not do, for people.
pub(crate) fn first_usable<T>(
    candidates: Vec<Candidate>,
    driver: Option<u32>,
    open: impl Fn(&Candidate) -> Result<T, String>,
    version: impl Fn(&T) -> (u32, u32),
) -> Result<T, String> {
    let mut tried = Vec::new();
    for candidate in candidates {
        match open(&candidate) {
            Ok(found) => {
                let (major, minor) = version(&found);
                match driver.filter(|newest| major > *newest) {
                    None => return Ok(found),
                    Some(newest) => tried
                        .push(format!("{candidate} is version {major}.{minor}, newer than the driver's CUDA {newest}")),
                }
            }
            Err(why) => tried.push(format!("{candidate}: {why}")),
        }
    }
    if tried.is_empty() { Err("there is no folder to look into".to_owned()) } else { Err(tried.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, b"").unwrap();
    }

    fn files(candidates: &[Candidate], root: &Path) -> Vec<String> {
        let relative = |c: &Candidate| match c {
            Candidate::Name(name) => format!("<{name}>"),
            Candidate::File(path) => path.strip_prefix(root).unwrap().display().to_string(),
        };
        candidates.iter().map(relative).collect()
    }

    /// Named folders, the loader, CUDA_PATH, toolkits, Python environments: each where it was put, in that order.
    #[test]
    fn libraries_are_found_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for file in [
            "mine/libnvrtc.so.12",
            "mine/libnvrtc.so.13",
            "mine/libnvrtc.alt.so.13",
            "mine/libnvrtc-builtins.so.13.0",
            "opt/cuda/lib64/libnvrtc.so",
            "opt/cuda/lib64/libnvrtc.so.12",
            "opt/cuda/lib64/libnvrtc.so.12.4.127",
            "usr/local/cuda/lib64/libnvrtc.so.13",
            "usr/local/cuda-12.8/lib64/libnvrtc.so.12",
            "usr/local/cuda-13.0/lib64/libnvrtc.so.13",
            "usr/local/curl/lib64/libnvrtc.so.13",
            "env/bin/python3",
            "env/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
            "env/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
        ] {
            touch(&root.join(file));
        }
        let env = |key: &str| -> Option<OsString> {
            match key {
                LIBRARIES => Some(root.join("mine").into_os_string()),
                "CUDA_PATH" => Some(root.join("opt/cuda").into_os_string()),
                "PATH" => Some(std::env::join_paths([root.join("none"), root.join("env/bin")]).unwrap()),
                _ => None,
            }
        };
        let search = Search::new(&env, root);
        let found = files(&search.nvrtc(), root);
        assert_eq!(
            found,
            [
                "mine/libnvrtc.so.13",
                "mine/libnvrtc.so.12",
                "<libnvrtc.so.13>",
                "<libnvrtc.so.12>",
                "opt/cuda/lib64/libnvrtc.so.12",
                "opt/cuda/lib64/libnvrtc.so.12.4.127",
                "opt/cuda/lib64/libnvrtc.so",
                "usr/local/cuda/lib64/libnvrtc.so.13",
                "usr/local/cuda-13.0/lib64/libnvrtc.so.13",
                "usr/local/cuda-12.8/lib64/libnvrtc.so.12",
                "env/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
                "env/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
            ]
        );
        assert_eq!(versions(&root.join("mine"), "nvrtc-builtins"), [root.join("mine/libnvrtc-builtins.so.13.0")]);
    }

    #[test]
    fn nothing_is_found_in_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let search = Search::new(&|_| None, dir.path());
        assert_eq!(search, Search { loader: true, ..Search::default() });
        assert_eq!(files(&search.nvrtc(), dir.path()), ["<libnvrtc.so.13>", "<libnvrtc.so.12>"]);
        assert_eq!(files(&search.cublas_lt(), dir.path()), ["<libcublasLt.so.13>", "<libcublasLt.so.12>"]);
        assert_eq!(Search::default().cublas_lt(), [], "nowhere at all");
    }

    #[test]
    fn the_first_library_that_the_driver_takes_is_taken() {
        let all = || [14, 13, 12].map(|v: u32| Candidate::Name(v.to_string())).to_vec();
        let open = |c: &Candidate| match c.to_string().parse::<u32>() {
            Ok(13) => Err("broken".to_owned()),
            other => other.map_err(|e| e.to_string()),
        };
        let version = |v: &u32| (*v, 1);
        assert_eq!(first_usable(all(), None, open, version), Ok(14), "without a driver any does");
        assert_eq!(first_usable(all(), Some(13), open, version), Ok(12));
        let why = first_usable(all(), Some(11), open, version).unwrap_err();
        assert_eq!(
            why,
            "14 is version 14.1, newer than the driver's CUDA 11; 13: broken; 12 is version 12.1, newer than the driver's CUDA 11"
        );
        assert!(first_usable(Vec::new(), None, open, version).unwrap_err().contains("no folder"));
    }
}
