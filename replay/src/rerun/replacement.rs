//! Another kernel in the place of a recorded one: loaded, held against it, and launched with its parameters.

use std::ffi::CString;
use std::sync::Arc;

use crate::api::{Api, result_name};
use crate::buffer::Buffer;
use crate::issue::player::Player;
use crate::rerun::repeatable::launched_position;
use crate::rerun::steps::Step;

/// A kernel that is launched in the place of a recorded one.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// The image that it is in: a cubin, a fatbin or PTX.
    pub image: Arc<[u8]>,
    /// Its name there.
    pub name: String,
    /// Where the image comes from, for messages.
    pub path: String,
}

// Numbers of CUfunction_attribute that programs set.
const MAX_DYNAMIC_SHARED_SIZE: u32 = 8;
const PREFERRED_CARVEOUT: u32 = 9;
const NON_PORTABLE_CLUSTERS: u32 = 14;
const CLUSTER_SCHEDULING: u32 = 15;

/// A loaded module with the steps that launch its kernel.
#[derive(Debug)]
pub(super) struct Replaced {
    module: u64,
    pub steps: Vec<Step>,
    /// What could not be checked.
    pub note: Option<String>,
}

impl Replacement {
    /// Loads the kernel into the current context and puts it into the launch among the steps.
    ///
    /// # Errors
    /// If it cannot be loaded, or takes other parameters; in one line.
    pub(super) fn load(&self, player: &Player<'_>, steps: &[Step]) -> Result<Replaced, String> {
        let api = &player.api;
        let path = &self.path;
        let mut padded = self.image.to_vec();
        // Text ends with NUL, and a parser that runs over the end of damaged bytes finds zeros.
        padded.extend([0; 64]);
        let image = Buffer::of(&padded);
        let module = api.load_module(image.address()).map_err(|code| {
            format!(
                "{path}: the driver answers {} to loading it",
                result_name(code)
            )
        })?;
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
        let function = api.module_function(module, &c_name).map_err(|code| {
            format!(
                "{path}: the driver answers {} to looking for {name}",
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
                api.parameter_layout(recorded),
                api.parameter_layout(function),
            ) {
                (Ok(old), Ok(new)) if old != new => {
                    return Err(format!(
                        "{path}: {name} takes other parameters than the recorded kernel: {} there, {} in the recording (offset+size)",
                        layout_text(&new),
                        layout_text(&old)
                    ));
                }
                (Ok(_), Ok(_)) => {}
                _ => {
                    note = Some(format!(
                        "{path}: this driver cannot tell the parameters of kernels: that {name} takes those of the recorded one was not checked"
                    ));
                }
            }
            take_attributes(api, recorded, function)
                .map_err(|what| format!("{path}: {name}: {what}"))?;
            issued.args[position] = function;
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

/// The function of a launched handle, which may be a kernel's.
fn live_function(player: &Player<'_>, handle: u64) -> Result<u64, String> {
    if !player.handles.is_live_kernel(handle) {
        return Ok(handle);
    }
    player.api.kernel_function(handle).map_err(|code| {
        format!(
            "the driver answers {} to cuKernelGetFunction of the recorded kernel",
            result_name(code)
        )
    })
}

/// Gives the new function what the program has set on the old one.
fn take_attributes(api: &Api, old: u64, new: u64) -> Result<(), String> {
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
                "the driver answers {} to allowing it {wanted} bytes of dynamic shared memory, as the recorded kernel has",
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
    fn layouts_are_told_in_one_line() {
        assert_eq!(layout_text(&[]), "none");
        assert_eq!(layout_text(&[(0, 8), (8, 4)]), "0+8 8+4");
    }
}
