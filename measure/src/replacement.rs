//! `--replace KERNEL=FILE` of `bench`, `--replace-kernel` of `what-if`, and `--tolerance`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use cutape_replay::{Element, Replacement, Tolerance};

use crate::error::Error;
use cutape_calls::matches_kernel;

/// One such option with its image.
#[derive(Debug)]
pub(crate) struct ReplaceOption {
    /// The kernels to replace.
    pub glob: String,
    /// Whether the trace launches such a kernel.
    pub is_used: bool,
    /// How the command line calls it.
    name: &'static str,
    path: String,
    image: Arc<[u8]>,
    kernels: BTreeSet<String>,
}

/// Reads all images of an option.
pub(crate) fn parse(name: &'static str, options: &[String]) -> Result<Vec<ReplaceOption>, Error> {
    let options = options.iter();
    options.map(|option| parse_one(name, option)).collect()
}

fn parse_one(name: &'static str, option: &str) -> Result<ReplaceOption, Error> {
    let (glob, path) = option
        .split_once('=')
        .filter(|(glob, path)| !glob.is_empty() && !path.is_empty())
        .ok_or_else(|| Error(format!("{name} {option}: not of the form KERNEL=FILE")))?;
    let error = |why: String| Error(format!("{name} {option}: {path}: {why}"));
    let image = fs::read(Path::new(path)).map_err(|io| error(io.to_string()))?;
    let parsed = cutape_image::parse(&image)
        .map_err(|problem| error(format!("not a readable cubin, fatbin or PTX: {problem}")))?;
    let kernels: BTreeSet<String> = parsed
        .entries
        .iter()
        .filter_map(|entry| entry.content.as_ref().ok())
        .flat_map(|content| &content.functions)
        .filter(|function| function.is_entry)
        .map(|function| function.name.clone())
        .collect();
    if kernels.is_empty() {
        return Err(error("the image contains no kernel".to_owned()));
    }
    Ok(ReplaceOption {
        glob: glob.to_owned(),
        is_used: false,
        name,
        path: path.to_owned(),
        image: image.into(),
        kernels,
    })
}

/// The replacement of a recorded kernel; `None` if no option matches it.
///
/// # Errors
/// If the image has no matching kernel, or several.
pub(crate) fn for_kernel(
    options: &mut [ReplaceOption],
    kernel: &str,
) -> Result<Option<Replacement>, Error> {
    let Some(option) = options
        .iter_mut()
        .find(|option| matches_kernel(&option.glob, kernel))
    else {
        return Ok(None);
    };
    option.is_used = true;
    let name = name_in(option, kernel)?;
    Ok(Some(Replacement {
        image: Arc::clone(&option.image),
        name,
        path: option.path.clone(),
    }))
}

/// The kernel with the recorded name, else the only one that the option matches.
fn name_in(option: &ReplaceOption, kernel: &str) -> Result<String, Error> {
    if option.kernels.contains(kernel) {
        return Ok(kernel.to_owned());
    }
    let matching: Vec<&String> = option
        .kernels
        .iter()
        .filter(|name| matches_kernel(&option.glob, name))
        .collect();
    if let [name] = matching[..] {
        return Ok(name.clone());
    }
    let names: Vec<&str> = option.kernels.iter().map(String::as_str).collect();
    let what = match matching.is_empty() {
        true => "has no matching kernel",
        false => "has several matching kernels, none with the recorded name",
    };
    Err(Error(format!(
        "{} {}: {} {what} ({kernel} in the recording); it has {}",
        option.name,
        option.glob,
        option.path,
        names.join(", ")
    )))
}

/// Parses `f32=1e-5,f16=1e-2`.
///
/// # Errors
/// Which word is wrong, and what is allowed.
pub fn tolerance(text: Option<&str>) -> Result<Tolerance, Error> {
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
                Error(format!(
                    "--tolerance {text}: `{word}` is not of the form TYPE=T with f16, bf16, f32 or \
                     f64 and a number from 0"
                ))
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerances() {
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
            let error = tolerance(Some(text)).unwrap_err();
            assert!(error.0.contains("TYPE=T"), "{text}");
        }
    }

    #[test]
    fn the_recorded_name_wins_else_the_only_match() {
        let option = |glob: &str, kernels: &[&str]| ReplaceOption {
            glob: glob.to_owned(),
            name: "--replace",
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
            let mut all = [option(glob, kernels)];
            let found = for_kernel(&mut all, recorded);
            let name = found.map(|found| found.map(|replacement| replacement.name));
            match expected {
                Some(expected) => assert_eq!(name.unwrap().as_deref(), expected, "{glob}"),
                None => assert!(name.unwrap_err().0.contains("new.cubin"), "{glob}"),
            }
        }
    }
}
