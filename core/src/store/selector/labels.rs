use std::collections::BTreeSet;
use std::fmt;

use super::SelectorError;
use crate::api::Object;
use crate::store::rules::shape;

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
