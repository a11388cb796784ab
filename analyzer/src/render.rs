//! A call as text and as JSON: arguments by name, enums by name, structs field by field. Knows only what the trace's own
//! signature table says.

use std::fmt::Write as _;

use cutape_format::layout::field;
use cutape_format::{Bytes, Call, Capture, Passing, Signature, Signatures};
use serde_json::{Map, Value, json};

use crate::context::TraceContext;
use crate::finding::CallResult;

/// Strings longer than this many bytes are cut in text.
const LONGEST_STRING: usize = 200;
/// Arrays show so many elements in text.
const MOST_ELEMENTS: usize = 16;

/// How a number is written.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Scalar {
    Unsigned,
    Signed,
    Float,
    /// Addresses and handles.
    Hex,
    Enum(String),
    /// Bits with names.
    Flags(Bits),
}

/// What is behind a pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pointee {
    Text,
    Scalars(Scalar, usize),
    Struct(String),
    Image,
    Raw,
}

#[derive(Clone, Debug)]
struct Style {
    name: String,
    c_type: String,
    passing: Passing,
    scalar: Scalar,
    pointee: Option<Pointee>,
}

/// Gives a handle a name: C type, value.
pub type Labels<'l> = &'l dyn Fn(&str, u64) -> Option<String>;

/// Renders calls of one trace; remembers how each function's parameters are written.
#[derive(Debug, Default)]
pub struct Renderer {
    styles: Vec<Option<Box<[Style]>>>,
}

/// The call as text, for a single use; [`Renderer`] is faster for many.
pub fn render_call(call: &Call<'_>, context: &dyn TraceContext) -> String {
    Renderer::new().text(call, context)
}

impl Renderer {
    /// Knows no function yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// `name(parameter: value, ...)`, without the result.
    pub fn text(&mut self, call: &Call<'_>, context: &dyn TraceContext) -> String {
        let mut out = String::with_capacity(128);
        self.write_text(&mut out, call, context, None);
        out
    }

    /// As [`Renderer::text`], appended to `out`, with names for handles.
    pub fn write_text(
        &mut self,
        out: &mut String,
        call: &Call<'_>,
        context: &dyn TraceContext,
        labels: Option<Labels<'_>>,
    ) {
        out.push_str(&call.signature.name);
        out.push('(');
        let signatures = context.signatures();
        let styles = self.styles(call.signature, signatures);
        for (position, style) in styles.iter().enumerate() {
            if position > 0 {
                out.push_str(", ");
            }
            out.push_str(&style.name);
            out.push_str(": ");
            argument(out, call, position, style, signatures, labels);
        }
        out.push(')');
    }

    /// The call as an object: its number, thread, function, arguments with what was seen behind pointers, result, times.
    pub fn json(&mut self, call: &Call<'_>, context: &dyn TraceContext) -> Value {
        let signatures = context.signatures();
        let styles = self.styles(call.signature, signatures);
        let mut arguments = Vec::with_capacity(styles.len());
        for (position, style) in styles.iter().enumerate() {
            let mut entry = Map::new();
            entry.insert("name".into(), style.name.clone().into());
            entry.insert("type".into(), style.c_type.clone().into());
            entry.insert("value".into(), json_scalar(call, position, style));
            let mut text = String::new();
            scalar(
                &mut text,
                &style.scalar,
                call.argument(position),
                style.passing.bytes(),
                signatures,
            );
            entry.insert("text".into(), text.into());
            let before = call
                .captures()
                .filter(|c| usize::from(c.parameter) == position);
            let before: Vec<Value> = before
                .map(|capture| json_capture(capture, style, signatures))
                .collect();
            if !before.is_empty() {
                entry.insert("before".into(), before.into());
            }
            if let Some(leave) = call.leave {
                let after = leave
                    .captures()
                    .filter(|c| usize::from(c.parameter) == position);
                let after: Vec<Value> = after
                    .map(|capture| json_capture(capture, style, signatures))
                    .collect();
                if !after.is_empty() {
                    entry.insert("after".into(), after.into());
                }
            }
            arguments.push(Value::Object(entry));
        }
        json!({
            "call": call.index,
            "thread": call.thread,
            "number": call.number,
            "function": call.signature.name,
            "caller": format!("{:#x}", call.caller),
            "enter": call.ticks,
            "leave": call.leave.map(|leave| leave.ticks),
            "arguments": arguments,
            "result": result_of(call, signatures),
        })
    }

