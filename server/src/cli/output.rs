//! What reaches the terminal: streams, formats, colours. Nothing that an object contains can
//! steer the terminal.

mod detached;

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use ipledger_core::api::{Key, Object};
use serde_json::{Value, json};

use super::client::Client;
use super::exit::CliError;
use detached::Detached;

/// How objects are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table that fits 120 columns.
    #[default]
    Table,
    /// A table with more columns.
    Wide,
    /// JSON, as the API gives it.
    Json,
    /// YAML.
    Yaml,
    /// `ipaddressclaim/default/web`, one a line.
    Name,
}

/// How a command that changes something reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// Sentences.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The two streams of a command.
pub(crate) struct Terminal {
    out: Box<dyn Write>,
    err: Box<dyn Write>,
    /// The first error of a report that could not be written.
    lost: Option<io::Error>,
    /// Whether standard output is a terminal on which lines can be drawn again.
    pub(crate) interactive: bool,
    /// Whether standard output takes colours.
    pub(crate) colour: bool,
    /// Whether errors and reports are lines of JSON.
    pub(crate) json: bool,
}

impl Terminal {
    /// The streams of this process.
    pub(crate) fn of_process(json: bool) -> Terminal {
        let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        let interactive = io::stdout().is_terminal() && !dumb;
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Terminal {
            out: Box::new(io::stdout()),
            err: Box::new(io::stderr()),
            lost: None,
            interactive,
            colour: interactive && !no_colour,
            json,
        }
    }

    /// Lets threads of their own do the writing from here on, so that a stream that nobody reads
    /// holds nothing up. What they have not written when the terminal is dropped gets a moment.
    pub(crate) fn detach(&mut self) {
        self.out = Box::new(Detached::new(io::stdout()));
        self.err = Box::new(Detached::new(io::stderr()));
    }

    /// Writes to standard output what was made safe already.
    ///
    /// # Errors
    /// The stream is closed or full.
    pub(crate) fn print(&mut self, text: &str) -> Result<(), CliError> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()?;
        Ok(())
    }

    /// Writes a line to standard output.
    ///
    /// # Errors
    /// The stream is closed or full.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), CliError> {
        self.print(&format!("{}\n", safe(text)))
    }

    /// Reports what became of one object. That it cannot be written does not stop the work on the
    /// other objects; [`reported`](Self::reported) says so at the end.
    pub(crate) fn report(&mut self, key: &Key, outcome: &str) {
        let object = key_name(key);
        let result = if self.json {
            let line = json!({"object": object, "outcome": outcome}).to_string();
            self.print(&format!("{}\n", safe_json(&line)))
        } else {
            self.line(&format!("{object} {outcome}"))
        };
        if let Err(CliError::Output(e)) = result {
            self.lost.get_or_insert(e);
        }
    }

    /// Whether all reports were written.
    ///
    /// # Errors
    /// The first error of those that were not.
    pub(crate) fn reported(&mut self) -> Result<(), CliError> {
        self.lost.take().map_or(Ok(()), |e| Err(e.into()))
    }

    /// Writes a warning to standard error. That it cannot be written changes nothing.
    pub(crate) fn warn(&mut self, text: &str) {
        let _ = if self.json {
            let line = json!({"warning": text}).to_string();
            writeln!(self.err, "{}", safe_json(&line))
        } else {
            writeln!(self.err, "warning: {}", safe(text))
        };
    }

    /// Writes to standard error what the server has warned of.
    pub(crate) fn warnings(&mut self, client: &Client) {
        for text in client.take_warnings() {
            self.warn(&text);
        }
    }

    /// Writes a remark to standard error. That it cannot be written changes nothing.
    pub(crate) fn note(&mut self, text: &str) {
        let _ = writeln!(self.err, "{}", safe(text));
    }

    /// Writes an error to standard error. That it cannot be written changes nothing.
    pub(crate) fn error(&mut self, error: &CliError) {
        if matches!(error, CliError::Reported(_)) {
            return;
        }
        let _ = if self.json {
            writeln!(self.err, "{}", safe_json(&error.to_json()))
        } else {
            writeln!(self.err, "error: {}", safe(&error.to_string()))
        };
    }
}

