use async_trait::async_trait;

/// Elects one of several processes on one ledger, so that only its controllers work (design page 3,
/// etcd; page 6, leader election).
///
/// # Guarantees
/// * While the network and the clocks behave, at most one process leads.
/// * A leader that is gone is followed by another one as soon as its time has run out.
///
/// # Caveats
/// * Nothing may lean on it: a leader that was frozen goes on for a moment although another one leads
///   by now. What keeps an address from being given twice is the swap of each write. Two leaders cost
///   work that one of them loses, and addresses that are parked because two drivers served one claim.
#[async_trait]
pub trait Election: Send + Sync + 'static {
    /// Returns once this process leads. What keeps it from that is told each time it changes, for
    /// people: for example who leads instead.
    async fn win(&self, waiting: &(dyn for<'a> Fn(&'a str) + Send + Sync)) -> Box<dyn Term>;
}

/// The time in which a process leads. Dropped, it runs out by itself.
#[async_trait]
pub trait Term: Send {
    /// Returns when it is over, with the reason, for people: another process may lead now. It may be
    /// dropped and called again.
    async fn over(&mut self) -> String;

    /// Ends it, so that another process can lead at once.
    async fn resign(self: Box<Self>);
}
