//! What can be measured.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use ipledger_core::store::Store;

use crate::cli::exit::CliError;

/// A backend, and a bare client of the same to compare it with.
#[async_trait]
pub(super) trait Subject {
    /// What it is, with what decides about its speed.
    fn name(&self) -> String;

    /// A new, empty ledger in this folder.
    async fn open(&self, folder: &Path) -> Result<Arc<dyn Store>, CliError>;

    /// A new, empty place for rows in this folder.
    async fn probe(&self, folder: &Path) -> Result<Arc<dyn Probe>, CliError>;
}

/// Writes the same rows as the store, as durably, and does nothing else: no revision is looked at, no
/// rule is applied, nobody watches.
#[async_trait]
pub(super) trait Probe: Send + Sync {
    /// Writes a new object. Returns when it is on disk.
    async fn create(&self, row: Row) -> Result<(), CliError>;

    /// Writes the next state of an object that it has created.
    async fn update(&self, row: Row) -> Result<(), CliError>;
}

/// One object as a row.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// The object's name.
    pub(super) name: String,
    /// Its uid.
    pub(super) uid: String,
    /// The object as JSON.
    pub(super) body: String,
    /// The state before it, of an update.
    pub(super) before: Option<String>,
}
