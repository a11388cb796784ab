//! What the trace says of the program, the machine, the driver and the devices.

use core::sync::atomic::{AtomicBool, Ordering};
use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;

use cutape_format::layout::chunk_kind;
use cutape_format::{REDACT, rank};
use cutape_registry::{MemoryContents, Switch, id};

use super::trace_file;
use crate::driver::{self, ask};
use crate::hot::recording::payload_policy;
use crate::process::env;
use crate::process::settings::{self, Settings, lists};

/// The devices are written once, after `cuInit`.
static DEVICES_WRITTEN: AtomicBool = AtomicBool::new(false);
/// The process was forked after its parent had initialized the driver.
static FORKED_AFTER_INIT: AtomicBool = AtomicBool::new(false);

/// Pairs of texts in their encoded form.
struct Pairs {
    count: u64,
    bytes: Vec<u8>,
}

impl Pairs {
    fn new() -> Self {
        Self {
            count: 0,
            bytes: vec![0; 8],
        }
    }

    fn put(&mut self, key: &str, value: impl AsRef<[u8]>) {
        // Text in a trace is UTF-8; other bytes are replaced.
        let value = String::from_utf8_lossy(value.as_ref());
        for text in [key, &value] {
            self.bytes
                .extend_from_slice(&(text.len() as u64).to_le_bytes());
            self.bytes.extend_from_slice(text.as_bytes());
        }
        self.count += 1;
    }

    fn write(mut self) {
        if let Some(place) = self.bytes.first_chunk_mut() {
            *place = self.count.to_le_bytes();
        }
        trace_file::document(chunk_kind::META, &self.bytes);
    }
}

/// In a forked child: whether its parent has initialized the driver, which makes it useless here.
pub(crate) fn forget() {
    if DEVICES_WRITTEN.load(Ordering::Relaxed) {
        FORKED_AFTER_INIT.store(true, Ordering::Relaxed);
    }
}

/// Writes how many markers from before the first call are missing.
pub(crate) fn write_lost_markers(count: u64) {
    let mut pairs = Pairs::new();
    pairs.put("markers.lost", count.to_string());
    pairs.write();
}

/// Adds what was started, and where, without what is to be redacted.
fn write_command(redact: Option<&CStr>, pairs: &mut Pairs) {
    if !lists(redact, "paths") {
        if let Ok(path) = std::env::current_exe() {
            pairs.put("program", path.as_os_str().as_bytes());
        }
        if let Ok(path) = std::env::current_dir() {
            pairs.put("directory", path.as_os_str().as_bytes());
        }
    }
    if lists(redact, "environment") {
        return;
    }
    // The first word is the program's path.
    let first = usize::from(lists(redact, "paths"));
    for (index, argument) in std::env::args_os().enumerate().skip(first) {
        pairs.put(&format!("argument.{index}"), argument.as_bytes());
    }
    for (name, value) in std::env::vars_os() {
        if ["CUDA", "NVIDIA", "CUTAPE_NULL"]
            .iter()
            .any(|start| name.as_bytes().starts_with(start.as_bytes()))
        {
            pairs.put(
                &format!("environment.{}", name.to_string_lossy()),
                value.as_bytes(),
            );
        }
    }
}

/// Writes what is known before the driver is called.
pub(crate) fn write_program(settings: &Settings) {
    DEVICES_WRITTEN.store(false, Ordering::Relaxed);
    let mut pairs = Pairs::new();
    pairs.put("recorder.version", env!("CARGO_PKG_VERSION"));
    pairs.put("recorder.via", settings::backend().word());
    let (payloads, outputs) = payload_policy();
    // `pack` reads them as well.
    pairs.put("payloads", payloads.word());
    pairs.put("outputs", outputs.word());
    if let Some(when) = settings.digests {
        pairs.put("digests", when.word());
    }
    if settings.outputs_of_exchanges != 0 {
        let bytes = settings.outputs_of_exchanges.to_string();
        pairs.put("outputs-of-exchanges", bytes);
    }
    if settings.breadcrumbs != 0 {
        pairs.put("breadcrumbs", settings.breadcrumbs.to_string());
    }
    if settings.memory != MemoryContents::None {
        pairs.put("memory", settings.memory.word());
    }
    if settings.deep != 0 {
        pairs.put("deep", settings.deep.to_string());
    }
    if settings.cassette {
        pairs.put("cassette", Switch::On.word());
    }
    pairs.put("stacks", settings.stacks.word());
    if let Some(secrets) = &settings.redact {
        pairs.put(REDACT, secrets.to_bytes());
    }
    write_command(settings.redact.as_deref(), &mut pairs);
    pairs.put("process", std::process::id().to_string());
    // SAFETY: no memory is involved.
    pairs.put("parent", unsafe { libc::getppid() }.to_string());
    if FORKED_AFTER_INIT.load(Ordering::Relaxed) {
        pairs.put("fork.after-init", "1");
    }
    for (key, value) in [
        ("rank", rank::rank(env::bytes)),
        ("rank.local", rank::local_rank(env::bytes)),
    ] {
        if let Some(value) = value {
            pairs.put(key, value);
        }
    }
    if let Ok(release) = std::fs::read("/proc/sys/kernel/osrelease") {
        pairs.put("host.kernel", release.trim_ascii());
    }
    if let Some(bytes) = physical_memory() {
        pairs.put("host.memory", bytes.to_string());
    }
    if let Some(path) = driver::path() {
        pairs.put("driver.path", path.to_bytes());
    }
    let is_null = driver::is_null_driver();
    pairs.put("driver.kind", if is_null { "null" } else { "real" });
    pairs.write();
}

