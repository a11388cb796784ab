//! Linker options: the name that programs load, and that the library is never unloaded.

fn main() {
    // The loader matches a later dlopen("libcuda.so.1") with this name.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Threads have pointers into it until the process ends.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    // Usually this library does not exist. If the driver exports functions that we do not, `cutape
    // record` writes it, and makes it a needed one in a copy of this library: see `forward.rs` in
    // cli.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--auxiliary,$ORIGIN/libcutape-forward.so");
    if std::env::var_os("CARGO_FEATURE_GUM").is_some() {
        // What frida-gum's library may need besides the C library (assumed); unneeded ones are
        // dropped.
        println!(
            "cargo:rustc-cdylib-link-arg=-Wl,--push-state,--as-needed,-lm,-lresolv,-ldl,-lrt,--pop-state"
        );
    }
    println!("cargo:rerun-if-changed=build.rs");
}
