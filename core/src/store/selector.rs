//! Label and field selectors in the Kubernetes string form. The default ones match everything.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::rules::shape;
use crate::api::Object;

/// A selector that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the selector `{selector}` cannot be read: {reason}")]
pub struct SelectorError {
    /// The selector as it was given.
    pub selector: String,
    /// What is wrong and what to write instead.
    pub reason: String,
}

/// Which labels an object must have: `a=b`, `a==b`, `a!=b`, `a in (x,y)`, `a notin (x,y)`, `a`,
/// `!a`, joined by commas. `!=` and `notin` also match objects without the label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<LabelRequirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct LabelRequirement {
    label: String,
    test: LabelTest,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LabelTest {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Present,
    Absent,
}

impl LabelSelector {
    /// Reads a selector; the empty one matches everything.
    ///
    /// # Errors
    /// The text is none, or a label name or value has not the form of one.
    pub fn parse(text: &str) -> Result<LabelSelector, SelectorError> {
        let fail = |reason| SelectorError {
            selector: text.to_owned(),
            reason,
        };
        let requirements = parse_labels(text).map_err(fail)?;
        for requirement in &requirements {
            shape::qualified(&requirement.label).map_err(fail)?;
            if let LabelTest::In(values) | LabelTest::NotIn(values) = &requirement.test {
                values
                    .iter()
                    .try_for_each(|v| shape::label_value(v))
                    .map_err(fail)?;
            }
        }
        Ok(LabelSelector { requirements })
    }

    /// Whether the object has such labels.
    pub fn matches(&self, object: &Object) -> bool {
        self.requirements.iter().all(|r| {
            let value = object.metadata.labels.get(&r.label);
            match &r.test {
                LabelTest::In(values) => value.is_some_and(|v| values.contains(v)),
                LabelTest::NotIn(values) => value.is_none_or(|v| !values.contains(v)),
                LabelTest::Present => value.is_some(),
                LabelTest::Absent => value.is_none(),
            }
        })
    }

    /// Whether it matches everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, LabelRequirement { label, test }) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            let (one, many, values) = match test {
                LabelTest::Present => {
                    f.write_str(label)?;
                    continue;
                }
                LabelTest::Absent => {
                    write!(f, "!{label}")?;
                    continue;
                }
                LabelTest::In(values) => ("=", "in", values),
                LabelTest::NotIn(values) => ("!=", "notin", values),
            };
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            match values.as_slice() {
                [value] => write!(f, "{label}{one}{value}")?,
                values => write!(f, "{label} {many} ({})", values.join(","))?,
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Token<'a> {
    Word(&'a str),
    Sign(&'a str),
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    const SIGNS: [&str; 9] = ["==", "!=", "=", "!", ",", "(", ")", "<", ">"];
    let mut rest = text.trim_start();
    let mut tokens = Vec::new();
    while !rest.is_empty() {
        let (token, tail) = match SIGNS.iter().find_map(|s| Some((*s, rest.strip_prefix(s)?))) {
            Some((sign, tail)) => (Token::Sign(sign), tail),
            None => {
                let ends = |c: char| c.is_whitespace() || "=!,()<>".contains(c);
                let (word, tail) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
                (Token::Word(word), tail)
            }
        };
        tokens.push(token);
        rest = tail.trim_start();
    }
    tokens
}

fn parse_labels(text: &str) -> Result<Vec<LabelRequirement>, String> {
    let tokens = tokens(text);
    let mut tokens = tokens.iter().copied().peekable();
    let mut requirements = Vec::new();
    if tokens.peek().is_none() {
        return Ok(requirements);
    }
    loop {
        let negated = tokens.next_if_eq(&Token::Sign("!")).is_some();
        let Some(Token::Word(label)) = tokens.next() else {
            return Err("a label name is expected at the start and after each comma".to_owned());
        };
        let test = match tokens.peek() {
            None | Some(Token::Sign(",")) if negated => LabelTest::Absent,
            None | Some(Token::Sign(",")) => LabelTest::Present,
            _ if negated => return Err(format!("`!{label}` takes no value")),
            _ => parse_test(label, &mut tokens)?,
        };
        requirements.push(LabelRequirement {
            label: label.to_owned(),
            test,
        });
        match tokens.next() {
            None => return Ok(requirements),
            Some(Token::Sign(",")) => {}
            Some(_) => return Err(format!("a comma is expected after the one about `{label}`")),
        }
    }
}

fn parse_test<'a>(
    label: &str,
    tokens: &mut std::iter::Peekable<impl Iterator<Item = Token<'a>>>,
) -> Result<LabelTest, String> {
    match tokens.next() {
        Some(Token::Sign("=" | "==")) => Ok(LabelTest::In(parse_value(tokens))),
        Some(Token::Sign("!=")) => Ok(LabelTest::NotIn(parse_value(tokens))),
        Some(Token::Word("in")) => Ok(LabelTest::In(parse_values(label, tokens)?)),
        Some(Token::Word("notin")) => Ok(LabelTest::NotIn(parse_values(label, tokens)?)),
        _ => Err(format!(
            "`{label}` must be followed by =, ==, !=, in (..), notin (..) or a comma"
        )),
    }
}

/// One value, which may be empty.
fn parse_value<'a>(
    tokens: &mut std::iter::Peekable<impl Iterator<Item = Token<'a>>>,
) -> BTreeSet<String> {
    match tokens.next_if(|t| matches!(t, Token::Word(_))) {
        Some(Token::Word(value)) => BTreeSet::from([value.to_owned()]),
        _ => BTreeSet::from([String::new()]),
    }
}

