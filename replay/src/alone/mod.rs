//! One rank of several, replayed alone on the devices that are here.
//!
//! What other ranks have exported to it has a stand-in of the same kind and size (`stand_in.rs`).
//! Work that gets at memory which it shares with them is left out (`left_out.rs`; which that is,
//! says `unavailable/exchanges.rs`), since the others are not there to write what it waits for, and
//! what the work changed is put back from the recording (`outputs.rs`).

pub(crate) mod left_out;
pub(crate) mod outputs;
pub(crate) mod private_memory;
pub(crate) mod stand_in;
