use crate::binding::{Event, EventKind};

/// Where events for the owners of objects go (R15).
pub trait EventSink: Send + Sync + 'static {
    /// Takes one event. It must not block.
    fn emit(&self, event: &Event);
}

/// Writes events to the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogEvents;

impl EventSink for LogEvents {
    fn emit(&self, event: &Event) {
        let Event {
            about,
            kind,
            reason,
            message,
        } = event;
        match kind {
            EventKind::Normal => tracing::info!(object = %about, %reason, "{message}"),
            EventKind::Warning => tracing::warn!(object = %about, %reason, "{message}"),
        }
    }
}
