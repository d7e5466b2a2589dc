//! POST, PUT and DELETE.

use std::time::SystemTime;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ipledger_core::api::validate;
use ipledger_core::api::{Object, Timestamp};
use ipledger_core::store::rules::{self, Birth, Outcome};
use ipledger_core::store::{
    Deletion, FieldError, Part, Preconditions, ReadAt, Revision, Store, StoreError,
};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::ApiState;
use super::admission::{self, Warnings};
use super::body::ObjectBody;
use super::error::{ApiError, all_of};
use super::query::{Query, Run};
use super::target::Target;

/// Names that are tried for one `generateName`.
const NAME_TRIES: usize = 8;
/// Longest prefix of a generated name, so that the name is also a valid label value.
const MAX_NAME_BASE: usize = 58;

pub(super) async fn create(
    State(api): State<ApiState>,
    target: Target,
    query: Query,
    body: ObjectBody,
) -> Result<Response, ApiError> {
    let (validation, run) = (query.field_validation()?, query.run()?);
    let (mut object, warnings) = admission::read_object(body.required()?, &target, validation)?;
    object.metadata.uid.clear();
    let errors = validate::validate_create(&object);
    if !errors.is_empty() {
        return Err(ApiError::invalid(&object.key(), errors));
    }
    let stored = match generated_from(&object) {
        Some(base) => create_generated(&*api.store, object, &base, run).await?,
        None => create_once(&*api.store, object, run).await?,
    };
    Ok(answer(StatusCode::CREATED, stored, warnings))
}

fn generated_from(object: &Object) -> Option<String> {
    let base = validate::generate_name(object).filter(|_| object.metadata.name.is_empty())?;
    Some(base.chars().take(MAX_NAME_BASE).collect())
}

async fn create_generated(
    store: &dyn Store,
    object: Object,
    base: &str,
    run: Run,
) -> Result<Object, StoreError> {
    let mut tries = 1;
    loop {
        let mut named = object.clone();
        named.metadata.name = format!("{base}{}", random_suffix());
        match create_once(store, named, run).await {
            Err(StoreError::AlreadyExists { .. }) if tries < NAME_TRIES => tries += 1,
            result => return result,
        }
    }
}

/// Five letters and digits that form no words.
fn random_suffix() -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let random = Uuid::new_v4();
    let letter = |byte: &u8| LETTERS.get(usize::from(*byte) % LETTERS.len());
    random
        .as_bytes()
        .iter()
        .take(5)
        .filter_map(letter)
        .map(|b| char::from(*b))
        .collect()
}

async fn create_once(store: &dyn Store, object: Object, run: Run) -> Result<Object, StoreError> {
    if run == Run::Real {
        return store.create(object).await;
    }
    let birth = Birth {
        uid: Uuid::new_v4().to_string(),
        now: now(),
    };
    let created = rules::create(object, birth)?;
    rules::check_size(&created, store.capabilities().max_object_bytes)?;
    match store.get(&created.key(), ReadAt::Latest).await {
        Ok(current) => Err(rules::already_exists(created.key(), &current)),
        Err(StoreError::NotFound { .. }) => Ok(created),
        Err(e) => Err(e),
    }
}

pub(super) async fn replace(
    State(api): State<ApiState>,
    target: Target,
    query: Query,
    body: ObjectBody,
) -> Result<Response, ApiError> {
    put(&api, &target, &query, body, Part::Main).await
}

pub(super) async fn replace_status(
    State(api): State<ApiState>,
    target: Target,
    query: Query,
    body: ObjectBody,
) -> Result<Response, ApiError> {
    put(&api, &target, &query, body, Part::Status).await
}

async fn put(
    api: &ApiState,
    target: &Target,
    query: &Query,
    body: ObjectBody,
    part: Part,
) -> Result<Response, ApiError> {
    let (validation, run) = (query.field_validation()?, query.run()?);
    let (object, warnings) = admission::read_object(body.required()?, target, validation)?;
    let current = api.store.get(&target.key(), ReadAt::Latest).await?;
    let stored = write_over(&*api.store, &current, object, part, run).await?;
    Ok(answer(StatusCode::OK, stored, warnings))
}

/// Why a write over an object did not happen.
pub(super) enum WriteError {
    /// The new object breaks a rule of its kind.
    Refused(ApiError),
    Store(StoreError),
}

impl From<WriteError> for ApiError {
    fn from(e: WriteError) -> ApiError {
        match e {
            WriteError::Refused(e) => e,
            WriteError::Store(e) => e.into(),
        }
    }
}

impl From<StoreError> for WriteError {
    fn from(e: StoreError) -> WriteError {
        WriteError::Store(e)
    }
}

