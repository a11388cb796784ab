//! Names a part of this process for a tool, as a program does with NVTX 3: the library that
//! `NVTX_INJECTION64_PATH` names puts its functions into our table.
//!
//! Numbers and layouts are those of NVTX's public headers (3.0 to 3.2): `nvToolsExt.h`,
//! `nvtxTypes.h`.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libloading::os::unix::{Library, RTLD_LAZY};

/// The range around what is measured, and the start of the one in it that names the call.
pub(crate) const RANGE: &CStr = c"cutape";
pub(crate) const CALL_RANGE: &str = "cutape.call.";

/// The variable that names the tool's library.
const VARIABLE: &str = "NVTX_INJECTION64_PATH";
/// Export tables: of the function tables, and of the version.
const CALLBACKS: u32 = 1;
const VERSION: u32 = 3;
/// The function table of functions without a domain, and its `nvtxRangePushA` and `nvtxRangePop`.
const CORE: u32 = 1;
const PUSH: usize = 9;
const POP: usize = 11;
/// Entries of a function table; the first is not used.
const ENTRIES: usize = 16;
const MODULES: u32 = 6;

type Place = AtomicPtr<c_void>;
type GetTable = unsafe extern "C" fn(u32) -> *const c_void;

#[repr(C)]
struct Callbacks {
    size: usize,
    function_table: extern "C" fn(u32, *mut *const *const Place, *mut u32) -> c_int,
}

#[repr(C)]
struct VersionInfo {
    size: usize,
    version: u32,
    reserved: u32,
    set_version: extern "C" fn(u32),
}

/// Where the tool puts its functions; those of other tables are put elsewhere and not used.
static FUNCTIONS: [Place; ENTRIES] = [const { AtomicPtr::new(ptr::null_mut()) }; ENTRIES];
static OTHERS: [Place; ENTRIES] = [const { AtomicPtr::new(ptr::null_mut()) }; ENTRIES];

/// The places by number.
struct Places([*const Place; ENTRIES]);
// SAFETY: they point to statics of atomics.
unsafe impl Sync for Places {}

static CORE_PLACES: Places = Places(places(&FUNCTIONS));
static OTHER_PLACES: Places = Places(places(&OTHERS));

static CALLBACK_TABLE: Callbacks = Callbacks {
    size: size_of::<Callbacks>(),
    function_table,
};
static VERSION_TABLE: VersionInfo = VersionInfo {
    size: size_of::<VersionInfo>(),
    version: 3,
    reserved: 0,
    set_version,
};

const fn places(functions: &'static [Place; ENTRIES]) -> [*const Place; ENTRIES] {
    let mut places = [ptr::null(); ENTRIES];
    let mut entry = 1;
    while entry < ENTRIES {
        places[entry] = &raw const functions[entry];
        entry += 1;
    }
    places
}

extern "C" fn set_version(_: u32) {}

extern "C" fn function_table(
    module: u32,
    table: *mut *const *const Place,
    count: *mut u32,
) -> c_int {
    if module == 0 || module > MODULES || table.is_null() {
        return 0;
    }
    let places = match module {
        CORE => &CORE_PLACES,
        _ => &OTHER_PLACES,
    };
    // SAFETY: the tool's variables, which it gives for writing; the count may be NULL.
    unsafe {
        table.write(places.0.as_ptr());
        if !count.is_null() {
            count.write(ENTRIES as u32);
        }
    }
    1
}

unsafe extern "C" fn export_table(id: u32) -> *const c_void {
    match id {
        CALLBACKS => (&raw const CALLBACK_TABLE).cast(),
        VERSION => (&raw const VERSION_TABLE).cast(),
        _ => ptr::null(),
    }
}

/// The functions of a tool.
#[derive(Clone, Copy)]
pub(crate) struct Nvtx {
    push: unsafe extern "C" fn(*const c_char) -> c_int,
    pop: unsafe extern "C" fn() -> c_int,
}

impl Nvtx {
    /// Attaches the tool of this process.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn attach() -> Result<Self, String> {
        let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
        let path = path.ok_or_else(|| format!("{VARIABLE} is not set: no tool knows ranges"))?;
        let fail = |why: String| format!("{}: {why}", path.display());
        // SAFETY: loading runs the library's initialisers, as the user who started the tool expects.
        let library = unsafe { Library::open(Some(&path), RTLD_LAZY) };
        // The tool's functions are used until the process ends.
        let library = ManuallyDrop::new(library.map_err(|error| fail(error.to_string()))?);
        // SAFETY: NVTX gives the function this type.
        let initialize = unsafe {
            library.get::<unsafe extern "C" fn(GetTable) -> c_int>(b"InitializeInjectionNvtx2\0")
        };
        let initialize = initialize.map_err(|error| fail(error.to_string()))?;
        // SAFETY: as NVTX calls it.
        if unsafe { initialize(export_table) } == 0 {
            return Err(fail("the tool does not want ranges".to_owned()));
        }
        let function = |number: usize| {
            let place = FUNCTIONS.get(number);
            let function = place.map_or(ptr::null_mut(), |place| place.load(Ordering::Acquire));
            (!function.is_null()).then_some(function)
        };
        let functions = function(PUSH).zip(function(POP));
        let (push, pop) = functions.ok_or_else(|| fail("the tool takes no ranges".to_owned()))?;
        // SAFETY: the tool has put functions of these types there.
        Ok(unsafe {
            Self {
                push: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*const c_char) -> c_int,
                >(push),
                pop: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(pop),
            }
        })
    }

    /// Begins the ranges of a call in this thread.
    pub(crate) fn enter(self, call: u64) {
        let name = CString::new(format!("{CALL_RANGE}{call}")).unwrap_or_default();
        // SAFETY: the names are valid during the calls.
        unsafe {
            (self.push)(RANGE.as_ptr());
            (self.push)(name.as_ptr());
        }
    }

    /// Ends them.
    pub(crate) fn leave(self) {
        // SAFETY: the tool's functions, without arguments.
        unsafe {
            (self.pop)();
            (self.pop)();
        }
    }
}
