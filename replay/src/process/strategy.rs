//! The ways to get memory to its recorded address.

use serde::{Deserialize, Serialize};

/// How memory comes to lie at its recorded address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlacementStrategy {
    /// The driver places it, in a process with the address space of the recorded one. Needs a
    /// fresh process.
    Natural,
    /// The replay reserves the addresses, and maps memory there as it is allocated.
    #[default]
    Granules,
    /// Memory lies where the driver puts it; addresses are translated.
    None,
}
