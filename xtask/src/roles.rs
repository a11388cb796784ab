//! The language of roles in `registry/semantics` (grammar: `registry/README.md`).

use crate::kinds::{camel, handle_kind, is_address, known_kind};
use crate::members::Facts;
use crate::signatures::{Function, Shape, Types, pointee};

/// A role: the words for the trace, and the Rust expression for the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    /// As the file has it, `may differ` included.
    pub(crate) words: String,
    /// E.g. `Role::Make(Kind::Module, Parent::CurrentContext)`.
    pub(crate) rust: String,
    pub(crate) may_differ: bool,
}

/// The role of a parameter without a line in semantics.
///
/// `lenient`: the function is not replayed, so a pointer needs no role.
pub(crate) fn default_role(types: &Types<'_>, c_type: &str, lenient: bool) -> Result<Role, String> {
    let role = |words: &str, rust: &str| Role {
        words: words.to_owned(),
        rust: format!("Role::{rust}"),
        may_differ: false,
    };
    if let Some(kind) = handle_kind(types, c_type) {
        let words = format!("use {}", kind.role);
        return Ok(role(&words, &format!("Use(Kind::{})", kind.variant())));
    }
    if is_address(c_type) {
        return Ok(role("device read 0", "DeviceRead(Length::Fixed(0))"));
    }
    match types.shape(c_type) {
        Some(Shape::Callback) => Ok(role("callback", "Callback")),
        Some(Shape::Pointer) if lenient => Ok(role("pointer", "Pointer")),
        Some(Shape::Pointer) => Err(format!(
            "a {c_type} needs a role in a plain or override function"
        )),
        Some(_) => Ok(role("value", "Value")),
        None => Err(format!("unknown C type {c_type}")),
    }
}

/// Reads the role of a parameter.
pub(crate) fn parse(
    text: &str,
    types: &Types<'_>,
    facts: &Facts,
    function: &Function,
    c_type: &str,
) -> Result<Role, String> {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (body, may_differ) = match words.strip_suffix(" may differ") {
        Some(body) => (body, true),
        None => (words.as_str(), false),
    };
    let reader = Reader {
        types,
        facts,
        function,
        c_type,
    };
    let rust = reader
        .role(body)
        .map_err(|error| format!("{text:?}: {error}"))?;
    Ok(Role {
        words,
        rust,
        may_differ,
    })
}

/// The position of a parameter in the tables.
pub(crate) fn position(function: &Function, name: &str) -> Option<u8> {
    let position = function.params.iter().position(|param| param.1 == name)?;
    u8::try_from(position).ok()
}

/// Reads `.size`: how much memory a call makes.
pub(crate) fn size(
    text: &str,
    types: &Types<'_>,
    facts: &Facts,
    function: &Function,
) -> Result<String, String> {
    let reader = Reader {
        types,
        facts,
        function,
        c_type: "",
    };
    reader
        .length(text, 1)
        .map_err(|error| format!(".size {text:?}: {error}"))
}

/// The parameter that a role is read for.
struct Reader<'a> {
    types: &'a Types<'a>,
    facts: &'a Facts,
    function: &'a Function,
    c_type: &'a str,
}

