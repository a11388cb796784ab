//! What exchanges had changed that are left out: it is put back in each iteration, so that work
//! behind them finds the values that it had. The figures include the copies, which take the least
//! time within the device.

use cutape_registry::{FUNCTIONS, id};

use crate::api::{Api, Code};
use crate::calls::steps::Step;

/// Unit of places in the copy.
const ALIGNMENT: u64 = 256;
/// The position of the source among the arguments of cuMemcpyHtoDAsync and cuMemcpyDtoDAsync.
const SOURCE: usize = 1;

/// The bytes that the steps put back, in device memory.
#[derive(Debug, Default)]
pub(super) struct PutBack {
    memory: Option<u64>,
    pub bytes: u64,
    pub copies: u64,
}

impl PutBack {
    /// Lets the steps copy from device memory. Where there is no room they copy from the host's.
    pub(super) fn prepare(api: &Api, steps: &mut [Step]) -> Result<Self, Code> {
        let mut found = Self::default();
        let mut room = 0;
        for length in lengths(steps) {
            found.bytes += length;
            found.copies += 1;
            room += length.next_multiple_of(ALIGNMENT);
        }
        if found.copies == 0 {
            return Ok(found);
        }
        found.memory = api.allocate(room).ok();
        let Some(mut source) = found.memory else {
            return Ok(found);
        };
        for step in steps {
            let Step::Put { issued, bytes } = step else {
                continue;
            };
            api.write_device(source, bytes)?;
            let id = match issued.function.per_thread {
                true => id::cuMemcpyDtoDAsync_v2_ptsz,
                false => id::cuMemcpyDtoDAsync_v2,
            };
            if let (Some(function), Some(argument)) =
                (FUNCTIONS.get(usize::from(id)), issued.args.get_mut(SOURCE))
            {
                issued.function = function;
                *argument = source;
            }
            source += (bytes.len() as u64).next_multiple_of(ALIGNMENT);
        }
        Ok(found)
    }

    /// Whether the copies read host memory.
    pub(super) fn is_from_host(&self) -> bool {
        self.copies > 0 && self.memory.is_none()
    }

    /// Frees the memory. The steps must not run afterwards.
    pub(super) fn release(&mut self, api: &Api) {
        if let Some(memory) = self.memory.take()
            && let Err(code) = api.free(memory)
        {
            tracing::debug!("memory of exchanges could not be freed: result {code}");
        }
    }
}

fn lengths(steps: &[Step]) -> impl Iterator<Item = u64> {
    steps.iter().filter_map(|step| match step {
        Step::Put { bytes, .. } => Some(bytes.len() as u64),
        Step::Store { .. } | Step::Call(_) | Step::Pause(_) => None,
    })
}