    fn styles(&mut self, signature: &Signature, signatures: &Signatures) -> &[Style] {
        let id = usize::from(signature.id);
        if self.styles.len() <= id {
            self.styles.resize(id + 1, None);
        }
        self.styles[id].get_or_insert_with(|| {
            signature
                .parameters
                .iter()
                .map(|parameter| style(signature, parameter, signatures))
                .collect()
        })
    }
}

/// What a call returned, with its name; `None` if it did not return.
pub fn result_of(call: &Call<'_>, signatures: &Signatures) -> Option<CallResult> {
    let code = call.result()?;
    let table = signatures
        .enumeration("CUresult")
        .filter(|_| call.signature.returns == "CUresult");
    let name = table.and_then(|table| table.name_of(i64::from(code)));
    Some(CallResult {
        code,
        name: name.map(str::to_owned),
    })
}

fn style(
    signature: &Signature,
    parameter: &cutape_format::Parameter,
    signatures: &Signatures,
) -> Style {
    let c_type = parameter.c_type.trim();
    let (scalar, pointee) = match c_type.strip_suffix('*') {
        Some(behind) => {
            let behind = behind
                .trim()
                .trim_start_matches("const ")
                .trim_end_matches(" const")
                .trim();
            (
                Scalar::Hex,
                Some(pointee(behind, &parameter.role, signatures)),
            )
        }
        None => (
            by_value(
                c_type,
                parameter.passing,
                signature,
                &parameter.name,
                signatures,
            ),
            None,
        ),
    };
    Style {
        name: parameter.name.clone(),
        c_type: c_type.to_owned(),
        passing: parameter.passing,
        scalar,
        pointee,
    }
}

/// Names of bits.
type Bits = &'static [(&'static str, u64)];

const STREAM: Bits = &[("CU_STREAM_DEFAULT", 0), ("CU_STREAM_NON_BLOCKING", 1)];
const EVENT: Bits = &[
    ("CU_EVENT_DEFAULT", 0),
    ("CU_EVENT_BLOCKING_SYNC", 1),
    ("CU_EVENT_DISABLE_TIMING", 2),
    ("CU_EVENT_INTERPROCESS", 4),
];
const CONTEXT: Bits = &[
    ("CU_CTX_SCHED_AUTO", 0),
    ("CU_CTX_SCHED_SPIN", 1),
    ("CU_CTX_SCHED_YIELD", 2),
    ("CU_CTX_SCHED_BLOCKING_SYNC", 4),
    ("CU_CTX_MAP_HOST", 8),
    ("CU_CTX_LMEM_RESIZE_TO_MAX", 16),
    ("CU_CTX_COREDUMP_ENABLE", 32),
    ("CU_CTX_USER_COREDUMP_ENABLE", 64),
    ("CU_CTX_SYNC_MEMOPS", 128),
];
const ATTACH: Bits = &[
    ("CU_MEM_ATTACH_GLOBAL", 1),
    ("CU_MEM_ATTACH_HOST", 2),
    ("CU_MEM_ATTACH_SINGLE", 4),
];
const HOST_ALLOC: Bits = &[
    ("CU_MEMHOSTALLOC_PORTABLE", 1),
    ("CU_MEMHOSTALLOC_DEVICEMAP", 2),
    ("CU_MEMHOSTALLOC_WRITECOMBINED", 4),
];
const HOST_REGISTER: Bits = &[
    ("CU_MEMHOSTREGISTER_PORTABLE", 1),
    ("CU_MEMHOSTREGISTER_DEVICEMAP", 2),
    ("CU_MEMHOSTREGISTER_IOMEMORY", 4),
    ("CU_MEMHOSTREGISTER_READ_ONLY", 8),
];

/// Flags whose C type is a plain integer, so that no table of the trace names them: base name, parameter, bits.
const FLAGS: &[(&str, &str, Bits)] = &[
    ("cuStreamCreate", "Flags", STREAM),
    ("cuStreamCreateWithPriority", "flags", STREAM),
    ("cuEventCreate", "Flags", EVENT),
    ("cuCtxCreate", "flags", CONTEXT),
    ("cuDevicePrimaryCtxSetFlags", "flags", CONTEXT),
    ("cuMemAllocManaged", "flags", ATTACH),
    ("cuStreamAttachMemAsync", "flags", ATTACH),
    ("cuMemHostAlloc", "Flags", HOST_ALLOC),
    ("cuMemHostRegister", "Flags", HOST_REGISTER),
];

