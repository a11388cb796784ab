//! Graphs: their nodes and edges, whether built or captured, the executable graphs that were
//! instantiated from them, and references to user objects.
//!
//! A graph of which calls have not shown everything is not `whole`; then nothing is concluded from
//! what its nodes or edges lack.

mod action;
mod apply;
mod graph;
mod lifetimes;
mod node;
mod tables;
mod user_object;

pub(crate) use action::GraphAction;
pub use apply::{instantiate_flags, node_array, node_arrays};
pub(crate) use graph::GraphWait;
pub use graph::{Graph, KernelWork, Node, Operand, Work};
pub use lifetimes::NodeAllocation;
pub(crate) use node::captured as captured_work;
pub use tables::{AUTO_FREE_ON_LAUNCH, DEVICE_LAUNCH, Exec, GraphMemory, Graphs, Rejected};
pub use user_object::UserObjectState;
