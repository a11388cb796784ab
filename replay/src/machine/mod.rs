//! The machine that a replay runs on.

pub(crate) mod check;
pub(crate) mod devices;
pub(crate) mod ranks;

use std::collections::{BTreeSet, HashMap};

use cutape_format::Call;
use cutape_registry::{DeviceOp, Family, Function, FunctionOp, Kind, Role};

use crate::machine::devices::{Device, Devices};

/// What is known of the machine.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    /// The driver is initialised, and the recorded address space is in place.
    pub is_ready: bool,
    /// Which device replaces which recorded one.
    pub devices: Devices,
    /// The driver is another one than recorded.
    pub is_other_driver: bool,
    /// Devices whose primary context the replay holds until the program retains it.
    pub held: BTreeSet<i32>,
    /// The live primary contexts that the program retained, by device.
    pub primaries: HashMap<i32, u64>,
}

impl Machine {
    /// Whether a device of another compute capability replaces a recorded one.
    fn is_other_architecture(&self) -> bool {
        self.devices
            .any(|there, here| there.capability.is_some() && there.capability != here.capability)
    }

    /// Whether compiling and linking gives the same code as it did.
    pub(crate) fn compiles_alike(&self) -> bool {
        !self.is_other_driver && !self.is_other_architecture()
    }

    /// Whether a call asks what this machine is, in something in which it is another one than
    /// recorded: what it answers is no divergence.
    pub(crate) fn asks_for_machine(&self, call: &Call, function: &Function) -> bool {
        match function.family {
            Family::DriverVersion | Family::ProcAddress { .. } | Family::ExportTable => {
                self.is_other_driver
            }
            Family::Occupancy(_) => {
                let other_model =
                    |there: &Device, here: &Device| there.name.is_some() && there.name != here.name;
                self.is_other_architecture() || self.devices.any(other_model)
            }
            Family::Device(DeviceOp::Count) => {
                let (recorded, here) = self.devices.counts();
                recorded != here
            }
            Family::Device(DeviceOp::Property) if self.is_other_driver => true,
            Family::Device(DeviceOp::Property | DeviceOp::Hardware) => {
                let mut params = function.params.iter().enumerate();
                params.any(|(position, param)| {
                    param.role == Role::Use(Kind::Device)
                        && !self.devices.is_same(call.argument(position) as i32)
                })
            }
            // Registers, local memory and the like are those of the code for the device.
            Family::Function(FunctionOp::GetAttribute)
            | Family::Kernel(FunctionOp::GetAttribute) => !self.compiles_alike(),
            _ => false,
        }
    }
}
