//! A store behind a bad connection: answers are late, are lost, or tell of a write that happens
//! only after them.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ipledger_core::api::{Key, Kind, Object};
use ipledger_core::store::{
    Capabilities, Deletion, ListOptions, ListPage, Part, Preconditions, ReadAt, Revision, Store,
    StoreError, WatchOptions, WatchStream,
};
use ipledger_tests::random::Random;

pub(crate) struct Connection {
    store: Arc<dyn Store>,
    random: Mutex<Random>,
    /// Of so many writes one goes wrong; 0 for none.
    one_in: usize,
}

/// What becomes of a write.
#[derive(Clone, Copy)]
enum Fate {
    Answered,
    /// It happens, the answer is lost.
    AnswerLost,
    /// It is lost on the way.
    Lost,
    /// It happens after the caller was told that its outcome is not known.
    Late,
    /// It is refused, and does not happen.
    Refused,
}

impl Connection {
    pub(crate) fn new(store: Arc<dyn Store>, random: Random, one_in: usize) -> Connection {
        Connection {
            store,
            random: Mutex::new(random),
            one_in,
        }
    }

    fn below(&self, n: usize) -> usize {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        random.below(n)
    }

    fn fate(&self) -> Fate {
        if self.one_in == 0 || self.below(self.one_in) > 0 {
            return Fate::Answered;
        }
        [Fate::AnswerLost, Fate::Lost, Fate::Late, Fate::Refused][self.below(4)]
    }

    /// Lets others go first.
    async fn travel(&self) {
        pause(self.below(6)).await;
    }

    async fn write<T: Send + 'static>(
        &self,
        key: &Key,
        write: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let fate = self.fate();
        self.travel().await;
        let answer = match fate {
            Fate::Answered => write.await,
            Fate::Refused => Err(StoreError::Unavailable {
                reason: "refused by the test".to_owned(),
            }),
            Fate::AnswerLost => write.await.and_then(|_| Err(unknown(key))),
            Fate::Lost => Err(unknown(key)),
            Fate::Late => {
                let late = self.below(60);
                tokio::spawn(async move {
                    pause(late).await;
                    write.await
                });
                Err(unknown(key))
            }
        };
        self.travel().await;
        answer
    }
}

async fn pause(turns: usize) {
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
}

fn unknown(key: &Key) -> StoreError {
    StoreError::OutcomeUnknown {
        key: key.clone(),
        reason: "lost by the test".to_owned(),
    }
}

#[async_trait]
impl Store for Connection {
    async fn get(&self, key: &Key, at: ReadAt) -> Result<Object, StoreError> {
        self.travel().await;
        let answer = self.store.get(key, at).await;
        self.travel().await;
        answer
    }

    async fn list(&self, kind: Kind, options: &ListOptions) -> Result<ListPage, StoreError> {
        self.store.list(kind, options).await
    }

    async fn create(&self, object: Object) -> Result<Object, StoreError> {
        let store = self.store.clone();
        let key = object.key();
        self.write(&key, async move { store.create(object).await })
            .await
    }

    async fn update(&self, object: Object, part: Part) -> Result<Object, StoreError> {
        let store = self.store.clone();
        let key = object.key();
        self.write(&key, async move { store.update(object, part).await })
            .await
    }

    async fn delete(
        &self,
        key: &Key,
        preconditions: &Preconditions,
    ) -> Result<Deletion, StoreError> {
        let (store, owned) = (self.store.clone(), (key.clone(), preconditions.clone()));
        self.write(key, async move { store.delete(&owned.0, &owned.1).await })
            .await
    }

    async fn watch(&self, kind: Kind, options: &WatchOptions) -> Result<WatchStream, StoreError> {
        self.store.watch(kind, options).await
    }

    async fn barrier(&self, kind: Kind) -> Result<Revision, StoreError> {
        self.store.barrier(kind).await
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }
}
