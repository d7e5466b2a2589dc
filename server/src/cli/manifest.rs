//! Manifests: files of YAML or JSON with one or several documents, each an object.
//!
//! Every document is read for itself, so that a broken one hides nothing of the others, and every
//! error names the file, the line in it, the object, the field and what to do.

mod identity;

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use ipledger_core::api::{Key, Kind, Object, validate};
use ipledger_core::store::FieldError;
use serde_json::Value;

use super::lines::{Node, Tree};
use super::merge::without_server_fields;
use super::output::Terminal;
use identity::{identity_errors, kind_of, label, metadata_errors};

/// One object of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Document {
    /// The object as it is written, with the namespace that applies.
    pub(crate) object: Object,
    file: String,
    node: Node,
}

/// What is wrong with a manifest.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ManifestError {
    /// The file as the user named it; `standard input` for `-`.
    pub(crate) file: String,
    /// The line in the file, counted from 1; absent if the file as a whole is meant.
    pub(crate) line: Option<u64>,
    /// The object, as far as it is known: `IPAddressClaim default/web`.
    pub(crate) object: String,
    /// The path of the field; may be empty.
    pub(crate) field: String,
    /// What is wrong and what to do.
    pub(crate) message: String,
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        for part in [&self.object, &self.field] {
            if !part.is_empty() {
                write!(f, ": {part}")?;
            }
        }
        write!(f, ": {}", self.message)
    }
}

impl Document {
    /// An error about a field of this object, at the field's line or that of its nearest parent.
    pub(crate) fn error(&self, error: &FieldError) -> ManifestError {
        ManifestError {
            file: self.file.clone(),
            line: Some(self.node.line_of(&error.field)),
            object: self.object.key().to_string(),
            field: error.field.clone(),
            message: error.message.clone(),
        }
    }
}

/// Says that what only a server decides is not taken from manifests.
pub(crate) fn note_ignored(documents: &[Document], terminal: &mut Terminal) {
    if documents
        .iter()
        .any(|d| d.object.fields.contains_key("status"))
    {
        terminal.note("the `status` of the manifests is ignored: only controllers write it");
    }
}

/// How closely manifests are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Kind, namespace and name: enough to find the object.
    Identity,
    /// Everything that creation asks for.
    Creation,
}

/// Reads the manifests of these files (`-` is standard input) in order. A document with several
/// errors gives several.
pub(crate) fn load(
    files: &[PathBuf],
    namespace: &str,
    check: Check,
) -> Vec<Result<Document, ManifestError>> {
    let mut reader = Reader::new(namespace, check);
    for path in files {
        let file = if is_stdin(path) {
            "standard input".to_owned()
        } else {
            path.display().to_string()
        };
        match read(path) {
            Ok(text) => reader.add_file(&file, &text),
            Err(reason) => reader.found.push(Err(ManifestError {
                file,
                line: None,
                object: String::new(),
                field: String::new(),
                message: format!("cannot be read: {reason}"),
            })),
        }
    }
    reader.found
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn read(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    if is_stdin(path) {
        std::io::stdin()
            .lock()
            .read_to_end(&mut bytes)
            .map_err(|e| e.to_string())?;
    } else {
        bytes = std::fs::read(path).map_err(|e| e.to_string())?;
    }
    String::from_utf8(bytes).map_err(|e| {
        let line = e
            .as_bytes()
            .iter()
            .take(e.utf8_error().valid_up_to())
            .filter(|b| **b == b'\n');
        format!("line {} is not UTF-8 text", line.count() + 1)
    })
}

struct Reader<'a> {
    namespace: &'a str,
    check: Check,
    found: Vec<Result<Document, ManifestError>>,
    /// Where each object was first seen.
    seen: BTreeMap<Key, (String, u64)>,
}

