//! The binary starts. This test also makes `cargo test --workspace` build it, for the tests across the crates.

use std::process::Command;

#[test]
fn the_version_is_that_of_the_package() {
    let output = Command::new(env!("CARGO_BIN_EXE_seam")).arg("--version").output().expect("the binary runs");
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), concat!("seam ", env!("CARGO_PKG_VERSION")));
}
