//! Following a trace while it grows: what comes in its stages, and up to when all that was called has been found.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{Ordering, fence};

use crate::control::{CONTROL_LENGTH, CONTROL_POSITION, Control};
use crate::layout::{BufferNote, CHUNK_COPIED, CHUNK_HEAD_LENGTH, ChunkHead, chunk_kind};
use crate::records::{record_at, staged, staged_start};
use crate::trace::{Body, Chunk, Stage, Trace};

/// Looks that are remembered; between these, more than so many make no difference but to how soon calls are given out.
const MOST_LOOKS: usize = 64;

impl Trace {
    /// Looks for chunks that a growing trace has got since. Returns whether there were any.
    pub fn refresh(&mut self) -> io::Result<bool> {
        let length = usize::try_from(self.file.metadata()?.len()).unwrap_or(usize::MAX);
        self.length = length.min(self.map.len());
        let before = self.chunks.len();
        self.take_what_has_come();
        Ok(self.chunks.len() > before)
    }

    /// The same for who wants calls in order: all that were entered before `horizon` (in ticks) have been written by now.
    /// Returns how far the horizon is of what has been found: before that, no call will come to light that is not there yet.
    ///
    /// A place that was claimed and is not begun hides what is behind it, and a stage can be used again before the copy of what
    /// it had is found; the disk says for how long.
    pub fn refresh_before(&mut self, horizon: u64) -> io::Result<u64> {
        let seen = self.scanned;
        let claimed = self.claimed();
        if self.growth.looks.len() == MOST_LOOKS {
            self.growth.looks.pop_back();
        }
        self.growth.looks.push_back((claimed, horizon));
        self.refresh()?;
        // What was in a stage when a look began was there for it to be found, or is where the next look found the end at most;
        // and a stage that came to light in this look may have been used again before it was looked into.
        while let Some(&(end, _)) = self.growth.looks.get(1)
            && end <= seen
            && let Some((_, horizon)) = self.growth.looks.pop_front()
        {
            self.growth.settled = horizon;
        }
        Ok(self.growth.settled.min(self.oldest_gap()))
    }

    /// Where the recorder's last chunk ends; 0 if it does not say.
    fn claimed(&self) -> usize {
        let place = CONTROL_POSITION as usize;
        let is_there = self
            .head_at(place)
            .is_some_and(|head| head.kind == chunk_kind::CONTROL)
            && place + CONTROL_LENGTH <= self.length;
        if !is_there {
            return 0;
        }
        let control = self.map.as_ptr().wrapping_add(place).cast::<Control>();
        // SAFETY: within the map and the file, aligned as pages are; all that is looked at of it are atomics.
        usize::try_from(unsafe { &*control }.end()).unwrap_or(usize::MAX)
    }

    /// The ticks before which no thread has entered a call that is in a chunk which is known to be, and not found yet.
    fn oldest_gap(&self) -> u64 {
        // Chunks of stages that may have had more when they were used again.
        let unfinished = self.stages.iter().filter_map(|stage| {
            let chunk = stage.chunk.filter(|_| !stage.is_complete)?;
            let head = &self.chunks[chunk].head;
            let note = staged(self.stage_body(stage));
            let is_empty = self.body(chunk).is_empty();
            let is_gone = match note {
                Some(note) => note.sequence != head.sequence,
                // A thread empties a stage without records as well.
                None => !is_empty,
            };
            is_gone.then_some(head.ticks)
        });
        let missing = self.growth.begun.iter().filter_map(|(&thread, &end)| {
            let list = self
                .threads
                .get(thread as usize)
                .map_or(&[][..], |list| list);
            let is_missing = list.len() < end as usize;
            is_missing.then(|| list.last().map_or(0, |&last| self.chunks[last].head.ticks))
        });
        unfinished.chain(missing).min().unwrap_or(u64::MAX)
    }

