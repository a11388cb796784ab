//! The functions of Python are those of the interpreter that loads the module.

fn main() {
    // Those of `cargo xtask dist --quick`.
    println!("cargo::rerun-if-env-changed=CUTAPE_LINK_ARGUMENTS");
    let arguments = std::env::var("CUTAPE_LINK_ARGUMENTS").unwrap_or_default();
    for argument in arguments.split_terminator('\x1f') {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    // After those of `cargo xtask dist`, which looks for such functions itself.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,undefs");
    println!("cargo::rerun-if-changed=build.rs");
}
