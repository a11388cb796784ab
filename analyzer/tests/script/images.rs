//! The images that scripts name.

use super::PTX;

/// Kernels that say something about their launches; `k` as in `PTX`.
const PTX_LAUNCH: &str = ".version 8.0\n.target sm_90\n.address_size 64\n\
    .visible .entry k(.param .u64 p) { ret; }\n\
    .visible .entry bounded(.param .u64 p) .maxntid 128 { ret; }\n\
    .visible .entry fixed(.param .u64 p) .reqntid 32 { ret; }\n\
    .visible .entry clustered(.param .u64 p) .reqnctapercluster 2 { ret; }\n\
    .visible .entry choosing(.param .u64 p) .explicitcluster { ret; }\n\
    .visible .entry narrow(.param .u64 p) .maxclusterrank 2 { ret; }\n\
    .visible .entry shared(.param .u64 p) { .shared .b8 s[1024]; ret; }\n\
    .visible .entry barrier(.param .u64 p) { mov.u32 %r1, %envreg1; mov.u32 %r2, %envreg2;\n\
    atom.add.u32 %r3, [%rd1], 1; bar.sync 0; ret; }\n\
    .visible .entry parent(.param .u64 p) { call (r), cudaLaunchDeviceV2, (a, b); ret; }\n\
    .visible .entry storage(.param .align 8 .b8 s[4096]) { ret; }\n\
    .visible .entry first(.param .u64 p) { griddepcontrol.launch_dependents; ret; }\n";

/// An image by its name in scripts.
pub(super) fn image(name: &str) -> Vec<u8> {
    match name {
        _ if name.starts_with("PTX") => ptx(name),
        "CUBIN_LAUNCH" | "CUBIN_WAITS" | "CUBIN_OTHER_WAITS" => launched_cubin(name),
        _ if name.starts_with("CUBIN") => changed_cubin(name),
        "OVERWRITTEN" => changed_cubin(name),
        "FATBIN_TWO_SIZES" => fatbin_of_two_sizes(),
        "JUNK" => vec![0xab; 64],
        // The container is at 0x9000.
        "WRAPPER" => [0x4662_43b1, 1, 0x9000, 0, 0, 0]
            .iter()
            .flat_map(|word: &u32| word.to_le_bytes())
            .collect(),
        "BITCODE" => b"BC\xc0\xde\0\0\0\0\0\0\0\0".to_vec(),
        "NOTHING" => Vec::new(),
        other => panic!("no image {other}"),
    }
}

fn ptx(name: &str) -> Vec<u8> {
    let text = |text: &str| {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        bytes
    };
    match name {
        "PTX" => text(PTX),
        "PTX_COMMENTED" => text(&format!("\n \n// text\n{PTX}")),
        "PTX_OTHER" => text(
            &PTX.replace("entry k", "entry other")
                .replace("scale", "again"),
        ),
        "PTX_SUFFIXED" => text(
            &PTX.replace("entry k", "entry matmul_0d1d2d")
                .replace("_Z5scalePf", "scan_exclusive"),
        ),
        round if round.starts_with("PTX_ROUND_") => text(&format!("// {round}\n{PTX}")),
        "PTX_NO_NUL" => PTX.as_bytes().to_vec(),
        "PTX_JUNK" => {
            let mut bytes = PTX.as_bytes().to_vec();
            bytes.extend([1, 2, 0xff, 3, 0]);
            bytes
        }
        "PTX_AND_NOT" => {
            text(&PTX.replace(" ret;", " not.b64 %a, %b;\n and.b64 %c, %a, %d;\n ret;"))
        }
        "PTX_FUTURE" => text(&PTX.replace("7.0", "99.0")),
        "PTX_NARROW" => text(
            ".version 7.0\n.target sm_70\n.address_size 32\n.visible .entry k()\n{\n ret;\n}\n",
        ),
        "PTX_EXTERN" => text(
            ".version 7.0\n.target sm_70\n.address_size 64\n.extern .global .u32 missing;\n.visible .entry extern_user()\n{\n \
             .reg .u32 r;\n ld.global.u32 r, [missing];\n ret;\n}\n",
        ),
        "PTX_LAUNCH" => text(PTX_LAUNCH),
        // PTX with a comment in Latin-1 behind its last brace.
        "PTX_LATIN1" => {
            let mut bytes = PTX.as_bytes().to_vec();
            bytes.extend(b"// Gr\xf6\xdfe\n\0");
            bytes
        }
        other => panic!("no image {other}"),
    }
}

/// The same of `k` and `first` in machine code; `k` waits, or another kernel does.
fn launched_cubin(name: &str) -> Vec<u8> {
    let function = |name: &str, early_trigger, dependency_wait| cutape_image::build::FunctionSpec {
        name: name.into(),
        is_entry: true,
        uses: cutape_image::Uses {
            early_trigger,
            dependency_wait,
            ..Default::default()
        },
        ..Default::default()
    };
    let functions = [
        function("first", true, false),
        function("k", false, name == "CUBIN_WAITS"),
        function("other", false, name == "CUBIN_OTHER_WAITS"),
    ];
    let target = cutape_image::Target::from_number(90, cutape_image::Suffix::None);
    cutape_image::build::cubin(&functions, &[], target)
}

/// A cubin with a kernel "k", or one that the program or the heap has changed.
fn changed_cubin(name: &str) -> Vec<u8> {
    let cubin = |number| {
        let function = cutape_image::build::FunctionSpec {
            name: "k".into(),
            ..Default::default()
        };
        let target = cutape_image::Target::from_number(number, cutape_image::Suffix::None);
        cutape_image::build::cubin(&[function], &[], target)
    };
    if name == "CUBIN75" {
        return cubin(75);
    }
    let mut bytes = cubin(90);
    let middle = bytes.len() / 16 * 8;
    match name {
        "CUBIN" => {}
        "CUBIN_REL" => bytes[16] = 1,
        "OVERWRITTEN" => bytes[..32].fill(0x5a),
        // As the heap leaves it: the size of the free block in its last word.
        "CUBIN_FREED" => {
            let end = bytes.len() / 8 * 8;
            bytes[end - 8..end].copy_from_slice(&0x1530u64.to_le_bytes());
        }
        // Another cubin that differs in one instruction.
        "CUBIN_OTHER" => {
            bytes[middle..middle + 8].copy_from_slice(&0x000f_e200_0000_0f00u64.to_le_bytes())
        }
        // Damaged by the heap in a quarter of its bytes.
        "CUBIN_DAMAGED" => {
            let length = bytes.len() / 4;
            bytes[middle..middle + length].fill(0x5a);
        }
        other => panic!("no image {other}"),
    }
    bytes
}

/// Code for two architectures, with a variable "g" of two sizes.
fn fatbin_of_two_sizes() -> Vec<u8> {
    use cutape_image::build::{FatbinEntry, GlobalSpec, Packing, fatbin};
    let target = |number| cutape_image::Target::from_number(number, cutape_image::Suffix::None);
    let of = |number, size| {
        let global = GlobalSpec {
            name: "g".into(),
            size,
            ..Default::default()
        };
        cutape_image::build::cubin(&[], &[global], target(number))
    };
    let payloads = [(80, of(80, 4)), (90, of(90, 16))];
    let entries: Vec<_> = payloads
        .iter()
        .map(|(number, payload)| FatbinEntry {
            code: cutape_image::CodeKind::Elf,
            target: target(*number),
            payload,
            packing: Packing::Stored,
        })
        .collect();
    fatbin(&entries)
}
