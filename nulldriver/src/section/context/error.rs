//! Error Handling: names and descriptions of result codes.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::LazyLock;

use cutape_registry::enumeration;

use crate::call::answer::{Answer, valid_if};
use crate::call::argument::{Out, OutRef};
use crate::call::entry::entries;

entries! {
    cuGetErrorName: |code: u32, text: OutRef<u64>|
        answer(TEXTS.get(&code).map(|texts| &texts.0), *text);
    cuGetErrorString: |code: u32, text: OutRef<u64>|
        answer(TEXTS.get(&code).map(|texts| &texts.1), *text);
}

/// Name and description of every code, as C strings that live as long as the process.
static TEXTS: LazyLock<HashMap<u32, (CString, CString)>> = LazyLock::new(|| {
    let mut texts = HashMap::new();
    for &(name, value) in enumeration("CUresult").map_or(&[][..], |list| list.values) {
        let Ok(code) = u32::try_from(value) else {
            continue;
        };
        let words = name
            .trim_start_matches("CUDA_")
            .trim_start_matches("ERROR_");
        let text = match code {
            0 => "no error".to_owned(),
            _ => words.replace('_', " ").to_lowercase(),
        };
        let (Ok(name), Ok(text)) = (CString::new(name), CString::new(text)) else {
            continue;
        };
        texts.entry(code).or_insert((name, text));
    }
    texts
});

/// An unknown code gives NULL and INVALID_VALUE (cuGetErrorName).
fn answer(found: Option<&CString>, text: Out<u64>) -> Answer {
    text.set_if(found.map_or(0, |string| string.as_ptr() as u64));
    valid_if(found.is_some())
}