fn by_value(
    c_type: &str,
    passing: Passing,
    signature: &Signature,
    name: &str,
    signatures: &Signatures,
) -> Scalar {
    let flags = FLAGS
        .iter()
        .find(|entry| entry.0 == signature.base && entry.1 == name);
    if let Some(&(_, _, bits)) = flags {
        return Scalar::Flags(bits);
    }
    match passing {
        Passing::Float(_) => Scalar::Float,
        _ => plain(c_type, signatures, matches!(passing, Passing::Signed(_))),
    }
}

fn plain(c_type: &str, signatures: &Signatures, signed: bool) -> Scalar {
    if signatures.enumeration(c_type).is_some() {
        return Scalar::Enum(c_type.to_owned());
    }
    match c_type {
        "float" | "double" => Scalar::Float,
        "int" | "long" | "long long" | "CUdevice" | "CUdevice_v1" | "char" => Scalar::Signed,
        "size_t" | "unsigned" | "unsigned int" | "unsigned char" | "unsigned short"
        | "unsigned long" | "unsigned long long" | "cuuint32_t" | "cuuint64_t" | "GLenum"
        | "GLuint" => Scalar::Unsigned,
        _ if signed => Scalar::Signed,
        _ => Scalar::Hex,
    }
}

fn pointee(c_type: &str, role: &str, signatures: &Signatures) -> Pointee {
    if role.starts_with("image") {
        return Pointee::Image;
    }
    if c_type == "char" {
        return Pointee::Text;
    }
    if c_type == "void" {
        return Pointee::Raw;
    }
    if signatures.structure(c_type).is_some() {
        return Pointee::Struct(c_type.to_owned());
    }
    let size = match c_type {
        "int" | "unsigned int" | "unsigned" | "float" | "CUdevice" | "CUdevice_v1"
        | "cuuint32_t" => 4,
        "char" | "unsigned char" => 1,
        "unsigned short" => 2,
        _ if signatures.enumeration(c_type).is_some() => 4,
        _ => 8,
    };
    Pointee::Scalars(plain(c_type, signatures, false), size)
}

fn scalar(out: &mut String, scalar: &Scalar, value: u64, size: usize, signatures: &Signatures) {
    // Writing to a string cannot fail.
    let _ = match scalar {
        Scalar::Unsigned => write!(out, "{value}"),
        Scalar::Signed => write!(out, "{}", signed(value, size)),
        Scalar::Hex if value == 0 && size == 8 => write!(out, "NULL"),
        Scalar::Hex => write!(out, "{value:#x}"),
        Scalar::Float if size == 4 => write!(out, "{}", f32::from_bits(value as u32)),
        Scalar::Float => write!(out, "{}", f64::from_bits(value)),
        Scalar::Enum(name) => {
            let table = signatures.enumeration(name);
            match table.and_then(|table| table.name_of(signed(value, size))) {
                Some(known) => write!(out, "{known}"),
                None => write!(out, "{}", signed(value, size)),
            }
        }
        Scalar::Flags(bits) => {
            flags(out, value, bits);
            Ok(())
        }
    };
}

fn flags(out: &mut String, value: u64, bits: Bits) {
    if let Some((name, _)) = bits.iter().find(|entry| entry.1 == value) {
        out.push_str(name);
        return;
    }
    let mut rest = value;
    let mut first = true;
    for &(name, bit) in bits.iter().filter(|entry| entry.1 != 0) {
        if rest & bit == bit {
            rest &= !bit;
            out.push_str(if first { "" } else { "|" });
            out.push_str(name);
            first = false;
        }
    }
    if rest != 0 || first {
        let _ = write!(out, "{}{rest:#x}", if first { "" } else { "|" });
    }
}

fn signed(value: u64, size: usize) -> i64 {
    match size {
        1 => i64::from(value as u8 as i8),
        2 => i64::from(value as u16 as i16),
        4 => i64::from(value as u32 as i32),
        _ => value as i64,
    }
}

fn argument(
    out: &mut String,
    call: &Call<'_>,
    position: usize,
    style: &Style,
    signatures: &Signatures,
    labels: Option<Labels<'_>>,
) {
    if let Passing::Memory(size) = style.passing {
        let _ = write!(out, "{{{size} bytes}}");
        return;
    }
    let value = call.argument(position);
    scalar(out, &style.scalar, value, style.passing.bytes(), signatures);
    if style.pointee.is_none() {
        if style.scalar == Scalar::Hex
            && let Some(label) = labels.and_then(|labels| labels(&style.c_type, value))
        {
            let _ = write!(out, " ({label})");
        }
        return;
    }
    for capture in call
        .captures()
        .filter(|c| usize::from(c.parameter) == position)
    {
        out.push(' ');
        captured(out, capture, style, signatures);
    }
    let Some(leave) = call.leave else { return };
    for capture in leave
        .captures()
        .filter(|c| usize::from(c.parameter) == position)
    {
        out.push_str(" -> ");
        captured(out, capture, style, signatures);
    }
}

