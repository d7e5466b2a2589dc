//! PATCH with a JSON merge patch (RFC 7386).

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use ipledger_core::api::validate;
use ipledger_core::store::{Part, ReadAt, StoreError};
use serde_json::{Map, Value};

use super::ApiState;
use super::admission;
use super::body::PatchBody;
use super::error::ApiError;
use super::query::Query;
use super::target::Target;
use super::write::{WriteError, answer, write_over};

/// How often a patch is put on a newer state before its caller hears of the conflict.
const TRIES: usize = 16;

pub(super) async fn main(
    State(api): State<ApiState>,
    target: Target,
    query: Query,
    PatchBody(patch): PatchBody,
) -> Result<Response, ApiError> {
    apply(&api, &target, &query, &patch, Part::Main).await
}

pub(super) async fn status(
    State(api): State<ApiState>,
    target: Target,
    query: Query,
    PatchBody(patch): PatchBody,
) -> Result<Response, ApiError> {
    apply(&api, &target, &query, &patch, Part::Status).await
}

/// A patch that names no resourceVersion means whatever state there is: it is put on a newer one
/// if another writer comes between.
async fn apply(
    api: &ApiState,
    target: &Target,
    query: &Query,
    patch: &Value,
    part: Part,
) -> Result<Response, ApiError> {
    let (validation, run) = (query.field_validation()?, query.run()?);
    let any_state = patch
        .pointer("/metadata/resourceVersion")
        .is_none_or(|v| v.is_null() || v == "");
    let mut tries = 1;
    loop {
        let current = api.store.get(&target.key(), ReadAt::Latest).await?;
        // What only the stored object has is not the patch's mistake.
        let mut known = current.clone();
        validate::prune_unknown(&mut known);
        let mut patched = known.to_value();
        merge(&mut patched, patch);
        let (mut object, warnings) = admission::read_object(patched, target, validation)?;
        if any_state {
            object.metadata.resource_version = current.revision();
        }
        match write_over(&*api.store, &current, object, part, run).await {
            Ok(stored) => return Ok(answer(StatusCode::OK, stored, warnings)),
            Err(WriteError::Store(StoreError::Conflict { .. })) if any_state && tries < TRIES => {
                tries += 1;
            }
            Err(e) => return Err(e.into()),
        }
    }
}

/// The `MergePatch` function of RFC 7386, section 2. The depth of both is bounded by their parsers.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else {
        return;
    };
    for (name, value) in patch {
        if value.is_null() {
            target.remove(name);
        } else {
            merge(target.entry(name).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn merging_gives_the_results_of_rfc_7386_appendix_a() {
        for (target, patch, result) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": "b"}),
                json!({"b": "c"}),
                json!({"a": "b", "b": "c"}),
            ),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (
                json!({"a": "b", "b": "c"}),
                json!({"a": null}),
                json!({"b": "c"}),
            ),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (
                json!({"a": [{"b": "c"}]}),
                json!({"a": [1]}),
                json!({"a": [1]}),
            ),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a": "b"}), json!(["c"]), json!(["c"])),
            (json!({"a": "foo"}), json!(null), json!(null)),
            (json!({"a": "foo"}), json!("bar"), json!("bar")),
            (
                json!({"e": null}),
                json!({"a": 1}),
                json!({"e": null, "a": 1}),
            ),
            (
                json!([1, 2]),
                json!({"a": "b", "c": null}),
                json!({"a": "b"}),
            ),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
        ] {
            let mut merged = target.clone();
            merge(&mut merged, &patch);
            assert_eq!(merged, result, "{target} + {patch}");
        }
    }
}
