//! Link arguments of the shared library: it must be found as `libcuda.so.1` and never be unloaded.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Its own entry points, not those of an interposer that is loaded first under the same names.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // Those of `cargo xtask dist --quick`.
    println!("cargo::rerun-if-env-changed=CUTAPE_LINK_ARGUMENTS");
    let arguments = std::env::var("CUTAPE_LINK_ARGUMENTS").unwrap_or_default();
    for argument in arguments.split_terminator('\x1f') {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
