//! Reads functions, enums, struct layouts and typedefs from bindgen's output.

use std::collections::HashMap;
use std::path::Path;

use quote::ToTokens;
use syn::{
    Expr, Field, Fields, FnArg, ForeignItem, GenericArgument, Item, Lit, Pat, PathArguments,
    ReturnType, Stmt, Type,
};

use super::Toolkit;
use crate::Failure;
use crate::signatures::{Enum, Struct, Typedef};

/// A prototype.
#[derive(Debug)]
pub(super) struct Prototype {
    pub(super) name: String,
    pub(super) returns: String,
    /// C type, name.
    pub(super) params: Vec<(String, String)>,
}

/// The declarations of one set of headers.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) functions: Vec<Prototype>,
    pub(super) enums: Vec<Enum>,
    pub(super) structs: Vec<Struct>,
    pub(super) typedefs: Vec<Typedef>,
}

/// Size, alignment and offsets of a struct, from the assertions that bindgen writes.
#[derive(Debug, Default)]
struct Layout {
    size: u32,
    align: u32,
    offsets: HashMap<String, u32>,
}

/// Runs bindgen over all headers of a toolkit.
pub(super) fn bindings(
    toolkit: &Toolkit,
    stubs: &Path,
    functions: bool,
) -> Result<String, Failure> {
    // bindgen panics if it finds no libclang.
    if std::panic::catch_unwind(bindgen::clang_version).is_err() {
        return Err(Failure::new(
            "import needs libclang: apt-get install libclang-dev, or pip install libclang and set \
             LIBCLANG_PATH to its `native` folder",
        ));
    }
    let mut builder = bindgen::Builder::default()
        .header(stubs.join("cuda_everything.h").to_string_lossy())
        .clang_arg("-D__CUDA_API_VERSION_INTERNAL")
        .clang_arg(format!("-I{}", stubs.display()))
        .clang_arg(format!("-I{}", toolkit.include.display()))
        .allowlist_file(r".*/(cuda|cudaGL|cudaEGL|cudaVDPAU|cudaProfiler|gl|egl|eglext|vdpau)\.h")
        .default_enum_style(bindgen::EnumVariation::NewType {
            is_bitfield: false,
            is_global: false,
        })
        .layout_tests(true)
        .generate_comments(false)
        .derive_default(true)
        .merge_extern_blocks(true)
        .use_core()
        .disable_header_comment();
    for folder in compiler_includes() {
        builder = builder.clang_arg("-idirafter").clang_arg(folder);
    }
    if !functions {
        builder = builder.ignore_functions();
    }
    let bindings = builder
        .generate()
        .map_err(|error| failure!("bindgen on CUDA {}: {error}", toolkit.version))?;
    Ok(bindings.to_string())
}

/// The folder of the C compiler's stddef.h, for a libclang without headers of its own.
fn compiler_includes() -> Vec<String> {
    let output = std::process::Command::new("cc")
        .arg("-print-file-name=include")
        .output();
    match output {
        Ok(output) => vec![String::from_utf8_lossy(&output.stdout).trim().to_owned()],
        Err(_) => Vec::new(),
    }
}

