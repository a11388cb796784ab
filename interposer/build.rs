//! Gives the library the name that programs ask for, and keeps it in memory once loaded.

fn main() {
    // The loader matches a later dlopen("libcuda.so.1") by this name.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Threads hold pointers into it until the process ends.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    // Optional, and usually not there. Where the driver exports functions that we do not, `cutape record` writes that library,
    // and makes it a needed one in a copy of this one: see cli/src/forward.rs.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--auxiliary,$ORIGIN/libcutape-forward.so");
    if std::env::var_os("CARGO_FEATURE_GUM").is_some() {
        // What frida-gum's library may take from the system beside the C library: an assumption, and nothing where it does not.
        println!(
            "cargo:rustc-cdylib-link-arg=-Wl,--push-state,--as-needed,-lm,-lresolv,-ldl,-lrt,--pop-state"
        );
    }
    println!("cargo:rerun-if-changed=build.rs");
}
