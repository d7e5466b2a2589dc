use crate::binding::Event;

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
            uid: _,
            kind,
            reason,
            message,
        } = event;
        // A warning to a tenant is not one to whoever runs the server.
        let kind = kind.type_name();
        tracing::info!(object = %about, kind, %reason, "{message}");
    }
}
