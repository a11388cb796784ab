//! How long something is awaited that need not come.

/// How often one has looked for it, and how many calls had returned then.
#[derive(Default)]
pub(crate) struct Looks {
    count: u32,
    played: u64,
}

impl Looks {
    /// So many looks are too many, without any call that returns.
    const MOST: u32 = 20_000;

    /// Counts a look, when so many calls have returned. True if there were too many.
    pub(crate) fn add(&mut self, played: u64) -> bool {
        if std::mem::replace(&mut self.played, played) != played {
            self.count = 0;
        }
        self.count += 1;
        self.count > Self::MOST
    }
}
