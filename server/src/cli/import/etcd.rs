//! An import into etcd, where a ledger cannot be made under another name first: a mark keeps servers away
//! from the first object on until after the last one (decision 13).

use ipledger_core::api::Object;
use ipledger_store_etcd::ImportError;

use super::load::LoadError;
use super::{failed, with_progress};
use crate::cli::exit::{CliError, Exit};
use crate::cli::output::Terminal;
use crate::ledger::{EtcdLocation, connect, default_name};

/// Fills the ledger there, which is empty or has a part of these objects from an import that was cut
/// off.
pub(super) async fn import(
    location: &EtcdLocation,
    objects: &[Object],
    terminal: &mut Terminal,
) -> Result<String, CliError> {
    let store = connect(location).await?;
    let name = default_name(format_args!("import-{}", std::process::id()));
    let begun = store.begin_import(&name).await;
    let mut import = begun.map_err(|e| refused(&e, location))?;
    if let Some(by) = import.begun_by() {
        terminal.note(&format!("going on with the import that {by} has begun"));
    }
    let loaded = tokio::select! {
        loaded = with_progress(&store, objects, terminal) => loaded,
        reason = import.over() => {
            return Err(CliError::Ledger {
                exit: Exit::Unavailable,
                message: format!(
                    "the import is cut off, because others are not kept away from {} any more: {reason}; \
                     no server works on a part of it; run the same command again",
                    location.url
                ),
            });
        }
    };
    if let Err(error) = loaded {
        // Before it had written anything, unless an earlier one had.
        if matches!(error, LoadError::Foreign { .. }) && import.begun_by().is_none() {
            import.end().await.map_err(|e| refused(&e, location))?;
            return Err(CliError::Ledger {
                exit: Exit::Conflict,
                message: format!("{error}; there is a ledger at {} already", location.url),
            });
        }
        return Err(failed(&error, &location.url));
    }
    import.end().await.map_err(|e| refused(&e, location))?;
    store.close();
    Ok("it can be served now".to_owned())
}

fn refused(error: &ImportError, location: &EtcdLocation) -> CliError {
    CliError::Ledger {
        exit: match error {
            ImportError::Served { .. } => Exit::Conflict,
            _ => Exit::Unavailable,
        },
        message: format!("{}: {error}", location.url),
    }
}
