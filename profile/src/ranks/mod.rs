//! Several ranks that were replayed together: what each waits for in the others, and which of them
//! bounds the time.
//!
//! `record` is what is known, `exchange` finds the kernels of collectives in the profiles and says
//! how long each rank waited for the last, `path` follows the critical path through all ranks,
//! `summary` puts both together, `text` puts them into words. `programs` has ranks whose waits and
//! path are known.

mod exchange;
mod path;
#[cfg(test)]
mod programs;
mod record;
mod summary;
mod text;

pub use self::record::{
    Arrival, Collective, Exchange, RangeRow, RankProfile, RankRow, RanksSummary,
};
