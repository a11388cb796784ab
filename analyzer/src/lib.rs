//! Finds misuse of the CUDA driver API in the calls of a trace: rules over a model of the driver's
//! state.
//!
//! [`Analyzer::push`] takes the calls in order and returns what is wrong with each;
//! [`Analyzer::finish`] returns what is missing at the end. Invariant: no finding on a correct
//! program; what a trace does not show counts as correct.
#![forbid(unsafe_code)]

mod analyzer;
mod baseline;
mod call_site;
mod class;
mod context;
pub mod decode;
pub mod demangle;
mod finding;
mod key;
mod launch;
mod layouts;
mod list;
pub mod output;
mod pairs;
mod performance;
mod plan;
pub mod ranks;
pub mod render;
mod reported;
mod rules;
mod state;
pub mod suggestion;
mod suppress;

pub use analyzer::Analyzer;
pub use baseline::Baseline;
pub use context::TraceContext;
pub use cutape_registry::glob;
pub use finding::{
    CallResult, CallSite, Class, CodePlace, Confidence, Finding, FindingKey, Frame, ObjectHistory,
    RecordedProcess, RelatedCall, Severity, own_frame,
};
pub use list::{FindingLimits, FindingList};
pub use pairs::{ProvenPair, UnorderedPair};
pub use render::result_of;
pub use rules::silence::Silence;
pub use state::errata::DriverWithDevices;
pub use suppress::{SuppressionError, Suppressions};
