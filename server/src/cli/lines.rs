//! A parsed YAML (or JSON) document that remembers the line of every field.

mod syntax;

use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use serde_saphyr::{Location, Spanned};

pub(super) use syntax::SyntaxError;

/// Lists and mappings within each other.
const MAX_DEPTH: usize = 64;
/// Nodes that the aliases of a document may add.
const MAX_ALIASED: usize = 10_000;

/// One value of a document, with the line on which it is used.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    /// Counted from 1, in the whole file.
    pub(super) line: u64,
    pub(super) tree: Tree,
    /// Where a scalar stands in the text of the document, in bytes.
    bytes: Option<(usize, usize)>,
    /// A number or boolean as it is written, which may differ from how it is understood (`1.50`).
    pub(super) written: Option<String>,
}

/// What a [`Node`] holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tree {
    /// Text, number, boolean or null.
    Scalar(Value),
    /// Items in order.
    List(Vec<Node>),
    /// Fields in order.
    Map(Vec<Field>),
}

/// One entry of a map.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    pub(super) name: String,
    /// The line of the name; the value of a nested field starts below it.
    pub(super) line: u64,
    pub(super) value: Node,
}

impl Node {
    /// Reads one document whose first line is number `first_line` of its file, and takes it to mean
    /// what the API takes the same text to mean.
    ///
    /// # Errors
    /// The line and what is wrong there. Anchors and aliases are bounded after expansion.
    pub(super) fn parse(text: &str, first_line: u64) -> Result<Node, SyntaxError> {
        let options = serde_saphyr::options! {
            with_snippet: false,
            strict_booleans: true,
            reject_unsupported_tags: true,
            budget: serde_saphyr::budget! { max_depth: MAX_DEPTH },
            alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_ALIASED },
        };
        let mut node: Node = serde_saphyr::from_str_with_options(text, options)
            .map_err(|e| SyntaxError::new(&e, text, first_line))?;
        node.place(text, first_line.saturating_sub(1));
        Ok(node)
    }

    /// Moves the lines down by so many, and takes out of the text what is written there.
    fn place(&mut self, text: &str, by: u64) {
        self.line += by;
        match &mut self.tree {
            Tree::Scalar(Value::Number(_) | Value::Bool(_)) => {
                let written = self.bytes.and_then(|(from, to)| text.get(from..to));
                self.written = written.map(|w| w.trim().to_owned());
            }
            Tree::Scalar(_) => {}
            Tree::List(items) => items.iter_mut().for_each(|item| item.place(text, by)),
            Tree::Map(fields) => {
                for field in fields {
                    field.line += by;
                    field.value.place(text, by);
                }
            }
        }
    }

    /// The value of a field, if this is a map that has it.
    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        self.field(name).map(|f| &f.value)
    }

    /// A field, if this is a map that has it.
    pub(super) fn field(&self, name: &str) -> Option<&Field> {
        self.fields().iter().find(|f| f.name == name)
    }

    /// The fields, if this is a map.
    pub(super) fn fields(&self) -> &[Field] {
        match &self.tree {
            Tree::Map(fields) => fields,
            Tree::Scalar(_) | Tree::List(_) => &[],
        }
    }

    /// The text, if this is one.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.tree {
            Tree::Scalar(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// Whether there is nothing here.
    pub(super) fn is_null(&self) -> bool {
        self.tree == Tree::Scalar(Value::Null)
    }

    /// What kind of value it is, in the words of an error.
    pub(super) fn describe(&self) -> &'static str {
        match &self.tree {
            Tree::Scalar(Value::Null) => "nothing",
            Tree::Scalar(Value::Bool(_)) => "a boolean",
            Tree::Scalar(Value::Number(_)) => "a number",
            Tree::Scalar(_) => "text",
            Tree::List(_) => "a list",
            Tree::Map(_) => "a mapping",
        }
    }

    /// The document without its lines.
    pub(super) fn to_value(&self) -> Value {
        match &self.tree {
            Tree::Scalar(value) => value.clone(),
            Tree::List(items) => Value::Array(items.iter().map(Node::to_value).collect()),
            Tree::Map(fields) => {
                let entries = fields.iter().map(|f| (f.name.clone(), f.value.to_value()));
                Value::Object(entries.collect::<Map<_, _>>())
            }
        }
    }

    /// The line of a field such as `spec.parameters.addresses[1]`, or of its nearest parent that
    /// is there. Names with dots in them (`metadata.annotations.example.com/a`) are understood.
    pub(super) fn line_of(&self, path: &str) -> u64 {
        self.find(path, self.line)
    }

    fn find(&self, path: &str, line: u64) -> u64 {
        let path = path.trim_start_matches('.');
        match &self.tree {
            Tree::Map(fields) => fields
                .iter()
                .filter_map(|f| Some((f, rest_after(path, &f.name)?)))
                .max_by_key(|(f, _)| f.name.len())
                .map_or(line, |(f, rest)| f.value.find(rest, f.line)),
            Tree::List(items) => {
                let index = path.strip_prefix('[').and_then(|p| p.split_once(']'));
                index
                    .and_then(|(n, rest)| Some((items.get(n.parse::<usize>().ok()?)?, rest)))
                    .map_or(line, |(item, rest)| item.find(rest, item.line))
            }
            Tree::Scalar(_) => line,
        }
    }
}