/// What a piece beyond the pointee is called.
fn field_name(number: u8) -> &'static str {
    match number {
        field::KERNEL_PARAMETERS => "parameters",
        field::EXTRA => "extra",
        field::OPTIONS | field::LIBRARY_OPTIONS => "options",
        field::OPTION_VALUES | field::LIBRARY_OPTION_VALUES => "values",
        field::INFO_LOG => "information log",
        field::ERROR_LOG => "error log",
        field::FILE => "content",
        field::DIRECTORY => "in",
        field::FATBIN => "fatbin",
        field::ATTRIBUTES => "attributes",
        field::HOST_BYTES => "host bytes",
        field::SYMBOL_NAMES => "symbol names",
        field::SYMBOL_ADDRESSES => "symbol addresses",
        field::BYTE_BEHIND => "byte behind",
        field::TEXT => "text",
        _ => "piece",
    }
}

fn captured(out: &mut String, capture: Capture<'_>, style: &Style, signatures: &Signatures) {
    if capture.field != field::POINTEE && capture.field != field::TEXT {
        out.push_str(field_name(capture.field));
        out.push(' ');
    }
    let bytes = match capture.bytes {
        Bytes::Inline(bytes) => bytes,
        Bytes::Blob(blob) => {
            let _ = write!(out, "({} bytes)", blob.length);
            return;
        }
        Bytes::InFile(range) => {
            let file = range.file().display();
            let _ = write!(out, "({} bytes of {file})", range.length);
            return;
        }
        Bytes::Omitted(length) => {
            let _ = write!(out, "({length} bytes, left out)");
            return;
        }
        Bytes::Hashed(length, hash) => {
            let _ = write!(
                out,
                "({length} bytes, only their hash: {:02x}{:02x}{:02x}{:02x}…)",
                hash[0], hash[1], hash[2], hash[3]
            );
            return;
        }
        Bytes::Unreadable => {
            out.push_str("(unreadable)");
            return;
        }
    };
    match capture.field {
        field::POINTEE => match style.pointee.as_ref() {
            Some(Pointee::Text) => quoted(out, bytes),
            Some(Pointee::Scalars(kind, size)) => scalars(out, bytes, kind, *size, signatures),
            Some(Pointee::Struct(name)) => structure(out, bytes, name, signatures),
            Some(Pointee::Image) => {
                let _ = write!(out, "({}, {} bytes)", image_word(bytes), bytes.len());
            }
            Some(Pointee::Raw) | None => raw(out, bytes),
        },
        field::TEXT
        | field::INFO_LOG
        | field::ERROR_LOG
        | field::DIRECTORY
        | field::SYMBOL_NAMES => {
            quoted(out, bytes);
        }
        field::OPTIONS => scalars(
            out,
            bytes,
            &Scalar::Enum("CUjit_option".into()),
            4,
            signatures,
        ),
        field::LIBRARY_OPTIONS => {
            scalars(
                out,
                bytes,
                &Scalar::Enum("CUlibraryOption".into()),
                4,
                signatures,
            );
        }
        field::OPTION_VALUES
        | field::LIBRARY_OPTION_VALUES
        | field::EXTRA
        | field::SYMBOL_ADDRESSES => scalars(out, bytes, &Scalar::Hex, 8, signatures),
        field::FILE | field::FATBIN => {
            let _ = write!(out, "({}, {} bytes)", image_word(bytes), bytes.len());
        }
        _ => raw(out, bytes),
    }
}

fn image_word(bytes: &[u8]) -> &'static str {
    match cutape_image::kind(bytes) {
        cutape_image::ImageKind::Cubin => "cubin",
        cutape_image::ImageKind::Fatbin => "fatbin",
        cutape_image::ImageKind::FatbinWrapper => "fatbin wrapper",
        cutape_image::ImageKind::Ptx => "PTX",
        cutape_image::ImageKind::HostObject => "host object",
        cutape_image::ImageKind::HostArchive => "archive",
        cutape_image::ImageKind::NvvmBitcode => "bitcode",
        cutape_image::ImageKind::Unknown => "no known image",
    }
}

fn quoted(out: &mut String, bytes: &[u8]) {
    let end = bytes
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..end.min(LONGEST_STRING)]);
    let _ = write!(
        out,
        "{text:?}{}",
        if end > LONGEST_STRING { "…" } else { "" }
    );
}