/// Reads bindgen's output.
pub(super) fn read(text: &str) -> Result<Reading, Failure> {
    let file = syn::parse_file(text).map_err(|error| failure!("bindgen's output: {error}"))?;
    let mut layouts: HashMap<String, Layout> = HashMap::new();
    let mut structs: Vec<(&syn::Ident, &str, Vec<&Field>)> = Vec::new();
    let mut reading = Reading::default();
    // The typedef of each tag: `pub use self::TAG as NAME`, `pub type NAME = TAG`.
    let mut second: HashMap<String, String> = HashMap::new();
    // The impl with the names precedes the newtype.
    let mut values: HashMap<String, Vec<(String, i64)>> = HashMap::new();
    for item in &file.items {
        match item {
            Item::Const(constant) => read_assertions(&constant.expr, &mut layouts),
            Item::Struct(item) => match &item.fields {
                Fields::Unnamed(fields) => {
                    let tag = item.ident.to_string();
                    let width = fields.unnamed.first().map(|field| c_type(&field.ty));
                    let width = width.as_deref().and_then(crate::signatures::number);
                    reading.enums.push(Enum {
                        name: tag.clone(),
                        width: width.unwrap_or("u4").to_owned(),
                        values: values.remove(&tag).unwrap_or_default(),
                        tag,
                    });
                }
                fields => structs.push((&item.ident, "struct", fields.iter().collect())),
            },
            Item::Union(item) => {
                structs.push((&item.ident, "union", item.fields.named.iter().collect()));
            }
            Item::Impl(item) if item.trait_.is_none() => {
                let tag = c_type(&item.self_ty);
                for member in &item.items {
                    let syn::ImplItem::Const(constant) = member else {
                        continue;
                    };
                    if let Some(value) = newtype_value(&constant.expr) {
                        values
                            .entry(tag.clone())
                            .or_default()
                            .push((constant.ident.to_string(), value));
                    }
                }
            }
            Item::Use(item) => {
                if let Some((from, to)) = renamed(&item.tree) {
                    second.entry(from.clone()).or_insert_with(|| to.clone());
                    reading.typedefs.push(Typedef {
                        name: to,
                        target: from,
                    });
                }
            }
            Item::Type(item) => {
                let target = c_type(&item.ty);
                let name = item.ident.to_string();
                if !second.contains_key(&target) && matches!(*item.ty, Type::Path(_)) {
                    second.insert(target.clone(), name.clone());
                }
                reading.typedefs.push(Typedef { name, target });
            }
            Item::ForeignMod(block) => {
                for item in &block.items {
                    if let ForeignItem::Fn(function) = item {
                        reading.functions.push(prototype(&function.sig));
                    }
                }
            }
            _ => {}
        }
    }
    for entry in &mut reading.enums {
        if let Some(name) = second.get(&entry.tag) {
            entry.name.clone_from(name);
        }
    }
    for (ident, kind, fields) in structs {
        let tag = ident.to_string();
        // An incomplete type: `struct CUctx_st { _unused: [u8; 0] }`.
        let opaque = fields
            .iter()
            .any(|field| field.ident.as_ref().is_some_and(|name| name == "_unused"));
        if opaque {
            continue;
        }
        let layout = layouts
            .get(&tag)
            .ok_or_else(|| failure!("no layout of struct {tag}"))?;
        let members = members(&tag, kind, &fields, layout)?;
        let name = second.get(&tag).map_or_else(|| nested(&tag), Clone::clone);
        reading.structs.push(Struct {
            name,
            tag: nested(&tag),
            kind: kind.to_owned(),
            size: layout.size,
            align: layout.align,
            members,
        });
    }
    finish(&mut reading)?;
    Ok(reading)
}

/// The members of a struct or union, without their sizes, which `finish` computes.
fn members(
    tag: &str,
    kind: &str,
    fields: &[&Field],
    layout: &Layout,
) -> Result<Vec<(String, String, u32, u32)>, Failure> {
    let mut members = Vec::new();
    for field in fields {
        let Some(ident) = &field.ident else { continue };
        let name = ident.to_string();
        let name = name.strip_prefix("r#").unwrap_or(&name);
        if name.starts_with("__bindgen_padding") {
            continue;
        }
        if name.starts_with("_bitfield") {
            return Err(failure!(
                "struct {tag} has bit fields, which a trace cannot describe"
            ));
        }
        // bindgen asserts no offset of an anonymous member: `finish` computes it.
        let anonymous = name.starts_with("__bindgen_anon");
        let offset = match layout.offsets.get(name) {
            Some(offset) => *offset,
            None if kind == "union" => 0,
            None if anonymous => UNPLACED,
            None => return Err(failure!("no offset of {tag}.{name}")),
        };
        let shown = if anonymous { "" } else { in_c(name) };
        members.push((shown.to_owned(), nested(&c_type(&field.ty)), offset, 0));
    }
    Ok(members)
}

/// Names to which bindgen appends an underscore because they are Rust keywords.
const KEYWORDS: [&str; 14] = [
    "abstract_",
    "box_",
    "final_",
    "fn_",
    "in_",
    "loop_",
    "match_",
    "mod_",
    "move_",
    "override_",
    "ref_",
    "type_",
    "use_",
    "where_",
];

/// The name in the header.
fn in_c(name: &str) -> &str {
    match KEYWORDS.contains(&name) {
        true => name.trim_end_matches('_'),
        false => name,
    }
}

/// The offset of an anonymous member until it is computed.
const UNPLACED: u32 = u32::MAX;

