use std::collections::BTreeMap;
use std::sync::Arc;

use super::Change;
use crate::api::{
    DecodeError, IPAddress, IPAddressClaim, IPAddressClass, Key, Kind, Object, ObjectMeta,
};
use crate::store::{ListPage, Revision, StoreError};

/// An object in the typed form of its kind.
#[derive(Clone, Debug)]
pub(super) enum Typed {
    Class(Arc<IPAddressClass>),
    Address(Arc<IPAddress>),
    Claim(Arc<IPAddressClaim>),
}

impl Typed {
    pub(super) fn decode(object: &Object) -> Result<Typed, DecodeError> {
        Ok(match object.kind {
            Kind::IPAddressClass => Typed::Class(Arc::new(IPAddressClass::from_object(object)?)),
            Kind::IPAddress => Typed::Address(Arc::new(IPAddress::from_object(object)?)),
            Kind::IPAddressClaim => Typed::Claim(Arc::new(IPAddressClaim::from_object(object)?)),
        })
    }

    pub(super) fn meta(&self) -> &ObjectMeta {
        match self {
            Typed::Class(class) => &class.metadata,
            Typed::Address(address) => &address.metadata,
            Typed::Claim(claim) => &claim.metadata,
        }
    }

    pub(super) fn as_class(&self) -> Option<&Arc<IPAddressClass>> {
        if let Typed::Class(class) = self {
            Some(class)
        } else {
            None
        }
    }

    pub(super) fn as_address(&self) -> Option<&Arc<IPAddress>> {
        if let Typed::Address(address) = self {
            Some(address)
        } else {
            None
        }
    }

    pub(super) fn as_claim(&self) -> Option<&Arc<IPAddressClaim>> {
        if let Typed::Claim(claim) = self {
            Some(claim)
        } else {
            None
        }
    }

    /// The change of the object with this key from one state to another.
    pub(super) fn change(key: Key, old: Option<Typed>, new: Option<Typed>) -> Change {
        let (old, new) = (old.as_ref(), new.as_ref());
        match key.kind {
            Kind::IPAddressClass => Change::Class {
                key,
                old: old.and_then(Typed::as_class).cloned(),
                new: new.and_then(Typed::as_class).cloned(),
            },
            Kind::IPAddress => Change::Address {
                key,
                old: old.and_then(Typed::as_address).cloned(),
                new: new.and_then(Typed::as_address).cloned(),
            },
            Kind::IPAddressClaim => Change::Claim {
                key,
                old: old.and_then(Typed::as_claim).cloned(),
                new: new.and_then(Typed::as_claim).cloned(),
            },
        }
    }
}

/// All objects of a kind at one revision, in typed form, collected page by page.
#[derive(Debug)]
pub struct Listing {
    pub(super) revision: Revision,
    pub(super) objects: BTreeMap<Key, Typed>,
    pub(super) unreadable: BTreeMap<Key, String>,
}

impl Listing {
    /// Starts with the first page.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn new(page: ListPage) -> Result<Listing, StoreError> {
        let mut listing = Listing {
            revision: page.revision,
            objects: BTreeMap::new(),
            unreadable: BTreeMap::new(),
        };
        listing.add(page)?;
        Ok(listing)
    }

    /// Adds a further page.
    ///
    /// # Errors
    /// `Internal` if the page reports an error that names no object: what it leaves out would
    /// look absent.
    pub fn add(&mut self, page: ListPage) -> Result<(), StoreError> {
        // Pages show one revision. Should they not, then a watch from the oldest misses nothing.
        self.revision = self.revision.min(page.revision);
        for error in page.corrupt {
            match error {
                StoreError::Corrupt { key, reason } => {
                    self.unreadable.insert(key, reason);
                }
                other => {
                    return Err(StoreError::Internal {
                        reason: format!("a page of a listing leaves out objects unnamed: {other}"),
                    });
                }
            }
        }
        for object in &page.items {
            match Typed::decode(object) {
                Ok(typed) => {
                    self.objects.insert(object.key(), typed);
                }
                Err(e) => {
                    self.unreadable.insert(object.key(), e.reason);
                }
            }
        }
        Ok(())
    }

    /// The revision that the listing shows; a watch from it misses nothing.
    pub fn revision(&self) -> Revision {
        self.revision
    }
}
