//! Reads CUPTI's activity records.
//!
//! A record begins with its kind. Later versions of CUPTI add members at the end of a record and do
//! not move others, so that one offset is right for the versions from 12.0 to 13.0 (headers of
//! CUPTI 12.9 and 13.0; sizes that CUPTI 13.0 reports: `tests/gpu/profile.py`). How long a record is
//! shows the place of the next one; a record that is too short for what is read is refused.

/// Kinds of records, by CUPTI's numbers.
pub(crate) mod kind {
    pub(crate) const MEMCPY: u32 = 1;
    pub(crate) const MEMSET: u32 = 2;
    /// Calls of the driver. CUPTI relates external ids to those alone that it makes records of.
    pub(crate) const DRIVER: u32 = 4;
    pub(crate) const DEVICE: u32 = 8;
    pub(crate) const CONCURRENT_KERNEL: u32 = 10;
    pub(crate) const OVERHEAD: u32 = 17;
    pub(crate) const MEMCPY_BETWEEN_DEVICES: u32 = 22;
    pub(crate) const EXTERNAL_CORRELATION: u32 = 39;
    pub(crate) const GRAPH: u32 = 51;
}

/// The kind of external ids that a replay uses (CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0).
pub(crate) const EXTERNAL_KIND: u32 = 3;

/// One record. Times are CUPTI's.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Activity {
    Work(RawWork),
    /// The call of that correlation id has this external id.
    Call {
        correlation: u32,
        external: u64,
    },
    Device(RawDevice),
    /// CUPTI took the host's time.
    Overhead {
        begin: u64,
        end: u64,
    },
}

/// Work of a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RawWork {
    /// One of [`kind`].
    pub(crate) kind: u32,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) device: u32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    pub(crate) correlation: u32,
    pub(crate) node: u64,
    pub(crate) bytes: u64,
    /// Of a copy: what it is, and which memory it reads and writes.
    pub(crate) copy: [u8; 3],
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) registers: u32,
    pub(crate) shared: u64,
    /// Where the name of a kernel is.
    pub(crate) name: u64,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RawDevice {
    pub(crate) ordinal: u32,
    pub(crate) capability: [u32; 2],
    pub(crate) multiprocessors: u32,
    pub(crate) warps: u32,
    pub(crate) blocks: u32,
    pub(crate) shared: u32,
    pub(crate) registers: u32,
    /// Kilobytes a second.
    pub(crate) bandwidth: u64,
    pub(crate) uuid: [u8; 16],
    /// Where its name is.
    pub(crate) name: u64,
}