/// `(x,y)`; an empty value is one too.
fn parse_values<'a>(
    label: &str,
    tokens: &mut impl Iterator<Item = Token<'a>>,
) -> Result<BTreeSet<String>, String> {
    let fail = || Err(format!("the values of `{label}` must look like (x,y)"));
    if tokens.next() != Some(Token::Sign("(")) {
        return fail();
    }
    let mut values = BTreeSet::new();
    let mut value = None;
    loop {
        match (tokens.next(), value) {
            (Some(Token::Word(word)), None) => value = Some(word),
            (Some(Token::Sign(",")), _) => {
                values.insert(value.take().unwrap_or_default().to_owned());
            }
            (Some(Token::Sign(")")), None) if values.is_empty() => return fail(),
            (Some(Token::Sign(")")), _) => {
                values.insert(value.unwrap_or_default().to_owned());
                return Ok(values);
            }
            _ => return fail(),
        }
    }
}

/// Which values fields must have: `path=value`, `path==value`, `path!=value`, joined by commas. A
/// path is `metadata.name`, `metadata.namespace` or leads through the object, for example
/// `spec.claimRef.name`. A field that is absent has the empty value. A backslash stands before
/// each comma, equals sign and backslash of a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldRequirement {
    path: String,
    equal: bool,
    value: String,
}

impl FieldSelector {
    /// Reads a selector; the empty one matches everything.
    ///
    /// # Errors
    /// The text is none. Whether a kind can be selected by a path is not looked at.
    pub fn parse(text: &str) -> Result<FieldSelector, SelectorError> {
        let mut requirements = Vec::new();
        for term in split_unescaped(text, ',').filter(|t| !t.is_empty()) {
            let requirement = parse_field(term).map_err(|reason| SelectorError {
                selector: text.to_owned(),
                reason,
            })?;
            requirements.push(requirement);
        }
        Ok(FieldSelector { requirements })
    }

    /// Whether the object's fields have such values.
    pub fn matches(&self, object: &Object) -> bool {
        self.requirements
            .iter()
            .all(|r| (field(object, &r.path) == r.value) == r.equal)
    }

    /// Whether it matches everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The paths that it looks at, for an edge that allows only some.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.requirements.iter().map(|r| r.path.as_str())
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, FieldRequirement { path, equal, value }) in self.requirements.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            let sign = if *equal { "=" } else { "!=" };
            write!(f, "{comma}{path}{sign}")?;
            for c in value.chars() {
                if matches!(c, ',' | '=' | '\\') {
                    f.write_str("\\")?;
                }
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}

fn split_unescaped(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    text.split(move |c| {
        let splits = c == separator && !escaped;
        escaped = c == '\\' && !escaped;
        splits
    })
}

fn parse_field(term: &str) -> Result<FieldRequirement, String> {
    let Some(at) = term.find('=') else {
        return Err(format!("`{term}` must look like PATH=VALUE or PATH!=VALUE"));
    };
    let (left, right) = term.split_at(at);
    let (path, equal, text) = match (left.strip_suffix('!'), right.strip_prefix("==")) {
        (Some(path), _) => (path, false, right.strip_prefix('=').unwrap_or_default()),
        (None, Some(value)) => (left, true, value),
        (None, None) => (left, true, right.strip_prefix('=').unwrap_or_default()),
    };
    let path = path.trim();
    if path.is_empty() || path.split('.').any(str::is_empty) {
        return Err(format!("`{path}` is no path such as `spec.className`"));
    }
    let mut value = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some(c @ (',' | '=' | '\\')) => value.push(c),
                _ => return Err(format!("`{term}`: `\\` must stand before `,`, `=` or `\\`")),
            },
            ('=', _) => {
                return Err(format!(
                    "`{term}`: write `\\=` for an equals sign in a value"
                ));
            }
            _ => value.push(c),
        }
    }
    Ok(FieldRequirement {
        path: path.to_owned(),
        equal,
        value,
    })
}