/// Bytes of the machine's memory.
fn physical_memory() -> Option<u64> {
    // SAFETY: no memory is involved.
    let [pages, page] =
        [libc::_SC_PHYS_PAGES, libc::_SC_PAGESIZE].map(|name| unsafe { libc::sysconf(name) });
    u64::try_from(pages)
        .ok()?
        .checked_mul(u64::try_from(page).ok()?)
}

/// Writes that the program has called a function that is not recorded, and which thread did so
/// first.
pub(crate) fn write_forwarded(name: &CStr, by: &str) {
    let mut pairs = Pairs::new();
    pairs.put(&format!("forwarded.{}", name.to_string_lossy()), by);
    pairs.write();
}

/// Writes the cost of recording: calls, ticks, and the longest time of one call.
pub(crate) fn write_cost(total: [u64; 3]) {
    let mut pairs = Pairs::new();
    for (key, number) in ["cost.calls", "cost.ticks", "cost.longest-ticks"]
        .iter()
        .zip(total)
    {
        pairs.put(key, number.to_string());
    }
    pairs.write();
}

/// Writes driver and devices, once, after a successful `cuInit`; while that call is in progress, so
/// that these queries are not recorded.
pub(crate) fn write_devices() {
    if DEVICES_WRITTEN.swap(true, Ordering::Relaxed) {
        return;
    }
    let mut pairs = Pairs::new();
    // SAFETY: it writes an int.
    let version: Option<i32> = unsafe { ask(id::cuDriverGetVersion, |place| [place, 0, 0, 0]) };
    if let Some(version) = version {
        pairs.put("driver.version", version.to_string());
    }
    // SAFETY: as above.
    let count: Option<i32> = unsafe { ask(id::cuDeviceGetCount, |place| [place, 0, 0, 0]) };
    if let Some(count) = count {
        pairs.put("device.count", count.to_string());
    }
    for ordinal in 0..count.unwrap_or(0).clamp(0, 64) {
        write_device(&mut pairs, ordinal);
    }
    pairs.write();
}

fn write_device(pairs: &mut Pairs, ordinal: i32) {
    // SAFETY: it writes an int.
    let device = unsafe { ask(id::cuDeviceGet, |place| [place, ordinal as u64, 0, 0]) };
    let Some(device): Option<u32> = device else {
        return;
    };
    let device = u64::from(device);
    let key = |what: &str| format!("device.{ordinal}.{what}");
    let mut name = [0u8; 256];
    let words = [name.as_mut_ptr() as u64, name.len() as u64, device, 0];
    // SAFETY: `name` has the length that is passed.
    if unsafe { driver::call(id::cuDeviceGetName, words) } == Some(0)
        && let Ok(name) = CStr::from_bytes_until_nul(&name)
    {
        pairs.put(&key("name"), name.to_bytes());
    }
    // SAFETY: it writes the 16 bytes of a CUuuid.
    let uuid: Option<[u8; 16]> =
        unsafe { ask(id::cuDeviceGetUuid_v2, |place| [place, device, 0, 0]) };
    if let Some(uuid) = uuid {
        let digits: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        pairs.put(&key("uuid"), digits);
    }
    // SAFETY: it writes a size_t.
    let bytes: Option<u64> = unsafe { ask(id::cuDeviceTotalMem_v2, |place| [place, device, 0, 0]) };
    if let Some(bytes) = bytes {
        pairs.put(&key("memory"), bytes.to_string());
    }
    let Some(attributes) = cutape_registry::enumeration("CUdevice_attribute") else {
        return;
    };
    let attribute = |number: i64| -> Option<i32> {
        let arguments = |place| [place, number as u64, device, 0];
        // SAFETY: it writes an int; an attribute that the driver does not know is an error.
        unsafe { ask(id::cuDeviceGetAttribute, arguments) }
    };
    let mut last = 0;
    for &(name, number) in attributes.values {
        // The list ends with the number of its entries, and has aliases.
        if number <= last || name.ends_with("_MAX") {
            continue;
        }
        last = number;
        if let Some(value) = attribute(number) {
            let name = name.strip_prefix("CU_DEVICE_ATTRIBUTE_").unwrap_or(name);
            pairs.put(&key(&format!("attribute.{name}")), value.to_string());
        }
    }
    if let (Some(major), Some(minor)) = (attribute(75), attribute(76)) {
        pairs.put(&key("compute-capability"), format!("{major}.{minor}"));
    }
}
