//! Work that signals the host: a host function, or a value that a stream writes and the CPU may poll.
//! The program then knows without a call that the work before it is complete, and what it enqueues in
//! another stream may rely on that. A replay runs no host functions and polls nothing, so it waits for
//! such work first.

/// If there are more, the oldest are not waited for.
pub(crate) const MOST: usize = 64;

/// Work that is not known to be complete here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostSignal {
    /// An event behind it, and its context.
    pub mark: (u64, u64),
    /// The recorded handle of its stream, and the thread.
    pub stream: (u64, u32),
}

/// The signals that the replay has not waited for.
#[derive(Debug, Default)]
pub(crate) struct HostSignals {
    pub pending: Vec<HostSignal>,
    /// Events to be used again, and their contexts.
    pub free: Vec<(u64, u64)>,
}

impl HostSignals {
    /// Whether there is any.
    pub(crate) fn any(&self) -> bool {
        !self.pending.is_empty()
    }

    /// A context has ended, and with it its events.
    pub(crate) fn end_context(&mut self, context: u64) {
        self.pending.retain(|signal| signal.mark.1 != context);
        self.free.retain(|mark| mark.1 != context);
    }
}