impl Reader<'_> {
    fn role(&self, body: &str) -> Result<String, String> {
        let (verb, rest) = body.split_once(' ').unwrap_or((body, ""));
        let is_pointer = self.c_type.ends_with('*');
        let rust = match (verb, rest) {
            ("value" | "string" | "image" | "callback" | "pointer", "")
            | ("out", "string")
            | ("host", "address") => format!("Role::{}", camel(body)),
            ("text", length) => format!("Role::Text({})", self.length(length, 1)?),
            ("host", rest) => self.memory("Host", rest)?,
            ("device", rest) => self.memory("Device", rest)?,
            ("use" | "destroy" | "make" | "find" | "get", rest) => self.object(verb, rest)?,
            ("in" | "out" | "inout", rest) => {
                if !is_pointer {
                    return Err(format!("`{verb}` is for pointers, not for {}", self.c_type));
                }
                let way = match verb {
                    "in" => "In",
                    "out" => "Out",
                    _ => "InOut",
                };
                format!("Role::{way}({})", self.bytes(rest)?)
            }
            _ => return Err("no such role; registry/README.md has the list".to_owned()),
        };
        if matches!(verb, "string" | "text" | "make" | "find" | "get" | "image") && !is_pointer {
            return Err(format!("`{verb}` is for pointers, not for {}", self.c_type));
        }
        Ok(rust)
    }

    fn memory(&self, side: &str, rest: &str) -> Result<String, String> {
        let (way, length) = rest
            .split_once(' ')
            .ok_or("needs `read` or `write` and a length")?;
        if !matches!(way, "read" | "write") {
            return Err("needs `read` or `write`".to_owned());
        }
        let length = self.length(length, 1)?;
        Ok(format!("Role::{side}{}({length})", camel(way)))
    }

    /// Empty (one element), `[n]` (elements), `n bytes`, or `by P` (the value of the attribute in
    /// P).
    fn bytes(&self, rest: &str) -> Result<String, String> {
        if let Some(name) = rest.strip_prefix("by ") {
            let position = self.param(name)?;
            let table = self
                .facts
                .table_of(self.types, &self.function.params[usize::from(position)].0)?;
            return Ok(format!(
                "Length::ByAttribute({position}, AttributeTable::{table})"
            ));
        }
        if let Some(count) = bracketed(rest) {
            return self.length(count, self.element()?);
        }
        if let Some(length) = rest.strip_suffix(" bytes") {
            return self.length(length, 1);
        }
        if rest.is_empty() {
            return Ok(format!("Length::Fixed({})", self.element()?));
        }
        Err("after in, out, inout: nothing, `[n]`, `n bytes` or `by P`".to_owned())
    }

    fn element(&self) -> Result<u32, String> {
        let element =
            pointee(self.c_type).ok_or_else(|| format!("{} is no pointer", self.c_type))?;
        self.types
            .size(element)
            .ok_or_else(|| format!("size of {element} is not known; use `n bytes`"))
    }

    fn object(&self, verb: &str, rest: &str) -> Result<String, String> {
        let (rest, count) = match rest.split_once('[') {
            Some((rest, count)) => {
                let count = count
                    .strip_suffix(']')
                    .ok_or("`[` without `]` at the end")?;
                (rest.trim_end(), Some(self.length(count, 1)?))
            }
            None => (rest, None),
        };
        let (kind, parent) = match rest.split_once(" of ") {
            Some((kind, "none")) => (kind, "Parent::None".to_owned()),
            Some((kind, parent)) => {
                let position = position(self.function, parent)
                    .ok_or_else(|| format!("{} has no parameter {parent}", self.function.name))?;
                (kind, format!("Parent::Param({position})"))
            }
            None => (rest, "Parent::CurrentContext".to_owned()),
        };
        let kind =
            known_kind(kind).ok_or_else(|| format!("no kind of object is called {kind:?}"))?;
        let has_parent = rest.contains(" of ");
        let role = format!("Role::{}", camel(verb));
        match (verb, count, has_parent) {
            ("use" | "destroy" | "get", None, false) => Ok(format!("{role}(Kind::{kind})")),
            ("use", Some(count), false) => Ok(format!("{role}Many(Kind::{kind}, {count})")),
            ("make" | "find", None, _) => Ok(format!("{role}(Kind::{kind}, {parent})")),
            ("find", Some(count), _) => Ok(format!("{role}Many(Kind::{kind}, {parent}, {count})")),
            _ => Err(format!("`{verb}` takes no parent or no count here")),
        }
    }

    /// A length in units of `unit` bytes.
    fn length(&self, text: &str, unit: u32) -> Result<String, String> {
        let text = text.trim();
        let words: Vec<&str> = text.split(' ').collect();
        if text == "override" {
            return Ok("Length::Override".to_owned());
        }
        if let ["pitched", pitch, element, width, height] = words.as_slice() {
            if unit != 1 {
                return Err("`pitched` counts bytes".to_owned());
            }
            let (pitch, width, height) =
                (self.param(pitch)?, self.param(width)?, self.param(height)?);
            return Ok(match element.parse::<u8>() {
                Ok(bytes) => format!("Length::PitchedBy({pitch}, {bytes}, {width}, {height})"),
                Err(_) => format!(
                    "Length::Pitched({pitch}, {}, {width}, {height})",
                    self.param(element)?
                ),
            });
        }
        let overflow = || format!("{text} elements of {unit} bytes are too many");
        match words.as_slice() {
            [number] if number.parse::<u32>().is_ok() => {
                let bytes = number
                    .parse::<u32>()
                    .ok()
                    .and_then(|n| n.checked_mul(unit))
                    .ok_or_else(overflow)?;
                Ok(format!("Length::Fixed({bytes})"))
            }
            [name] if unit == 1 => Ok(format!("Length::Param({})", self.param(name)?)),
            [name] => Ok(format!("Length::Scaled({}, {unit})", self.param(name)?)),
            [name, "-", less] => match less.parse::<u8>() {
                Ok(less) => Ok(format!(
                    "Length::AllBut({}, {less}, {unit})",
                    self.param(name)?
                )),
                Err(_) => Err("after `-`: a small number".to_owned()),
            },
            [a, "*", b] => match (a.parse::<u32>(), b.parse::<u32>()) {
                (Err(_), Ok(factor)) => {
                    let factor = factor.checked_mul(unit).ok_or_else(overflow)?;
                    Ok(format!("Length::Scaled({}, {factor})", self.param(a)?))
                }
                (Err(_), Err(_)) if unit == 1 => Ok(format!(
                    "Length::Product({}, {})",
                    self.param(a)?,
                    self.param(b)?
                )),
                (Err(_), Err(_)) => {
                    Err("a product of two parameters counts bytes, not elements".to_owned())
                }
                (Ok(_), _) => Err("write the parameter first: `n * 4`".to_owned()),
            },
            _ => Err(format!("{text:?} is no length")),
        }
    }

    fn param(&self, name: &str) -> Result<u8, String> {
        position(self.function, name)
            .ok_or_else(|| format!("{} has no parameter {name}", self.function.name))
    }
}

