//! A thread that does something beside the program until it is told to end.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

/// Ends the thread, and waits for it, when dropped.
pub(crate) struct UntilDropped {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl UntilDropped {
    /// Starts it; an error if there is no thread. `body` is to return as soon as nobody sends any
    /// more.
    pub(crate) fn start(
        name: &str,
        body: impl FnOnce(&Receiver<()>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (end, ended) = mpsc::channel();
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || body(&ended))?;
        Ok(Self {
            end: Some(end),
            thread: Some(thread),
        })
    }
}

impl Drop for UntilDropped {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
