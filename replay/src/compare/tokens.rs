//! Structs whose contents are the driver's own.

use std::collections::HashMap;

/// Contents of structs that are the driver's own: recorded bytes to those that this driver returned
/// for them.
pub(crate) type Tokens = HashMap<(&'static str, Vec<u8>), Vec<u8>>;
