//! The devices, and their clocks while a replay runs, by NVIDIA's management library.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use cutape_profile::Clocks;
use libloading::os::unix::Library;
use serde::{Deserialize, Serialize};

/// Between two samples.
const PAUSE: Duration = Duration::from_millis(20);
/// The most devices that are asked.
const DEVICES: u32 = 16;

/// NVML_CLOCK_SM, NVML_CLOCK_MEM and NVML_TEMPERATURE_GPU.
const CLOCK_SM: u32 = 1;
const CLOCK_MEMORY: u32 = 2;
const TEMPERATURE: u32 = 0;

/// Reasons that lower clocks, by NVML's bits (nvmlClocksEventReasons). Left out: that the device is
/// idle (1), and that a user has set its clocks (2) or synchronised them (16).
const REASONS: [(u64, &str); 6] = [
    (0x4, "power cap"),
    (0x8, "hardware slowdown"),
    (0x20, "software thermal slowdown"),
    (0x40, "hardware thermal slowdown"),
    (0x80, "power brake"),
    (0x100, "display clocks"),
];

type Device = *mut c_void;
type GetNumber = unsafe extern "C" fn(Device, *mut u32) -> u32;
type GetNumberOf = unsafe extern "C" fn(Device, u32, *mut u32) -> u32;
type GetReasons = unsafe extern "C" fn(Device, *mut u64) -> u32;
type GetText = unsafe extern "C" fn(Device, *mut c_char, u32) -> u32;

/// One device's samples.
#[derive(Debug, Default)]
struct Samples {
    uuid: String,
    sm_mhz: Vec<u32>,
    memory_mhz: Vec<u32>,
    temperature: u32,
    milliwatts: u32,
    lowered: BTreeMap<String, u64>,
}

/// A device at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuState {
    /// Its name, such as `NVIDIA H200`.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// The clock of the multiprocessors, in MHz.
    pub sm_mhz: u32,
    /// The clock of the memory, in MHz.
    pub memory_mhz: u32,
    /// Degrees Celsius.
    pub temperature: u32,
    /// Milliwatts.
    pub milliwatts: u32,
    /// Why clocks are lowered.
    pub lowered: Vec<String>,
}

/// The devices of this machine and their driver, at this moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuStates {
    /// The driver's version, such as `580.159.04`.
    pub driver_version: Option<String>,
    /// The version of CUDA that it has, such as `13.0`.
    pub cuda: Option<String>,
    /// The devices, by ordinal of NVML.
    pub gpus: Vec<GpuState>,
}

impl GpuStates {
    /// Asks NVML; nothing is known without it.
    pub fn now() -> Self {
        let Some(nvml) = Nvml::open() else {
            return Self::default();
        };
        let gpus = nvml.devices.iter().map(|(device, uuid)| {
            let mut samples = Samples::default();
            nvml.sample(*device, &mut samples);
            GpuState {
                name: nvml.text(nvml.name, *device).unwrap_or_default(),
                uuid: uuid.clone(),
                sm_mhz: samples.sm_mhz.first().copied().unwrap_or(0),
                memory_mhz: samples.memory_mhz.first().copied().unwrap_or(0),
                temperature: samples.temperature,
                milliwatts: samples.milliwatts,
                lowered: samples.lowered.into_keys().collect(),
            }
        });
        Self {
            gpus: gpus.collect(),
            driver_version: nvml.driver_version.clone(),
            cuda: nvml.cuda.clone(),
        }
    }
}

/// Takes samples until it is asked to end.
pub(crate) struct Sampler {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Samples>>>,
}

impl Sampler {
    /// Begins to take samples. Without NVML there will be none.
    pub(crate) fn start() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let builder = std::thread::Builder::new().name("nvml".to_owned());
        let thread = builder.spawn(move || take(&until)).ok();
        Self { is_over, thread }
    }

    /// The clocks of the device with that UUID, or of the only one.
    pub(crate) fn finish(mut self, uuid: Option<&str>) -> Option<Clocks> {
        self.is_over.store(true, Ordering::Relaxed);
        let samples = self.thread.take()?.join().ok()?;
        let one = match (uuid, samples.as_slice()) {
            (Some(uuid), all) => all.iter().find(|samples| samples.uuid == uuid)?,
            (None, [only]) => only,
            _ => return None,
        };
        clocks(one)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn clocks(samples: &Samples) -> Option<Clocks> {
    let range = |values: &[u32]| -> Option<[u32; 3]> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let median = *sorted.get(sorted.len() / 2)?;
        Some([*sorted.first()?, median, *sorted.last()?])
    };
    Some(Clocks {
        samples: samples.sm_mhz.len() as u64,
        sm_mhz: range(&samples.sm_mhz)?,
        memory_mhz: range(&samples.memory_mhz)?,
        temperature: samples.temperature,
        milliwatts: samples.milliwatts,
        lowered: samples.lowered.clone(),
    })
}

/// The library's functions, and the devices with their UUIDs.
struct Nvml {
    _library: Library,
    devices: Vec<(Device, String)>,
    clock: GetNumberOf,
    temperature: GetNumberOf,
    power: GetNumber,
    reasons: GetReasons,
    name: GetText,
    driver_version: Option<String>,
    cuda: Option<String>,
}

