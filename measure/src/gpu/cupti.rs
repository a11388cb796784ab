//! CUPTI: loads it, has it write activity records, and takes them.
//!
//! CUPTI asks for buffers and gives them back through callbacks without data of ours, on threads of
//! its own and on those that flush, so that what they collect is in a static.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::ptr;
use std::slice;
use std::sync::{Mutex, OnceLock, PoisonError};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::gpu::record::{Activity, EXTERNAL_KIND, RawDevice, RawWork, kind, read};

/// What CUPTI functions return.
type Code = u32;

/// The versions whose records are known: CUPTI 12.0 to 12.9 are 18 to 28, later ones are numbered by
/// the toolkit (13.0.1 is 130001).
const FIRST_VERSION: u32 = 18;

/// The bytes of a buffer. CUPTI's manual advises 1 to 10 MiB, aligned to 8 bytes.
const BUFFER: Layout = match Layout::from_size_align(8 << 20, 8) {
    Ok(layout) => layout,
    Err(_) => panic!("8 is a power of two"),
};

type Request = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Complete = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
type GetNextRecord = unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> Code;

/// The functions that are used. The library stays loaded until the process ends, since it has
/// threads of its own.
pub(crate) struct Cupti {
    pub(crate) path: PathBuf,
    pub(crate) version: u32,
    _library: ManuallyDrop<Library>,
    get_timestamp: unsafe extern "C" fn(*mut u64) -> Code,
    push: unsafe extern "C" fn(u32, u64) -> Code,
    pop: unsafe extern "C" fn(u32, *mut u64) -> Code,
    enable: unsafe extern "C" fn(u32) -> Code,
    flush_all: unsafe extern "C" fn(u32) -> Code,
    dropped: unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> Code,
    register: unsafe extern "C" fn(Request, Complete) -> Code,
}

/// What the records say, with names in place of addresses.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) work: Vec<RawWork>,
    /// By position in `work`: the name of a kernel, in `names`.
    pub(crate) name_of: Vec<usize>,
    pub(crate) names: Vec<String>,
    /// External ids by correlation id.
    pub(crate) calls: BTreeMap<u32, u64>,
    pub(crate) devices: Vec<(RawDevice, String)>,
    pub(crate) overhead_ns: u64,
    /// Records that were refused, by kind and length.
    pub(crate) refused: BTreeMap<(u32, usize), u64>,
    pub(crate) known_names: BTreeMap<String, usize>,
}

/// What the callbacks need.
struct Sink {
    next: GetNextRecord,
    collected: Mutex<Collected>,
}

static SINK: OnceLock<Sink> = OnceLock::new();

impl Cupti {
    /// Loads the library. The driver must be loaded.
    ///
    /// # Errors
    /// Why it is not usable, in one line.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        // SAFETY: loading runs the library's initialisers, as its users expect; the user chose the
        // file, or it is in a folder of NVIDIA's.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
        let library = library.map_err(|error| format!("{}: {error}", path.display()))?;
        let missing =
            |name: &str| format!("{}: exports no {name}: it is not CUPTI", path.display());
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the types are those of CUPTI's manual, and the library stays loaded.
                *unsafe { library.get($name) }.map_err(|_| {
                    missing(
                        CStr::from_bytes_with_nul($name)
                            .unwrap_or_default()
                            .to_str()
                            .unwrap_or(""),
                    )
                })?
            };
        }
        let get_version: unsafe extern "C" fn(*mut u32) -> Code = function!(b"cuptiGetVersion\0");
        let mut version = 0;
        // SAFETY: it writes one number.
        let code = unsafe { get_version(&raw mut version) };
        if code != 0 || version < FIRST_VERSION {
            return Err(format!(
                "{}: its version is {version}, too old: CUPTI of CUDA 12 or later is needed",
                path.display()
            ));
        }
        let next: GetNextRecord = function!(b"cuptiActivityGetNextRecord\0");
        let cupti = Self {
            path: path.to_owned(),
            version,
            get_timestamp: function!(b"cuptiGetTimestamp\0"),
            push: function!(b"cuptiActivityPushExternalCorrelationId\0"),
            pop: function!(b"cuptiActivityPopExternalCorrelationId\0"),
            enable: function!(b"cuptiActivityEnable\0"),
            flush_all: function!(b"cuptiActivityFlushAll\0"),
            dropped: function!(b"cuptiActivityGetNumDroppedRecords\0"),
            register: function!(b"cuptiActivityRegisterCallbacks\0"),
            _library: ManuallyDrop::new(library),
        };
        SINK.set(Sink {
            next,
            collected: Mutex::default(),
        })
        .map_err(|_| "CUPTI is loaded already".to_owned())?;
        Ok(cupti)
    }

    /// Begins to take records.
    ///
    /// # Errors
    /// What CUPTI returned, in one line.
    pub(crate) fn begin(&self) -> Result<(), String> {
        // SAFETY: the callbacks keep CUPTI's rules: buffers are aligned, and given back once.
        self.checked("cuptiActivityRegisterCallbacks", unsafe {
            (self.register)(request, complete)
        })?;
        for kind in [
            kind::DEVICE,
            kind::EXTERNAL_CORRELATION,
            kind::DRIVER,
            kind::CONCURRENT_KERNEL,
            kind::MEMCPY,
            kind::MEMCPY_BETWEEN_DEVICES,
            kind::MEMSET,
            kind::OVERHEAD,
        ] {
            // SAFETY: any number is allowed.
            let code = unsafe { (self.enable)(kind) };
            self.checked(&format!("cuptiActivityEnable({kind})"), code)?;
        }
        Ok(())
    }

    fn checked(&self, what: &str, code: Code) -> Result<(), String> {
        match code {
            0 => Ok(()),
            // CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, _INSUFFICIENT_PRIVILEGES,
            // _VIRTUALIZED_DEVICE_NOT_SUPPORTED (CUPTI's manual, CUptiResult).
            39 => Err(format!(
                "{what}: another tool in this process uses CUPTI; remove it"
            )),
            35 => Err(format!(
                "{what}: profiling needs privileges here (NVIDIA's page ERR_NVGPUCTRPERM)"
            )),
            40 => Err(format!("{what}: this virtual GPU cannot be profiled")),
            code => Err(format!("{what} returned {code} ({})", self.path.display())),
        }
    }

    /// Now, in nanoseconds of CUPTI's clock; `None` if it does not tell.
    pub(crate) fn now(&self) -> Option<u64> {
        let mut now = 0;
        // SAFETY: it writes one number.
        let code = unsafe { (self.get_timestamp)(&raw mut now) };
        (code == 0).then_some(now)
    }

    /// Calls of this thread are from now on of that external id.
    pub(crate) fn enter(&self, id: u64) {
        // SAFETY: a kind of external ids and any id; the result says nothing that could be mended.
        unsafe { (self.push)(EXTERNAL_KIND, id) };
    }

    /// They are no longer.
    pub(crate) fn leave(&self) {
        let mut last = 0;
        // SAFETY: it writes one number.
        unsafe { (self.pop)(EXTERNAL_KIND, &raw mut last) };
    }

    /// Takes what has been recorded. All work must be over.
    pub(crate) fn finish(&self) -> (Collected, u64) {
        const FORCED: u32 = 1;
        let mut dropped = 0;
        // SAFETY: no lock of ours is held that the callbacks take; one number is written.
        unsafe {
            (self.flush_all)(FORCED);
            (self.dropped)(ptr::null_mut(), 0, &raw mut dropped);
        }
        let collected = SINK.get().map(|sink| {
            let mut collected = sink
                .collected
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *collected)
        });
        (collected.unwrap_or_default(), dropped as u64)
    }
}

