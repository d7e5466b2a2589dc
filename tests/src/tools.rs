//! Where the real servers are that `tests/tools/build` builds.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder with the programs of a tool, if it is built.
///
/// # Panics
/// `CI` is set and it is not built: nothing may be skipped there.
pub fn folder(tool: &str) -> Option<PathBuf> {
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/build");
    let output = Command::new(&build).args(["--if-built", tool]).output();
    let output = output.unwrap_or_else(|e| panic!("{}: {e}", build.display()));
    if output.status.success() {
        let text = String::from_utf8_lossy(&output.stdout);
        return Some(PathBuf::from(text.trim()));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(3) && std::env::var_os("CI").is_none(),
        "{said}"
    );
    None
}
