//! Objects by handle and generation: which call created them, what they belong to, and when they
//! ended.

mod lifetime;
mod object;
mod table;

pub use object::{End, NewObject, Object, ObjectId, Origin};
pub use table::{Lookup, Objects, Retention};
