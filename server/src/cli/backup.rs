//! `ipledger backup` and `ipledger restore`: copies of a ledger file.

use std::path::Path;

use ipledger_store_sqlite::{Options, backup, restore};

use super::exit::CliError;
use super::output::Terminal;

/// Copies a ledger that may be in use.
///
/// # Errors
/// It is no sound ledger; the copy exists or cannot be written.
pub(super) async fn back_up(db: &Path, to: &Path, terminal: &mut Terminal) -> Result<(), CliError> {
    let copied = backup(db, to, &Options::default()).await?;
    terminal.line(&format!(
        "{} holds the ledger {} at revision {}: {} objects in {} bytes, checked",
        to.display(),
        db.display(),
        copied.revision,
        copied.objects,
        copied.bytes
    ))
}

/// Makes a ledger from a backup.
///
/// # Errors
/// It is no sound ledger; the new one exists or cannot be written.
pub(super) async fn recover(
    from: &Path,
    to: &Path,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    let (copied, start) = restore(from, to, &Options::default()).await?;
    terminal.line(&format!(
        "{} holds the {} objects of {} and goes on from revision {start} (the last one was {}); \
         watches and continue tokens from before expire",
        to.display(),
        copied.objects,
        from.display(),
        copied.revision
    ))
}

#[cfg(test)]
mod tests {
    use ipledger_core::api::{Kind, Object};
    use ipledger_core::store::{ListOptions, Store};
    use ipledger_store_sqlite::SqliteStore;
    use serde_json::json;

    use super::*;
    use crate::cli::output::tests::captured;

    #[tokio::test]
    async fn a_ledger_is_saved_and_recovered_and_nothing_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let [db, saved, new] = ["a.db", "b.db", "c.db"].map(|name| folder.path().join(name));
        let (mut terminal, out, _) = captured();
        let e = back_up(&db, &saved, &mut terminal).await.unwrap_err();
        assert_eq!(e.exit() as u8, 8, "{e}");
        let store = SqliteStore::open(&db, &Options::default()).await.unwrap();
        let class = json!({"apiVersion": "local.sdn.cozystack.io/v1alpha1",
            "kind": "IPAddressClass", "metadata": {"name": "lab"}, "spec": {}});
        let class = Object::from_value(class).unwrap();
        store.create(class).await.unwrap();
        back_up(&db, &saved, &mut terminal).await.unwrap();
        recover(&saved, &new, &mut terminal).await.unwrap();
        for (from, to) in [(&db, &saved), (&saved, &new)] {
            let e = recover(from, to, &mut terminal).await.unwrap_err();
            assert_eq!(e.exit() as u8, 4, "{e}");
        }
        let out = out.text();
        let lines: Vec<&str> = out.lines().collect();
        let [saved, recovered] = lines.as_slice() else {
            panic!("{out}")
        };
        assert!(saved.contains("at revision 2: 1 objects"), "{saved}");
        assert!(recovered.contains("(the last one was 2)"), "{recovered}");
        let new = SqliteStore::open(&new, &Options::default()).await.unwrap();
        let options = ListOptions::default();
        let page = new.list(Kind::IPAddressClass, &options).await.unwrap();
        assert_eq!(page.items.len(), 1);
    }
}
