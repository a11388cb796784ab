//! Offsets of struct members, for constants: `const STREAM: usize =
//! layout::offset_of("CUlaunchConfig", "hStream");`

use crate::generated::structs::STRUCTS;
use crate::model::{Field, Struct};

/// Bytes of the struct of that C name.
///
/// # Panics
/// If there is none: use it in a `const`, where that stops the build.
pub const fn size_of(structure: &str) -> usize {
    find(structure).size as usize
}

/// Where a member of the struct of that C name is; members of members are dotted.
///
/// # Panics
/// If there is none: use it in a `const`, where that stops the build.
pub const fn offset_of(structure: &str, member: &str) -> usize {
    field(structure, member).offset as usize
}

/// The member of the struct of that C name.
///
/// # Panics
/// If there is none: use it in a `const`, where that stops the build.
pub const fn field(structure: &str, member: &str) -> &'static Field {
    match find_field(structure, member) {
        Some(field) => field,
        None => panic!("the struct has no such member"),
    }
}

/// Whether a member of a struct, dotted for a member of a member, only takes up space: the driver
/// neither reads nor writes it. cuda.h marks such members by their names.
pub fn is_padding(member: &str) -> bool {
    member.split('.').any(|part| {
        let name = part.trim_end_matches(|c: char| c.is_ascii_digit());
        matches!(name, "pad" | "padding" | "_internal_padding" | "reserved")
    })
}

/// As [`field`], for a member that not every version of a struct has.
///
/// # Panics
/// If there is no such struct: use it in a `const`, where that stops the build.
pub const fn find_field(structure: &str, member: &str) -> Option<&'static Field> {
    let fields = find(structure).fields;
    let mut at = 0;
    while at < fields.len() {
        if is_same(fields[at].name, member) {
            return Some(&fields[at]);
        }
        at += 1;
    }
    None
}

const fn find(name: &str) -> &'static Struct {
    let mut at = 0;
    while at < STRUCTS.len() {
        if is_same(STRUCTS[at].name, name) {
            return &STRUCTS[at];
        }
        at += 1;
    }
    panic!("no struct has that name")
}

const fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_have_the_offsets_of_the_headers() {
        const STREAM: usize = offset_of("CUlaunchConfig", "hStream");
        const ATTRIBUTE: usize = size_of("CUlaunchAttribute");
        assert_eq!((STREAM, ATTRIBUTE), (32, 72));
        assert_eq!(offset_of("CUlaunchAttribute", "value.clusterDim.y"), 12);
        assert_eq!(offset_of("CUDA_KERNEL_NODE_PARAMS", "kernelParams"), 40);
        assert_eq!(field("CUlaunchConfig", "numAttrs").size, 4);
    }

    #[test]
    fn padding_is_known_by_name() {
        assert!(is_padding("reserved1") && is_padding("params.reserved") && is_padding("pad"));
        assert!(!is_padding("memory.pitch") && !is_padding("padded"));
        for field in STRUCTS.iter().flat_map(|entry| entry.fields) {
            let is_marked = ["pad", "reserved"]
                .iter()
                .any(|word| field.name.contains(word));
            assert_eq!(is_padding(field.name), is_marked, "{}", field.name);
        }
    }
}
