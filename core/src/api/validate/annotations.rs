//! Room for what the ledger adds: Kubernetes bounds the annotations of an object together, and an
//! object that its user has filled could neither be stamped nor released.

use crate::api::{GROUP, Kind, Object};
use crate::store::FieldError;

/// Bytes that the annotations of a claim or an address may have together, names and values, when
/// a user has written them. Core and drivers have the rest of what Kubernetes allows (256 KiB).
/// Objects of other kinds get no annotations from them and have no such limit.
pub const ANNOTATIONS_MAX: usize = 192 * 1024;

/// What Kubernetes allows; the object rules of the stores see to it.
const HARD_MAX: usize = 256 * 1024;

/// What the ledger's own annotations may grow to on an object that is over the limit, so that a
/// driver that works through the API can still write its few.
const OWN_MAX: usize = 16 * 1024;

/// Whether the annotations of `new` leave no room. An update of an object that is over the limit
/// is refused only if it adds to that.
pub(super) fn check(old: Option<&Object>, new: &Object) -> Option<FieldError> {
    if new.kind == Kind::IPAddressClass {
        return None;
    }
    let (own, others) = sizes(new);
    let (own_before, others_before) = old.map_or((0, 0), sizes);
    let size = own + others;
    let grows = others > others_before || own > own_before.max(OWN_MAX);
    (grows && (ANNOTATIONS_MAX + 1..=HARD_MAX).contains(&size)).then(|| {
        let message = format!(
            "have {size} bytes together; at most {ANNOTATIONS_MAX} are possible here, because the \
             ledger and its drivers add their own and Kubernetes allows {HARD_MAX} in all; shorten \
             or remove some"
        );
        FieldError::new("metadata.annotations", message)
    })
}

/// Bytes of the annotations in the ledger's own domain and those below it, and of all others.
fn sizes(object: &Object) -> (usize, usize) {
    let (mut own, mut others) = (0, 0);
    for (name, value) in &object.metadata.annotations {
        let domain = name.split_once('/').map_or("", |(domain, _)| domain);
        let is_own = domain
            .strip_suffix(GROUP)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        *(if is_own { &mut own } else { &mut others }) += name.len() + value.len();
    }
    (own, others)
}
