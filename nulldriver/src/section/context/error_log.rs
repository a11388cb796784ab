//! Error Log Management: callbacks. The log itself is not kept.

use crate::call::answer::{invalid_if, valid_if};
use crate::call::argument::OutRef;
use crate::call::entry::entries;
use crate::call::error_log;

entries! {
    cuLogsRegisterCallback: |entry: u64, data: u64, handle: OutRef<u64>| {
        invalid_if(entry == 0)?;
        handle.set(error_log::register(entry, data))
    };
    cuLogsUnregisterCallback: |handle: u64| valid_if(error_log::unregister(handle));
}