/// Writes one part of `new` over `current`, which was just read.
pub(super) async fn write_over(
    store: &dyn Store,
    current: &Object,
    new: Object,
    part: Part,
    run: Run,
) -> Result<Object, WriteError> {
    // Who works from an old state hears that first; what the rules say about it would be about
    // another object than the caller saw.
    let outcome = rules::update(current, new.clone(), part)?;
    let errors: Vec<FieldError> = match part {
        Part::Main => validate::validate_update(current, &new),
        Part::Status => validate::validate_status(current, &new),
    };
    if !errors.is_empty() {
        return Err(WriteError::Refused(ApiError::invalid(
            &current.key(),
            errors,
        )));
    }
    if run == Run::Real {
        return Ok(store.update(new, part).await?);
    }
    Ok(match outcome {
        Outcome::Unchanged => current.clone(),
        Outcome::Write(next) => {
            rules::check_size(&next, store.capabilities().max_object_bytes)?;
            next
        }
        Outcome::Remove(last) => last,
    })
}

/// The answer to a write.
pub(super) fn answer(code: StatusCode, object: Object, warnings: Warnings) -> Response {
    let mut response = (code, Json(object)).into_response();
    warnings.write(response.headers_mut());
    response
}

/// What of `DeleteOptions` is acted on.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeleteOptions {
    propagation_policy: Option<String>,
    orphan_dependents: Option<bool>,
    preconditions: Option<DeletePreconditions>,
    dry_run: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeletePreconditions {
    uid: Option<String>,
    resource_version: Option<Revision>,
}

impl DeleteOptions {
    fn read(body: Option<Value>) -> Result<DeleteOptions, ApiError> {
        let Some(mut body) = body else {
            return Ok(DeleteOptions::default());
        };
        let wrong =
            |text: &str| ApiError::bad_request(format!("the body must be DeleteOptions{text}"));
        if !body.is_object() {
            return Err(wrong(""));
        }
        // An object that was sent by mistake is called by its name, not by its fields.
        if let Some(kind) = body.get("kind").and_then(Value::as_str)
            && kind != "DeleteOptions"
        {
            return Err(wrong(&format!(", not a {kind}")));
        }
        let errors = validate::delete_options(&mut body);
        if !errors.is_empty() {
            return Err(wrong(&format!(": {}", all_of(&errors))).with_causes(&errors));
        }
        serde_json::from_value(body).map_err(|e| wrong(&format!(": {e}")))
    }
}

pub(super) async fn delete(
    State(api): State<ApiState>,
    target: Target,
    query: Query,
    ObjectBody(body): ObjectBody,
) -> Result<Response, ApiError> {
    let (preconditions, run) = delete_options(&query, body)?;
    let key = target.key();
    let deletion = match run {
        Run::Real => api.store.delete(&key, &preconditions).await?,
        Run::Dry => {
            let current = api.store.get(&key, ReadAt::Latest).await?;
            match rules::delete(&current, &preconditions, now())? {
                Outcome::Unchanged => Deletion::Finalizing(current),
                Outcome::Write(marked) => Deletion::Finalizing(marked),
                Outcome::Remove(last) => Deletion::Gone(last),
            }
        }
    };
    Ok(match deletion {
        Deletion::Finalizing(object) => Json(object).into_response(),
        Deletion::Gone(last) => Json(json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 200,
            "details": {"name": key.name, "group": key.kind.group(), "kind": key.kind.plural(),
                "uid": last.metadata.uid},
        }))
        .into_response(),
    })
}

fn delete_options(query: &Query, body: Option<Value>) -> Result<(Preconditions, Run), ApiError> {
    let options = DeleteOptions::read(body)?;
    query.number("gracePeriodSeconds")?;
    let policy = options
        .propagation_policy
        .as_deref()
        .or(query.text("propagationPolicy"));
    let orphan = options
        .orphan_dependents
        .or(query.flag("orphanDependents")?);
    if orphan == Some(true) || policy.is_some_and(|p| p != "Background") {
        return Err(ApiError::bad_request(
            "only the propagation policy Background is possible: there is no collector of owned \
             objects here",
        ));
    }
    let mut run = query.run()?;
    for text in options.dry_run.unwrap_or_default() {
        run = Run::parse(&text)?;
    }
    let preconditions = options.preconditions.unwrap_or_default();
    Ok((
        Preconditions {
            uid: preconditions.uid,
            revision: preconditions.resource_version,
        },
        run,
    ))
}

fn now() -> Timestamp {
    Timestamp::from(SystemTime::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_suffix_has_five_characters_that_fit_into_a_name() {
        for _ in 0..100 {
            let suffix = random_suffix();
            assert_eq!(suffix.len(), 5);
            assert!(rules::check_name(&suffix).is_ok(), "{suffix}");
        }
    }
}
