//! `--replace KERNEL=FILE` and `--tolerance`: which image is launched in the place of which kernel.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use cutape_replay::{Element, Replacement, Tolerance};

use crate::call_set::matches_kernel;
use crate::failure::Failure;

/// One `--replace`, its image read.
#[derive(Debug)]
pub(super) struct Wanted {
    /// As the user wrote it.
    pub glob: String,
    /// Whether the trace launches such a kernel.
    pub is_used: bool,
    path: String,
    image: Arc<[u8]>,
    kernels: BTreeSet<String>,
}

/// Reads all images.
pub(super) fn wanted(options: &[String]) -> Result<Vec<Wanted>, Failure> {
    options.iter().map(|option| one(option)).collect()
}

fn one(option: &str) -> Result<Wanted, Failure> {
    let (glob, path) = option
        .split_once('=')
        .filter(|(glob, path)| !glob.is_empty() && !path.is_empty())
        .ok_or_else(|| Failure::unusable(format!("--replace {option}: write KERNEL=FILE")))?;
    let refuse = |why: String| Failure::unusable(format!("--replace {option}: {path}: {why}"));
    let image = fs::read(Path::new(path)).map_err(|error| refuse(error.to_string()))?;
    let parsed = cutape_image::parse(&image).map_err(|problem| {
        refuse(format!(
            "no cubin, fatbin or PTX that can be read: {problem}"
        ))
    })?;
    let kernels: BTreeSet<String> = parsed
        .entries
        .iter()
        .filter_map(|entry| entry.content.as_ref().ok())
        .flat_map(|content| &content.functions)
        .filter(|function| function.is_entry)
        .map(|function| function.name.clone())
        .collect();
    if kernels.is_empty() {
        return Err(refuse("there is no kernel in it".to_owned()));
    }
    Ok(Wanted {
        glob: glob.to_owned(),
        is_used: false,
        path: path.to_owned(),
        image: image.into(),
        kernels,
    })
}

/// What is launched in the place of a recorded kernel; `None` if nothing is.
///
/// # Errors
/// If the image has no kernel for it, or several that might be meant.
pub(super) fn for_kernel(
    wanted: &mut [Wanted],
    kernel: &str,
) -> Result<Option<Replacement>, Failure> {
    let Some(wanted) = wanted
        .iter_mut()
        .find(|wanted| matches_kernel(&wanted.glob, kernel))
    else {
        return Ok(None);
    };
    wanted.is_used = true;
    let name = name_in(wanted, kernel)?;
    Ok(Some(Replacement {
        image: Arc::clone(&wanted.image),
        name,
        path: wanted.path.clone(),
    }))
}

/// The kernel of the same name, else the only one that the user's name takes.
fn name_in(wanted: &Wanted, kernel: &str) -> Result<String, Failure> {
    if wanted.kernels.contains(kernel) {
        return Ok(kernel.to_owned());
    }
    let meant: Vec<&String> = wanted
        .kernels
        .iter()
        .filter(|name| matches_kernel(&wanted.glob, name))
        .collect();
    if let [name] = meant[..] {
        return Ok(name.clone());
    }
    let names: Vec<&str> = wanted.kernels.iter().map(String::as_str).collect();
    let what = match meant.is_empty() {
        true => "has no kernel of that name",
        false => "has several kernels of that name, none of which is that of the recording",
    };
    Err(Failure::unusable(format!(
        "--replace {}: {} {what} ({kernel} in the recording); it has {}",
        wanted.glob,
        wanted.path,
        names.join(", ")
    )))
}

/// Reads `f32=1e-5,f16=1e-2`.
pub(super) fn tolerance(text: Option<&str>) -> Result<Tolerance, Failure> {
    let Some(text) = text else {
        return Ok(Tolerance::new());
    };
    text.split(',')
        .map(|word| {
            let parsed = word.trim().split_once('=').and_then(|(name, number)| {
                let number: f64 = number.parse().ok()?;
                let sensible = number.is_finite() && number >= 0.0;
                Some((Element::from_name(name)?, number)).filter(|_| sensible)
            });
            parsed.ok_or_else(|| {
                Failure::unusable(format!(
                    "--tolerance {text}: `{word}` is not TYPE=T with f16, bf16, f32 or f64 and a number from 0 on"
                ))
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerances_are_read() {
        assert_eq!(tolerance(None).unwrap(), vec![]);
        assert_eq!(
            tolerance(Some("f32=1e-5, bf16=0.01")).unwrap(),
            vec![(Element::F32, 1e-5), (Element::Bf16, 0.01)]
        );
        for text in [
            "",
            "f32",
            "f32=",
            "f8=1",
            "f32=-1",
            "f32=nan",
            "f32=1;f64=1",
        ] {
            let failure = tolerance(Some(text)).unwrap_err();
            assert!(failure.message.contains("TYPE=T"), "{text}");
        }
    }

    #[test]
    fn the_kernel_of_the_same_name_is_taken_else_the_only_one_that_is_meant() {
        let wanted = |glob: &str, kernels: &[&str]| Wanted {
            glob: glob.to_owned(),
            is_used: false,
            path: "new.cubin".to_owned(),
            image: Arc::from([0u8].as_slice()),
            kernels: kernels.iter().map(|&name| name.to_owned()).collect(),
        };
        for (glob, kernels, recorded, expected) in [
            ("add", &["add", "sub"][..], "add", Some(Some("add"))),
            ("add*", &["add_fast", "sub"], "add", Some(Some("add_fast"))),
            ("add*", &["add_a", "add_b"], "add", None),
            ("add*", &["add", "add_b"], "add", Some(Some("add"))),
            ("add", &["sub"], "add", None),
            ("mul", &["mul"], "add", Some(None)),
            (
                "saxpy",
                &["_Z5saxpyifPfS_"],
                "_Z5saxpyifPfS_",
                Some(Some("_Z5saxpyifPfS_")),
            ),
        ] {
            let mut all = [wanted(glob, kernels)];
            let found = for_kernel(&mut all, recorded);
            let name = found.map(|found| found.map(|replacement| replacement.name));
            match expected {
                Some(expected) => assert_eq!(name.unwrap().as_deref(), expected, "{glob}"),
                None => assert!(name.unwrap_err().message.contains("new.cubin"), "{glob}"),
            }
        }
    }
}