/// Reads a record. `None` if it is of a kind that is not needed.
///
/// # Errors
/// Its kind and length, if that is too short.
pub(crate) fn read(record: &[u8]) -> Result<Option<Activity>, (u32, usize)> {
    let bytes = Bytes(record);
    let kind = bytes.u32(0).ok_or((0, record.len()))?;
    let activity = match kind {
        kind::CONCURRENT_KERNEL => bytes.kernel(),
        kind::MEMCPY => bytes.copy(44, 64),
        kind::MEMCPY_BETWEEN_DEVICES => bytes.copy(60, 72),
        kind::MEMSET => bytes.copy(44, 64),
        kind::GRAPH => bytes.graph(),
        kind::EXTERNAL_CORRELATION if bytes.u32(4) != Some(EXTERNAL_KIND) => return Ok(None),
        kind::EXTERNAL_CORRELATION => bytes.external(),
        kind::DEVICE => bytes.device(),
        kind::OVERHEAD => match bytes.u32(4).map(|of| of >> 16) {
            // Flushes, instrumentation, resources, requests of buffers, unified memory.
            Some(1 | 2 | 3 | 7 | 8) => bytes.overhead(),
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    activity.map(Some).ok_or((kind, record.len()))
}

/// A record's bytes.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn array<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..)?.first_chunk().copied()
    }

    fn u32(self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_le_bytes)
    }

    fn u64(self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_le_bytes)
    }

    fn sizes(self, at: usize) -> Option<[u32; 3]> {
        Some([self.u32(at)?, self.u32(at + 4)?, self.u32(at + 8)?])
    }

    fn kernel(self) -> Option<Activity> {
        Some(Activity::Work(RawWork {
            kind: kind::CONCURRENT_KERNEL,
            registers: self.array(6).map(u16::from_le_bytes)?.into(),
            begin: self.u64(16)?,
            end: self.u64(24)?,
            device: self.u32(40)?,
            context: self.u32(44)?,
            stream: self.u32(48)?,
            grid: self.sizes(52)?,
            block: self.sizes(64)?,
            shared: u64::from(self.u32(76)?) + u64::from(self.u32(80)?),
            correlation: self.u32(92)?,
            name: self.u64(104)?,
            node: self.u64(144)?,
            ..RawWork::default()
        }))
    }

    /// A copy or a memset, with these offsets of its correlation id and node.
    fn copy(self, correlation: usize, node: usize) -> Option<Activity> {
        Some(Activity::Work(RawWork {
            kind: self.u32(0)?,
            copy: self.array(4)?,
            bytes: self.u64(8)?,
            begin: self.u64(16)?,
            end: self.u64(24)?,
            device: self.u32(32)?,
            context: self.u32(36)?,
            stream: self.u32(40)?,
            correlation: self.u32(correlation)?,
            node: self.u64(node)?,
            ..RawWork::default()
        }))
    }

    fn graph(self) -> Option<Activity> {
        Some(Activity::Work(RawWork {
            kind: kind::GRAPH,
            correlation: self.u32(4)?,
            begin: self.u64(8)?,
            end: self.u64(16)?,
            device: self.u32(24)?,
            context: self.u32(32)?,
            stream: self.u32(36)?,
            ..RawWork::default()
        }))
    }

    fn external(self) -> Option<Activity> {
        Some(Activity::Call {
            external: self.u64(8)?,
            correlation: self.u32(16)?,
        })
    }

    fn overhead(self) -> Option<Activity> {
        Some(Activity::Overhead {
            begin: self.u64(24)?,
            end: self.u64(32)?,
        })
    }

    fn device(self) -> Option<Activity> {
        Some(Activity::Device(RawDevice {
            bandwidth: self.u64(8)?,
            multiprocessors: self.u32(44)?,
            warps: self.u32(52)?,
            blocks: self.u32(56)?,
            shared: self.u32(60)?,
            registers: self.u32(64)?,
            capability: [self.u32(104)?, self.u32(108)?],
            ordinal: self.u32(112)?,
            uuid: self.array(120)?,
            name: self.u64(136)?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record with these members; each is a number of 1, 2, 4 or 8 bytes at an offset.
    fn record(length: usize, members: &[(usize, usize, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; length];
        for &(at, size, value) in members {
            bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
        }
        bytes
    }

    #[test]
    fn records_of_each_kind() {
        let times = [(16, 8, 1000), (24, 8, 2000)];
        let kernel = [
            &[
                (0, 4, 10),
                (6, 2, 32),
                (40, 4, 1),
                (44, 4, 2),
                (48, 4, 7),
                (76, 4, 512),
            ][..],
            &[
                (52, 4, 5),
                (56, 4, 6),
                (60, 4, 7),
                (64, 4, 128),
                (68, 4, 2),
                (72, 4, 1),
            ],
            &[(80, 4, 1024), (92, 4, 99), (104, 8, 0x7000), (144, 8, 11)],
            &times,
        ]
        .concat();
        let expected = RawWork {
            kind: 10,
            begin: 1000,
            end: 2000,
            device: 1,
            context: 2,
            stream: 7,
            correlation: 99,
            node: 11,
            grid: [5, 6, 7],
            block: [128, 2, 1],
            registers: 32,
            shared: 1536,
            name: 0x7000,
            ..RawWork::default()
        };
        // The sizes of CUPTI 11.1 to 13.0.
        for length in [160, 176, 208, 216] {
            let known = read(&record(length, &kernel));
            assert_eq!(
                known,
                Ok(Some(Activity::Work(expected.clone()))),
                "{length}"
            );
        }
        assert_eq!(read(&record(216, &kernel)[..144]), Err((10, 144)));
        let copy = [
            &[
                (0, 4, 1),
                (4, 1, 2),
                (5, 1, 3),
                (6, 1, 1),
                (8, 8, 4096),
                (32, 4, 0),
            ][..],
            &[(36, 4, 1), (40, 4, 13), (44, 4, 5), (64, 8, 0)],
            &times,
        ]
        .concat();
        let Ok(Some(Activity::Work(known))) = read(&record(80, &copy)) else {
            panic!("a copy")
        };
        assert_eq!(
            (known.copy, known.bytes, known.stream),
            ([2, 3, 1], 4096, 13)
        );
        assert_eq!((known.correlation, known.begin, known.end), (5, 1000, 2000));
        let external = |kind| record(24, &[(0, 4, 39), (4, 4, kind), (8, 8, 1 << 40), (16, 4, 5)]);
        let call = Activity::Call {
            correlation: 5,
            external: 1 << 40,
        };
        assert_eq!(read(&external(3)), Ok(Some(call)));
        assert_eq!(read(&external(4)), Ok(None), "of another tool");
        let overhead =
            |of: u64| record(56, &[(0, 4, 17), (4, 4, of << 16), (24, 8, 3), (32, 8, 5)]);
        let known = read(&overhead(1));
        assert_eq!(known, Ok(Some(Activity::Overhead { begin: 3, end: 5 })));
        assert_eq!(read(&overhead(5)), Ok(None), "the driver loads a function");
        assert_eq!(read(&[1, 2]), Err((0, 2)));
        assert_eq!(read(&record(40, &[(0, 4, 4)])), Ok(None));
    }
}
