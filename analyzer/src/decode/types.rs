//! C types of the driver API, and values from their bytes.

use cutape_format::{Enumeration, Signatures, StructLayout};
use cutape_registry::layout::is_padding;
use cutape_registry::{Enum, Kind};

use super::names::{Names, device_address, handle};
use super::value::Value;

/// A C type, as far as decoding needs it.
#[derive(Clone, Copy, Debug)]
pub enum Type<'t> {
    /// `void`, or a type that the table does not have.
    Bytes,
    /// `char`: text.
    Character,
    /// An unsigned integer of that many bytes.
    Unsigned(usize),
    /// A signed integer of that many bytes.
    Signed(usize),
    /// A floating-point number of 4 or 8 bytes.
    Float(usize),
    /// An enum.
    Enumeration(&'t Enumeration),
    /// A word of flags whose bits an enum names.
    Flags(&'static Enum),
    /// A struct.
    Structure(&'t StructLayout),
    /// A handle.
    Handle(Kind),
    /// A device address.
    DeviceAddress,
    /// Any other pointer.
    Pointer,
}

impl<'t> Type<'t> {
    /// Reads a C type, qualifiers and all.
    pub fn of(c_type: &str, signatures: &'t Signatures) -> Self {
        let bare = c_type.trim().trim_start_matches("const ").trim();
        if bare.ends_with('*') {
            return Type::Pointer;
        }
        match bare {
            "char" => return Type::Character,
            "unsigned char" | "cuuint8_t" | "bool" => return Type::Unsigned(1),
            "unsigned short" => return Type::Unsigned(2),
            "unsigned int" | "cuuint32_t" => return Type::Unsigned(4),
            "size_t" | "unsigned long long" | "unsigned long" | "cuuint64_t" => {
                return Type::Unsigned(8);
            }
            "signed char" => return Type::Signed(1),
            "short" => return Type::Signed(2),
            "int" | "CUdevice" | "CUdevice_v1" => return Type::Signed(4),
            "long long" | "long" => return Type::Signed(8),
            "float" => return Type::Float(4),
            "double" => return Type::Float(8),
            "CUdeviceptr" | "CUdeviceptr_v2" => return Type::DeviceAddress,
            _ => {}
        }
        if let Some(kind) = Kind::of_handle_type(bare) {
            return Type::Handle(kind);
        }
        if let Some(enumeration) = signatures.enumeration(bare) {
            return Type::Enumeration(enumeration);
        }
        match signatures.structure(bare) {
            Some(layout) if layout.size > 0 => Type::Structure(layout),
            _ => Type::Bytes,
        }
    }

    /// What a pointer of that C type points at.
    pub fn behind(c_type: &str, signatures: &'t Signatures) -> Self {
        match c_type.trim().strip_suffix('*') {
            Some(pointee) => Self::of(pointee, signatures),
            None => Type::Bytes,
        }
    }

    /// Bytes of one value; 0 if they are not known.
    fn size(self) -> usize {
        match self {
            Type::Bytes => 0,
            Type::Character => 1,
            Type::Unsigned(size) | Type::Signed(size) | Type::Float(size) => size,
            Type::Enumeration(_) | Type::Flags(_) => 4,
            Type::Structure(layout) => layout.size,
            Type::Handle(_) | Type::DeviceAddress | Type::Pointer => 8,
        }
    }

    /// A value from its bits.
    pub fn scalar(self, bits: u64, names: &dyn Names) -> Value {
        match self {
            Type::Bytes | Type::Unsigned(_) | Type::Structure(_) => Value::Unsigned(bits),
            Type::Character => Value::Signed(i64::from(bits as i8)),
            Type::Signed(size) => Value::Signed(sign_extended(bits, size)),
            Type::Float(4) => Value::Float(f64::from(f32::from_bits(bits as u32))),
            Type::Float(_) => Value::Float(f64::from_bits(bits)),
            Type::Enumeration(enumeration) => named(bits, enumeration),
            Type::Flags(names) => flags(bits, names.values),
            Type::Handle(kind) => handle(names, kind, bits),
            Type::DeviceAddress => device_address(names, bits),
            Type::Pointer if bits == 0 => Value::Null,
            Type::Pointer => Value::Address(bits, None),
        }
    }

    /// A value, or a list of at most `limit` values if there are bytes for several.
    pub fn decode(
        self,
        bytes: &[u8],
        names: &dyn Names,
        signatures: &Signatures,
        limit: usize,
    ) -> Value {
        if let Type::Character = self {
            return Value::Text(text(bytes));
        }
        let size = self.size();
        if size == 0 || bytes.is_empty() || !bytes.len().is_multiple_of(size) {
            return block(bytes, limit);
        }
        if bytes.len() == size {
            return self.one(bytes, names, signatures, limit);
        }
        let count = bytes.len() / size;
        let elements: Vec<_> = bytes
            .chunks_exact(size)
            .take(limit)
            .map(|element| self.one(element, names, signatures, limit))
            .collect();
        let more = count - elements.len();
        Value::List(elements, more)
    }

    fn one(self, bytes: &[u8], names: &dyn Names, signatures: &Signatures, limit: usize) -> Value {
        match self {
            Type::Structure(layout) => structure(layout, bytes, names, signatures, limit),
            _ => self.scalar(word(bytes), names),
        }
    }
}

/// The members of a struct; of a union's members only the first, and of reserved ones those that
/// are not zero.
fn structure(
    layout: &StructLayout,
    bytes: &[u8],
    names: &dyn Names,
    signatures: &Signatures,
    limit: usize,
) -> Value {
    let mut fields = Vec::new();
    let mut end = 0;
    for field in &layout.fields {
        let Some(behind) = field.offset.checked_add(field.size) else {
            continue;
        };
        let Some(raw) = bytes.get(field.offset..behind) else {
            continue;
        };
        if field.offset < end {
            continue;
        }
        end = behind;
        if is_padding(&field.name) && raw.iter().all(|&byte| byte == 0) {
            continue;
        }
        // `T[4]` is the element's type with more bytes.
        let c_type = field.c_type.split('[').next().unwrap_or("");
        let value = match Type::of(c_type, signatures) {
            // The members of nested structs are in the list as well.
            Type::Structure(_) | Type::Bytes => match raw.len() {
                1 | 2 | 4 | 8 => Value::Unsigned(word(raw)),
                _ => block(raw, limit),
            },
            Type::Character if raw.len() == 1 => Value::Unsigned(word(raw)),
            // Arrays of char in the API's structs are identifiers (CUuuid, CUipcMemHandle), never
            // text.
            Type::Character => block(raw, limit),
            known => known.decode(raw, names, signatures, limit),
        };
        fields.push((field.name.clone(), value));
    }
    Value::Fields(fields)
}

/// Bytes of an unknown type.
pub fn block(bytes: &[u8], limit: usize) -> Value {
    let shown = bytes.len().min(limit.max(16));
    Value::Bytes(bytes.len() as u64, bytes[..shown].to_vec())
}

/// Text up to the first NUL.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// At most eight bytes as a little-endian number.
pub fn word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .take(8)
        .rev()
        .fold(0, |word, &byte| word << 8 | u64::from(byte))
}

fn sign_extended(bits: u64, size: usize) -> i64 {
    match size {
        1 => i64::from(bits as i8),
        2 => i64::from(bits as i16),
        4 => i64::from(bits as i32),
        _ => bits as i64,
    }
}

/// An enum's value: by name, else as flags where its bits have names.
fn named(bits: u64, enumeration: &Enumeration) -> Value {
    let number = i64::from(bits as i32);
    let found = enumeration
        .name_of(number)
        .or_else(|| enumeration.name_of(i64::from(bits as u32)));
    match found {
        Some(name) => Value::Named(number, name.to_owned()),
        None => flags(bits, &enumeration.values),
    }
}

/// The names of the set bits, joined by `|`, and the rest as a number.
fn flags<N: AsRef<str>>(bits: u64, values: &[(N, i64)]) -> Value {
    if let Some((name, _)) = values.iter().find(|entry| entry.1 == bits as i64) {
        return Value::Named(bits as i64, name.as_ref().to_owned());
    }
    let mut rest = bits;
    let mut names: Vec<String> = Vec::new();
    for (name, value) in values {
        let value = *value as u64;
        if value.is_power_of_two() && rest & value != 0 {
            rest &= !value;
            names.push(name.as_ref().to_owned());
        }
    }
    match (names.is_empty(), rest) {
        (true, 0) => return Value::Unsigned(0),
        (true, _) => return Value::Named(bits as i64, format!("{bits:#x}")),
        (false, 0) => {}
        (false, _) => names.push(format!("{rest:#x}")),
    }
    Value::Named(bits as i64, names.join("|"))
}

/// `CUlaunchAttribute`s: the name of each and the member of the union that it uses.
pub fn attributes(bytes: &[u8], signatures: &Signatures, names: &dyn Names) -> Value {
    let layout = signatures.structure("CUlaunchAttribute");
    let ids = signatures.enumeration("CUlaunchAttributeID");
    let known = cutape_registry::structure("CUlaunchAttribute");
    let (Some(layout), Some(ids), Some(known)) = (layout, ids, known) else {
        return block(bytes, 64);
    };
    if layout.size == 0 || !bytes.len().is_multiple_of(layout.size) {
        return block(bytes, 64);
    }
    let elements = bytes.chunks_exact(layout.size).map(|raw| {
        let id = word(&raw[..4.min(raw.len())]) as u32;
        let name = ids.name_of(i64::from(id));
        let name = name.map_or_else(|| format!("attribute {id}"), str::to_owned);
        let members = layout.fields.iter().filter_map(|field| {
            let mut fields = known.fields.iter();
            let when = fields.find(|known| known.name == field.name)?.when?;
            let path = field.name.strip_prefix("value.")?;
            let short = path.split_once('.').map_or("value", |(_, member)| member);
            let value = raw.get(field.offset..field.offset.checked_add(field.size)?)?;
            let kind = Type::of(&field.c_type, signatures);
            when.holds(raw)
                .then(|| (short.to_owned(), kind.decode(value, names, signatures, 16)))
        });
        let members: Vec<_> = members.collect();
        let value = match members.is_empty() {
            true => block(&raw[8.min(raw.len())..], 64),
            false => Value::Fields(members),
        };
        Value::Fields(vec![(name, value)])
    });
    Value::List(elements.collect(), 0)
}

#[cfg(test)]
mod tests {
    use super::super::names::Nameless;
    use super::*;

    #[test]
    fn values_from_bytes() {
        let signatures = Signatures::parse(cutape_registry::SIGNATURE_TEXT).unwrap();
        let mut copy = vec![0; 128];
        copy[16] = 1;
        copy[72] = 2;
        copy[88..96].copy_from_slice(&0x7f00_u64.to_le_bytes());
        copy[112] = 6;
        copy[120] = 7;
        for (c_type, bytes, expected) in [
            ("int *", vec![0xff, 0xff, 0xff, 0xff], "-1"),
            ("unsigned int *", vec![1, 0, 0, 0, 2, 0, 0, 0], "[1, 2]"),
            ("size_t *", vec![0, 1, 0, 0, 0, 0, 0, 0], "256"),
            ("float *", vec![0, 0, 0x80, 0x3f], "1.0"),
            ("const char *", b"hello\0rest".to_vec(), "\"hello\""),
            ("const CUjit_option *", vec![0; 4], "CU_JIT_MAX_REGISTERS"),
            ("CUmodule *", vec![0x10, 0, 0, 0, 0, 0, 0, 0], "0x10"),
            ("CUstream *", vec![0; 8], "NULL"),
            ("void **", vec![0x10, 0, 0, 0, 0, 0, 0, 0], "0x10"),
            ("void *", vec![1, 2, 3], "<3 bytes: 010203>"),
            // Not whole elements.
            ("int *", vec![1, 2, 3], "<3 bytes: 010203>"),
            ("int *", vec![], "<0 bytes: >"),
            (
                "const CUDA_MEMCPY2D *",
                copy,
                "{srcXInBytes = 0, srcY = 0, srcMemoryType = CU_MEMORYTYPE_HOST, srcHost = NULL, srcDevice = NULL, \
                 srcArray = NULL, srcPitch = 0, dstXInBytes = 0, dstY = 0, dstMemoryType = CU_MEMORYTYPE_DEVICE, \
                 dstHost = NULL, dstDevice = 0x7f00, dstArray = NULL, dstPitch = 0, WidthInBytes = 6, Height = 7}",
            ),
            // Printable or not, it is no text.
            (
                "CUuuid *",
                b"cutape\0\xff12345678".to_vec(),
                "{bytes = <16 bytes: 63757461706500ff3132333435363738>}",
            ),
        ] {
            let kind = Type::behind(c_type, &signatures);
            let mut out = String::new();
            kind.decode(&bytes, &Nameless, &signatures, 16)
                .write(&mut out);
            assert_eq!(out, expected, "{c_type}");
        }
    }

    #[test]
    fn every_struct_and_parameter_decodes() {
        let signatures = Signatures::parse(cutape_registry::SIGNATURE_TEXT).unwrap();
        let known = cutape_registry::STRUCTS
            .iter()
            .filter_map(|s| signatures.structure(s.name));
        let layouts: Vec<_> = known.collect();
        assert!(layouts.len() > 50, "{}", layouts.len());
        for layout in layouts {
            for length in [0, 1, layout.size / 2, layout.size, layout.size * 2] {
                let bytes = vec![0xa5; length];
                Type::Structure(layout)
                    .decode(&bytes, &Nameless, &signatures, 16)
                    .json();
            }
        }
        for function in signatures.functions() {
            for parameter in &function.parameters {
                let behind = Type::behind(&parameter.c_type, &signatures);
                behind.decode(&[0x5a; 64], &Nameless, &signatures, 4).json();
                Type::of(&parameter.c_type, &signatures)
                    .scalar(u64::MAX, &Nameless)
                    .json();
            }
        }
    }

    #[test]
    fn flag_words() {
        let values = [("NONE", 0), ("A", 1), ("B", 2), ("AB_", 3)];
        for (bits, text) in [(0, "NONE"), (2, "B"), (3, "AB_"), (6, "B|0x4"), (8, "0x8")] {
            let mut out = String::new();
            flags(bits, &values).write(&mut out);
            assert_eq!(out, text);
        }
    }

    #[test]
    fn launch_attributes() {
        let signatures = Signatures::parse(cutape_registry::SIGNATURE_TEXT).unwrap();
        let mut bytes = [0; 72 * 2];
        bytes[0] = 4;
        bytes[8] = 2;
        bytes[12] = 1;
        bytes[16] = 1;
        bytes[72] = 2;
        bytes[80] = 1;
        for (bytes, text) in [
            (
                &bytes[..],
                "[{CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = {x = 2, y = 1, z = 1}}, \
                 {CU_LAUNCH_ATTRIBUTE_COOPERATIVE = {value = 1}}]",
            ),
            (&bytes[..3], "<3 bytes: 040000>"),
        ] {
            let mut out = String::new();
            attributes(bytes, &signatures, &Nameless).write(&mut out);
            assert_eq!(out, text);
        }
    }
}
