//! The `Warning` headers of answers.

use std::sync::{Arc, Mutex, PoisonError};

use reqwest::header::{HeaderMap, WARNING};

/// Warnings that nobody has shown yet; clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Adds those of an answer that are not there yet.
    pub(super) fn add(&self, headers: &HeaderMap) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for value in headers.get_all(WARNING) {
            if let Some(text) = value.to_str().ok().and_then(text_of)
                && !kept.contains(&text)
            {
                kept.push(text);
            }
        }
    }

    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The text of `299 - "TEXT"`.
fn text_of(header: &str) -> Option<String> {
    let (_, quoted) = header.split_once('"')?;
    let mut text = String::new();
    let mut chars = quoted.chars();
    loop {
        match chars.next()? {
            '"' => return Some(text),
            '\\' => text.push(chars.next()?),
            c => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_warning_is_kept_once_without_its_quotes() {
        let mut headers = HeaderMap::new();
        for text in [
            r#"299 - "a \"b\" \\c""#,
            r#"299 - "d""#,
            r#"299 - "d""#,
            "299 - x",
        ] {
            headers.append(WARNING, text.parse().unwrap());
        }
        let warnings = Warnings::default();
        warnings.add(&headers);
        warnings.clone().add(&headers);
        assert_eq!(warnings.take(), [r#"a "b" \c"#, "d"]);
        assert!(warnings.take().is_empty());
    }
}
