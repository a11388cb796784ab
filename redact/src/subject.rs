//! What a parameter of a driver function holds or points at.

use cutape_format::{Signature, Subject};

/// Strings and texts by the name of their parameter in cuda.h. The roles do not tell paths from
/// names.
const TEXTS: [(&str, Subject); 11] = [
    ("fileName", Subject::Path),
    ("fname", Subject::Path),
    ("path", Subject::Path),
    ("pathToFile", Subject::Path),
    ("configFile", Subject::Path),
    ("outputFile", Subject::Path),
    ("name", Subject::Name),
    ("logBuffer", Subject::Text),
    // Functions of the driver, devices, results.
    ("symbol", Subject::Call),
    ("pStr", Subject::Call),
    ("pciBusId", Subject::Call),
];

/// Parameters whose role is not that of a text, by function and name.
const OTHERS: [(&str, &str, Subject); 11] = [
    ("cuDeviceGetName", "name", Subject::Call),
    // A name that may be a path.
    ("cuLinkAddData", "name", Subject::Path),
    ("cuLinkAddData", "data", Subject::Image),
    ("cuCoredumpGetAttribute", "value", Subject::Text),
    ("cuCoredumpGetAttributeGlobal", "value", Subject::Text),
    ("cuCoredumpSetAttribute", "value", Subject::Text),
    ("cuCoredumpSetAttributeGlobal", "value", Subject::Text),
    ("cuLogsDumpToMemory", "buffer", Subject::Text),
    ("cuParamSetv", "ptr", Subject::Parameters),
    ("cuParamSeti", "value", Subject::Parameters),
    ("cuParamSetf", "value", Subject::Parameters),
];

/// What a parameter, by its position, holds or points at.
pub fn subject(function: &Signature, position: usize) -> Subject {
    let Some(parameter) = function.parameters.get(position) else {
        return Subject::Text;
    };
    let (name, role) = (&*parameter.name, parameter.role.as_str());
    let base = &*function.base;
    let mut others = OTHERS.iter();
    if let Some((.., subject)) = others.find(|other| (other.0, other.1) == (base, name)) {
        return *subject;
    }
    if role.starts_with("image") {
        return Subject::Image;
    }
    if !is_text(role) {
        return Subject::Call;
    }
    let known = TEXTS.iter().find(|text| text.0 == name);
    // A string that this version does not know.
    known.map_or(Subject::Text, |text| text.1)
}

/// Whether the role of a parameter is that of characters.
fn is_text(role: &str) -> bool {
    ["string", "out string", "text"]
        .iter()
        .any(|start| role.starts_with(start))
}

#[cfg(test)]
mod tests {
    use cutape_format::Signatures;

    use super::*;

    /// A new string of the driver API must be listed: it would be removed, and not replaced.
    #[test]
    fn every_text_of_the_driver_api_is_listed() {
        let table = Signatures::parse(cutape_registry::SIGNATURE_TEXT).unwrap();
        let mut used = Vec::new();
        for function in table.functions() {
            for parameter in &function.parameters {
                let name = &*parameter.name;
                if !is_text(&parameter.role) {
                    continue;
                }
                let listed = TEXTS.iter().find(|text| text.0 == name);
                assert!(listed.is_some(), "{} {name}", function.name);
                used.push(name);
            }
        }
        for (name, _) in TEXTS {
            assert!(used.contains(&name), "{name} is of no function");
        }
        for (base, name, subject_of_it) in OTHERS {
            let mut functions = table.functions().filter(|function| function.base == base);
            let function = functions.next().expect(base);
            let position = function.parameter(name).expect(name);
            assert_eq!(subject(function, position), subject_of_it, "{base} {name}");
        }
    }
}
