//! The device: an H200 where numbers describe the hardware.

use cutape_driver::types::CUuuid;

use crate::call::answer::{Answer, INVALID_DEVICE, require};
use crate::settings;

/// Streaming multiprocessors.
pub(crate) const MULTIPROCESSORS: u32 = 132;
/// Shared memory of a multiprocessor in bytes.
pub(crate) const SHARED: u64 = 233_472;
/// Shared memory that each block takes for the system, in bytes.
pub(crate) const SHARED_RESERVED: u64 = 1_024;
/// Most shared memory that a block may have when its function opts in, in bytes.
pub(crate) const SHARED_OPT_IN: u32 = 232_448;
/// Most shared memory that a block may have otherwise, in bytes.
pub(crate) const SHARED_DEFAULT: u32 = 49_152;
/// Alignment of linear memory behind a texture, in bytes.
pub(crate) const TEXTURE_ALIGNMENT: u64 = 512;
/// Alignment of the pitch of such memory, in bytes.
pub(crate) const PITCH_ALIGNMENT: u64 = 32;
/// Largest pitch of a copy, in bytes.
pub(crate) const MAX_PITCH: u64 = i32::MAX as u64;
/// Numerically highest and lowest priority of streams (least, greatest).
pub(crate) const PRIORITIES: (i32, i32) = (0, -5);

/// `PCI_DOMAIN_ID` and `PCI_DEVICE_ID` of every device.
pub(crate) const PCI_DOMAIN: i32 = 0;
pub(crate) const PCI_DEVICE: i32 = 0;

/// `PCI_BUS_ID`.
pub(crate) fn pci_bus(device: i32) -> i32 {
    device + 1
}

/// What `cuDeviceGetUuid` returns.
pub(crate) fn uuid(device: i32) -> CUuuid {
    // A device with another compute capability is another device.
    let (major, minor) = settings::get().capability(device);
    let mut bytes = *b"cutape-null-\0\0\0\0";
    bytes[12..].copy_from_slice(&[major as u8, minor as u8, 0, device as u8]);
    CUuuid {
        bytes: bytes.map(|byte| byte as std::ffi::c_char),
    }
}

/// Checks a device ordinal, which is what `CUdevice` is here and in the real driver.
pub(crate) fn check_device(device: i32) -> Answer {
    let devices = 0..settings::get().devices;
    require(devices.contains(&device), INVALID_DEVICE)
}
