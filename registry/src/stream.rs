//! Handles of streams that no call creates.

/// The handle of the legacy default stream (cuda.h: CU_STREAM_LEGACY).
pub const STREAM_LEGACY: u64 = 1;

/// The handle of the calling thread's default stream (cuda.h: CU_STREAM_PER_THREAD).
pub const STREAM_PER_THREAD: u64 = 2;

/// Whether a handle names a default stream: NULL, CU_STREAM_LEGACY or CU_STREAM_PER_THREAD.
#[inline]
pub const fn is_default_stream(handle: u64) -> bool {
    handle <= STREAM_PER_THREAD
}

/// The handle of a stream, the same for all names of a default stream. NULL names the one or the
/// other, as the function is of the per-thread variants or not.
#[inline]
pub const fn canonical_stream(handle: u64, per_thread: bool) -> u64 {
    match handle {
        0 if per_thread => STREAM_PER_THREAD,
        0 => STREAM_LEGACY,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_streams_have_several_names() {
        for (handle, per_thread, expected) in [
            (0, false, STREAM_LEGACY),
            (1, false, STREAM_LEGACY),
            (1, true, STREAM_LEGACY),
            (0, true, STREAM_PER_THREAD),
            (2, false, STREAM_PER_THREAD),
            (2, true, STREAM_PER_THREAD),
            (3, true, 3),
        ] {
            let found = canonical_stream(handle, per_thread);
            assert_eq!(found, expected, "{handle} {per_thread}");
            assert_eq!(is_default_stream(handle), handle != 3);
        }
    }
}
