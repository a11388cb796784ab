//! The machine that a replay runs on.

pub(crate) mod check;
pub(crate) mod devices;
pub(crate) mod fit;

use std::collections::{BTreeSet, HashMap};

use cutape_format::Call;
use cutape_registry::{DeviceOp, Family, Function, FunctionOp, Kind, Role, id};

use crate::machine::devices::{Device, Devices};

/// What is known of the machine.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    /// The driver is initialised, and the recorded address space is in place.
    pub is_ready: bool,
    /// Which device stands for which recorded one.
    pub devices: Devices,
    /// The driver is another one than recorded.
    pub is_other_driver: bool,
    /// Devices whose primary context the replay holds until the program retains it.
    pub held: BTreeSet<i32>,
    /// The live primary contexts that the program retained, by device.
    pub primaries: HashMap<i32, u64>,
}

impl Machine {
    /// Whether a device of another compute capability stands for a recorded one.
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
            _ if function.id == id::cuDriverGetVersion => return self.is_other_driver,
            Family::ProcAddress { .. } | Family::ExportTable => return self.is_other_driver,
            Family::Occupancy(_) => {
                let other_model =
                    |there: &Device, here: &Device| there.name.is_some() && there.name != here.name;
                return self.is_other_architecture() || self.devices.any(other_model);
            }
            _ => {}
        }
        if function.family == Family::Device(DeviceOp::Count) {
            let (recorded, here) = self.devices.counts();
            return recorded != here;
        }
        // Registers, local memory and the like are those of the code for the device.
        if let Family::Function(FunctionOp::GetAttribute)
        | Family::Kernel(FunctionOp::GetAttribute) = function.family
        {
            return !self.compiles_alike();
        }
        // The address of a device on its bus is among the questions about memory, as are the needs
        // of arrays.
        let about_device = matches!(
            function.section,
            "Device Management" | "Peer Context Memory Access" | "Memory Management"
        );
        let mut asks = false;
        let mut other = function.section == "Device Management" && self.is_other_driver;
        for (position, param) in function.params.iter().enumerate() {
            match param.role {
                Role::Use(Kind::Device) => {
                    other |= !self.devices.is_same(call.argument(position) as i32);
                }
                Role::Out(_) | Role::Text(_) => asks = true,
                Role::Make(..) | Role::Find(..) | Role::Destroy(_) => return false,
                _ => {}
            }
        }
        about_device && asks && other
    }
}