fn bracketed(text: &str) -> Option<&str> {
    text.strip_prefix('[')?.strip_suffix(']')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signatures::{Signatures, Typedef};

    /// A function with all sorts of parameters.
    fn sample() -> (Signatures, Function) {
        let params = [
            ("CUmodule", "hmod"),
            ("CUfunction *", "hfunc"),
            ("void *", "host"),
            ("CUdeviceptr", "device"),
            ("size_t", "n"),
            ("size_t *", "bytes"),
            ("unsigned int", "height"),
            ("CUstream", "hStream"),
        ];
        let params = params
            .map(|(c_type, name)| (c_type.to_owned(), name.to_owned(), "u8".to_owned()))
            .to_vec();
        let function = Function {
            id: 0,
            name: "cuSample".to_owned(),
            base: "cuSample".to_owned(),
            section: String::new(),
            first: String::new(),
            last: String::new(),
            returns: "CUresult".to_owned(),
            params,
            header: String::new(),
            since: 0,
        };
        let typedefs = [
            ("CUmodule", "CUmod_st *"),
            ("CUfunction", "CUfunc_st *"),
            ("CUstream", "CUstream_st *"),
            ("CUdeviceptr", "unsigned long long"),
            ("CUdevice", "CUdevice_v1"),
            ("CUdevice_v1", "int"),
            ("CUhostFn", "void (*)(void *)"),
        ];
        let typedefs = typedefs
            .map(|(name, target)| Typedef {
                name: name.to_owned(),
                target: target.to_owned(),
            })
            .to_vec();
        (
            Signatures {
                typedefs,
                ..Default::default()
            },
            function,
        )
    }

    #[test]
    fn roles_become_expressions() {
        let (signatures, function) = sample();
        let types = Types::new(&signatures);
        for (c_type, text, rust) in [
            (
                "CUfunction *",
                "find function of hmod",
                "Role::Find(Kind::Function, Parent::Param(0))",
            ),
            (
                "CUfunction *",
                "find function of hmod [n]",
                "Role::FindMany(Kind::Function, Parent::Param(0), Length::Param(4))",
            ),
            (
                "CUfunction *",
                "make graph exec",
                "Role::Make(Kind::GraphExec, Parent::CurrentContext)",
            ),
            (
                "CUfunction *",
                "make memory pool of none",
                "Role::Make(Kind::MemoryPool, Parent::None)",
            ),
            ("CUfunction *", "get context", "Role::Get(Kind::Context)"),
            ("CUmodule", "destroy module", "Role::Destroy(Kind::Module)"),
            (
                "CUfunction *",
                "use stream [3]",
                "Role::UseMany(Kind::Stream, Length::Fixed(3))",
            ),
            ("size_t *", "out may differ", "Role::Out(Length::Fixed(8))"),
            ("size_t *", "inout [n]", "Role::InOut(Length::Scaled(4, 8))"),
            ("const char *", "in [n]", "Role::In(Length::Param(4))"),
            ("size_t *", "in [3]", "Role::In(Length::Fixed(24))"),
            (
                "size_t *",
                "in [n - 1]",
                "Role::In(Length::AllBut(4, 1, 8))",
            ),
            ("void *", "out n bytes", "Role::Out(Length::Param(4))"),
            (
                "void *",
                "host read n * height",
                "Role::HostRead(Length::Product(4, 6))",
            ),
            (
                "CUdeviceptr",
                "device write n * 4",
                "Role::DeviceWrite(Length::Scaled(4, 4))",
            ),
            (
                "CUdeviceptr",
                "device write pitched n 4 n height",
                "Role::DeviceWrite(Length::PitchedBy(4, 4, 4, 6))",
            ),
            (
                "CUdeviceptr",
                "device read pitched n n n height",
                "Role::DeviceRead(Length::Pitched(4, 4, 4, 6))",
            ),
            (
                "void *",
                "host write override",
                "Role::HostWrite(Length::Override)",
            ),
            (
                "char *",
                "text n may differ",
                "Role::Text(Length::Param(4))",
            ),
            ("const char **", "out string may differ", "Role::OutString"),
            ("const void *", "image", "Role::Image"),
            ("void *", "host address", "Role::HostAddress"),
        ] {
            let role = parse(text, &types, &Facts::default(), &function, c_type).unwrap();
            assert_eq!(role.rust, rust, "{text}");
            assert_eq!(role.words, text);
            assert_eq!(role.may_differ, text.ends_with("may differ"));
        }
    }

    #[test]
    fn wrong_roles_are_errors() {
        let (signatures, function) = sample();
        let types = Types::new(&signatures);
        for (c_type, text) in [
            ("CUfunction *", "find function of module"),
            ("CUfunction *", "find banana of hmod"),
            ("CUfunction *", "make memory-pool"),
            ("CUfunction *", "find function of hmod [n"),
            ("CUfunction *", "get context of hmod"),
            ("CUmodule", "make module"),
            ("CUmodule", "in"),
            ("void *", "out"),
            ("void *", "out [n]"),
            ("void *", "out count bytes"),
            ("void *", "out n"),
            ("void *", "host move n"),
            ("void *", "host read"),
            ("void *", "host read 4 * n"),
            ("size_t *", "in [n * height]"),
            ("size_t *", "in [4294967295]"),
            ("size_t *", "in [n - height]"),
            ("void *", "out by height"),
            ("void *", "out by attribute"),
            ("size_t *", "in [pitched n n n n]"),
            ("const char *", "string of n"),
            ("size_t", ""),
            ("size_t", "may differ"),
        ] {
            assert!(
                parse(text, &types, &Facts::default(), &function, c_type).is_err(),
                "{c_type}: {text}"
            );
        }
    }

    #[test]
    fn roles_that_need_no_words() {
        let (signatures, _) = sample();
        let types = Types::new(&signatures);
        for (c_type, words) in [
            ("CUmodule", "use module"),
            ("CUdevice", "use device"),
            ("CUdevice_v1", "use device"),
            ("CUdeviceptr", "device read 0"),
            ("CUhostFn", "callback"),
            ("size_t", "value"),
            ("int", "value"),
        ] {
            assert_eq!(
                default_role(&types, c_type, false).unwrap().words,
                words,
                "{c_type}"
            );
        }
        assert!(default_role(&types, "void *", false).is_err());
        assert_eq!(
            default_role(&types, "void *", true).unwrap().words,
            "pointer"
        );
        assert!(default_role(&types, "CUnothing", true).is_err());
    }
}
