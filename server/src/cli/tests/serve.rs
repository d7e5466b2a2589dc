//! `serve --apply` when objects are refused or nobody reads.

use std::path::PathBuf;

use super::*;
use crate::cli::serve::{apply_documents, check};

#[tokio::test]
async fn what_was_refused_is_kept_for_the_end_of_the_process_and_said() {
    let mut bench = Bench::new().await;
    bench.run(&["apply", "-f", &file(CLAIM).path]).await;
    bench
        .change(&web(), Part::Status, |claim| {
            let status = json!({"phase": "Bound"});
            claim.fields.insert("status".to_owned(), status);
        })
        .await;
    // A bound claim cannot be given another family.
    let four = CLAIM.replace("IPv6", "IPv4");
    let good = CLAIM.replace("web", "good");
    let manifest = file(&format!("{four}---\n{good}"));
    let files = [PathBuf::from(&manifest.path)];
    let documents = check(&files, "default", &mut bench.terminal).unwrap();
    let applied = std::cell::Cell::new(None);
    apply_documents(&bench.client, &documents, &applied, &mut bench.terminal).await;
    assert_eq!(applied.get(), Some(Exit::Usage));
    bench.stored(&Key::claim("default", "good")).await;
    let err = bench.err.text();
    assert!(
        err.contains("ends with exit code 2 when it is stopped"),
        "{err}"
    );
}

#[tokio::test]
async fn that_nobody_reads_the_reports_is_no_refusal() {
    let mut bench = Bench::new().await;
    let manifest = file(CLAIM);
    let files = [PathBuf::from(&manifest.path)];
    let documents = check(&files, "default", &mut bench.terminal).unwrap();
    bench.terminal.close_output();
    let applied = std::cell::Cell::new(None);
    apply_documents(&bench.client, &documents, &applied, &mut bench.terminal).await;
    assert_eq!(applied.get(), Some(Exit::Ok));
    bench.stored(&web()).await;
}
