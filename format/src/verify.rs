//! Checking everything in a trace, blobs and records included, which opening it leaves for later.

use std::collections::HashSet;
use std::convert::Infallible;

use crate::contents::{Contents, Named};
use crate::layout::chunk_kind;
use crate::ordered::for_each_ordered;
use crate::trace::{Damage, Trace};

impl Trace {
    /// Reads the whole file and says all that is wrong with it, [`Trace::damage`] first; empty for a sound trace.
    pub fn verify(&self) -> Vec<Damage> {
        let mut damage = self.damage().to_vec();
        let mut named = Named::default();
        let mut entered = vec![0; self.thread_count()];
        self.each_contents(self.calls_by_thread(), |chunk, outcome| match outcome {
            Ok((contents, malformed)) => {
                let position = self.chunk_position(chunk);
                damage.extend(malformed.map(|what| Damage { position, what }));
                if let Some(entered) = entered.get_mut(self.chunk_head(chunk).thread as usize) {
                    damage.extend(self.misnumbered(chunk, entered, &contents));
                }
                named.append(contents.named);
            }
            Err(unreadable) => damage.push(unreadable),
        });
        damage.extend(self.verify_blobs());
        damage.extend(named.blobs.iter().filter_map(|&blob| self.blob(blob).err()));
        let own = self.damage().len();
        damage[own..].sort_by_key(|entry| entry.position);
        // A damaged blob is found as a chunk as well as by its name.
        let mut known = HashSet::new();
        damage.retain(|entry| known.insert((entry.position, entry.what.clone())));
        damage
    }

    /// Reads all blobs; what is wrong with them, in their order.
    pub fn verify_blobs(&self) -> Vec<Damage> {
        let blobs = (0..self.chunk_count())
            .filter(|&chunk| self.chunk_head(chunk).kind == chunk_kind::BLOB);
        let mut damage = Vec::new();
        let taken: Result<(), Infallible> = for_each_ordered(
            blobs,
            |chunk| {
                let damage = self.blob_content(chunk, u64::MAX).err();
                self.let_go(chunk);
                damage
            },
            |found| {
                damage.extend(found);
                Ok(())
            },
        );
        match taken {
            Ok(()) => damage,
        }
    }

    /// The first record of a call whose function the trace's own signature table does not have, or a chunk of calls that cannot be
    /// read. Readers get such a record as a call of a function `unknown`, but no recorder writes one, so what it did cannot be told.
    pub fn unknown_function(&self) -> Option<Damage> {
        let mut first = None;
        self.each_contents(self.calls_chunks(), |chunk, outcome| {
            if first.is_none() {
                first = match outcome {
                    Ok((contents, _)) => contents.unknown_function_at(self.chunk_position(chunk)),
                    Err(unreadable) => Some(unreadable),
                };
            }
        });
        first
    }

    /// What is wrong with the number of a chunk's first call, and with what a packed trace says of it; `entered` is how many calls its
    /// thread's chunks before it hold, and gets what it holds.
    pub(crate) fn misnumbered(
        &self,
        chunk: usize,
        entered: &mut u64,
        contents: &Contents,
    ) -> Option<Damage> {
        let (head, position) = (self.chunk_head(chunk), self.chunk_position(chunk));
        // A repaired trace has gaps; what follows a gap is numbered by its head.
        let repaired = self.meta_value("repair.0").is_some();
        let mut what = None;
        if *entered != head.first && !(repaired && *entered < head.first) {
            what = Some(format!(
                "a chunk of calls begins with call {} of thread {} and says {}",
                entered, head.thread, head.first
            ));
        }
        let said = self
            .counts
            .binary_search_by_key(&position, |entry| entry.position);
        if let Some(entry) = said.ok().and_then(|at| self.counts.get(at))
            && !entry.agrees(contents)
        {
            what.get_or_insert_with(|| {
                format!(
                    "{} calls in a chunk that holds {}",
                    entry.calls, contents.calls
                )
            });
        }
        *entered = head.first.max(*entered) + contents.calls;
        what.map(|what| Damage { position, what })
    }

    /// The chunks of calls, thread by thread.
    fn calls_by_thread(&self) -> impl Iterator<Item = usize> + Send + '_ {
        self.threads.iter().flatten().copied()
    }

    /// Looks through chunks of calls on all processors, and gives what they hold, and what is malformed, in their order.
    pub(crate) fn each_contents(
        &self,
        chunks: impl Iterator<Item = usize> + Send,
        mut take: impl FnMut(usize, Result<(Contents, Option<String>), Damage>),
    ) {
        let taken: Result<(), Infallible> = for_each_ordered(
            chunks,
            |chunk| {
                let outcome = self.load(chunk).map(|body| {
                    let contents = Contents::of(self, &body);
                    let malformed = contents.malformed(&body);
                    (contents, malformed)
                });
                (chunk, outcome)
            },
            |(chunk, outcome)| {
                take(chunk, outcome);
                Ok(())
            },
        );
        match taken {
            Ok(()) => {}
        }
    }
}
