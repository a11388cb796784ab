//! Which call made a thread's context current.

use cutape_format::Call;
use cutape_registry::ContextOp;

/// A context in a thread's stack.
#[derive(Clone, Copy, Debug)]
struct Entry {
    handle: u64,
    /// The call that put this context there.
    set: u32,
    /// The call that pushed the entry; `None` if a call set it on an empty stack.
    pushed: Option<u32>,
}

/// What a call that changes the current context has to do with earlier ones.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ContextChange {
    /// It replaces the context of an entry that this call pushed.
    pub(super) replaces: Option<u32>,
    /// It takes away the entry that this call pushed.
    pub(super) pops: Option<u32>,
}

/// The stacks of current contexts of all threads.
#[derive(Debug, Default)]
pub(super) struct CurrentContexts {
    stacks: Vec<Vec<Entry>>,
}

impl CurrentContexts {
    /// The call that made the thread's context current.
    pub(super) fn set_by(&self, thread: u32) -> Option<u32> {
        let stack = self.stacks.get(thread as usize)?;
        stack.last().map(|entry| entry.set)
    }

    /// Applies a successful call.
    pub(super) fn apply(
        &mut self,
        operation: ContextOp,
        call: &Call<'_>,
        created: Option<u64>,
    ) -> ContextChange {
        let thread = call.thread as usize;
        if self.stacks.len() <= thread {
            self.stacks.resize_with(thread + 1, Vec::new);
        }
        let Some(stack) = self.stacks.get_mut(thread) else {
            return ContextChange::default();
        };
        let index = call.index as u32;
        let handle = call.argument(0);
        let mut change = ContextChange::default();
        match operation {
            ContextOp::Create | ContextOp::Push => stack.push(Entry {
                handle: match operation {
                    ContextOp::Create => created.unwrap_or(0),
                    _ => handle,
                },
                set: index,
                pushed: Some(index),
            }),
            ContextOp::Pop => change.pops = stack.pop().and_then(|entry| entry.pushed),
            ContextOp::Set if stack.last().is_some_and(|top| top.handle == handle) => {}
            ContextOp::Set => {
                let replaced = stack.pop();
                change.replaces = replaced.and_then(|entry| entry.pushed);
                if handle != 0 {
                    stack.push(Entry {
                        handle,
                        set: index,
                        pushed: change.replaces,
                    });
                }
            }
            ContextOp::Destroy if stack.last().is_some_and(|top| top.handle == handle) => {
                stack.pop();
            }
            _ => {}
        }
        change
    }
}
