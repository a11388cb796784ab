//! What the caller says about memory.

/// The memory that there is, as the caller knows it.
pub trait Memory {
    /// What tells one piece of memory from others. An identity that is used again for other memory
    /// must have been given to [`Addresses::forget`](crate::Addresses::forget).
    type Place: Copy + Ord;

    /// The memory that an address lies in, and where it starts.
    fn find(&self, address: u64) -> Option<(Self::Place, u64)>;
}