/// Removes the typedefs of structs and enums themselves, and fills in the sizes of members.
fn finish(reading: &mut Reading) -> Result<(), Failure> {
    let enums = reading.enums.iter().map(|entry| (&entry.tag, &entry.name));
    let structs = reading
        .structs
        .iter()
        .map(|entry| (&entry.tag, &entry.name));
    let own: HashMap<String, String> = enums
        .chain(structs)
        .map(|(tag, name)| (tag.clone(), name.clone()))
        .collect();
    reading
        .typedefs
        .retain(|entry| own.get(&entry.target) != Some(&entry.name));
    // Typedefs and members name types by typedef; where a header says `struct TAG`, bindgen says
    // TAG.
    let by_typedef = |c_type: &str| -> String {
        c_type
            .split(' ')
            .map(|word| own.get(word).map_or(word, String::as_str))
            .collect::<Vec<_>>()
            .join(" ")
    };
    for entry in &mut reading.typedefs {
        entry.target = by_typedef(&entry.target);
    }
    for entry in &mut reading.structs {
        for member in &mut entry.members {
            member.1 = by_typedef(&member.1);
        }
    }
    for function in &mut reading.functions {
        function.returns = by_typedef(&function.returns);
        for param in &mut function.params {
            param.0 = by_typedef(&param.0);
        }
    }
    let all = crate::signatures::Signatures {
        enums: reading.enums.clone(),
        structs: reading.structs.clone(),
        typedefs: reading.typedefs.clone(),
        ..Default::default()
    };
    let types = crate::signatures::Types::new(&all);
    for (entry, known) in reading.structs.iter_mut().zip(&all.structs) {
        let mut end = 0_u32;
        for (member, known) in entry.members.iter_mut().zip(&known.members) {
            member.3 = types.size(&known.1).ok_or_else(|| {
                failure!(
                    "{}.{} has type {} of unknown size",
                    entry.name,
                    known.0,
                    known.1
                )
            })?;
            if member.2 == UNPLACED {
                let align = match types.shape(&known.1) {
                    Some(crate::signatures::Shape::Struct(inner)) => inner.align,
                    _ => {
                        return Err(failure!("{}: an anonymous member is no struct", entry.name));
                    }
                };
                member.2 = end.next_multiple_of(align);
            }
            end = member.2 + member.3;
        }
    }
    Ok(())
}

/// `X::1` for `X__bindgen_ty_1`, a struct inside X.
fn nested(name: &str) -> String {
    name.replace("__bindgen_ty_", "::")
}

fn renamed(tree: &syn::UseTree) -> Option<(String, String)> {
    match tree {
        syn::UseTree::Path(path) => renamed(&path.tree),
        syn::UseTree::Rename(rename) => Some((rename.ident.to_string(), rename.rename.to_string())),
        _ => None,
    }
}

/// The number in `TAG(7)` or `TAG(-1)`.
fn newtype_value(expr: &Expr) -> Option<i64> {
    let Expr::Call(call) = expr else { return None };
    number_of(call.args.first()?)
}

fn number_of(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(number) => number.base10_parse().ok(),
            _ => None,
        },
        Expr::Unary(unary) => number_of(&unary.expr).map(|number| -number),
        _ => None,
    }
}

/// Collects `["Size of X"][size_of::<X>() - 128usize];` and its like.
fn read_assertions(expr: &Expr, layouts: &mut HashMap<String, Layout>) {
    let Expr::Block(block) = expr else { return };
    for statement in &block.block.stmts {
        let Stmt::Expr(Expr::Index(index), _) = statement else {
            continue;
        };
        let (Expr::Array(label), Expr::Binary(difference)) = (&*index.expr, &*index.index) else {
            continue;
        };
        let number = number_of(&difference.right).and_then(|number| u32::try_from(number).ok());
        let (Some(Expr::Lit(label)), Some(number)) = (label.elems.first(), number) else {
            continue;
        };
        let Lit::Str(label) = &label.lit else {
            continue;
        };
        let label = label.value();
        let (what, place) = label.split_once(" of ").unwrap_or_default();
        let place = place.trim_start_matches("field: ");
        let (tag, field) = place.split_once("::").unwrap_or((place, ""));
        let layout = layouts.entry(tag.to_owned()).or_default();
        match what {
            "Size" => layout.size = number,
            "Alignment" => layout.align = number,
            _ => drop(layout.offsets.insert(field.to_owned(), number)),
        }
    }
}

