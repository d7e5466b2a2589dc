//! What a well-typed `spec` may say (seed 000 §2; R1 and R9).

use serde_json::Value;

use super::types::shown;
use super::{frozen_phase, generate_name, text_at, value_at};
use crate::api::{ClaimFamily, Kind, Object};
use crate::net::{AddressError, Ip};
use crate::store::FieldError;
use crate::store::rules::{check_name, check_namespace};

/// What is wrong in the spec, whatever the object was before.
pub(super) fn check(object: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match object.kind {
        Kind::IPAddressClass => required(object, "spec.provisioner", &mut errors),
        Kind::IPAddress => check_address(object, &mut errors),
        Kind::IPAddressClaim => check_claim(object, &mut errors),
    }
    errors
}

fn check_address(object: &Object, errors: &mut Vec<FieldError>) {
    let mut note = |field: &str, result: Result<(), String>| {
        errors.extend(result.err().map(|message| FieldError::new(field, message)));
    };
    let address = Ip::parse_canonical(text_at(object, "spec.address"));
    note(
        "spec.address",
        address.map(|_| ()).map_err(|e| e.to_string()),
    );
    note(
        "spec.className",
        check_name(text_at(object, "spec.className")),
    );
    if value_at(object, "spec.claimRef").is_some() {
        let name = check_name(text_at(object, "spec.claimRef.name"));
        let namespace = check_namespace(text_at(object, "spec.claimRef.namespace"));
        note("spec.claimRef.namespace", namespace);
        note("spec.claimRef.name", name);
    }
    if let Some(Value::Object(source)) = value_at(object, "spec.source") {
        if source.len() != 1 {
            let message = "must have exactly one of fromClass and providerRef";
            note("spec.source", Err(message.to_owned()));
        }
        if source.contains_key("providerRef") {
            required(object, "spec.source.providerRef.id", errors);
        }
    }
}

fn check_claim(object: &Object, errors: &mut Vec<FieldError>) {
    for field in ["spec.className", "spec.addressName"] {
        let name = text_at(object, field);
        if !name.is_empty()
            && let Err(message) = check_name(name)
        {
            errors.push(FieldError::new(field, message));
        }
    }
    if !text_at(object, "spec.addressName").is_empty()
        && text_at(object, "spec.family") == ClaimFamily::Dual.as_str()
    {
        errors.push(FieldError::new(
            "spec.addressName",
            "names one address and cannot be used with family Dual; leave it out, or ask for IPv4 \
             or IPv6",
        ));
    }
}

fn required(object: &Object, field: &str, errors: &mut Vec<FieldError>) {
    if text_at(object, field).is_empty() {
        errors.push(FieldError::new(field, "is required"));
    }
}

/// On creation, an address object has the name that its IP gives: so one IP has one object (R1).
pub(super) fn identity(object: &Object) -> Option<FieldError> {
    if object.kind != Kind::IPAddress {
        return None;
    }
    let ip = match Ip::parse_canonical(text_at(object, "spec.address")) {
        Ok(ip) | Err(AddressError::NotCanonical { canonical: ip, .. }) => ip,
        Err(_) => return None,
    };
    let (name, wanted) = (&object.metadata.name, ip.object_name());
    if *name == wanted {
        return None;
    }
    let is = if name.is_empty() && generate_name(object).is_some() {
        "a generated name".to_owned()
    } else {
        shown(name)
    };
    let message = format!(
        "must be `{wanted}`, not {is}: the name of an address object comes from its address, so \
         that {ip} has one object only"
    );
    Some(FieldError::new("metadata.name", message))
}

/// What an update changes although it cannot be changed.
pub(super) fn unchangeable(old: &Object, new: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let fixed: &[&str] = match old.kind {
        Kind::IPAddressClass => &["spec.provisioner"],
        Kind::IPAddress => &["spec.address", "spec.source"],
        Kind::IPAddressClaim => &[],
    };
    for field in fixed {
        let (before, after) = (value_at(old, field), value_at(new, field));
        // What was never said can still be said.
        if let Some(before) = before.filter(|b| **b != "" && Some(*b) != after) {
            let message = format!(
                "cannot be changed (it is {}); delete the object and create it anew",
                shown_value(before)
            );
            errors.push(FieldError::new(*field, message));
        }
    }
    if let Some(phase) = frozen_phase(old) {
        for field in ["spec.className", "spec.family", "spec.addressName"] {
            if text_at(old, field) != text_at(new, field) {
                let message = format!(
                    "cannot be changed while the claim is {phase} (it is {}); delete the claim \
                     and create it anew",
                    shown(text_at(old, field))
                );
                errors.push(FieldError::new(field, message));
            }
        }
    }
    errors
}

fn shown_value(value: &Value) -> String {
    match value {
        Value::String(text) => shown(text),
        other => other.to_string(),
    }
}
