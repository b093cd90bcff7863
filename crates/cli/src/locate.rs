//! Finding the fixtures that come with the source: models and goldens.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// The folder of fixtures.
const FIXTURES: &str = "fixtures";

/// Where fixtures may be: below the current directory, below any folder above the executable, and where this program
/// was built, in this order.
fn roots() -> Vec<PathBuf> {
    let mut roots = vec![PathBuf::from(".")];
    if let Ok(exe) = std::env::current_exe() {
        roots.extend(exe.ancestors().skip(1).map(Path::to_path_buf));
    }
    roots.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    roots
}

/// The fixture `name`, if there is one; it is there if it holds the file `witness`.
pub(crate) fn fixture(name: &str, witness: &str) -> Option<PathBuf> {
    find(&roots(), name, witness)
}

fn find(roots: &[PathBuf], name: &str, witness: &str) -> Option<PathBuf> {
    roots.iter().map(|root| root.join(FIXTURES).join(name)).find(|dir| dir.join(witness).is_file())
}

/// The fixture model `name`.
///
/// # Errors
/// A message that names what was looked for, and where.
pub(crate) fn model(name: &str) -> Result<PathBuf> {
    let Some(dir) = fixture(name, "config.json") else {
        let cwd = std::env::current_dir().unwrap_or_default();
        bail!(
            "the model {FIXTURES}/{name} was not found below {}, nor beside the program, nor where it was built: run \
             it in the source folder, or say --model DIR",
            cwd.display()
        );
    };
    Ok(dir)
}

/// Checks that `dir` can be a model folder, so that the message is about the folder and not about a file in it.
///
/// # Errors
/// A message that names the folder.
pub(crate) fn check_model(dir: &Path) -> Result<()> {
    if !dir.is_dir() {
        let what = if dir.exists() { "is not a folder" } else { "does not exist" };
        bail!("the model folder {} {what}", dir.display());
    }
    if !dir.join("config.json").is_file() {
        bail!("the folder {} is not a model: it has no config.json", dir.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_root_with_the_witness_wins() {
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let roots = [PathBuf::from("/nonexistent"), build.clone()];
        let found = find(&roots, "tiny_qwen35", "config.json").expect("the fixture is part of the source");
        assert!(found.starts_with(&build));
        assert_eq!(find(&roots, "tiny_qwen35", "no such file"), None);
        assert_eq!(find(&roots[..1], "tiny_qwen35", "config.json"), None);
    }

    #[test]
    fn a_missing_model_is_named() {
        let error = check_model(Path::new("no/such/model")).unwrap_err().to_string();
        assert!(error.contains("no/such/model") && error.contains("does not exist"), "{error}");
        let error = check_model(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap_err().to_string();
        assert!(error.contains("no config.json"), "{error}");
    }
}
