//! Driver Entry Point Access: which exported symbol a name means for a version of the API.

use std::collections::HashMap;
use std::sync::LazyLock;

use cutape_driver::types::CUuuid;
use cutape_registry::{FUNCTIONS, Function};

use crate::call::answer::{Answer, INVALID_VALUE, NOT_FOUND, invalid_if};
use crate::call::argument::{AddressOf, In, Out, OutRef, Text};
use crate::call::entry::entries;
use crate::call::error_log;
use crate::section::private_tables;
use crate::settings;

entries! {
    [symbol] cuGetProcAddress: get;
    [symbol] cuGetProcAddress_v2: get_with_status;
    cuGetExportTable: get_export_table;
}

/// `CU_GET_PROC_ADDRESS_LEGACY_STREAM | PER_THREAD_DEFAULT_STREAM`.
const FLAGS: u64 = 3;
const PER_THREAD: u64 = 2;

/// `CUdriverProcAddressQueryResult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Success = 0,
    NotFound = 1,
    VersionNotSufficient = 2,
}

/// The variants of each documented name.
static VARIANTS: LazyLock<HashMap<&str, Vec<&Function>>> = LazyLock::new(|| {
    let mut variants: HashMap<&str, Vec<_>> = HashMap::new();
    for function in &FUNCTIONS {
        variants.entry(function.base).or_default().push(function);
    }
    variants
});

/// The symbol that a name means for a version of the API.
fn resolve(name: &str, version: u32, flags: u64) -> Result<&'static Function, Status> {
    let variants = VARIANTS.get(name).ok_or(Status::NotFound)?;
    let newest = |per_thread| {
        let known = variants.iter().filter(|variant| variant.since <= version);
        known
            .filter(|variant| variant.per_thread == per_thread)
            .max_by_key(|variant| variant.since)
    };
    let per_thread = newest(true).filter(|_| flags & PER_THREAD != 0);
    let found = per_thread.or_else(|| newest(false)).copied();
    found.ok_or(Status::VersionNotSufficient)
}

fn look_up(
    name: Text,
    address: Out<u64>,
    version: i32,
    flags: u64,
    address_of: AddressOf,
) -> Answer<Status> {
    let name = name.get()?;
    address.check()?;
    if name.is_empty() {
        // Measured with cudart's first call: no error, whatever the version.
        address.set_if(0);
        return Ok(Status::NotFound);
    }
    invalid_if(flags & !FLAGS != 0 || flags == FLAGS || version < 2000)?;
    // A driver knows no symbol newer than itself.
    let version = version.min(settings::get().version).cast_unsigned();
    let symbol = resolve(&name, version, flags);
    let entry = symbol.ok().and_then(|function| address_of(function.id));
    address.set_if(entry.map_or(0, |pointer| pointer as u64));
    Ok(symbol.err().unwrap_or(Status::Success))
}

fn get(name: Text, address: Out<u64>, version: i32, flags: u64, address_of: AddressOf) -> Answer {
    match look_up(name, address, version, flags, address_of)? {
        Status::Success => Ok(()),
        Status::NotFound | Status::VersionNotSufficient => Err(NOT_FOUND),
    }
}

fn get_with_status(
    name: Text,
    address: Out<u64>,
    version: i32,
    flags: u64,
    status: Out<u32>,
    address_of: AddressOf,
) -> Answer {
    // An unknown name is not an error of the call (measured).
    let found = look_up(name, address, version, flags, address_of)?;
    status.set_if(found as u32);
    Ok(())
}

fn get_export_table(table: OutRef<u64>, id: In<CUuuid>) -> Answer {
    let bytes = id.get()?.bytes.map(|byte| byte as u8);
    let uuid = u128::from_be_bytes(bytes);
    let Some(address) = private_tables::find(uuid) else {
        error_log::say(|| format!("there is no private table {uuid:032x}"));
        // As driver 580.159.04 answers (H200).
        return Err(INVALID_VALUE);
    };
    table.set(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_resolve_by_version_and_flags() {
        let rows = [
            ("cuMemAlloc", 2000, 0, Ok("cuMemAlloc")),
            ("cuMemAlloc", 12000, 0, Ok("cuMemAlloc_v2")),
            ("cuCtxCreate", 12040, 0, Ok("cuCtxCreate_v3")),
            ("cuCtxCreate", 13000, 0, Ok("cuCtxCreate_v4")),
            ("cuMemcpyHtoD", 13000, 2, Ok("cuMemcpyHtoD_v2_ptds")),
            ("cuMemcpyHtoD", 13000, 1, Ok("cuMemcpyHtoD_v2")),
            ("cuLaunchKernel", 13000, 2, Ok("cuLaunchKernel_ptsz")),
            ("cuInit", 13000, 2, Ok("cuInit")),
            (
                "cuLibraryLoadData",
                11000,
                0,
                Err(Status::VersionNotSufficient),
            ),
            ("cuGetProcAddress", 12000, 0, Ok("cuGetProcAddress_v2")),
            ("cuNoSuchCall", 13000, 0, Err(Status::NotFound)),
            ("cuMemAlloc_v2", 13000, 0, Err(Status::NotFound)),
        ];
        for (name, version, flags, expected) in rows {
            assert_eq!(
                resolve(name, version, flags).map(|function| function.name),
                expected,
                "{name} {version} {flags}"
            );
        }
    }
}
