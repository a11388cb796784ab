//! Puts frames of Python in the place of the interpreter's native frames that run them.

use cutape_analyzer::Frame;

/// The function that runs bytecode, in all versions. The compiler may add to its name.
const INTERPRETER: &str = "_PyEval_EvalFrameDefault";

/// The frames of both, the innermost first. Of Python's, those that end a run in one native frame
/// are marked.
pub(crate) fn woven(native: Vec<Vec<Frame>>, python: Vec<(Frame, bool)>) -> Vec<Frame> {
    if python.is_empty() {
        return native.into_iter().flatten().collect();
    }
    let runs_python = |frames: &[Frame]| {
        frames
            .iter()
            .any(|frame| frame.function.starts_with(INTERPRETER))
    };
    let interpreters = native.iter().filter(|frames| runs_python(frames)).count();
    let mut runs = runs(python);
    let is_known = interpreters == runs.len();
    let mut woven = Vec::new();
    for frames in native {
        if is_known && runs_python(&frames) {
            woven.extend(runs.next().into_iter().flatten());
            continue;
        }
        // Without names of the interpreter's functions: below its first frame.
        if !is_known && frames.iter().any(is_interpreter) {
            woven.extend(runs.by_ref().flatten());
        }
        woven.extend(frames);
    }
    woven.extend(runs.flatten());
    woven
}

/// The frames of each native frame.
fn runs(python: Vec<(Frame, bool)>) -> std::vec::IntoIter<Vec<Frame>> {
    let mut runs = vec![Vec::new()];
    for (frame, is_last) in python {
        if let Some(run) = runs.last_mut() {
            run.push(frame);
        }
        if is_last {
            runs.push(Vec::new());
        }
    }
    runs.retain(|run| !run.is_empty());
    runs.into_iter()
}

/// Whether a frame is of Python's executable or library.
fn is_interpreter(frame: &Frame) -> bool {
    let name = frame.module.rsplit('/').next().unwrap_or_default();
    name.starts_with("python") || name.starts_with("libpython")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_frames_are_between_native_ones() {
        let native = |text: &str| -> Vec<Vec<Frame>> {
            let frames = text.split_whitespace().map(|function| {
                vec![Frame {
                    function: function.replace("eval", INTERPRETER),
                    module: match function {
                        "ffi" | "main" => "/lib/x.so".to_owned(),
                        _ => "/usr/bin/python3.11".to_owned(),
                    },
                    ..Frame::default()
                }]
            });
            frames.collect()
        };
        let python = |text: &str| -> Vec<(Frame, bool)> {
            let frames = text.split_whitespace().map(|function| {
                let frame = Frame {
                    function: function.trim_end_matches('.').to_owned(),
                    ..Frame::default()
                };
                (frame, function.ends_with('.'))
            });
            frames.collect()
        };
        for (frames, of_python, expected) in [
            ("ffi call eval main", "f g.", "ffi call f g main"),
            (
                "ffi call eval map eval main",
                "f. g h.",
                "ffi call f map g h main",
            ),
            ("ffi call eval.cold main", "f", "ffi call f main"),
            ("ffi main", "", "ffi main"),
            // A stripped interpreter, or one that was cut.
            ("ffi call call main", "f. g.", "ffi f g call call main"),
            ("ffi", "f. g.", "ffi f g"),
        ] {
            let woven = woven(native(frames), python(of_python));
            let functions: Vec<_> = woven.iter().map(|frame| &*frame.function).collect();
            assert_eq!(functions.join(" "), expected, "{frames} with {of_python}");
        }
    }
}
