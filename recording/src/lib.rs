//! Starts a program so that its driver calls are recorded, and collects the traces that it writes.
//!
//! [`start`] finds the program, selects how calls reach the interposer, and sets the interposer's
//! variables. [`Session`] is the running program, [`Outcome`] what it leaves. Invariant: the program
//! gets the same arguments, files and signals as without cutape, and its exit status is passed on;
//! a trace that cannot be packed stays as the program wrote it.

mod backend;
mod bypass;
mod cost;
mod created;
mod driven;
mod family;
pub mod forward;
mod library_folder;
mod options;
mod payloads;
mod policy;
mod program_file;
mod rank;
mod reservation;
mod session;
mod settings;
mod signalled_pauses;
mod signals;
mod start_libraries;
mod starter;
mod until_dropped;
mod words;

pub use backend::{SelectedBackend, why_no_audit_here};
pub use cost::Cost;
pub use driven::run_with_driver;
pub use library_folder::LibraryFolder;
pub use options::Recording;
pub use rank::trace_name;
pub use reservation::Reservation;
pub use session::{
    Outcome, Session, TICKS_PER_SECOND, exit_code, pack_in_place, report_missing, start,
};
pub use signals::UserSignal;
pub use starter::advice;
pub use words::{BackendChoice, contents, payloads, secrets};
