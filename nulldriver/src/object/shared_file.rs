//! Memory files that several processes share: the bytes of memory, and behind them a description by
//! which the driver of another process knows what they are.
//!
//! A descriptor of the file is what the program hands on, or the 64 bytes of an [`IpcHandle`] that
//! lead to it through `/proc`: they are valid as long as the exporting process keeps the file.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

use crate::object::pages::{self, Pages};

/// Bytes behind the memory, of which the description takes the first.
const TRAILER: u64 = 4096;
/// How a description begins: "CTNULLIP".
const MAGIC: u64 = 0x5049_4c4c_554e_5443;

/// What a file stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Sharing {
    /// Blocks of `cuMemAlloc` or of a pool.
    Blocks = 1,
    /// Physical memory of `cuMemCreate`.
    Physical = 2,
    /// A pool; its memory is in files of its own.
    Pool = 3,
    /// An event; all work is done when it is enqueued, so it has no state.
    Event = 4,
}

/// What is said behind the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) sharing: Sharing,
    /// The process that made the file.
    pub(crate) process: u64,
    /// A number that no other file has.
    pub(crate) id: u64,
    /// `CUmemLocationType` and number of the location.
    pub(crate) location: (u32, i32),
}

impl Description {
    fn words(self) -> [u64; 5] {
        let (kind, number) = self.location;
        let location = u64::from(kind) | u64::from(number as u32) << 32;
        [MAGIC, self.sharing as u64, self.process, self.id, location]
    }

    fn of(words: [u64; 5]) -> Option<Self> {
        let [magic, sharing, process, id, location] = words;
        let known = [
            Sharing::Blocks,
            Sharing::Physical,
            Sharing::Pool,
            Sharing::Event,
        ];
        let sharing = known.into_iter().find(|known| *known as u64 == sharing)?;
        (magic == MAGIC).then_some(Self {
            sharing,
            process,
            id,
            location: (location as u32, (location >> 32) as i32),
        })
    }
}

/// A memory file with its description.
#[derive(Debug)]
pub(crate) struct SharedFile {
    file: File,
    pub(crate) size: u64,
    pub(crate) description: Description,
}

impl SharedFile {
    /// A file of that many zeros, at a location.
    pub(crate) fn new(sharing: Sharing, size: u64, location: (u32, i32)) -> Option<Self> {
        let name = c"cutape-null".as_ptr();
        // SAFETY: the name is a NUL-terminated constant, and the second argument are flags.
        let raw = unsafe { libc::syscall(libc::SYS_memfd_create, name, libc::MFD_CLOEXEC) };
        let raw = i32::try_from(raw).ok().filter(|&raw| raw >= 0)?;
        // SAFETY: `raw` is an open descriptor that was created just now.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(raw) });
        file.set_len(size.checked_add(TRAILER)?).ok()?;
        let mut id = [0_u8; 8];
        // glibc has a function for it since 2.25 only.
        // SAFETY: the array has room for the bytes that are asked for.
        let got = unsafe { libc::syscall(libc::SYS_getrandom, id.as_mut_ptr(), id.len(), 0) };
        let description = Description {
            sharing,
            process: u64::from(std::process::id()),
            id: u64::from_le_bytes(id),
            location,
        };
        let words = description.words().map(u64::to_le_bytes);
        file.write_all_at(words.as_flattened(), size).ok()?;
        (got == 8).then_some(Self {
            file,
            size,
            description,
        })
    }

    /// The file that a descriptor of the program names; `None` if it is none of ours.
    pub(crate) fn of_descriptor(descriptor: RawFd) -> Option<Self> {
        // SAFETY: a plain system call; the result is checked.
        let raw = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
        // SAFETY: `raw` is an open descriptor that was created just now.
        (raw >= 0)
            .then(|| unsafe { OwnedFd::from_raw_fd(raw) })
            .and_then(|file| Self::read(File::from(file)))
    }

    /// The file that a handle leads to, as long as the exporting process keeps it.
    pub(crate) fn of_handle(handle: &IpcHandle) -> Option<Self> {
        let path = format!("/proc/{}/fd/{}", handle.process, handle.descriptor);
        // A descriptor that is now something else must not be opened for its side effects.
        let is_ours = std::fs::read_link(&path)
            .is_ok_and(|target| target.to_string_lossy().starts_with("/memfd:cutape-null"));
        let open = || File::options().read(true).write(true).open(&path).ok();
        let found = is_ours.then(open).flatten().and_then(Self::read)?;
        (found.description.id == handle.id).then_some(found)
    }

    fn read(file: File) -> Option<Self> {
        let size = file.metadata().ok()?.len().checked_sub(TRAILER)?;
        let mut bytes = [0; 40];
        file.read_exact_at(&mut bytes, size).ok()?;
        let words = std::array::from_fn(|at| {
            let word = bytes.get(at * 8..at * 8 + 8);
            u64::from_le_bytes(
                word.and_then(|word| word.try_into().ok())
                    .unwrap_or_default(),
            )
        });
        let description = Description::of(words)?;
        Some(Self {
            file,
            size,
            description,
        })
    }

