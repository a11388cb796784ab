//! Moving the full stages of a trace that is being recorded, from outside the process that records.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use memmap2::{MmapOptions, MmapRaw};

use crate::codec;
use crate::control::{CONTROL_LENGTH, CONTROL_POSITION, Control, Full, Slot, copy_alignment};
use crate::layout::{
    BUFFER_NOTE_PADDED_LENGTH, CHUNK_ALIGNMENT, CHUNK_HEAD_LENGTH, CHUNK_MAGIC, ChunkHead,
    FILE_HEAD_ENCODED, FileHead, MAGIC, MAJOR, chunk_kind,
};
use crate::read::record::buffer_content;

/// What stands before the records of a stage.
const RECORDS: usize = CHUNK_HEAD_LENGTH + BUFFER_NOTE_PADDED_LENGTH;
/// No recorder has longer ones.
const LONGEST_STAGE: u64 = 1 << 30;

/// Moves the full stages of one trace. While it lives, recording threads hand theirs over to it.
pub struct Mover {
    file: File,
    map: MmapRaw,
    process: u32,
    /// A stage, so that what is checked is what is written.
    stage: Vec<u8>,
    /// Start and length of a copy that does not count, since its thread took the stage back: the next one of about that length
    /// goes there.
    spare: Option<(u64, u64)>,
}

