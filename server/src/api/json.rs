//! JSON in which every field stands once.

use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// How the error begins about a field that is there twice.
pub(super) const TWICE: &str = "the field ";

/// A value whose objects have each field once. Of two the last would count in silence, which is
/// seldom what was meant; YAML forbids them, too.
pub(super) struct Unambiguous(pub(super) Value);

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Unambiguous, D::Error> {
        deserializer.deserialize_any(AnyValue).map(Unambiguous)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Unambiguous(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            if fields.contains_key(&name) {
                let text = format!("{TWICE}{name:?} twice in one object; remove one of them");
                return Err(A::Error::custom(text));
            }
            fields.insert(name, map.next_value::<Unambiguous>()?.0);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Result<Value, String> {
        let value: Result<Unambiguous, _> = serde_json::from_str(text);
        value.map(|v| v.0).map_err(|e| e.to_string())
    }

    #[test]
    fn what_names_each_field_once_is_read_as_it_is() {
        let value =
            json!({"a": [1, -2, 2.5, true, null, "x\u{e9}\n", {"a": {}, "b": []}], "b": u64::MAX});
        assert_eq!(read(&value.to_string()).unwrap(), value);
    }

    #[test]
    fn a_field_that_is_there_twice_is_named_wherever_it_stands() {
        for text in [
            r#"{"b": 1, "a": 1, "a": 1}"#,
            r#"{"x": {"a": 1, "\u0061": 2}}"#,
            r#"[{}, {"a": {}, "a": null}]"#,
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(r#"the field "a" twice"#), "{error}");
            assert!(error.contains("line 1"), "{error}");
        }
    }
}