    /// Takes in what a growing trace has, until one thing leads to no other.
    pub(crate) fn take_what_has_come(&mut self) {
        self.growth.refreshed += 1;
        loop {
            let known = (self.growth.taken, self.pending.len());
            for position in std::mem::take(&mut self.pending) {
                match self.head_at(position) {
                    Some(head) => self.add_chunk(head, position),
                    // Being closed at this moment.
                    None => self.pending.push(position),
                }
            }
            self.scan();
            let is_complete = self.follow_stages();
            if !is_complete && known == (self.growth.taken, self.pending.len()) {
                return;
            }
        }
    }

    /// Takes what has come in the stages of a growing trace. What is there may be overwritten at any moment, so it is copied.
    /// Returns whether one was found complete, behind which there may be more.
    fn follow_stages(&mut self) -> bool {
        let mut stages = std::mem::take(&mut self.stages);
        // All notes first: a thread that has begun another chunk has written the one before to its end.
        let mut notes: Vec<(u32, BufferNote, usize)> = stages
            .iter()
            .enumerate()
            .filter_map(|(at, stage)| {
                Some((stage.head.thread, staged(self.stage_body(stage))?, at))
            })
            .collect();
        let copies: Vec<(u32, u32)> = self
            .pending
            .iter()
            .filter_map(|&position| self.head_at(position))
            .filter(|head| head.flags & CHUNK_COPIED != 0)
            .map(|head| (head.thread, head.sequence))
            .collect();
        let mut last_begun: HashMap<u32, u32> = HashMap::new();
        let begun = notes
            .iter()
            .map(|&(thread, note, _)| (thread, note.sequence));
        for (thread, sequence) in begun.chain(copies.iter().copied()) {
            let last = last_begun.entry(thread).or_default();
            *last = sequence.max(*last);
        }
        fence(Ordering::Acquire);
        for (thread, sequence) in copies {
            self.has_begun(thread, sequence);
        }
        for &(thread, note, at) in &notes {
            let body = self.stage_body(&stages[at]);
            if record_at(body, staged_start(body)).is_some() {
                self.has_begun(thread, note.sequence);
            }
        }
        notes.sort_by_key(|&(thread, note, _)| (thread, note.sequence));
        let mut found_complete = false;
        for (thread, note, at) in notes {
            if stages[at].chunk.is_none() {
                stages[at].chunk = self.take_over(&mut stages, thread, note);
            }
            match stages[at].chunk {
                Some(chunk) if self.chunks[chunk].head.sequence == note.sequence => {}
                // The copy of what was in it has not been found yet.
                Some(_) => continue,
                None => {
                    let listed = self.threads.get(thread as usize);
                    if listed.map_or(0, Vec::len) != note.sequence as usize
                        || listed
                            .and_then(|list| list.last())
                            .is_some_and(|&last| self.is_unfinished(last, &stages))
                    {
                        continue;
                    }
                    let body = Body::Owned(Vec::new());
                    stages[at].chunk = self.add_staged(&stages[at], note, body);
                    stages[at].is_complete = false;
                }
            }
            let stage = &mut stages[at];
            let Some(chunk) = stage.chunk.filter(|_| !stage.is_complete) else {
                continue;
            };
            stage.is_complete = self.extend_staged(stage, chunk, note)
                && last_begun
                    .get(&thread)
                    .is_some_and(|&last| last > note.sequence);
            found_complete |= stage.is_complete;
        }
        self.stages = stages;
        found_complete
    }

    /// There are records of that chunk of that thread's.
    fn has_begun(&mut self, thread: u32, sequence: u32) {
        let end = self.growth.begun.entry(thread).or_default();
        *end = sequence.saturating_add(1).max(*end);
    }

    /// The chunk of another stage that has become this one's: a thread that finds no room for its first record there begins a
    /// longer stage with the same number.
    fn take_over(&mut self, stages: &mut [Stage], thread: u32, note: BufferNote) -> Option<usize> {
        let from = stages.iter_mut().find(|stage| {
            stage.head.thread == thread
                && stage
                    .chunk
                    .is_some_and(|chunk| self.chunks[chunk].head.sequence == note.sequence)
        })?;
        let chunk = from.chunk?;
        let has_records = |body: &Body| !matches!(body, Body::Owned(bytes) if bytes.is_empty());
        let shown = staged(self.stage_body(from)).map(|note| note.sequence);
        if shown == Some(note.sequence) || has_records(&self.chunks[chunk].body) {
            return None;
        }
        from.chunk = None;
        from.is_complete = false;
        let head = &mut self.chunks[chunk].head;
        (head.first, head.ticks, head.nanoseconds) = (note.first, note.ticks, note.nanoseconds);
        Some(chunk)
    }

