//! Answers the driver calls of a running program from a recording of it.
//!
//! A driver asks [`Player::before`] before each call and [`Player::after`] after those that it
//! makes. The calls of a thread that have an effect must be those of the recorded thread that it is
//! paired with, in their order (`matching.rs`); calls that only ask (`query.rs`) get the recorded
//! answers whatever their number is. `live.rs` reads a call of the program as the recorder would
//! have, and `cutape_diff::OneByOne` compares it. What the device computed comes from the recording
//! (`values.rs`, `copied.rs`); handles and addresses are the driver's own.
//!
//! Invariant: bytes that the recording does not have are an error and never zeros. A pointer of the
//! program that is wrong is no fault here. No bytes of a trace cause a panic.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

mod allowed;
mod call_id;
mod cassette;
mod copied;
mod exchange;
mod history;
mod host_functions;
mod host_pointers;
mod kernels;
mod live;
mod looks;
mod lost_copies;
mod matching;
mod memory;
mod mismatch;
mod order;
mod outcome;
mod player;
mod polled;
mod query;
mod recorded_memory;
mod resume;
mod rows;
mod seen;
mod state;
mod threads;
mod unknown;
mod unset;
mod values;

pub use allowed::Allowed;
pub use call_id::CallId;
pub use outcome::{Outcome, effects};
pub use player::{Options, Player, Turn};
pub use state::OnMismatch;
pub use unset::{add_unset, read_unset, unset_text};
