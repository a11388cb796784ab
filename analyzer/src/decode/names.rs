//! Labels for handles and device addresses.

use cutape_registry::Kind;

use super::value::Value;

/// Labels for handles and addresses.
pub trait Names {
    /// The label of an object; `None` if it was never seen.
    fn handle(&self, kind: Kind, handle: u64) -> Option<String>;
    /// The label of what a device address lies in.
    fn place(&self, address: u64) -> Option<String>;
}

/// No labels.
#[derive(Clone, Copy, Debug)]
pub struct Nameless;

impl Names for Nameless {
    fn handle(&self, _kind: Kind, _handle: u64) -> Option<String> {
        None
    }

    fn place(&self, _address: u64) -> Option<String> {
        None
    }
}

/// A handle with its label.
pub fn handle(names: &dyn Names, kind: Kind, handle: u64) -> Value {
    match (kind, handle) {
        (_, 0) => Value::Null,
        (Kind::Memory | Kind::Global | Kind::Reservation, _) => device_address(names, handle),
        _ => Value::Address(handle, names.handle(kind, handle)),
    }
}

/// A device address with the label of what it lies in.
pub fn device_address(names: &dyn Names, address: u64) -> Value {
    match address {
        0 => Value::Null,
        _ => Value::Address(address, names.place(address)),
    }
}
