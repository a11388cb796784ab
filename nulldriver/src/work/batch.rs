//! Batches of copies and prefetches: which attribute holds for which element.

use crate::call::answer::{Answer, invalid_if};
use crate::call::argument::In;

/// Longest batch.
pub(crate) const MAX_COUNT: usize = 1 << 20;

/// Where in a batch of `batch` elements each of `count` attributes begins to hold: rising, from 0.
pub(crate) fn read_starts(indices: In<u64>, count: usize, batch: usize) -> Answer<Vec<u64>> {
    invalid_if(batch == 0 || count == 0 || count > batch)?;
    let starts = indices.list(count)?;
    let is_rising = starts.windows(2).all(|pair| pair[0] < pair[1]);
    let is_out = starts[0] != 0 || starts[count - 1] >= batch as u64;
    invalid_if(!is_rising || is_out)?;
    Ok(starts)
}
