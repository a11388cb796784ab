//! Names of functions as in their source.

/// Longer names are cut and not demangled.
pub const LONGEST_NAME: usize = 4096;

/// The name as in the source.
pub fn demangle(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    // Long names may be hostile.
    if name.len() < LONGEST_NAME
        && let Ok(symbol) = cpp_demangle::Symbol::new(name)
        && let Ok(text) = symbol.demangle()
    {
        return text;
    }
    name.to_owned()
}
