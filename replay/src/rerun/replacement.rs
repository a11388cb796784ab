//! Loads a kernel and launches it instead of a recorded one, with the recorded parameters.

use std::ffi::CString;
use std::sync::Arc;

use crate::api::buffer::Buffer;
use crate::api::{Api, result_name};
use crate::calls::steps::Step;
use crate::player::Player;
use crate::rerun::repeatable::launched_position;

/// A kernel to launch instead of a recorded one.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// Its image: a cubin, a fatbin or PTX.
    pub image: Arc<[u8]>,
    /// Its name in the image.
    pub name: String,
    /// The file of the image, for messages.
    pub path: String,
}

// Values of CUfunction_attribute that a program can set.
const MAX_DYNAMIC_SHARED_SIZE: u32 = 8;
const PREFERRED_CARVEOUT: u32 = 9;
const NON_PORTABLE_CLUSTERS: u32 = 14;
const CLUSTER_SCHEDULING: u32 = 15;

/// A loaded module with the steps that launch its kernel.
#[derive(Debug)]
pub(super) struct Replaced {
    module: u64,
    pub steps: Vec<Step>,
    /// A check that was not possible.
    pub note: Option<String>,
}

impl Replacement {
    /// Loads the kernel into the current context, and replaces the launched function in the steps.
    ///
    /// # Errors
    /// If it cannot be loaded, or takes other parameters.
    pub(super) fn load(&self, player: &Player<'_>, steps: &[Step]) -> Result<Replaced, String> {
        let api = &player.api;
        let path = &self.path;
        let mut padded = self.image.to_vec();
        // PTX needs a NUL at its end. A driver that reads beyond damaged bytes finds zeros.
        padded.extend([0; 64]);
        let image = Buffer::of(&padded);
        let module = api
            .load_module(image.address())
            .map_err(|code| format!("{path}: the driver cannot load it: {}", result_name(code)))?;
        let prepared = self.prepare(player, module, steps);
        if prepared.is_err()
            && let Err(code) = api.unload_module(module)
        {
            tracing::debug!("{path}: could not be unloaded: result {code}");
        }
        prepared
    }

    fn prepare(
        &self,
        player: &Player<'_>,
        module: u64,
        steps: &[Step],
    ) -> Result<Replaced, String> {
        let api = &player.api;
        let (path, name) = (&self.path, &self.name);
        let c_name = CString::new(name.as_bytes())
            .map_err(|_| format!("{path}: the kernel's name holds a NUL"))?;
        let function = api.function(module, &c_name, false).map_err(|code| {
            format!(
                "{path}: the driver does not find the kernel {name}: {}",
                result_name(code)
            )
        })?;
        let mut note = None;
        let mut replaced = steps.to_vec();
        for step in &mut replaced {
            let Step::Call(issued) = step else { continue };
            let Some(position) = launched_position(issued.function) else {
                continue;
            };
            let Some(handle) = issued.args.get(position).copied() else {
                continue;
            };
            let recorded = live_function(player, handle)?;
            match (
                api.parameters_of(recorded, false),
                api.parameters_of(function, false),
            ) {
                (Some(old), Some(new)) if old != new => {
                    return Err(format!(
                        "{path}: {name} takes other parameters than the recorded kernel: {}, recorded {} (offset+size)",
                        layout_text(&new),
                        layout_text(&old)
                    ));
                }
                (Some(_), Some(_)) => {}
                _ => {
                    note = Some(format!(
                        "{path}: this driver does not report kernel parameters: whether {name} takes those of the recorded kernel was not checked"
                    ));
                }
            }
            copy_attributes(api, recorded, function)
                .map_err(|what| format!("{path}: {name}: {what}"))?;
            if let Some(argument) = issued.args.get_mut(position) {
                *argument = function;
            }
        }
        Ok(Replaced {
            module,
            steps: replaced,
            note,
        })
    }
}

impl Replaced {
    /// Unloads the module.
    pub(super) fn release(&self, api: &Api) {
        if let Err(code) = api.unload_module(self.module) {
            tracing::debug!("a replacement could not be unloaded: result {code}");
        }
    }
}

/// The function of a launched handle, which may be a `CUkernel`.
fn live_function(player: &Player<'_>, handle: u64) -> Result<u64, String> {
    if !player.handles.is_live_kernel(handle) {
        return Ok(handle);
    }
    player.api.kernel_function(handle).map_err(|code| {
        format!(
            "cuKernelGetFunction of the recorded kernel returned {}",
            result_name(code)
        )
    })
}

/// Sets the attributes on the new function that the program set on the old one.
fn copy_attributes(api: &Api, old: u64, new: u64) -> Result<(), String> {
    for attribute in [
        MAX_DYNAMIC_SHARED_SIZE,
        PREFERRED_CARVEOUT,
        NON_PORTABLE_CLUSTERS,
        CLUSTER_SCHEDULING,
    ] {
        let Ok(wanted) = api.function_attribute(old, attribute) else {
            continue;
        };
        if api.function_attribute(new, attribute) == Ok(wanted) {
            continue;
        }
        let set = api.set_function_attribute(new, attribute, wanted);
        if let (MAX_DYNAMIC_SHARED_SIZE, Err(code)) = (attribute, set) {
            return Err(format!(
                "the driver does not allow it {wanted} bytes of dynamic shared memory, as the recorded kernel has: {}",
                result_name(code)
            ));
        }
    }
    Ok(())
}

fn layout_text(layout: &[(u32, u32)]) -> String {
    let words: Vec<String> = layout
        .iter()
        .map(|(offset, size)| format!("{offset}+{size}"))
        .collect();
    match words.is_empty() {
        true => "none".to_owned(),
        false => words.join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_printed_in_one_line() {
        assert_eq!(layout_text(&[]), "none");
        assert_eq!(layout_text(&[(0, 8), (8, 4)]), "0+8 8+4");
    }
}
