//! Work whose end the program may learn without a call: a host function says so, or the CPU reads a
//! value that a stream writes. What the program enqueues later in another stream may rely on that, and
//! a replay runs no host functions and polls nothing: it waits for such work first.

/// Of more, the oldest are not waited for.
pub(crate) const MOST: usize = 64;
/// Work that is not known to be complete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notice {
    /// An event behind it, and its context.
    pub mark: (u64, u64),
    /// The recorded handle of its stream, and the thread.
    pub stream: (u64, u32),
}

/// What the program may have learned of, and the replay not yet.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    pub pending: Vec<Notice>,
    /// Events to be used again, and their contexts.
    pub free: Vec<(u64, u64)>,
}

impl Notices {
    /// Whether there is any.
    pub(crate) fn any(&self) -> bool {
        !self.pending.is_empty()
    }

    /// A context has ended, and with it its events.
    pub(crate) fn end_context(&mut self, context: u64) {
        self.pending.retain(|notice| notice.mark.1 != context);
        self.free.retain(|mark| mark.1 != context);
    }
}
