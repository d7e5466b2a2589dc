//! What people see, kept as files in `golden/`: a change of it is seen in review.

use std::path::PathBuf;

/// Compares a text with its file. With `GOLDEN=write` in the environment the file is written instead.
pub(crate) fn assert_is_kept(name: &str, text: &str) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/kubernetes/golden");
    let path = PathBuf::from(folder).join(name);
    if std::env::var("GOLDEN").is_ok_and(|v| v == "write") {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == text,
        "{} is to be\n{kept}\nand is\n{text}\nwith GOLDEN=write it is written anew",
        path.display()
    );
}

/// A table of kubectl with the ages, its last column, left out of it, and without the blanks at the end
/// of lines.
pub(crate) fn without_ages(table: &str) -> String {
    let mut lines = table.lines();
    let head = lines.next().unwrap_or_default();
    let age = head.rfind("AGE").unwrap_or(head.len());
    let mut text = format!("{head}\n");
    for line in lines {
        let (cells, last) = line.split_at(age.min(line.len()));
        let is_age = last.trim_end().chars().all(char::is_alphanumeric) && !last.is_empty();
        assert!(is_age, "{line}");
        text.push_str(cells);
        text.push_str("AGE\n");
    }
    text
}