fn take(is_over: &AtomicBool) -> Vec<Samples> {
    let Some(nvml) = Nvml::open() else {
        return Vec::new();
    };
    let devices = nvml.devices.iter();
    let mut samples: Vec<Samples> = devices
        .map(|(_, uuid)| Samples {
            uuid: uuid.clone(),
            ..Samples::default()
        })
        .collect();
    while !is_over.load(Ordering::Relaxed) {
        for ((device, _), samples) in nvml.devices.iter().zip(&mut samples) {
            nvml.sample(*device, samples);
        }
        std::thread::sleep(PAUSE);
    }
    samples
}

impl Nvml {
    fn sample(&self, device: Device, samples: &mut Samples) {
        let (mut sm, mut memory, mut degrees, mut power, mut reasons) = (0, 0, 0, 0, 0);
        // SAFETY: the handle is one of NVML's, which stays loaded meanwhile; each call writes one
        // number.
        let known = unsafe {
            let known = (self.clock)(device, CLOCK_SM, &raw mut sm) == 0
                && (self.clock)(device, CLOCK_MEMORY, &raw mut memory) == 0;
            (self.temperature)(device, TEMPERATURE, &raw mut degrees);
            (self.power)(device, &raw mut power);
            (self.reasons)(device, &raw mut reasons);
            known
        };
        if !known {
            return;
        }
        samples.sm_mhz.push(sm);
        samples.memory_mhz.push(memory);
        samples.temperature = samples.temperature.max(degrees);
        samples.milliwatts = samples.milliwatts.max(power);
        for (bit, reason) in REASONS {
            if reasons & bit != 0 {
                *samples.lowered.entry(reason.to_owned()).or_default() += 1;
            }
        }
    }
}

impl Nvml {
    fn text(&self, get: GetText, device: Device) -> Option<String> {
        let mut text: [c_char; 96] = [0; 96];
        // SAFETY: the handle is one of NVML's, which stays loaded meanwhile; the text is ended with
        // a zero within the given size.
        unsafe {
            let known = get(device, text.as_mut_ptr(), 96) == 0;
            known.then(|| CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned())
        }
    }

    fn open() -> Option<Self> {
        type Init = unsafe extern "C" fn() -> u32;
        type GetCount = unsafe extern "C" fn(*mut u32) -> u32;
        type GetVersionText = unsafe extern "C" fn(*mut c_char, u32) -> u32;
        type GetVersion = unsafe extern "C" fn(*mut i32) -> u32;
        type GetHandle = unsafe extern "C" fn(u32, *mut Device) -> u32;
        // SAFETY: loading runs the library's initialisers, as its users expect. The types of its
        // functions are those of its manual; each writes where it is told.
        unsafe {
            let library = Library::new("libnvidia-ml.so.1").ok()?;
            let init = *library.get::<Init>(b"nvmlInit_v2\0").ok()?;
            let get_count = *library.get::<GetCount>(b"nvmlDeviceGetCount_v2\0").ok()?;
            let get_handle = *library
                .get::<GetHandle>(b"nvmlDeviceGetHandleByIndex_v2\0")
                .ok()?;
            let get_uuid = *library.get::<GetText>(b"nvmlDeviceGetUUID\0").ok()?;
            let mut count = 0;
            if init() != 0 || get_count(&raw mut count) != 0 {
                return None;
            }
            let devices = (0..count.min(DEVICES)).filter_map(|number| {
                let mut device = std::ptr::null_mut();
                let mut uuid: [c_char; 96] = [0; 96];
                let known = get_handle(number, &raw mut device) == 0
                    && get_uuid(device, uuid.as_mut_ptr(), 96) == 0;
                let uuid = CStr::from_ptr(uuid.as_ptr()).to_string_lossy().into_owned();
                known.then_some((device, uuid))
            });
            let get_driver = library.get::<GetVersionText>(b"nvmlSystemGetDriverVersion\0");
            let driver_version = get_driver.ok().and_then(|get| {
                let mut text: [c_char; 96] = [0; 96];
                let known = get(text.as_mut_ptr(), 96) == 0;
                known.then(|| CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned())
            });
            let get_cuda = library.get::<GetVersion>(b"nvmlSystemGetCudaDriverVersion_v2\0");
            let cuda = get_cuda.ok().and_then(|get| {
                let mut version = 0;
                let known = get(&raw mut version) == 0;
                known.then(|| format!("{}.{}", version / 1000, version % 1000 / 10))
            });
            Some(Self {
                devices: devices.collect(),
                name: *library.get(b"nvmlDeviceGetName\0").ok()?,
                driver_version,
                cuda,
                clock: *library.get(b"nvmlDeviceGetClockInfo\0").ok()?,
                temperature: *library.get(b"nvmlDeviceGetTemperature\0").ok()?,
                power: *library.get(b"nvmlDeviceGetPowerUsage\0").ok()?,
                reasons: *library
                    .get(b"nvmlDeviceGetCurrentClocksThrottleReasons\0")
                    .ok()?,
                _library: library,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_become_clocks() {
        let mut samples = Samples::default();
        assert_eq!(clocks(&samples), None);
        samples.sm_mhz = vec![1980, 345, 1755];
        samples.memory_mhz = vec![3201; 3];
        samples.milliwatts = 500;
        let known = clocks(&samples).unwrap();
        assert_eq!((known.samples, known.sm_mhz), (3, [345, 1755, 1980]));
        assert_eq!(known.memory_mhz, [3201; 3]);
    }
}
