//! The names by which programs ask the loader for libcuda, and how the interposer asks for the real
//! one.

/// Whether a name passed to the loader asks for libcuda: `libcuda.so`, `libcuda.so.1`,
/// `libcuda.so.580.159.04`, with or without a folder.
#[inline]
pub fn asks_for_libcuda(name: &[u8]) -> bool {
    let file = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
    // `libcuda.so.1.backup` is another file.
    file.strip_prefix(b"libcuda.so").is_some_and(is_version)
}

/// Whether a name passed to the loader contains a folder.
#[inline]
pub fn names_a_folder(name: &[u8]) -> bool {
    name.contains(&b'/')
}

/// Where drivers, containers, Colab, WSL and NixOS install libcuda, for systems whose loader cache
/// does not list it. The compatibility package comes last: the installed driver is what programs
/// get without it.
pub const DRIVER_FOLDERS: [&str; 10] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib64-nvidia",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
    "/usr/local/cuda/compat",
];

/// Libraries of the driver that answer programs themselves, without libcuda: how their file names begin.
pub const OTHER_LIBRARIES: [&str; 6] = [
    "libnvidia-ml.so",
    "libnvcuvid.so",
    "libnvidia-encode.so",
    "libnvidia-opticalflow.so",
    "libnvidia-opencl.so",
    "libnvoptix.so",
];

/// Prefix of the absolute path with which the interposer opens the real driver. The system ignores
/// it; the auditing library recognises it and does not redirect the path to the interposer.
pub const PAST_AUDIT: &str = "/./.";

/// The path behind `PAST_AUDIT`, if the name has that prefix.
#[inline]
pub fn past_audit(name: &[u8]) -> Option<&[u8]> {
    let path = name.strip_prefix(PAST_AUDIT.as_bytes())?;
    path.starts_with(b"/").then_some(path)
}

/// Empty, or numbers that each follow a dot.
#[inline]
fn is_version(text: &[u8]) -> bool {
    let Some(numbers) = text.strip_prefix(b".") else {
        return text.is_empty();
    };
    numbers
        .split(|&byte| byte == b'.')
        .all(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_libcuda() {
        for (name, asks) in [
            ("libcuda.so", true),
            ("libcuda.so.1", true),
            ("libcuda.so.580.159.04", true),
            ("/usr/lib/libcuda.so", true),
            ("./libcuda.so.1", true),
            ("", false),
            ("/", false),
            ("libcuda", false),
            ("libcuda.so.", false),
            ("libcuda.so.1.", false),
            ("libcuda.so1", false),
            ("libcuda.so..1", false),
            ("libcuda.so.1.backup", false),
            ("libcuda.so.1/other", false),
            ("mylibcuda.so.1", false),
            ("libcudart.so.13", false),
            ("libcudadebugger.so.1", false),
        ] {
            assert_eq!(asks_for_libcuda(name.as_bytes()), asks, "{name}");
        }
    }

    #[test]
    fn paths_with_the_prefix() {
        for (name, expected) in [
            ("/././usr/lib/libcuda.so.1", Some("/usr/lib/libcuda.so.1")),
            ("/././", Some("/")),
            ("/./.usr", None),
            ("/usr/lib/libcuda.so.1", None),
            ("././usr", None),
            ("", None),
        ] {
            let found = past_audit(name.as_bytes());
            assert_eq!(found, expected.map(str::as_bytes), "{name}");
        }
    }
}
