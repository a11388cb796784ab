//! A lock that is free in a forked child, also if another thread of the parent held it.

use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// State of this process, behind a lock that is held for a short time, never across a call of the
/// driver.
pub(crate) struct ProcessLock<T>(AtomicPtr<Mutex<T>>);

impl<T: Default + Send + 'static> ProcessLock<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// The state; its default at first.
    pub(crate) fn lock(&self) -> MutexGuard<'static, T> {
        self.mutex().lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same; `None` if a thread, perhaps this one, holds the lock.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'static, T>> {
        self.mutex().try_lock().ok()
    }

    fn mutex(&self) -> &'static Mutex<T> {
        let mut state = self.0.load(Ordering::Acquire);
        if state.is_null() {
            let fresh = Box::into_raw(Box::default());
            let raced = self
                .0
                .compare_exchange(state, fresh, Ordering::AcqRel, Ordering::Acquire);
            state = raced.map_or_else(|other| other, |_| fresh);
            if state != fresh {
                // SAFETY: made above, and no other thread has seen it.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
        // SAFETY: made above by this thread or another, and never freed.
        unsafe { &*state }
    }

    /// In a forked child: begins anew. The parent's state is leaked, since it may be half changed.
    pub(crate) fn forget(&self) {
        self.0.store(core::ptr::null_mut(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_is_left_behind() {
        static STATE: ProcessLock<Vec<u32>> = ProcessLock::new();
        STATE.lock().push(1);
        let held = STATE.lock();
        assert_eq!(*held, [1]);
        assert!(STATE.try_lock().is_none());
        STATE.forget();
        assert!(STATE.lock().is_empty());
        assert!(STATE.try_lock().is_some());
        assert_eq!(*held, [1]);
    }
}