/// What follows `name` in `path`, if the path starts with it (also written as `[name]`).
fn rest_after<'a>(path: &'a str, name: &str) -> Option<&'a str> {
    if let Some(rest) = path.strip_prefix(&format!("[{name}]")) {
        return Some(rest);
    }
    let rest = path.strip_prefix(name)?;
    (rest.is_empty() || rest.starts_with(['.', '['])).then_some(rest)
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        let spanned = Spanned::<Tree>::deserialize(deserializer)?;
        Ok(Node {
            line: spanned.referenced.line(),
            tree: spanned.value,
            bytes: bytes(&spanned.defined),
            written: None,
        })
    }
}

fn bytes(location: &Location) -> Option<(usize, usize)> {
    let span = location.span();
    let from = usize::try_from(span.byte_offset()?).ok()?;
    let len = usize::try_from(span.byte_len()?).ok()?;
    Some((from, from.checked_add(len)?))
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML value")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Null))
    }

    fn visit_bool<E>(self, v: bool) -> Result<Tree, E> {
        Ok(Tree::Scalar(v.into()))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Tree, E> {
        Ok(Tree::Scalar(v.into()))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Tree, E> {
        Ok(Tree::Scalar(v.into()))
    }

    fn visit_f64<E>(self, v: f64) -> Result<Tree, E> {
        Ok(Tree::Scalar(v.into()))
    }

    fn visit_str<E>(self, v: &str) -> Result<Tree, E> {
        Ok(Tree::Scalar(v.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = map.next_key::<Spanned<String>>()? {
            fields.push(Field {
                name: name.value,
                line: name.referenced.line(),
                value: map.next_value()?,
            });
        }
        Ok(Tree::Map(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASS: &str = "\
kind: IPAddressClass
metadata:
  annotations:
    example.com/a.b: x
    example.com/a: y
spec:
  parameters:
    addresses:
    - 192.0.2.0/24
    - 192.0.2.9-
    exclude: [192.0.2.1,
      192.0.2.2]
";

    #[test]
    fn each_field_and_item_has_the_line_that_it_stands_on() {
        let node = Node::parse(CLASS, 1).unwrap();
        for (path, line) in [
            ("kind", 1),
            ("metadata", 2),
            ("metadata.annotations.example.com/a.b", 4),
            ("metadata.annotations[example.com/a]", 5),
            ("spec.parameters.addresses", 8),
            ("spec.parameters.addresses[1]", 10),
            ("spec.parameters.exclude[0]", 11),
            ("spec.parameters.exclude[1]", 12),
        ] {
            assert_eq!(node.line_of(path), line, "{path}");
        }
    }

    #[test]
    fn a_field_that_is_absent_has_the_line_of_its_nearest_parent() {
        let node = Node::parse(CLASS, 1).unwrap();
        assert_eq!(node.line_of("metadata.name"), 2);
        assert_eq!(node.line_of("spec.parameters.addresses[7]"), 8);
        assert_eq!(node.line_of("spec.param"), 6);
        assert_eq!(node.line_of("status.phase"), 1);
    }

    #[test]
    fn lines_are_counted_from_the_start_of_the_file() {
        let node = Node::parse("---\na: 1\n", 40).unwrap();
        assert_eq!(node.line_of("a"), 41);
        let e = Node::parse("a: [1\nb: 2\n", 40).unwrap_err();
        assert_eq!(e.line, 41);
    }

    #[test]
    fn an_alias_counts_where_it_is_used() {
        let node = Node::parse("a: &x\n  k: v\nb: *x\n", 1).unwrap();
        assert_eq!(node.get("b").unwrap().line, 3);
        assert_eq!(node.to_value()["b"]["k"], "v");
    }

    #[test]
    fn aliases_that_multiply_without_bound_are_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..10 {
            let parts = vec![format!("*a{}", n - 1); 10].join(", ");
            text.push_str(&format!("a{n}: &a{n} [{parts}]\n"));
        }
        assert!(Node::parse(&text, 1).is_err());
    }

    #[test]
    fn words_and_tags_mean_what_they_mean_to_the_api() {
        let node = Node::parse("a: [yes, on, y, No, true, 0x1f, 1_000, '7', ~]\n", 1).unwrap();
        let options = serde_saphyr::options! { strict_booleans: true };
        let text = "[yes, on, y, No, true, 0x1f, 1_000, '7', ~]";
        let api: Value = serde_saphyr::from_str_with_options(text, options).unwrap();
        assert_eq!(node.to_value()["a"], api);
        assert_eq!(
            api,
            serde_json::json!(["yes", "on", "y", "No", true, 31, 1_000, "7", null])
        );
        let e = Node::parse("a: 1\nb: !mine x\n", 1).unwrap_err();
        assert_eq!(e.line, 2);
        assert!(e.message.contains("`!mine`"), "{}", e.message);
    }

    #[test]
    fn a_number_is_known_as_it_is_written() {
        let node = Node::parse(
            "é: ü\na: 1.50\nb: [ 0x1F , true]\nc: &x 07.0 # no\nd: *x\n",
            1,
        );
        let node = node.unwrap();
        let written = |field: &str| node.get(field).unwrap().written.clone();
        assert_eq!(written("a").unwrap(), "1.50");
        assert_eq!(written("c").unwrap(), "07.0");
        assert_eq!(written("d").unwrap(), "07.0");
        let Tree::List(items) = &node.get("b").unwrap().tree else {
            panic!("b is a list");
        };
        let items: Vec<_> = items.iter().map(|i| i.written.as_deref()).collect();
        assert_eq!(items, [Some("0x1F"), Some("true")]);
    }

    #[test]
    fn a_field_that_is_there_twice_is_named_with_the_line_of_the_second() {
        let e = Node::parse("a: 1\nb: 2\na: 3\n", 1).unwrap_err();
        assert_eq!(e.line, 3);
        assert_eq!(
            e.message,
            "the field `a` is there twice in one mapping; remove one of them"
        );
    }

    #[test]
    fn an_address_that_looks_like_a_mapping_gets_a_hint() {
        let e = Node::parse("spec:\n  address: 2001:db8::\n", 1).unwrap_err();
        assert_eq!(e.line, 2);
        assert!(e.message.contains("must stand in quotes"), "{}", e.message);
    }

    #[test]
    fn json_is_read_with_its_lines_too() {
        let node = Node::parse("{\"spec\": {\n\t\"family\": \"IPv4\"}}", 1).unwrap();
        assert_eq!(node.line_of("spec.family"), 2);
    }
}
