//! x
/// x
pub fn stable_dump() {}