/// CUPTI asks for a buffer.
unsafe extern "C" fn request(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    // SAFETY: the size is not 0. CUPTI gives places for three results; with a size of 0 it drops
    // records.
    unsafe {
        let bytes = alloc(BUFFER);
        *buffer = bytes;
        *size = if bytes.is_null() { 0 } else { BUFFER.size() };
        *most = 0;
    }
}

/// CUPTI gives a buffer back, with that many bytes of records.
unsafe extern "C" fn complete(
    _context: *mut c_void,
    _stream: u32,
    buffer: *mut u8,
    _size: usize,
    valid: usize,
) {
    if buffer.is_null() {
        return;
    }
    if let Some(sink) = SINK.get() {
        let mut collected = sink
            .collected
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut record = ptr::null_mut();
        // SAFETY: the buffer has that many bytes of records, and is ours until it is freed.
        let next = || unsafe { (sink.next)(buffer, valid, &raw mut record) == 0 }.then_some(record);
        let starts: Vec<usize> = std::iter::from_fn(next)
            .map(|record| (record as usize).wrapping_sub(buffer as usize))
            .collect();
        let ends = starts.iter().skip(1).copied().chain([valid]);
        for (&start, end) in starts.iter().zip(ends) {
            if start > end || end > BUFFER.size() {
                break;
            }
            // SAFETY: within the buffer, of which CUPTI has written these bytes.
            let bytes = unsafe { slice::from_raw_parts(buffer.add(start), end - start) };
            collected.add(bytes);
        }
    }
    // SAFETY: `request` allocated it so, and CUPTI gives each buffer back once.
    unsafe { dealloc(buffer, BUFFER) };
}

impl Collected {
    fn add(&mut self, record: &[u8]) {
        match read(record) {
            Ok(None) => {}
            Ok(Some(Activity::Work(work))) => {
                let name = text(work.name);
                let next = self.names.len();
                let number = *self.known_names.entry(name).or_insert_with_key(|name| {
                    self.names.push(name.clone());
                    next
                });
                self.work.push(work);
                self.name_of.push(number);
            }
            Ok(Some(Activity::Call {
                correlation,
                external,
            })) => {
                self.calls.insert(correlation, external);
            }
            Ok(Some(Activity::Device(device))) => {
                let name = text(device.name);
                self.devices.push((device, name));
            }
            Ok(Some(Activity::Overhead { begin, end })) => {
                self.overhead_ns += end.saturating_sub(begin);
            }
            Err(refused) => *self.refused.entry(refused).or_default() += 1,
        }
    }
}

/// The text at an address of a record.
fn text(address: u64) -> String {
    if address == 0 {
        return String::new();
    }
    // SAFETY: CUPTI's records have addresses of its own texts, which it keeps at least until the
    // buffer has been taken.
    let text = unsafe { CStr::from_ptr(address as *const c_char) };
    text.to_string_lossy().into_owned()
}
