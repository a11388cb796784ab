//! What the processes of a recording share: which export of which process each import belongs to.
//!
//! [`ExchangeBuilder`] collects exports and imports of one trace, [`Sharing`] matches those of all:
//! by bytes where a handle is bytes, else by the file that a descriptor names or the mark that the
//! recorder has given it, else by order and size, which is an assumption.

mod exchanges;
mod matching;

pub use exchanges::{Exchange, ExchangeBuilder, Exchanges, HostChanges, Identity, MappedFile};
pub use matching::{Evidence, Link, RefusedImport, Sharing, Site as ExchangeSite};