    /// Whether a chunk is what a stage has shown until now, and that may not be all of it.
    fn is_unfinished(&self, chunk: usize, stages: &[Stage]) -> bool {
        stages
            .iter()
            .any(|stage| stage.chunk == Some(chunk) && !stage.is_complete)
    }

    /// Copies the records that a stage has got since. False if it was used again meanwhile.
    fn extend_staged(&mut self, stage: &Stage, chunk: usize, note: BufferNote) -> bool {
        let Body::Owned(mut bytes) =
            std::mem::replace(&mut self.chunks[chunk].body, Body::Owned(Vec::new()))
        else {
            return false;
        };
        let body = self.stage_body(stage);
        let records = body.get(staged_start(body)..).unwrap_or(&[]);
        let known = bytes.len();
        let mut end = known;
        while let Some((_, record)) = record_at(records, end) {
            end += record.len();
        }
        bytes.extend_from_slice(records.get(known..end).unwrap_or(&[]));
        // Read before the note is looked at once more: if that is the same, nothing has been overwritten meanwhile.
        fence(Ordering::Acquire);
        let is_same = staged(body) == Some(note);
        if !is_same {
            bytes.truncate(known);
        }
        self.chunks[chunk].body = Body::Owned(bytes);
        is_same
    }

    fn stage_body(&self, stage: &Stage) -> &[u8] {
        let start = stage.position + CHUNK_HEAD_LENGTH;
        let end = usize::try_from(stage.head.length)
            .unwrap_or(usize::MAX)
            .saturating_add(stage.position)
            .min(self.length);
        self.map.get(start..end).unwrap_or(&[])
    }

    /// Adds what is in a stage as the chunk that it would become.
    pub(crate) fn add_staged(
        &mut self,
        stage: &Stage,
        note: BufferNote,
        body: Body,
    ) -> Option<usize> {
        let head = ChunkHead {
            kind: chunk_kind::CALLS,
            sequence: note.sequence,
            first: note.first,
            ticks: note.ticks,
            nanoseconds: note.nanoseconds,
            ..stage.head
        };
        let index = self.chunks.len();
        self.chunks
            .push(Chunk::new(head, stage.position as u64, body));
        match self.register(index) {
            Ok(()) => Some(index),
            Err(what) => {
                self.damaged(stage.position as u64, what);
                None
            }
        }
    }

    /// Adds what is left in the stages of a trace that does not grow any more.
    pub(crate) fn add_last_of_stages(&mut self) {
        for stage in std::mem::take(&mut self.stages) {
            let body = self.stage_body(&stage);
            let Some(note) = staged(body) else {
                // Emptied, or not begun.
                continue;
            };
            let start = stage.position + CHUNK_HEAD_LENGTH;
            let body = Body::InFile(start + staged_start(body), start + body.len());
            let listed = self.threads.get(stage.head.thread as usize);
            // Unless the copy is complete and the stage was not yet emptied.
            if !listed.is_some_and(|list| {
                list.iter()
                    .any(|&chunk| self.chunks[chunk].head.sequence == note.sequence)
            }) {
                self.add_staged(&stage, note, body);
            }
        }
    }

    /// True if chunks that come before this one are still to be found, the copy of what the stage has shown among them.
    pub(crate) fn is_early(&self, head: &ChunkHead) -> bool {
        let listed = self.threads.get(head.thread as usize);
        let last = listed
            .and_then(|list| list.last())
            .map(|&chunk| (chunk, self.chunks[chunk].head.sequence));
        match last {
            None => head.sequence != 0,
            Some((chunk, sequence)) => {
                let is_unfinished = self.is_unfinished(chunk, &self.stages);
                head.sequence > sequence + u32::from(!is_unfinished)
            }
        }
    }
}
