//! The objects that this store has read or written last, so that a write can be decided without
//! reading first. What is here may be old: the swap that follows finds that out, and whatever else
//! than a swap follows is decided on a read.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipledger_core::api::{Key, Object};

/// Objects of so many bytes, as stored, are kept: some 16,000 of the usual size. In memory they take
/// several times as much.
const BYTES: usize = 8 << 20;
/// Larger ones are not.
const LARGEST: usize = 16 << 10;

#[derive(Default)]
pub(crate) struct Recent(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    objects: HashMap<Key, (Arc<Object>, usize)>,
    /// In the order in which they came; the first one goes first.
    order: VecDeque<Key>,
    bytes: usize,
}

impl Recent {
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Object>> {
        let kept = self.lock();
        kept.objects.get(key).map(|(object, _)| object.clone())
    }

    /// Keeps an object that has so many bytes as stored, unless a newer one is kept.
    pub(crate) fn put(&self, object: &Arc<Object>, size: usize) {
        if size > LARGEST {
            return;
        }
        let key = object.key();
        let kept = &mut *self.lock();
        match kept.objects.get_mut(&key) {
            Some((old, _)) if old.revision() > object.revision() => return,
            Some((old, bytes)) => {
                kept.bytes -= *bytes;
                (*old, *bytes) = (object.clone(), size);
            }
            None => {
                kept.objects.insert(key.clone(), (object.clone(), size));
                kept.order.push_back(key);
            }
        }
        kept.bytes += size;
        while kept.bytes > BYTES
            && let Some(first) = kept.order.pop_front()
        {
            let bytes = kept.objects.remove(&first).map_or(0, |(_, bytes)| bytes);
            kept.bytes -= bytes;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use ipledger_core::api::Kind;
    use ipledger_core::store::{Revision, rules};

    use super::*;

    fn object(name: &str, revision: u64) -> Arc<Object> {
        let mut object = rules::remains(&Key::cluster(Kind::IPAddress, name), "");
        object.metadata.resource_version = Some(Revision(revision));
        Arc::new(object)
    }

    #[test]
    fn the_newest_state_of_an_object_is_kept() {
        let recent = Recent::default();
        for revision in [2, 3, 1] {
            recent.put(&object("a", revision), 100);
        }
        assert_eq!(recent.get(&Key::address("a")), Some(object("a", 3)));
    }

    #[test]
    fn only_so_much_is_kept() {
        let recent = Recent::default();
        recent.put(&object("large", 1), LARGEST + 1);
        let fit = BYTES / LARGEST;
        for n in 0..=fit {
            recent.put(&object(&format!("a-{n}"), 1), LARGEST);
        }
        assert_eq!(recent.get(&Key::address("large")), None);
        assert_eq!(recent.get(&Key::address("a-0")), None);
        assert!(recent.get(&Key::address("a-1")).is_some());
        // One that shrinks makes room.
        recent.put(&object("a-1", 2), LARGEST - 100);
        recent.put(&object("b", 1), 100);
        assert!(recent.get(&Key::address("a-1")).is_some());
        let kept = recent.lock();
        assert_eq!((kept.objects.len(), kept.order.len()), (fit + 1, fit + 1));
        assert_eq!(kept.bytes, BYTES);
    }
}
