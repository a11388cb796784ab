//! What calls enqueue and allocate.

use cutape_driver::types::{CUlaunchConfig, CUmemAccessDesc};
use cutape_registry::{
    Family, LaunchOp, Length, MemoryOp, Role, SharedKind, SharingOp, canonical_stream,
};

use crate::recorder::Call;

/// Bytes of a struct whose words may be addresses.
const MOST_STRUCT: u32 = 512;

impl Call<'_> {
    /// The stream of a call that enqueues work; `None` if it cannot be read.
    pub(crate) fn stream(&self) -> Option<u64> {
        let stream = match self.function.family {
            Family::Launch(LaunchOp::Config(launch)) => {
                let offset = core::mem::offset_of!(CUlaunchConfig, hStream);
                let address = self.word(launch.config).checked_add(offset as u64)?;
                self.recorder.word(address)?
            }
            _ => self.function.stream.map_or(0, |at| self.word(at)),
        };
        Some(canonical_stream(stream, self.function.per_thread))
    }

    /// Address and length of what a call has allocated.
    pub(crate) fn allocated(&self) -> Option<(u64, u64)> {
        let start = self.pointee(0)?;
        let length = match self.function.family {
            Family::Memory(MemoryOp::AllocatePitch { pitch }) => {
                const HEIGHT: u8 = 3;
                self.pointee(pitch)?.checked_mul(self.word(HEIGHT))?
            }
            _ => match self.function.size? {
                Length::Param(at) => self.word(at),
                _ => return None,
            },
        };
        Some((start, length))
    }

    /// What a call that enqueues work names: operands and members of structs.
    pub(crate) fn operands(&self) -> Vec<u64> {
        let mut named = Vec::new();
        for (parameter, &word) in self.function.params.iter().zip(self.words) {
            match parameter.role {
                Role::DeviceRead(_) | Role::DeviceWrite(_) => named.push(word),
                Role::In(Length::Fixed(bytes)) if bytes <= MOST_STRUCT && word != 0 => {
                    let at = (0..u64::from(bytes)).step_by(8);
                    named.extend(at.map_while(|at| self.recorder.word(word.wrapping_add(at))));
                }
                _ => {}
            }
        }
        named
    }

    /// The handle of the physical memory that a call exports or imports.
    pub(crate) fn shared_physical(&self) -> Option<u64> {
        match self.function.family {
            Family::Sharing(SharingOp::Export(shared)) if shared.kind == SharedKind::Allocation => {
                Some(self.word(shared.object))
            }
            Family::Sharing(SharingOp::Import(shared)) if shared.kind == SharedKind::Allocation => {
                self.pointee(shared.object)
            }
            _ => None,
        }
    }

    /// Whether a call that gives access to mapped memory lets the current device read and write it.
    pub(crate) fn gives_access_here(&self) -> bool {
        const READ_WRITE: u64 = 3;
        const DEVICE: u64 = 1;
        let (descriptions, count) = (self.word(2), self.word(3));
        let Some(device) = self.recorder.device() else {
            return false;
        };
        (0..count.min(64)).any(|index| {
            let at = descriptions.wrapping_add(index * size_of::<CUmemAccessDesc>() as u64);
            // Type and number of the location, then the flags.
            let location = self.recorder.word(at);
            let flags = self
                .recorder
                .word(at.wrapping_add(4))
                .map(|word| word >> 32);
            location == Some(DEVICE | device << 32) && flags == Some(READ_WRITE)
        })
    }
}
