//! The functions of Python are those of the interpreter that loads the module.

fn main() {
    // Behind the flags of `cargo xtask dist`, which looks for such functions itself.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,undefs");
    println!("cargo::rerun-if-changed=build.rs");
}