fn raw(out: &mut String, bytes: &[u8]) {
    let _ = write!(out, "({} bytes:", bytes.len());
    for byte in bytes.iter().take(MOST_ELEMENTS) {
        let _ = write!(out, " {byte:02x}");
    }
    out.push_str(if bytes.len() > MOST_ELEMENTS {
        " …)"
    } else {
        ")"
    });
}

fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let length = bytes.len().min(8);
    word[..length].copy_from_slice(&bytes[..length]);
    u64::from_le_bytes(word)
}

fn scalars(out: &mut String, bytes: &[u8], kind: &Scalar, size: usize, signatures: &Signatures) {
    if bytes.len() <= size {
        return scalar(out, kind, number(bytes), bytes.len(), signatures);
    }
    out.push('[');
    for (position, element) in bytes.chunks_exact(size).enumerate() {
        if position == MOST_ELEMENTS {
            out.push_str(", …");
            break;
        }
        if position > 0 {
            out.push_str(", ");
        }
        scalar(out, kind, number(element), size, signatures);
    }
    out.push(']');
}

fn structure(out: &mut String, bytes: &[u8], name: &str, signatures: &Signatures) {
    let Some(layout) = signatures.structure(name) else {
        return raw(out, bytes);
    };
    let rows = bytes.chunks_exact(layout.size.max(1));
    let many = bytes.len() > layout.size;
    if many {
        out.push('[');
    }
    for (row, bytes) in rows.enumerate().take(MOST_ELEMENTS) {
        if row > 0 {
            out.push_str(", ");
        }
        out.push('{');
        let mut first = true;
        for member in &layout.fields {
            let Some(bytes) = bytes.get(member.offset..member.offset + member.size) else {
                continue;
            };
            // Members that are zero are the rule in these structs and say nothing.
            if bytes.iter().all(|&byte| byte == 0) {
                continue;
            }
            let _ = write!(out, "{}{}: ", if first { "" } else { ", " }, member.name);
            first = false;
            member_text(out, bytes, &member.c_type, signatures);
        }
        out.push('}');
    }
    if many {
        out.push(']');
    }
}

fn member_text(out: &mut String, bytes: &[u8], c_type: &str, signatures: &Signatures) {
    if bytes.len() > 8 {
        return raw(out, bytes);
    }
    let kind = if c_type.ends_with('*') {
        Scalar::Hex
    } else {
        plain(c_type, signatures, false)
    };
    scalar(out, &kind, number(bytes), bytes.len(), signatures);
}

fn json_scalar(call: &Call<'_>, position: usize, style: &Style) -> Value {
    let value = call.argument(position);
    match (&style.scalar, style.passing) {
        (_, Passing::Memory(_)) => hex(&call.argument_bytes(position)).into(),
        (Scalar::Float, Passing::Float(4)) => json!(f32::from_bits(value as u32)),
        (Scalar::Float, _) => json!(f64::from_bits(value)),
        (Scalar::Signed | Scalar::Enum(_), passing) => json!(signed(value, passing.bytes())),
        _ => json!(value),
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

fn json_capture(capture: Capture<'_>, style: &Style, signatures: &Signatures) -> Value {
    let mut entry = Map::new();
    entry.insert("field".into(), capture.field.into());
    if capture.field != field::POINTEE {
        entry.insert("what".into(), field_name(capture.field).into());
    }
    match capture.bytes {
        Bytes::Inline(bytes) => {
            entry.insert("length".into(), bytes.len().into());
            if bytes.len() <= 256 {
                entry.insert("bytes".into(), hex(bytes).into());
            }
        }
        Bytes::Blob(blob) => {
            entry.insert("length".into(), blob.length.into());
            entry.insert("blob".into(), blob.position.into());
        }
        Bytes::InFile(range) => {
            entry.insert("length".into(), range.length.into());
            entry.insert("file".into(), range.file().to_string_lossy().into());
            entry.insert("offset".into(), range.offset.into());
        }
        Bytes::Omitted(length) => {
            entry.insert("length".into(), length.into());
            entry.insert("omitted".into(), true.into());
        }
        Bytes::Hashed(length, hash) => {
            entry.insert("length".into(), length.into());
            entry.insert("blake3".into(), hex(&hash).into());
        }
        Bytes::Unreadable => {
            entry.insert("unreadable".into(), true.into());
        }
    }
    let mut text = String::new();
    captured(&mut text, capture, style, signatures);
    entry.insert("text".into(), text.into());
    Value::Object(entry)
}