/// `ipaddressclaim/default/web`.
pub(crate) fn key_name(key: &Key) -> String {
    let kind = key.kind.singular();
    if key.namespace.is_empty() {
        format!("{kind}/{}", key.name)
    } else {
        format!("{kind}/{}/{}", key.namespace, key.name)
    }
}

/// Text in which nothing steers the terminal: control characters and those that turn the
/// direction of writing become `?`, line ends and tabs a space.
pub(crate) fn safe(text: &str) -> Cow<'_, str> {
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let replace = |c: char| match c {
        '\n' | '\r' | '\t' => ' ',
        c if steers(c) => '?',
        c => c,
    };
    Cow::Owned(text.chars().map(replace).collect())
}

/// Whether a character can steer a terminal or turn the direction of writing.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// JSON text in which such characters are escaped. Outside of strings JSON has none but line ends.
fn safe_json(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\n' && steers(c) {
            safe.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            safe.push(c);
        }
    }
    safe
}

/// A value as indented JSON.
pub(crate) fn to_json(value: &Value) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    format!("{}\n", safe_json(&text))
}

/// A value as one line of JSON.
pub(crate) fn to_json_line(value: &Value) -> String {
    format!("{}\n", safe_json(&value.to_string()))
}

/// A value as YAML. The writer escapes control characters; what turns the direction of writing
/// becomes `?`.
pub(crate) fn to_yaml(value: &Value) -> String {
    let text = serde_saphyr::to_string(value).unwrap_or_default();
    text.chars()
        .map(|c| {
            if !matches!(c, '\n' | '\t') && steers(c) {
                '?'
            } else {
                c
            }
        })
        .collect()
}

/// Several objects as one, in the form of the API.
pub(crate) fn list_value(items: &[Object]) -> Value {
    let items: Vec<Value> = items.iter().map(Object::to_value).collect();
    json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items})
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// What a command wrote.
    #[derive(Clone, Default)]
    pub(crate) struct Captured(Arc<Mutex<Vec<u8>>>);

    impl Captured {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What nobody reads any more.
    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Terminal {
        /// Closes standard output.
        pub(crate) fn close_output(&mut self) {
            self.out = Box::new(Closed);
        }
    }

    /// A terminal that keeps what is written to it: standard output, standard error.
    pub(crate) fn captured() -> (Terminal, Captured, Captured) {
        let (out, err) = (Captured::default(), Captured::default());
        let terminal = Terminal {
            out: Box::new(out.clone()),
            err: Box::new(err.clone()),
            lost: None,
            interactive: false,
            colour: false,
            json: false,
        };
        (terminal, out, err)
    }

    const NASTY: &str = "a\u{1b}[31mb\u{9b}2Jc\u{7f}d\u{202e}e\nf";

    #[test]
    fn control_characters_of_an_object_never_reach_the_terminal() {
        assert_eq!(safe(NASTY), "a?[31mb?2Jc?d?e f");
        assert_eq!(safe("plain ü"), "plain ü");
        let value = json!({"k": NASTY});
        for text in [to_json(&value), to_json_line(&value), to_yaml(&value)] {
            let bad: Vec<char> = text.chars().filter(|c| *c != '\n' && steers(*c)).collect();
            assert_eq!(bad, Vec::<char>::new(), "{text:?}");
        }
        let back: Value = serde_json::from_str(&to_json(&value)).unwrap();
        assert_eq!(back, value);
    }

    #[test]
    fn reports_and_errors_are_sentences_or_lines_of_json() {
        let (mut terminal, out, err) = captured();
        let key = Key::claim("default", "web");
        terminal.report(&key, "created");
        terminal.error(&CliError::Usage("no\u{1b}".to_owned()));
        terminal.json = true;
        terminal.report(&key, "created");
        terminal.warn("careful\u{1b}");
        terminal.error(&CliError::Usage("no\u{1b}".to_owned()));
        assert_eq!(
            out.text(),
            "ipaddressclaim/default/web created\n\
             {\"object\":\"ipaddressclaim/default/web\",\"outcome\":\"created\"}\n"
        );
        assert_eq!(
            err.text(),
            "error: no?\n{\"warning\":\"careful\\u001b\"}\n\
             {\"code\":400,\"message\":\"no\\u001b\",\"reason\":\"BadRequest\",\"retryable\":false}\n"
        );
    }
}
