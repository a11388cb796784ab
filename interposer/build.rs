//! Gives the library the name that programs ask for, and keeps it in memory once loaded.

fn main() {
    // The loader matches a later dlopen("libcuda.so.1") by this name.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Threads hold pointers into it until the process ends.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo:rerun-if-changed=build.rs");
}
