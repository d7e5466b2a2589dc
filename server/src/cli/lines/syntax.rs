//! What cannot be read as YAML, in sentences that say what to do.

use serde_saphyr::{Error, budget::BudgetBreach};

/// Broken YAML, or more of it than is read.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli) struct SyntaxError {
    /// Counted from 1, in the whole file.
    pub(in crate::cli) line: u64,
    /// What is wrong and what to do.
    pub(in crate::cli) message: String,
}

impl SyntaxError {
    /// The error in a document whose first line is number `first_line` of its file.
    pub(super) fn new(error: &Error, text: &str, first_line: u64) -> SyntaxError {
        let error = error.without_snippet();
        let Some(location) = error.location() else {
            return SyntaxError {
                line: first_line,
                message: sentence(error),
            };
        };
        let position = format!(" at line {}, column {}", location.line(), location.column());
        let message = sentence(error).replace(&position, "");
        let line = usize::try_from(location.line()).unwrap_or(usize::MAX);
        let written = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
        let hint = if written.trim_end().ends_with("::") {
            " (an address that ends in `:` must stand in quotes)"
        } else {
            ""
        };
        SyntaxError {
            line: first_line
                .saturating_sub(1)
                .saturating_add(location.line().max(1)),
            message: format!("{message}{hint}"),
        }
    }
}

/// The parser's own words are kept where they speak of the text and not of the program.
fn sentence(error: &Error) -> String {
    match error {
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("the field `{key}` is there twice in one mapping; remove one of them")
        }
        Error::DuplicateMappingKey { key: None, .. } => {
            "a field is there twice in one mapping; remove one of them".to_owned()
        }
        Error::Budget { breach, .. } => breached(breach),
        Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            "the aliases (`*NAME`) make too much of it; write out what they stand for".to_owned()
        }
        Error::AliasError { error, .. } => sentence(error.without_snippet()),
        Error::UnknownAnchor { .. } => {
            "an alias (`*NAME`) has no anchor (`&NAME`) before it in the same document; write the \
             text in quotes if it is no alias"
                .to_owned()
        }
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            "an alias stands inside of what it names; write out what it stands for".to_owned()
        }
        Error::NullIntoString { .. } => {
            "a mapping has an entry without a name; write the name of a field before the `:`"
                .to_owned()
        }
        Error::TaggedScalarCannotDeserializeIntoString { .. } => {
            "a tag (`!...`) stands where text is expected; remove it".to_owned()
        }
        Error::InvalidScalar { .. } | Error::InvalidBooleanStrict { .. } => {
            "the value is not what its tag (`!!...`) says; remove the tag".to_owned()
        }
        Error::InvalidBinaryBase64 { .. } | Error::BinaryNotUtf8 { .. } => {
            "binary data (`!!binary`) cannot be part of an object; write text".to_owned()
        }
        Error::UnsupportedTag { tag, .. } => {
            format!("the tag `{tag}` is not known; remove it, or write the text in quotes")
        }
        Error::MergeValueNotMapOrSeqOfMaps { .. } | Error::MergeKeyNotAllowed { .. } => {
            "the merge key `<<` cannot be used like this; write the fields out".to_owned()
        }
        Error::NonFiniteFloat { value, .. } => {
            format!("`{value}` is no number that an object can have; write it in quotes")
        }
        Error::Unexpected { expected, .. } => {
            format!("{expected} is expected here; names of fields must be plain text")
        }
        Error::Eof { .. } => "the document ends before it is complete".to_owned(),
        other => other.to_string(),
    }
}

fn breached(breach: &BudgetBreach) -> String {
    let (what, advice) = match breach {
        BudgetBreach::Depth { .. } => (
            "lists and mappings are nested too deeply",
            "write it flatter",
        ),
        BudgetBreach::Aliases { .. } | BudgetBreach::Anchors { .. } => (
            "there are too many anchors and aliases",
            "write out what they stand for",
        ),
        _ => (
            "the document is too large to be read",
            "put its objects into documents of their own, with a line `---` between them",
        ),
    };
    format!("{what}; {advice}")
}

#[cfg(test)]
mod tests {
    use crate::cli::lines::Node;

    /// With the stack of a main thread, on which manifests are read.
    fn message(text: &str) -> String {
        let text = text.to_owned();
        let reader = std::thread::Builder::new().stack_size(8 << 20);
        let reading = reader.spawn(move || Node::parse(&text, 1).unwrap_err().message);
        reading.unwrap().join().unwrap()
    }

    #[test]
    fn no_error_speaks_of_the_program_and_each_says_what_to_do() {
        let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..10 {
            let last = vec![format!("*a{}", n - 1); 10].join(", ");
            laughs.push_str(&format!("a{n}: &a{n} [{last}]\n"));
        }
        for (text, part) in [
            (
                format!("{}{}", "[".repeat(200), "]".repeat(200)),
                "nested too deeply; write it flatter",
            ),
            (laughs, "aliases"),
            ("~: x\n".to_owned(), "an entry without a name"),
            (": x\n".to_owned(), "an entry without a name"),
            (
                "a: *b\n".to_owned(),
                "write the text in quotes if it is no alias",
            ),
            ("a: !mine x\n".to_owned(), "the tag `!mine` is not known"),
            ("[a, b]: x\n".to_owned(), "plain text"),
            ("a: .inf\n".to_owned(), "write it in quotes"),
            ("a: !!int x\n".to_owned(), "remove the tag"),
            ("a: !!bool yes\n".to_owned(), "remove the tag"),
            ("<<: 7\n".to_owned(), "write the fields out"),
        ] {
            let message = message(&text);
            assert!(message.contains(part), "{text:.60}: {message}");
            for raw in ["Option<", "Breach", "{", "breach", "deserialize", "serde"] {
                assert!(!message.contains(raw), "{text:.60}: {message}");
            }
        }
    }
}
