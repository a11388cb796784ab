//! By this table the runtime checks that it talks to the driver itself: the code that slot 1
//! returns must be the one that the runtime computes. Without it, a statically linked runtime
//! returns `cudaErrorSoftwareValidityNotEstablished`.

use std::ffi::c_void;

use cutape_registry::id;

use super::cudart;
use super::md2::{self, BLOCK};
use super::slot::{Slot, answer, sized};
use crate::call::answer::CUresult;
use crate::call::argument::Out;
use crate::call::argument::WORDS;
use crate::settings;
use crate::{dispatch, export};

/// Slot 1 is the check; slot 2 is unknown.
pub(super) static TABLE: [Slot; 3] =
    sized::<0xd408_2055, 3>(&[(1, Slot::of(check as *const c_void))]);

/// The key of the code, the same in every runtime that asks.
const KEY: [u8; BLOCK] = 0x146a_ddae_53a9_a752_aa08_4136_0bf5_5a9f_u128.to_be_bytes();

extern "C" fn check(version: u32, seconds: u64, code: Out<[u64; 2]>) -> CUresult {
    answer(|| {
        code.set(match version % 10 {
            0 => [0x3341_181c_03cb_675c, 0x8ed3_83aa_1f4c_d1e8],
            1 => [0x1841_181c_03cb_675c, 0x8ed3_83aa_1f4c_d1e8],
            _ => {
                let code = md2::hmac(&KEY, &message(version, seconds));
                let (low, high) = code.split_at(8);
                [low, high].map(|half| {
                    half.iter()
                        .rev()
                        .fold(0, |word, &byte| word << 8 | u64::from(byte))
                })
            }
        })
    })
}

/// The attributes PCI_DOMAIN_ID, PCI_BUS_ID and PCI_DEVICE_ID.
const PCI: [u64; 3] = [50, 33, 34];

/// What the program is told by a function that writes to its first argument: in a program that is
/// played, what was recorded.
fn told<T: Default>(id: u16, [first, second]: [u64; 2]) -> T {
    let mut value = T::default();
    let mut words = [0; WORDS];
    words[..3].copy_from_slice(&[(&raw mut value) as u64, first, second]);
    dispatch::enter(id, &words, export::address_of);
    value
}

/// What the code is computed of: who asks, when, and which driver and devices there are.
fn message(version: u32, seconds: u64) -> Vec<u8> {
    // SAFETY: pthread_self has no preconditions.
    let thread = unsafe { libc::pthread_self() };
    let driver: u32 = told(id::cuDriverGetVersion, [0; 2]);
    let mut message = Vec::new();
    for word in [driver, version, std::process::id(), thread as u32] {
        message.extend(word.to_le_bytes());
    }
    let tables = [cudart::INTERFACE.as_ptr(), TABLE.as_ptr()];
    for address in tables
        .map(|table| table as u64)
        .into_iter()
        .chain([check as *const c_void as u64, seconds])
    {
        message.extend(address.to_le_bytes());
    }
    for device in 0..settings::get().devices as u64 {
        let uuid: [u8; 16] = told(id::cuDeviceGetUuid, [device, 0]);
        message.extend(uuid);
        for attribute in PCI {
            let number: u32 = told(id::cuDeviceGetAttribute, [attribute, device]);
            message.extend(number.to_le_bytes());
        }
    }
    message
}