impl Mover {
    /// Attends to a trace. `None` if it has no control chunk, or none yet.
    ///
    /// # Errors
    /// If the file cannot be read and written.
    pub fn attend(path: &Path) -> io::Result<Option<Self>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        if file.metadata()?.len() < CONTROL_POSITION + CONTROL_LENGTH as u64 {
            return Ok(None);
        }
        let mut bytes = [0; FILE_HEAD_ENCODED];
        file.read_exact_at(&mut bytes, 0)?;
        let process = codec::decode::<FileHead>(&bytes)
            .filter(|(head, _)| head.magic == MAGIC && head.major == MAJOR && head.flags == 0)
            .map(|(head, _)| head.process);
        let mut bytes = [0; CHUNK_HEAD_LENGTH];
        file.read_exact_at(&mut bytes, CONTROL_POSITION)?;
        // Its head is written when the rest of it is there.
        let is_control = codec::decode::<ChunkHead>(&bytes)
            .and_then(|(head, _)| head.checked())
            .is_some_and(|head| {
                head.magic == CHUNK_MAGIC
                    && head.kind == chunk_kind::CONTROL
                    && head.length == CONTROL_LENGTH as u64
            });
        let Some(process) = process.filter(|_| is_control) else {
            return Ok(None);
        };
        let map = MmapOptions::new()
            .offset(CONTROL_POSITION)
            .len(CONTROL_LENGTH)
            .map_raw(&file)?;
        let mover = Self {
            file,
            map,
            process,
            stage: Vec::new(),
            spare: None,
        };
        mover.control().attend(true);
        Ok(Some(mover))
    }

    /// The process that records, as it knows itself.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Moves all stages that are full by now; how many.
    ///
    /// # Errors
    /// If the file cannot be read or written any more, or what it says of a stage cannot be; the stage's thread will find out
    /// by itself.
    pub fn move_full(&mut self) -> io::Result<usize> {
        let mut moved = 0;
        let mut buffer = std::mem::take(&mut self.stage);
        let mut spare = self.spare.take();
        for slot in self.control().slots() {
            if let Some(stage) = slot.full() {
                moved += usize::from(self.move_one(slot, &stage, &mut buffer, &mut spare)?);
            }
        }
        (self.stage, self.spare) = (buffer, spare);
        Ok(moved)
    }

    /// Moves one stage; false if its thread has taken it back meanwhile.
    fn move_one(
        &self,
        slot: &Slot,
        stage: &Full,
        bytes: &mut Vec<u8>,
        spare: &mut Option<(u64, u64)>,
    ) -> io::Result<bool> {
        let wrong = || {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "what the recorder says of a stage cannot be",
            )
        };
        // It was looked at while its thread used it again, or another thread has the slot now.
        let is_over = || slot.full() != Some(*stage);
        let length = RECORDS as u64 + stage.used;
        if length > stage.length.min(LONGEST_STAGE) {
            return if is_over() { Ok(false) } else { Err(wrong()) };
        }
        let chunk = (CHUNK_HEAD_LENGTH as u64 + stage.used).next_multiple_of(CHUNK_ALIGNMENT);
        bytes.clear();
        bytes.resize(BUFFER_NOTE_PADDED_LENGTH + chunk as usize, 0);
        let (content, _) = bytes.split_at_mut(length as usize);
        self.file.read_exact_at(content, stage.position)?;
        let thread = codec::decode::<ChunkHead>(content)
            .filter(|(head, _)| head.kind == chunk_kind::THREAD_BUFFER)
            .map(|(head, _)| head.thread);
        let note = content
            .get(CHUNK_HEAD_LENGTH..)
            .and_then(buffer_content)
            .map(|(note, _)| note);
        let (Some(thread), Some(note)) = (thread, note) else {
            return if is_over() { Ok(false) } else { Err(wrong()) };
        };
        let alignment = copy_alignment(chunk);
        let fits = |&mut (_, length): &mut (u64, u64)| (chunk..chunk + alignment).contains(&length);
        let (position, chunk_length) = match spare.take_if(fits) {
            Some(place) => place,
            None => self
                .control()
                .claim(chunk, alignment, |start, length, is_own| {
                    self.allocate(start, length, is_own)
                })
                .ok_or(io::ErrorKind::StorageFull)?,
        };
        let body = content.get(RECORDS..).unwrap_or(&[]);
        let (open, closed) = ChunkHead::of_copy(thread, note, chunk_length, body);
        // The head takes the place of the note.
        let copy = bytes
            .get_mut(BUFFER_NOTE_PADDED_LENGTH..)
            .ok_or_else(wrong)?;
        copy.get_mut(..CHUNK_HEAD_LENGTH)
            .ok_or_else(wrong)?
            .copy_from_slice(&open.encode());
        self.file.write_all_at(copy, position)?;
        if !slot.begin_closing(stage) {
            *spare = Some((position, chunk_length));
            return Ok(false);
        }
        let closing = self.file.write_all_at(&closed.encode(), position);
        match closing {
            Ok(()) => slot.give_back(),
            // The stage has the records still.
            Err(_) => _ = slot.hand_over(stage.ticket, stage.used),
        }
        closing.map(|()| true)
    }

    /// Allocates a part of the file on disk. Where the file system cannot, the claimed part is written when it is moved to.
    fn allocate(&self, start: u64, length: u64, is_own: bool) -> bool {
        let mut limit = libc::rlimit {
            rlim_cur: libc::RLIM_INFINITY,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: the limit is ours to be written; if it cannot be asked for, it stays without bound.
        unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
        let (Ok(at), Ok(bytes)) = (i64::try_from(start), i64::try_from(length)) else {
            return false;
        };
        // Who writes beyond the limit is ended by a signal.
        if start.saturating_add(length) > limit.rlim_cur {
            return false;
        }
        loop {
            // Not posix_fallocate, which writes to places of others where the file system cannot do it.
            // SAFETY: no memory is involved.
            if unsafe { libc::fallocate(self.file.as_raw_fd(), 0, at, bytes) } == 0 {
                return true;
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                // So that the file reaches to the end of what is claimed.
                Some(libc::EOPNOTSUPP | libc::ENOSYS) if is_own => {
                    return self.file.write_all_at(&[0], start + length - 1).is_ok();
                }
                _ => return false,
            }
        }
    }

    fn control(&self) -> &Control {
        // SAFETY: mapped with that length as long as `self` lives, and aligned as pages are; all that is looked at of it are
        // atomics, which the recorder changes as such. Whoever cuts the file while it is recorded ends recorder and mover.
        unsafe { &*self.map.as_ptr().cast::<Control>() }
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.control().attend(false);
    }
}
