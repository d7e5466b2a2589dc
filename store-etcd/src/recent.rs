//! The objects that this store has read or written last, so that a write can be decided without
//! reading first. What is here may be old: the swap that follows finds that out, and whatever else
//! than a swap follows is decided on a read.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipledger_core::api::{Key, Object};

/// So many objects are kept.
const OBJECTS: usize = 4_096;
/// Larger ones, in bytes as stored, are not.
const LARGEST: usize = 16 * 1_024;

#[derive(Default)]
pub(crate) struct Recent(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    objects: HashMap<Key, Arc<Object>>,
    /// In the order in which they came; the first one goes first.
    order: VecDeque<Key>,
}

impl Recent {
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Object>> {
        self.lock().objects.get(key).cloned()
    }

    /// Keeps an object that has so many bytes as stored, unless a newer one is kept.
    pub(crate) fn put(&self, object: &Arc<Object>, size: usize) {
        if size > LARGEST {
            return;
        }
        let key = object.key();
        let mut kept = self.lock();
        match kept.objects.get_mut(&key) {
            Some(old) if old.revision() > object.revision() => {}
            Some(old) => *old = object.clone(),
            None => {
                kept.objects.insert(key.clone(), object.clone());
                kept.order.push_back(key);
                if kept.order.len() > OBJECTS
                    && let Some(first) = kept.order.pop_front()
                {
                    kept.objects.remove(&first);
                }
            }
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
        for n in 0..=OBJECTS {
            recent.put(&object(&format!("a-{n}"), 1), 100);
        }
        assert_eq!(recent.get(&Key::address("large")), None);
        assert_eq!(recent.get(&Key::address("a-0")), None);
        assert!(recent.get(&Key::address("a-1")).is_some());
        let kept = recent.lock();
        assert_eq!((kept.objects.len(), kept.order.len()), (OBJECTS, OBJECTS));
    }
}