fn prototype(signature: &syn::Signature) -> Prototype {
    let mut params = Vec::new();
    for input in &signature.inputs {
        let FnArg::Typed(input) = input else { continue };
        let name = match &*input.pat {
            Pat::Ident(pattern) => in_c(&pattern.ident.to_string()).to_owned(),
            _ => String::new(),
        };
        params.push((c_type(&input.ty), name));
    }
    Prototype {
        name: signature.ident.to_string(),
        returns: returned(&signature.output),
        params,
    }
}

fn returned(output: &ReturnType) -> String {
    match output {
        ReturnType::Default => "void".to_owned(),
        ReturnType::Type(_, inner) => c_type(inner),
    }
}

/// The C spelling of a type that bindgen wrote.
fn c_type(ty: &Type) -> String {
    match ty {
        Type::Ptr(pointer) => {
            let inner = c_type(&pointer.elem);
            let constant = pointer.const_token.is_some();
            match (inner.ends_with('*'), constant) {
                (true, true) => format!("{inner}const *"),
                (true, false) => format!("{inner}*"),
                (false, true) => format!("const {inner} *"),
                (false, false) => format!("{inner} *"),
            }
        }
        Type::Array(array) => {
            let inner = c_type(&array.elem);
            let count = match &array.len {
                Expr::Lit(literal) => match &literal.lit {
                    Lit::Int(number) => number.base10_digits().to_owned(),
                    _ => array.len.to_token_stream().to_string(),
                },
                _ => array.len.to_token_stream().to_string(),
            };
            match inner.split_once(" [") {
                Some((element, counts)) => format!("{element} [{count}][{counts}"),
                None => format!("{inner} [{count}]"),
            }
        }
        Type::BareFn(function) => {
            let params: Vec<String> = function
                .inputs
                .iter()
                .map(|input| c_type(&input.ty))
                .collect();
            let params = if params.is_empty() {
                "void".to_owned()
            } else {
                params.join(", ")
            };
            format!("{} (*)({params})", returned(&function.output))
        }
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else {
                return String::new();
            };
            let name = last.ident.to_string();
            if name == "Option"
                && let PathArguments::AngleBracketed(arguments) = &last.arguments
                && let Some(GenericArgument::Type(inner)) = arguments.args.first()
            {
                return c_type(inner);
            }
            match name.as_str() {
                "c_void" => "void",
                "c_char" => "char",
                "c_schar" | "i8" => "signed char",
                "c_uchar" | "u8" => "unsigned char",
                "c_short" | "i16" => "short",
                "c_ushort" | "u16" => "unsigned short",
                "c_int" | "i32" => "int",
                "c_uint" | "u32" => "unsigned int",
                "c_long" | "i64" => "long",
                "c_ulong" | "u64" => "unsigned long",
                "c_longlong" => "long long",
                "c_ulonglong" => "unsigned long long",
                "usize" => "size_t",
                "f32" => "float",
                "f64" => "double",
                other => other,
            }
            .to_owned()
        }
        other => other.to_token_stream().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What bindgen writes for a few declarations, one of each shape that the headers have.
    const SAMPLE: &str = r#"
        pub type CUdevice_v1 = ::core::ffi::c_int;
        pub type CUdevice = CUdevice_v1;
        #[repr(C)]
        pub struct CUctx_st { _unused: [u8; 0] }
        pub type CUcontext = *mut CUctx_st;
        impl CUmode_enum {
            pub const CU_MODE_NONE: CUmode_enum = CUmode_enum(0);
            pub const CU_MODE_BACK: CUmode_enum = CUmode_enum(-1);
            pub const CU_MODE_ALIAS: CUmode_enum = CUmode_enum(0);
        }
        #[repr(transparent)]
        pub struct CUmode_enum(pub ::core::ffi::c_int);
        pub use self::CUmode_enum as CUmode;
        pub type CUhostFn = ::core::option::Option<unsafe extern "C" fn(userData: *mut ::core::ffi::c_void)>;
        #[repr(C)]
        pub struct CUthing_st {
            pub type_: CUmode,
            pub __bindgen_anon_1: CUthing_st__bindgen_ty_1,
            pub rows: [[::core::ffi::c_uint; 3usize]; 2usize],
        }
        #[repr(C)]
        pub union CUthing_st__bindgen_ty_1 { pub address: ::core::ffi::c_ulonglong, pub id: CUdevice }
        const _: () = {
            ["Size of CUthing_st__bindgen_ty_1"][::core::mem::size_of::<CUthing_st__bindgen_ty_1>() - 8usize];
            ["Alignment of CUthing_st__bindgen_ty_1"][::core::mem::align_of::<CUthing_st__bindgen_ty_1>() - 8usize];
            ["Offset of field: CUthing_st__bindgen_ty_1::address"]
                [::core::mem::offset_of!(CUthing_st__bindgen_ty_1, address) - 0usize];
            ["Offset of field: CUthing_st__bindgen_ty_1::id"]
                [::core::mem::offset_of!(CUthing_st__bindgen_ty_1, id) - 0usize];
        };
        const _: () = {
            ["Size of CUthing_st"][::core::mem::size_of::<CUthing_st>() - 40usize];
            ["Alignment of CUthing_st"][::core::mem::align_of::<CUthing_st>() - 8usize];
            ["Offset of field: CUthing_st::type_"][::core::mem::offset_of!(CUthing_st, type_) - 0usize];
            ["Offset of field: CUthing_st::rows"][::core::mem::offset_of!(CUthing_st, rows) - 16usize];
        };
        pub type CUthing_v1 = CUthing_st;
        pub type CUthing = CUthing_v1;
        unsafe extern "C" {
            pub fn cuMake(
                pctx: *mut CUcontext, mod_: *const CUthing, names: *mut *const ::core::ffi::c_char,
                list: *const *const ::core::ffi::c_char, mode: CUmode, bytes: usize, done: CUhostFn,
            ) -> CUmode;
            pub fn cuNothing() -> CUmode;
        }
    "#;

    #[test]
    fn declarations_come_back_as_c() {
        let reading = read(SAMPLE).unwrap_or_else(|failure| panic!("{failure}"));
        let make = &reading.functions[0];
        let params: Vec<String> = make
            .params
            .iter()
            .map(|(c_type, name)| format!("{c_type}|{name}"))
            .collect();
        assert_eq!(
            params,
            [
                "CUcontext *|pctx",
                "const CUthing *|mod",
                "const char **|names",
                "const char *const *|list",
                "CUmode|mode",
                "size_t|bytes",
                "CUhostFn|done",
            ]
        );
        assert_eq!(
            (make.returns.as_str(), reading.functions[1].params.len()),
            ("CUmode", 0)
        );

        let mode = &reading.enums[0];
        assert_eq!(
            (mode.name.as_str(), mode.tag.as_str(), mode.width.as_str()),
            ("CUmode", "CUmode_enum", "i4")
        );
        let values: Vec<i64> = mode.values.iter().map(|value| value.1).collect();
        assert_eq!(values, [0, -1, 0]);

        let thing = &reading.structs[0];
        let members: Vec<String> = thing
            .members
            .iter()
            .map(|(name, c_type, at, size)| format!("{name}|{c_type}|{at}|{size}"))
            .collect();
        assert_eq!(
            (thing.name.as_str(), thing.size, thing.align),
            ("CUthing_v1", 40, 8)
        );
        assert_eq!(
            members,
            [
                "type|CUmode|0|4",
                "|CUthing_st::1|8|8",
                "rows|unsigned int [2][3]|16|24"
            ]
        );
        assert_eq!(reading.structs.len(), 2, "an opaque struct is no layout");

        let typedefs: Vec<String> = reading
            .typedefs
            .iter()
            .map(|entry| format!("{} = {}", entry.name, entry.target))
            .collect();
        assert_eq!(
            typedefs,
            [
                "CUdevice_v1 = int",
                "CUdevice = CUdevice_v1",
                "CUcontext = CUctx_st *",
                "CUhostFn = void (*)(void *)",
                "CUthing = CUthing_v1",
            ]
        );
    }

    #[test]
    fn what_cannot_be_described_is_an_error() {
        for text in [
            "pub struct CUx_st {",
            "#[repr(C)] pub struct CUx_st { pub a: u32 }",
            "#[repr(C)] pub struct CUx_st { pub _bitfield_1: u32 }\n\
             const _: () = { [\"Size of CUx_st\"][size_of::<CUx_st>() - 4usize]; };",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
