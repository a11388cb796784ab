//! Random programs of the driver API, with what they must compute: made, run under all schedules of
//! the null driver, recorded, replayed and checked.

mod bits;
pub mod dice;
pub mod generate;
pub mod order;
pub mod plant;
pub mod program;
pub mod recording;
pub mod runner;
pub mod shrink;
