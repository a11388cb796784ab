//! What a finding keeps when the program runs again or is built again: by it a baseline knows the
//! finding, and equal findings of a run are counted as one.

use crate::finding::{CodePlace, FindingKey, Frame, ObjectHistory};

impl CodePlace {
    /// The call of a function, from its stack, else from the symbol of the caller.
    pub(crate) fn of(function: &str, frames: &[Frame], caller: &str) -> Self {
        let mut place = match frames.iter().any(|frame| frame.is_own) {
            true => Self::of_frames(frames),
            false => Self::of_symbol(caller),
        };
        let base = cutape_registry::function(function).map_or(function, |known| known.base);
        place.names = match &*place.names {
            "" => base.to_owned(),
            names => format!("{base} in {names}"),
        };
        place
    }

    fn of_frames(frames: &[Frame]) -> Self {
        let own = || frames.iter().filter(|frame| frame.is_own);
        let mut names: Vec<String> = own().map(name_of).collect();
        names.dedup();
        // A recursion has the depth of its data.
        let mut lines: Vec<u64> = own()
            .map(|frame| match frame.line {
                0 => frame.address,
                line => line.into(),
            })
            .collect();
        lines.dedup();
        Self {
            names: names.join(", "),
            lines,
        }
    }

    /// `main+0x13c in app`, `libx.so+0x1234`, or an address.
    fn of_symbol(symbol: &str) -> Self {
        let found = symbol.rsplit_once("+0x");
        let found = found.or_else(|| Some(("", symbol.strip_prefix("0x")?)));
        let (name, rest) = found.unwrap_or((symbol, ""));
        let (offset, file) = rest.split_at(rest.find(' ').unwrap_or(rest.len()));
        Self {
            names: format!("{name}{file}"),
            lines: u64::from_str_radix(offset, 16).into_iter().collect(),
        }
    }
}

/// `step (train.py)`: folders differ from machine to machine.
fn name_of(frame: &Frame) -> String {
    let path = match &*frame.file {
        "" => &frame.module,
        file => file,
    };
    let file = path.rsplit('/').next().unwrap_or_default();
    match &*frame.function {
        // An offset in a file without symbols.
        "" => file.to_owned(),
        function if function.starts_with("0x") => file.to_owned(),
        function => format!("{function} ({file})"),
    }
}

impl FindingKey {
    /// All of it on one line, without addresses, which differ from run to run.
    pub fn text(&self) -> String {
        let lines = self.lines.iter().filter(|&&line| line < 1 << 32);
        let lines: Vec<String> = lines.map(u64::to_string).collect();
        format!("{} at {}", self.names, lines.join(","))
    }

    /// Of a rule, the call that is wrong, if it is one call, and the objects that it is about.
    pub(crate) fn new(rule: &str, call: Option<&CodePlace>, objects: &[ObjectHistory]) -> Self {
        let mut key = Self {
            names: rule.to_owned(),
            lines: Vec::new(),
        };
        if let Some(call) = call {
            key.names = format!("{rule}: {}", call.names);
            key.lines.extend(&call.lines);
        }
        for object in objects {
            // A label is kind, generation, handle and name.
            let name = object.label.find('"').map(|at| &object.label[at..]);
            let name = name.map_or(String::new(), |name| format!(" {name}"));
            key.names += &format!("; {}{name} of {}", object.kind, object.creation.names);
            key.lines.extend(&object.creation.lines);
        }
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_keep_names_and_lines_apart() {
        let frame = |function: &str, file: &str, line, is_own| Frame {
            function: function.to_owned(),
            file: file.to_owned(),
            module: "/home/u/app".to_owned(),
            address: 0x40,
            line,
            is_own,
            ..Frame::default()
        };
        let recursive = |depth: usize| {
            let mut frames = vec![frame("cudaFree", "", 0, false)];
            frames.extend(vec![frame("walk", "/s/tree.cpp", 7, true); depth]);
            frames.push(frame("main", "", 0, true));
            frames
        };
        for (frames, caller, names, lines) in [
            (
                recursive(1),
                "",
                "walk (tree.cpp), main (app)",
                vec![7, 0x40],
            ),
            (
                recursive(9),
                "",
                "walk (tree.cpp), main (app)",
                vec![7, 0x40],
            ),
            (vec![frame("0x1200", "", 0, true)], "", "app", vec![0x40]),
            (Vec::new(), "main+0x13c in app", "main in app", vec![0x13c]),
            (
                Vec::new(),
                "V::operator+(V const&)+0x5 in a",
                "V::operator+(V const&) in a",
                vec![5],
            ),
            (Vec::new(), "libx.so+0x1234", "libx.so", vec![0x1234]),
            (Vec::new(), "0x7f00", "", vec![0x7f00]),
        ] {
            let place = CodePlace::of("cuMemFree_v2", &frames, caller);
            let names = match names {
                "" => "cuMemFree".to_owned(),
                names => format!("cuMemFree in {names}"),
            };
            assert_eq!((place.names, place.lines), (names, lines), "{caller}");
        }
    }
}