    /// Whether this process made the file.
    pub(crate) fn is_own(&self) -> bool {
        self.description.process == u64::from(std::process::id())
    }

    /// A descriptor for the program to hand on.
    pub(crate) fn export(&self) -> Option<RawFd> {
        // SAFETY: a plain system call on an owned descriptor.
        let raw = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) };
        (raw >= 0).then_some(raw)
    }

    /// The handle of what lies at an offset in the file.
    pub(crate) fn handle(&self, offset: u64, size: u64) -> IpcHandle {
        IpcHandle {
            process: std::process::id(),
            descriptor: self.file.as_raw_fd(),
            id: self.description.id,
            offset,
            size,
            pool: 0,
            unused: [0; 3],
        }
    }

    /// The bytes, mapped for this process.
    pub(crate) fn pages(&self) -> Option<Pages> {
        Pages::shared(self.size, self.file.as_raw_fd())
    }

    /// Puts the bytes of pages into the file, and the file in their place.
    pub(crate) fn take_over(&self, pages: &Pages) -> bool {
        // SAFETY: the pages are mapped for as long as they are borrowed.
        let bytes =
            unsafe { std::slice::from_raw_parts(pages.base() as *const u8, self.size as usize) };
        // Zeros are not written, so that they take no memory.
        let written = bytes
            .chunks(TRAILER as usize)
            .enumerate()
            .try_for_each(|(at, chunk)| {
                let is_zero = chunk.iter().all(|byte| *byte == 0);
                let at = at as u64 * TRAILER;
                if is_zero {
                    Ok(())
                } else {
                    self.file.write_all_at(chunk, at)
                }
            });
        written.is_ok() && self.show_at(pages.base(), self.size)
    }

    /// Makes the bytes visible to the CPU at `address`, in a range of this library.
    pub(crate) fn show_at(&self, address: u64, size: u64) -> bool {
        pages::show_file_at(self.file.as_raw_fd(), address, size)
    }
}

/// Physical memory of `cuMemCreate`: a shared file, mapped once for the driver's own use.
pub(crate) struct Physical {
    pub(crate) file: SharedFile,
    pages: Pages,
}

impl Physical {
    pub(crate) fn new(size: u64, location: (u32, i32)) -> Option<Physical> {
        Self::of(SharedFile::new(Sharing::Physical, size, location)?)
    }

    /// Physical memory that a file holds already.
    pub(crate) fn of(file: SharedFile) -> Option<Physical> {
        let pages = file.pages()?;
        Some(Physical { file, pages })
    }

    /// The address of the driver's own view of the bytes.
    pub(crate) fn base(&self) -> u64 {
        self.pages.base()
    }

    pub(crate) fn size(&self) -> u64 {
        self.file.size
    }
}

impl IpcHandle {
    /// The same, as memory of the pool whose file has that id.
    pub(crate) fn of_pool(self, pool: u64) -> Self {
        Self { pool, ..self }
    }
}

/// What `cuIpcGetMemHandle`, `cuIpcGetEventHandle` and `cuMemPoolExportPointer` give out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct IpcHandle {
    process: u32,
    descriptor: i32,
    id: u64,
    /// Where the memory is in the file.
    pub(crate) offset: u64,
    pub(crate) size: u64,
    /// The id of the pool's file; 0 if it is no memory of a pool.
    pub(crate) pool: u64,
    unused: [u64; 3],
}

const _: () = assert!(size_of::<IpcHandle>() == 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_by_descriptor_and_by_handle() {
        let file = SharedFile::new(Sharing::Blocks, 8192, (1, 3)).expect("a file");
        let pages = file.pages().expect("pages");
        // SAFETY: the pages are mapped, and this test alone uses them.
        unsafe { (pages.base() as *mut u64).write(77) };
        let raw = file.export().expect("a descriptor");
        let by_descriptor = SharedFile::of_descriptor(raw).expect("the file");
        let handle = file.handle(512, 100);
        let by_handle = SharedFile::of_handle(&handle).expect("the file");
        for other in [by_descriptor, by_handle] {
            assert_eq!((other.size, other.description), (8192, file.description));
            let pages = other.pages().expect("pages");
            // SAFETY: as above.
            assert_eq!(unsafe { (pages.base() as *const u64).read() }, 77);
        }
        let stale = IpcHandle { id: 1, ..handle };
        assert!(SharedFile::of_handle(&stale).is_none(), "another file's id");
        drop(file);
        assert!(
            SharedFile::of_handle(&handle).is_none(),
            "the file is closed"
        );
        let null = File::open("/dev/null").expect("a file");
        assert!(SharedFile::of_descriptor(null.as_raw_fd()).is_none());
        assert!(SharedFile::of_descriptor(-1).is_none());
    }
}
