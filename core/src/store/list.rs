use super::{FieldSelector, LabelSelector, Revision, StoreError};
use crate::api::Object;

/// What to list.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// Only this namespace; `None` means all.
    pub namespace: Option<String>,
    /// Only objects with these labels.
    pub labels: LabelSelector,
    /// Only objects with these field values.
    pub fields: FieldSelector,
    /// At most this many objects a page; `None` means all in one page.
    pub limit: Option<usize>,
    /// Where the last page ended.
    pub continue_token: Option<String>,
}

/// One page of a listing.
#[derive(Clone, Debug, Default)]
pub struct ListPage {
    /// The objects, in key order.
    pub items: Vec<Object>,
    /// The revision that all pages of this listing show; a watch from it misses nothing.
    pub revision: Revision,
    /// Pass it on to get the next page; `None` on the last.
    pub continue_token: Option<String>,
    /// Objects of this page's stretch that are stored in a form that cannot be read
    /// ([`StoreError::Corrupt`] each).
    pub corrupt: Vec<StoreError>,
}
