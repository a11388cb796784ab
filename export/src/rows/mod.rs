//! One pass over a trace that yields rows.
//!
//! ```no_run
//! use cutape_export::rows::{CallRow, Rows, Sink};
//!
//! #[derive(Default)]
//! struct Failures(u64);
//!
//! impl Sink for Failures {
//!     type Error = cutape_format::Error;
//!
//!     fn call(&mut self, row: &CallRow<'_>) -> Result<(), Self::Error> {
//!         self.0 += u64::from(row.failed);
//!         Ok(())
//!     }
//! }
//!
//! let trace = cutape_format::Trace::open("app.cutape".as_ref())?;
//! let mut failures = Failures::default();
//! Rows::of(&trace).run(&mut failures)?;
//! # Ok::<(), cutape_format::Error>(())
//! ```

mod arguments;
mod images;
mod lifetimes;
mod pass;
mod reference;
mod row;
mod sink;
mod work;

pub use arguments::KernelLayouts;
pub use pass::Rows;
pub use reference::{CallRef, ObjectRef, StreamRef};
pub use row::{
    Awaited, CallRow, CopyRow, Ending, EventRecordRow, FindingRow, GraphKernelRow, GraphLaunchRow,
    HostFunctionRow, ImageRow, ImageUseRow, LaunchRow, MemoryRow, ObjectRow, RangeRow, TraceRow,
    WaitRow, origin_key,
};
pub use sink::{Sink, Wants};
