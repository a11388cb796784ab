//! What of the images that calls load these calls do not need.
//!
//! Of a fat binary, code for other devices than the recorded ones. Of machine code, kernels that no
//! call names: a kernel is launched, and its attributes are asked for, through a handle that a call
//! has found by name. Names and attributes of all functions stay.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};

use cutape_format::layout::field;
use cutape_format::{Call, CallChange, CallPart, NewBytes, SnapshotChange, Trace};
use cutape_image::{ImageKind, entries_for, kind, without_unused_code};
use cutape_model::function_of;
use cutape_registry::{Family, FunctionOp, ImageSource};

use crate::part::Part;

/// What calls need of images.
pub(crate) struct Images<'t> {
    trace: &'t Trace,
    /// Compute capabilities of the recorded devices.
    devices: Vec<(u16, u16)>,
    /// The names by which calls find functions; `None` if some find all of an image.
    names: Option<HashSet<String>>,
    /// What is left of images, by the hash of their bytes.
    known: Mutex<HashMap<blake3::Hash, Option<Arc<[u8]>>>>,
}

/// The changes that leave out of the images of a part what its calls do not need.
pub(crate) fn image_changes(trace: &Trace, part: &Part) -> BTreeMap<u64, CallChange> {
    let images = Images::of(trace, |call| part.contains(call));
    let calls = trace.calls().filter(|call| part.contains(call.index));
    let changes = calls.filter_map(|call| {
        let change = CallChange {
            snapshots: vec![images.smaller(&call)?],
            ..CallChange::default()
        };
        Some((call.index, change))
    });
    changes.collect()
}

impl<'t> Images<'t> {
    /// What these calls need.
    pub(crate) fn of(trace: &'t Trace, is_in: impl Fn(u64) -> bool) -> Self {
        let mut names = Some(HashSet::new());
        for call in trace.calls().filter(|call| is_in(call.index)) {
            match name(trace, &call) {
                Named::Nothing => {}
                Named::One(name) => _ = names.as_mut().map(|names| names.insert(name)),
                Named::All => names = None,
            }
        }
        Self {
            trace,
            devices: devices(trace),
            names,
            known: Mutex::default(),
        }
    }

    /// The smaller image of a call; `None` if it loads none, or if all of it is needed.
    pub(crate) fn smaller(&self, call: &Call<'_>) -> Option<SnapshotChange> {
        let (Family::ModuleLoad(load) | Family::LibraryLoad(load)) =
            function_of(call.signature)?.family
        else {
            return None;
        };
        // An image that was refused has to be refused again.
        if call.result() != Some(0) {
            return None;
        }
        // Options may choose another entry than the best for the device.
        let has_options = load
            .options
            .is_some_and(|options| call.argument(usize::from(options.count)) != 0);
        let parameter = match load.source {
            ImageSource::Data(parameter) | ImageSource::FatBinary(parameter) => parameter,
            ImageSource::File(_) => return None,
        };
        let position = usize::from(parameter);
        let wrapped = call.snapshot(position, field::FATBIN);
        let snapshot = wrapped.or_else(|| call.snapshot(position, field::POINTEE))?;
        let bytes = self.trace.resolve(snapshot.bytes).ok()?;
        let hash = blake3::hash(&bytes);
        let mut known = self.known.lock().ok()?;
        let left = known
            .entry(hash)
            .or_insert_with(|| self.left(&bytes, !has_options).map(Arc::from));
        Some(SnapshotChange {
            part: CallPart::Enter,
            parameter,
            field: snapshot.field,
            bytes: NewBytes::Other(left.clone()?),
        })
    }

    /// What is left of an image; `None` if that is all of it.
    fn left(&self, bytes: &[u8], chooses_best: bool) -> Option<Vec<u8>> {
        let entries = (chooses_best && kind(bytes) == ImageKind::Fatbin)
            .then(|| entries_for(bytes, &self.devices))
            .flatten();
        let image = entries.as_deref().unwrap_or(bytes);
        let without = self
            .names
            .as_ref()
            .and_then(|names| without_unused_code(image, &|name| names.contains(name)));
        without.or(entries)
    }
}

/// What of images a call finds.
enum Named {
    Nothing,
    One(String),
    /// All functions of an image, or one that the trace does not name.
    All,
}

fn name(trace: &Trace, call: &Call<'_>) -> Named {
    let family = function_of(call.signature).map(|function| function.family);
    let Some(Family::Function(operation) | Family::Kernel(operation)) = family else {
        return Named::Nothing;
    };
    match operation {
        FunctionOp::Find { name, .. } => {
            let snapshot = call.snapshot(usize::from(name), field::POINTEE);
            let bytes = snapshot.and_then(|snapshot| trace.resolve(snapshot.bytes).ok());
            match bytes.map(Cow::into_owned).map(until_nul) {
                Some(Ok(name)) => Named::One(name),
                _ => Named::All,
            }
        }
        FunctionOp::List { .. } => Named::All,
        FunctionOp::OfKernel { .. }
        | FunctionOp::Count
        | FunctionOp::Name { .. }
        | FunctionOp::GetAttribute
        | FunctionOp::SetAttribute
        | FunctionOp::SetCacheConfig
        | FunctionOp::ParameterInfo
        | FunctionOp::SetLaunchState => Named::Nothing,
    }
}

fn until_nul(mut bytes: Vec<u8>) -> Result<String, std::string::FromUtf8Error> {
    let end = bytes.iter().position(|&byte| byte == 0);
    bytes.truncate(end.unwrap_or(bytes.len()));
    String::from_utf8(bytes)
}

/// The compute capabilities of the recorded devices.
fn devices(trace: &Trace) -> Vec<(u16, u16)> {
    let text = |device: u32| trace.meta_value(&format!("device.{device}.compute-capability"));
    let devices = (0..).map_while(text);
    let devices = devices.filter_map(|text| {
        let (major, minor) = text.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    devices.collect()
}