impl<'a> Reader<'a> {
    fn new(namespace: &'a str, check: Check) -> Reader<'a> {
        Reader {
            namespace,
            check,
            found: Vec::new(),
            seen: BTreeMap::new(),
        }
    }

    fn add_file(&mut self, file: &str, text: &str) {
        let before = self.found.len();
        for (first_line, part) in split(text) {
            match Node::parse(&part, first_line) {
                Ok(node) if node.is_null() => {}
                Ok(node) => self.add(file, node),
                Err(e) => self.fail(file, Some(e.line), "", "", e.message),
            }
        }
        if self.found.len() == before {
            self.fail(file, None, "", "", "there is no object in it".to_owned());
        }
    }

    fn fail(&mut self, file: &str, line: Option<u64>, object: &str, field: &str, message: String) {
        self.found.push(Err(ManifestError {
            file: file.to_owned(),
            line,
            object: object.to_owned(),
            field: field.to_owned(),
            message,
        }));
    }

    fn add(&mut self, file: &str, node: Node) {
        if let Some(items) = list_items(&node) {
            for item in items {
                self.add(file, item.clone());
            }
            return;
        }
        let fail_at = |this: &mut Self, e: FieldError| {
            let line = node.line_of(&e.field);
            this.fail(
                file,
                Some(line),
                &label(&node, this.namespace),
                &e.field,
                e.message,
            );
        };
        let object = match self.identify(&node) {
            Ok(object) => object,
            Err(errors) => {
                for e in errors {
                    fail_at(self, e);
                }
                return;
            }
        };
        let key = object.key();
        if let Some((other, line)) = self.seen.get(&key) {
            let message =
                format!("the same object stands at {other}:{line} already; remove one of the two");
            let at = node.line_of("metadata.name");
            self.fail(file, Some(at), &key.to_string(), "metadata.name", message);
            return;
        }
        self.seen
            .insert(key, (file.to_owned(), node.line_of("metadata.name")));
        let document = Document {
            object,
            file: file.to_owned(),
            node,
        };
        let errors = match self.check {
            Check::Identity => identity_errors(&document.object),
            Check::Creation => creation_errors(&document.object),
        };
        if errors.is_empty() {
            self.found.push(Ok(document));
        } else {
            self.found
                .extend(errors.iter().map(|e| Err(document.error(e))));
        }
    }

    /// The object of a document, as far as kind and metadata go.
    fn identify(&self, node: &Node) -> Result<Object, Vec<FieldError>> {
        let one = |e: FieldError| vec![e];
        if !matches!(node.tree, Tree::Map(_)) {
            let message = format!("{} stands where an object is expected", node.describe());
            return Err(one(FieldError::new("", message)));
        }
        let kind = kind_of(node).map_err(one)?;
        let errors = metadata_errors(node);
        if !errors.is_empty() {
            return Err(errors);
        }
        let value = without_nulls(node.to_value());
        let mut object =
            Object::from_value(value).map_err(|e| one(FieldError::new("metadata", e.reason)))?;
        if kind.namespaced() && object.metadata.namespace.is_empty() {
            self.namespace.clone_into(&mut object.metadata.namespace);
        }
        Ok(object)
    }
}

/// Everything that the server would refuse, found before anything is sent.
fn creation_errors(object: &Object) -> Vec<FieldError> {
    let object = without_server_fields(object);
    let unknown = validate::unknown_fields(&object)
        .into_iter()
        .map(FieldError::from);
    unknown.chain(validate::validate_create(&object)).collect()
}

/// The objects inside a `List` (`kubectl get -o yaml` makes them).
fn list_items(node: &Node) -> Option<&[Node]> {
    let kind = node.get("kind")?.text()?;
    let item = kind.strip_suffix("List")?;
    if !item.is_empty() && !Kind::ALL.iter().any(|k| k.name() == item) {
        return None;
    }
    match &node.get("items")?.tree {
        Tree::List(items) => Some(items),
        Tree::Scalar(_) | Tree::Map(_) => None,
    }
}

/// A field without a value is a field that is absent, except in what is opaque.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.into_iter()
                .filter(|(_, v)| !v.is_null())
                .map(|(k, v)| {
                    let v = if k == "parameters" {
                        v
                    } else {
                        without_nulls(v)
                    };
                    (k, v)
                })
                .collect(),
        ),
        other => other,
    }
}

/// The documents of a file, each with the number of its first line.
///
/// In YAML a line that starts with `---` or `...` ends a document wherever it stands, also within
/// quotes and block text, so that lines decide alone.
fn split(text: &str) -> Vec<(u64, String)> {
    let mut documents = vec![(1, String::new())];
    for (number, line) in (1..).zip(
        text.strip_prefix('\u{feff}')
            .unwrap_or(text)
            .split_inclusive('\n'),
    ) {
        let is_marker = |marker| {
            line.strip_prefix(marker)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
        };
        if is_marker("---") {
            documents.push((number, String::new()));
        } else if is_marker("...") {
            documents.push((number + 1, String::new()));
            continue;
        }
        if let Some((_, document)) = documents.last_mut() {
            document.push_str(line);
        }
    }
    // Directives stand before the `---` of their document and mean nothing to an object.
    let has_content = |line: &str| !line.trim().is_empty() && !line.starts_with(['#', '%']);
    documents.retain(|(_, document)| document.lines().any(has_content));
    documents
}

#[cfg(test)]
mod tests;
