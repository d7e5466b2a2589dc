//! The library between the server and its disk, `tests/tools/powercut/powercut.c`.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// The built library, and the files through which the tests talk with it.
pub(crate) struct Shim(TempDir);

impl Shim {
    pub(crate) fn build() -> Shim {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/powercut/powercut.c");
        let mut compile = Command::new("cc");
        compile.args([
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-O1",
            "-shared",
            "-fPIC",
            "-o",
        ]);
        compile.arg(folder.path().join("powercut.so")).arg(source);
        let output = compile.args(["-ldl", "-lpthread"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "powercut.c: {said}");
        Shim(folder)
    }

    /// Puts it between a program and this folder.
    pub(crate) fn attach(&self, program: &mut Command, folder: &Path) {
        program
            .env("LD_PRELOAD", self.0.path().join("powercut.so"))
            .env("POWERCUT_FOLDER", folder)
            .env("POWERCUT_JOURNAL", self.journal())
            .env("POWERCUT_REFUSE", self.refuse_file());
    }

    /// What the program has done to the folder.
    pub(crate) fn journal(&self) -> PathBuf {
        self.0.path().join("journal")
    }

    fn refuse_file(&self) -> PathBuf {
        self.0.path().join("refuse")
    }

    /// Lets everything that would change the folder fail with this number.
    pub(crate) fn refuse(&self, errno: i32) {
        // At once: the file is never half there.
        let written = self.0.path().join("refuse.new");
        std::fs::write(&written, errno.to_string()).unwrap();
        std::fs::rename(written, self.refuse_file()).unwrap();
    }

    /// Lets the program end at the next change of the folder. (`kill -9` could cut the journal.)
    pub(crate) fn end_program(&self) {
        self.refuse(-1);
    }

    /// Lets everything work again.
    pub(crate) fn relent(&self) {
        std::fs::remove_file(self.refuse_file()).unwrap();
    }
}