fn field(object: &Object, path: &str) -> String {
    match path {
        "metadata.name" => return object.metadata.name.clone(),
        "metadata.namespace" => return object.metadata.namespace.clone(),
        _ => {}
    }
    let mut steps = path.split('.');
    let first = steps.next().and_then(|step| object.fields.get(step));
    let found = steps.fold(first, |value, step| value?.get(step));
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object() -> Object {
        Object::from_value(json!({
            "apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddress",
            "metadata": {"name": "ip-192-0-2-1", "labels": {"tier": "gold", "example.com/zone": "a", "none": ""}},
            "spec": {"className": "public", "claimRef": {"name": "web", "ports": [1]}, "n": 7, "on": true, "odd": "a,b=c\\d"},
        }))
        .unwrap()
    }

    #[test]
    fn label_selectors_match_as_in_kubernetes() {
        for (text, matches) in [
            ("", true),
            (" ", true),
            ("tier=gold", true),
            ("tier==gold", true),
            (" tier = gold , example.com/zone = a ", true),
            ("tier=silver", false),
            ("tier!=silver", true),
            ("tier!=gold", false),
            ("absent!=x", true),
            ("absent=", false),
            ("none=", true),
            ("none", true),
            ("!none", false),
            ("tier", true),
            ("!absent", true),
            ("absent", false),
            ("tier in (silver, gold)", true),
            ("tier in (silver)", false),
            ("tier notin (silver)", true),
            ("tier notin (silver,gold)", false),
            ("absent notin (x)", true),
            ("absent in (x)", false),
            ("none in (,x)", true),
            ("tier=gold,example.com/zone in (b)", false),
            ("in in (in,notin)", false),
        ] {
            assert_eq!(
                LabelSelector::parse(text).unwrap().matches(&object()),
                matches,
                "{text}"
            );
        }
    }

    #[test]
    fn label_selectors_that_cannot_be_read_are_refused_with_their_text() {
        for text in [
            ",",
            "a,",
            ",a",
            "a,,b",
            "=b",
            "a=b=c",
            "a b",
            "a in",
            "a in x",
            "a in ()",
            "a in (x",
            "a in (x y)",
            "a notin",
            "!a=b",
            "!",
            "a>1",
            "a<1",
            "a/b/c",
            "a=b c",
            "a=ä",
            "(a)",
            "a)",
        ] {
            let e = LabelSelector::parse(text).unwrap_err();
            assert_eq!(e.selector, text);
        }
    }

    #[test]
    fn field_selectors_compare_the_text_of_a_field() {
        for (text, matches) in [
            ("", true),
            ("metadata.name=ip-192-0-2-1", true),
            ("metadata.name!=ip-192-0-2-1", false),
            ("metadata.namespace=", true),
            ("spec.className==public", true),
            ("spec.className=private", false),
            ("spec.className=public,spec.claimRef.name=web", true),
            ("spec.className=public,spec.claimRef.name!=web", false),
            ("spec.n=7", true),
            ("spec.on=true", true),
            ("status.phase=", true),
            ("status.phase!=Bound", true),
            ("spec.claimRef=", true),
            ("spec.className.more=", true),
            ("spec.odd=a\\,b\\=c\\\\d", true),
            ("spec.odd!=a\\,b\\=c\\\\d,", false),
        ] {
            assert_eq!(
                FieldSelector::parse(text).unwrap().matches(&object()),
                matches,
                "{text}"
            );
        }
    }

    #[test]
    fn field_selectors_that_cannot_be_read_are_refused_with_their_text() {
        for text in [
            "a", "=b", "!=b", "a=b=c", "a..b=c", "a=b\\", "a=\\x", "a=1,b",
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap_err().selector, text);
        }
    }

    #[test]
    fn a_selector_is_printed_so_that_it_reads_back_the_same() {
        for text in [
            "",
            "a=b",
            "a!=b",
            "a=",
            "a in (x,y)",
            "a notin (,x)",
            "a,!b,c=d",
        ] {
            let selector = LabelSelector::parse(text).unwrap();
            assert_eq!(selector.to_string(), text);
            assert_eq!(
                LabelSelector::parse(&selector.to_string()).unwrap(),
                selector
            );
        }
        for text in ["", "a=b", "a.b!=c", "a=", "a=x\\,y\\=z\\\\,b=c"] {
            let selector = FieldSelector::parse(text).unwrap();
            assert_eq!(selector.to_string(), text);
            assert_eq!(
                FieldSelector::parse(&selector.to_string()).unwrap(),
                selector
            );
        }
    }
}
