//! `--launch-shape`: launches in other shapes.

use cutape_registry::layout::{offset_of, size_of};
use cutape_registry::{Family, LaunchOp};

use super::edited::{Edited, Known};
use super::job::{Applied, Shape, WhatIf};
use crate::api::buffer::Buffer;
use crate::calls::steps::Issued;
use crate::compare::received::read_memory;

pub(super) fn apply(
    edited: &mut Edited,
    _: Known<'_, '_>,
    job: &WhatIf,
) -> Result<Applied, String> {
    let mut calls = 0;
    let mut buffers = Vec::new();
    for issued in edited.calls_mut() {
        if let Some(shape) = job.shapes.get(&issued.index) {
            reshape(issued, shape, &mut buffers)?;
            calls += 1;
        }
    }
    edited.made.buffers.extend(buffers);
    if calls == 0 {
        return Err("none of the launches is among the repeated calls".to_owned());
    }
    Ok(Applied {
        edit: "launch-shape".to_owned(),
        calls,
        what: format!("{calls} launches in another shape"),
    })
}

fn reshape(issued: &mut Issued, shape: &Shape, buffers: &mut Vec<Buffer>) -> Result<(), String> {
    match issued.function.family {
        Family::Launch(LaunchOp::Arguments(launch)) => {
            let given = issued.args.iter_mut().skip(usize::from(launch.grid));
            for (argument, &size) in given.zip(shape) {
                *argument = u64::from(size);
            }
            Ok(())
        }
        Family::Launch(LaunchOp::Config(launch)) => {
            const AT: usize = offset_of("CUlaunchConfig", "gridDimX");
            let Some(argument) = issued.args.get_mut(usize::from(launch.config)) else {
                return Ok(());
            };
            // The config is in memory that the steps keep.
            let mut config = read_memory(*argument, size_of("CUlaunchConfig"));
            let members = config.get_mut(AT..).unwrap_or_default().chunks_exact_mut(4);
            for (member, size) in members.zip(shape) {
                member.copy_from_slice(&size.to_le_bytes());
            }
            let buffer = Buffer::of(&config);
            *argument = buffer.address();
            buffers.push(buffer);
            Ok(())
        }
        _ => Err(format!(
            "call {} {}: its shape comes from other calls",
            issued.index, issued.function.name
        )),
    }
}
