//! Whether the paths of the database still lead to the files that were opened.
//!
//! SQLite goes on with an open file that was deleted or replaced, and what is then written is lost
//! when the process ends. So the files are looked at from outside, and once one of them is not the
//! right one any more, the store stops for good.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ipledger_core::store::StoreError;

/// The files of an open database. They are only looked at: closing a file that was opened here
/// would drop SQLite's locks on it.
pub(crate) struct Identity {
    files: Vec<(PathBuf, FileId)>,
    lost: OnceLock<String>,
}

/// The device and the number of a file on it.
type FileId = (u64, u64);

impl Identity {
    /// Of the database that was just opened at this path.
    ///
    /// # Errors
    /// The file is not there.
    pub(crate) fn of(path: &Path) -> std::io::Result<Identity> {
        let mut files = vec![(path.to_owned(), id(path)?)];
        let mut wal = path.as_os_str().to_owned();
        wal.push("-wal");
        let wal = PathBuf::from(wal);
        // It stays as long as a connection is open.
        if let Ok(id) = id(&wal) {
            files.push((wal, id));
        }
        Ok(Identity {
            files,
            lost: OnceLock::new(),
        })
    }

    /// Looks at the files.
    ///
    /// # Errors
    /// One of them is, or was at an earlier look, not the one that was opened.
    pub(crate) fn check(&self) -> Result<(), Lost> {
        self.known()?;
        for (path, opened) in &self.files {
            let happened = match id(path) {
                Ok(found) if found == *opened => continue,
                Ok(_) => "was replaced by another file",
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                    "was deleted or moved away"
                }
                // It cannot be looked at, which says nothing about it.
                Err(_) => continue,
            };
            let _ = self.lost.set(self.advice(path, happened));
        }
        self.known()
    }

    /// What the looks so far have found.
    ///
    /// # Errors
    /// As of [`Identity::check`].
    pub(crate) fn known(&self) -> Result<(), Lost> {
        match self.lost.get() {
            Some(reason) => Err(Lost(reason.clone())),
            None => Ok(()),
        }
    }

    fn advice(&self, path: &Path, happened: &str) -> String {
        let mut text = format!(
            "the database file {} {happened} while the server used it, so nothing is read or \
             written any more: ",
            path.display()
        );
        match self.files.first() {
            Some((main, _)) if main != path => {
                text += &format!(
                    "stop the server, which brings what was written into {}, and start it again",
                    main.display()
                );
            }
            _ => {
                text += "stop the server, put the file back or choose the one that is meant, and \
                         start the server again; what was written until then is in the old file";
                if cfg!(target_os = "linux") {
                    let pid = std::process::id();
                    text += &format!(
                        " (if that was deleted, copy it from /proc/{pid}/fd before the server is \
                         stopped)"
                    );
                }
            }
        }
        text
    }
}

/// The database is not where it was; the text says what happened and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Lost(pub(crate) String);

impl From<Lost> for StoreError {
    fn from(lost: Lost) -> StoreError {
        StoreError::Unavailable { reason: lost.0 }
    }
}

impl From<Lost> for sqlx::Error {
    fn from(lost: Lost) -> sqlx::Error {
        sqlx::Error::Io(std::io::Error::other(lost))
    }
}

#[cfg(unix)]
fn id(path: &Path) -> std::io::Result<FileId> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Without numbers of files, only that one is missing is noticed.
#[cfg(not(unix))]
fn id(path: &Path) -> std::io::Result<FileId> {
    fs::metadata(path).map(|_| (0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        fs::write(&path, "old").unwrap();
        (folder, path)
    }

    #[test]
    fn a_file_that_is_written_renamed_onto_or_deleted_is_told_apart() {
        let (folder, path) = folder();
        let identity = Identity::of(&path).unwrap();
        fs::write(&path, "longer").unwrap();
        identity.check().unwrap();
        let other = folder.path().join("b.db");
        fs::write(&other, "new").unwrap();
        fs::rename(&other, &path).unwrap();
        let told = identity.check().unwrap_err().to_string();
        assert!(told.contains("a.db was replaced"), "{told}");

        let identity = Identity::of(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let told = identity.check().unwrap_err().to_string();
        assert!(told.contains("a.db was deleted"), "{told}");
        assert!(Identity::of(&path).is_err());
    }

    #[test]
    fn a_file_that_comes_back_is_not_trusted_again() {
        let (folder, path) = folder();
        let identity = Identity::of(&path).unwrap();
        let aside = folder.path().join("aside");
        fs::rename(&path, &aside).unwrap();
        identity.known().unwrap();
        assert!(identity.check().is_err());
        fs::rename(&aside, &path).unwrap();
        assert!(identity.check().is_err() && identity.known().is_err());
    }

    #[test]
    fn a_write_ahead_log_that_is_deleted_is_noticed() {
        let (folder, path) = folder();
        let wal = folder.path().join("a.db-wal");
        fs::write(&wal, "").unwrap();
        let identity = Identity::of(&path).unwrap();
        fs::remove_file(&wal).unwrap();
        let told = identity.check().unwrap_err().to_string();
        assert!(told.contains("a.db-wal was deleted"), "{told}");
    }
}
