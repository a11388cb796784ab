//! Link arguments of the program.

fn main() {
    // Those of `cargo xtask dist --quick`.
    println!("cargo::rerun-if-env-changed=CUTAPE_LINK_ARGUMENTS");
    let arguments = std::env::var("CUTAPE_LINK_ARGUMENTS").unwrap_or_default();
    for argument in arguments.split_terminator('\x1f') {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
