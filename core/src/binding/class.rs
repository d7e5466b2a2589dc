use std::sync::Arc;

use crate::api::{IPAddressClaim, IPAddressClass, names::reason};

/// What the class of a claim resolves to (§4 step 6).
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Resolution {
    /// This class.
    Class(Arc<IPAddressClass>),
    /// The claim names a class that is not there.
    NotFound {
        /// The name.
        name: String,
        /// Whether that was read at `Latest`.
        proven: bool,
    },
    /// The claim names none, and none is the default.
    #[default]
    NoDefault,
    /// The claim names none, and several are the default: these, in name order.
    ManyDefaults(Vec<String>),
}

/// Knows the classes.
pub trait ClassLookup {
    /// The class of this name, and whether that was read at `Latest`.
    fn class(&self, name: &str) -> (Option<Arc<IPAddressClass>>, bool);
    /// The classes that are annotated as the default, in name order.
    fn defaults(&self) -> Vec<Arc<IPAddressClass>>;
}

/// Resolves a claim's class: `spec.className`, then the sticky `status.className`, then the one
/// default. The core refuses to guess among several.
pub fn resolve(claim: &IPAddressClaim, classes: &dyn ClassLookup) -> Resolution {
    let name = [claim.spec.class_name.as_str(), claim.resolved_class()]
        .into_iter()
        .find(|name| !name.is_empty());
    if let Some(name) = name {
        return match classes.class(name) {
            (Some(class), _) => Resolution::Class(class),
            (None, proven) => Resolution::NotFound {
                name: name.to_owned(),
                proven,
            },
        };
    }
    let mut defaults = classes.defaults();
    match (defaults.pop(), defaults.is_empty()) {
        (None, _) => Resolution::NoDefault,
        (Some(class), true) => Resolution::Class(class),
        (Some(last), false) => Resolution::ManyDefaults(
            defaults
                .iter()
                .chain([&last])
                .map(|c| c.metadata.name.clone())
                .collect(),
        ),
    }
}

impl Resolution {
    /// The class, if there is one.
    pub fn class(&self) -> Option<&Arc<IPAddressClass>> {
        match self {
            Resolution::Class(class) => Some(class),
            _ => None,
        }
    }

    /// Reason and message of the claim's conditions.
    pub(super) fn explain(&self) -> (&'static str, String) {
        match self {
            Resolution::Class(class) => {
                (reason::RESOLVED, format!("class {}", class.metadata.name))
            }
            Resolution::NotFound { name, .. } => (
                reason::CLASS_NOT_FOUND,
                format!(
                    "class {name} does not exist; create it, or name another in spec.className"
                ),
            ),
            Resolution::NoDefault => (
                reason::NO_DEFAULT_CLASS,
                "the claim names no class and no class is the default; set spec.className, or \
                 annotate one class as the default"
                    .to_owned(),
            ),
            Resolution::ManyDefaults(all) => (
                reason::MULTIPLE_DEFAULT_CLASSES,
                format!(
                    "the claim names no class and several are the default: {}; set \
                     spec.className, or leave the annotation on one of them",
                    all.join(", ")
                ),
            ),
        }
    }
}
