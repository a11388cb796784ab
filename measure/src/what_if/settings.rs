//! The edits of `what-if`, as its options say them.

/// The edits and how to measure them, as options of `what-if` say them.
#[derive(Clone, Debug, Default)]
pub struct EditSettings {
    /// Sets of waits that are left out.
    pub drop_sync: Vec<String>,
    /// Sets of copies that use page-locked memory.
    pub pin_memory: Vec<String>,
    /// Sets of work that may run at the same time.
    pub overlap: Vec<String>,
    /// Sets of copies that are joined.
    pub batch_copies: Vec<String>,
    /// Sets of work that graphs launch.
    pub graph: Vec<String>,
    /// Other kernels: NAME=FILE.
    pub replace_kernel: Vec<String>,
    /// Other shapes: NAME=GRIDxBLOCK.
    pub launch_shape: Vec<String>,
    /// The calls that are measured, with all calls between the first and the last.
    pub calls: Option<String>,
    /// How much results may differ: TYPE=T.
    pub tolerance: Option<String>,
    /// Spend the time between calls as the recorded program did.
    pub host_time: bool,
    /// How often both are measured.
    pub rounds: u32,
}
