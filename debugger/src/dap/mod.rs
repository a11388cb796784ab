//! A session for editors: the Debug Adapter Protocol over a pair of streams.
//!
//! Calls are steps, the recorded stack is the stack, arguments and live objects are variables.
//! [`Connection`] takes requests up to `launch`, whose trace the caller opens, and those after it.
//! `wire` frames messages, `server` answers requests, with `breakpoints` and `inspect`.
//! Names of messages are those of the protocol's specification, version 1.70.

mod breakpoints;
mod connection;
mod inspect;
mod server;
mod wire;

pub use connection::{Connection, Launch};
