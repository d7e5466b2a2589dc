//! A folder for the meantime.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A folder for this user only that is removed with everything in it.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// A new folder where temporary files are.
    pub(super) fn new(purpose: &str) -> std::io::Result<Folder> {
        Folder::within(&std::env::temp_dir(), purpose)
    }

    /// A new folder in another one.
    pub(super) fn within(parent: &Path, purpose: &str) -> std::io::Result<Folder> {
        let name = format!("ipledger-{purpose}-{}", uuid::Uuid::new_v4());
        let path = std::path::absolute(parent.join(name))?;
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Folder(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed has a name that tells what it was.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
