//! `.family` in `registry/semantics`: the family of a function, and which of its parameters are the family's operands.
//!
//! `FAMILY operand=parameter ...`. An operand that follows from a role or a C type is found, and must not be named.

use std::cell::Cell;

use crate::roles::{self, Role, camel};
use crate::signatures::Function;

/// Families without operands: group, its enum, its members. Those of no group come first.
const WITHOUT_OPERANDS: &[(&str, &str, &[&str])] = &[
    (
        "",
        "",
        &[
            "plain",
            "init",
            "export table",
            "module unload",
            "library unload",
            "loading mode",
            "library module",
            "host function",
            "stream callback",
            "memset",
            "prefetch",
        ],
    ),
    ("device", "DeviceOp", &["count", "by bus id"]),
    (
        "context",
        "ContextOp",
        &[
            "create",
            "destroy",
            "push",
            "pop",
            "set",
            "current",
            "device",
            "detach",
            "synchronize",
            "enable peer",
        ],
    ),
    (
        "primary context",
        "PrimaryOp",
        &["retain", "release", "reset", "set flags"],
    ),
    ("global", "GlobalOwner", &["module", "library", "managed"]),
    (
        "function",
        "FunctionOp",
        &[
            "count",
            "get attribute",
            "set attribute",
            "set cache config",
        ],
    ),
    (
        "kernel",
        "FunctionOp",
        &[
            "count",
            "get attribute",
            "set attribute",
            "set cache config",
        ],
    ),
    ("link", "LinkOp", &["destroy"]),
    ("occupancy", "OccupancyOp", &["function"]),
    (
        "memory",
        "MemoryOp",
        &[
            "allocate",
            "allocate managed",
            "allocate async",
            "free",
            "free async",
            "address range",
        ],
    ),
    (
        "host memory",
        "HostMemoryOp",
        &[
            "allocate",
            "free",
            "register",
            "unregister",
            "device pointer",
            "flags",
        ],
    ),
    (
        "virtual memory",
        "VirtualMemoryOp",
        &["reserve", "free reservation", "release"],
    ),
    (
        "pointer",
        "PointerOp",
        &["attribute", "set attribute", "range attribute"],
    ),
    (
        "stream",
        "StreamOp",
        &[
            "query",
            "synchronize",
            "destroy",
            "wait event",
            "begin capture",
            "end capture",
        ],
    ),
    (
        "stream memory",
        "StreamMemoryOp",
        &["wait", "write", "batch"],
    ),
    (
        "event",
        "EventOp",
        &["record", "query", "synchronize", "elapsed time"],
    ),
    (
        "graph",
        "GraphOp",
        &[
            "set enabled",
            "list",
            "update",
            "destroy exec",
            "upload",
            "launch",
            "conditional handle",
        ],
    ),
];

/// What the parameters of a graph node are, by their C type; the child graph is a handle.
const NODES: &[(&str, &str)] = &[
    ("KERNEL_NODE_PARAMS", "Kernel"),
    ("CUDA_MEMCPY3D", "Copy"),
    ("MEMSET_NODE_PARAMS", "Memset"),
    ("HOST_NODE_PARAMS", "Host"),
    ("EXT_SEM_SIGNAL_NODE_PARAMS", "Semaphores"),
    ("EXT_SEM_WAIT_NODE_PARAMS", "Semaphores"),
    ("BATCH_MEM_OP_NODE_PARAMS", "MemoryOps"),
    ("MEM_ALLOC_NODE_PARAMS", "Allocation"),
    ("CUgraphNodeParams", "Any"),
];

/// Reads a family; the answer is a Rust expression.
pub(crate) fn parse(text: &str, function: &Function, roles: &[Role]) -> Result<String, String> {
    let mut words = Vec::new();
    let mut named = Vec::new();
    for word in text.split_whitespace() {
        match word.split_once('=') {
            Some((operand, parameter)) => named.push((operand, parameter, Cell::new(false))),
            None if named.is_empty() => words.push(word),
            None => {
                return Err(format!(
                    ".family {text:?}: {word:?} is no operand=parameter"
                ));
            }
        }
    }
    let reader = Reader {
        function,
        roles,
        named,
    };
    let family = reader
        .family(&words.join(" "))
        .map_err(|error| format!(".family {text:?}: {error}"))?;
    match reader.named.iter().find(|(_, _, used)| !used.get()) {
        Some((operand, ..)) => Err(format!(
            ".family {text:?}: the family has no operand {operand}"
        )),
        None => Ok(format!("Family::{family}")),
    }
}

/// The function that a family is read for.
struct Reader<'a> {
    function: &'a Function,
    roles: &'a [Role],
    /// Operand, parameter, whether the family has asked for it.
    named: Vec<(&'a str, &'a str, Cell<bool>)>,
}

impl Reader<'_> {
    fn family(&self, words: &str) -> Result<String, String> {
        for (group, operations, members) in WITHOUT_OPERANDS {
            for member in *members {
                if group.is_empty() && words == *member {
                    return Ok(camel(member));
                }
                if words
                    .strip_prefix(group)
                    .and_then(|rest| rest.strip_prefix(' '))
                    == Some(member)
                {
                    return Ok(format!("{}({operations}::{})", camel(group), camel(member)));
                }
            }
        }
        Ok(match words {
            "proc address" => format!(
                "ProcAddress {{ name: {}, address: {} }}",
                self.role(&["string"])?,
                self.named("address")?
            ),
            "module load" => format!("ModuleLoad({})", self.image_load()?),
            "library load" => format!("LibraryLoad({})", self.image_load()?),
            "function find" => format!("Function({})", self.find()?),
            "kernel find" => format!("Kernel({})", self.find()?),
            "function of kernel" => format!(
                "Function(FunctionOp::OfKernel {{ output: {}, kernel: {} }})",
                self.role(&["find function"])?,
                self.role(&["use kernel"])?
            ),
            "function list" => format!("Function({})", self.list()?),
            "kernel list" => format!("Kernel({})", self.list()?),
            "function name" => format!("Function({})", self.function_name()?),
            "kernel name" => format!("Kernel({})", self.function_name()?),
            "link create" => format!(
                "Link(LinkOp::Create {{ options: {}, output: {} }})",
                self.required_options()?,
                self.role(&["make link"])?
            ),
            "link add data" => {
                let data = self.role(&["in size bytes"])?;
                format!(
                    "Link(LinkOp::AddData {{ data: {data}, size: {}, options: {} }})",
                    self.count_of(data)?,
                    self.required_options()?
                )
            }
            "link add file" => format!(
                "Link(LinkOp::AddFile {{ path: {}, options: {} }})",
                self.role(&["string"])?,
                self.required_options()?
            ),
            "link complete" => format!(
                "Link(LinkOp::Complete {{ cubin: {}, size: {} }})",
                self.c_type(&["void **"])?,
                self.c_type(&["size_t *"])?
            ),
            "launch arguments" => format!(
                "Launch(LaunchOp::Arguments(LaunchArguments {{ function: {}, grid: {}, shared: {}, stream: {}, \
                 parameters: {}, extra: {} }}))",
                self.role(&["use function"])?,
                self.grid()?,
                self.named("shared")?,
                self.role(&["use stream"])?,
                self.named("parameters")?,
                self.optional("extra")?
            ),
            "launch config" => format!(
                "Launch(LaunchOp::Config(LaunchConfig {{ config: {}, function: {}, parameters: {}, extra: {} }}))",
                self.c_type(&["CUlaunchConfig"])?,
                self.role(&["use function"])?,
                self.named("parameters")?,
                self.named("extra")?
            ),
            "launch multi device" => {
                let list = self.c_type(&["CUDA_LAUNCH_PARAMS"])?;
                format!(
                    "Launch(LaunchOp::MultiDevice {{ list: {list}, count: {} }})",
                    self.count_of(list)?
                )
            }
            "launch legacy" => format!(
                "Launch(LaunchOp::Legacy {{ function: {} }})",
                self.role(&["use function"])?
            ),
            "occupancy config" => format!(
                "Occupancy(OccupancyOp::Config {{ config: {}, function: {} }})",
                self.c_type(&["CUlaunchConfig"])?,
                self.role(&["use function"])?
            ),
            "copy linear" => format!("Copy(CopyOp::Linear({}))", self.transfer(None)?),
            "copy peer" => format!("Copy(CopyOp::Peer({}))", self.transfer(None)?),
            "copy unified" => format!("Copy(CopyOp::Unified({}))", self.transfer(Some("Unified"))?),
            "copy described" => {
                let c_type = &self.function.params[0].0;
                let shape = if c_type.contains("MEMCPY2D") {
                    "Plane"
                } else if c_type.contains("MEMCPY3D_PEER") {
                    "PeerVolume"
                } else if c_type.contains("MEMCPY3D") {
                    "Volume"
                } else {
                    return Err(format!("{c_type} describes no copy"));
                };
                format!("Copy(CopyOp::Described(CopyShape::{shape}))")
            }
            "copy batch" => {
                let sizes = self.named("sizes")?;
                format!(
                    "Copy(CopyOp::Batch {{ targets: {}, sources: {}, sizes: {sizes}, count: {} }})",
                    self.named("targets")?,
                    self.named("sources")?,
                    self.count_of(sizes)?
                )
            }
            "copy batch 3d" => {
                let operations = self.c_type(&["CUDA_MEMCPY3D_BATCH_OP"])?;
                format!(
                    "Copy(CopyOp::Batch3D {{ operations: {operations}, count: {} }})",
                    self.count_of(operations)?
                )
            }
            "memory allocate pitch" => format!(
                "Memory(MemoryOp::AllocatePitch {{ pitch: {} }})",
                self.c_type(&["size_t *"])?
            ),
            "virtual memory create" => format!(
                "VirtualMemory(VirtualMemoryOp::Create {{ size: {}, properties: {} }})",
                self.named("size")?,
                self.c_type(&["CUmemAllocationProp"])?
            ),
            "virtual memory map" => format!(
                "VirtualMemory(VirtualMemoryOp::Map {{ address: {}, size: {}, allocation: {} }})",
                self.role(&["device"])?,
                self.named("size")?,
                self.role(&["use allocation"])?
            ),
            "virtual memory unmap" => format!("VirtualMemory({})", self.range("Unmap")?),
            "virtual memory set access" => {
                format!("VirtualMemory({})", self.range("SetAccess")?)
            }
            "pointer attributes" => {
                let data = self.c_type(&["void **"])?;
                format!(
                    "Pointer(PointerOp::Attributes {{ count: {}, attributes: {}, data: {data} }})",
                    self.count_of(data)?,
                    self.c_type(&["_attribute *"])?
                )
            }
            "pointer range attributes" => {
                let data = self.c_type(&["void **"])?;
                format!(
                    "Pointer(PointerOp::RangeAttributes {{ count: {}, attributes: {}, data: {data}, sizes: {} }})",
                    self.count_of(data)?,
                    self.c_type(&["_attribute *"])?,
                    self.c_type(&["size_t *"])?
                )
            }
            "external buffer" => format!(
                "ExternalBuffer {{ description: {} }}",
                self.c_type(&["CUDA_EXTERNAL_MEMORY_BUFFER_DESC"])?
            ),
            "stream capture info" => format!(
                "Stream(StreamOp::CaptureInfo {{ status: {} }})",
                self.c_type(&["CUstreamCaptureStatus *"])?
            ),
            "graph add node" => self.node("AddNode")?,
            "graph get node" => self.node("GetNode")?,
            "graph set node" => self.node("SetNode")?,
            "graph set exec node" => self.node("SetExecNode")?,
            "graph get kernel attribute" => self.kernel_attribute("GetKernelAttribute")?,
            "graph set kernel attribute" => self.kernel_attribute("SetKernelAttribute")?,
            "graph instantiate" => format!(
                "Graph(GraphOp::Instantiate {{ params: {} }})",
                self.optional("params")?
            ),
            "graph dot file" => format!(
                "Graph(GraphOp::DotFile {{ path: {} }})",
                self.role(&["string"])?
            ),
            "user object" => format!(
                "UserObject {{ pointer: {}, destructor: {} }}",
                self.role(&["pointer"])?,
                self.role(&["callback"])?
            ),
            _ => return Err("no such family; xtask/src/families.rs has the list".to_owned()),
        })
    }

    fn image_load(&self) -> Result<String, String> {
        let source = match self.role(&["image"]) {
            // The one function without a JIT that is documented to take nothing else.
            Ok(at) if self.function.params[usize::from(at)].1 == "fatCubin" => {
                format!("FatBinary({at})")
            }
            Ok(at) => format!("Data({at})"),
            Err(_) => format!("File({})", self.role(&["string"])?),
        };
        let some = |options: Option<String>| match options {
            Some(options) => format!("Some({options})"),
            None => "None".to_owned(),
        };
        Ok(format!(
            "ImageLoad {{ source: ImageSource::{source}, options: {}, library_options: {} }}",
            some(self.options("CUjit_option *")?),
            some(self.options("CUlibraryOption *")?)
        ))
    }

    fn find(&self) -> Result<String, String> {
        Ok(format!(
            "FunctionOp::Find {{ output: {}, owner: {}, name: {} }}",
            self.role(&["find"])?,
            self.role(&["use"])?,
            self.role(&["string"])?
        ))
    }

    fn list(&self) -> Result<String, String> {
        let output = self.role(&["find"])?;
        Ok(format!(
            "FunctionOp::List {{ output: {output}, count: {}, owner: {} }}",
            self.count_of(output)?,
            self.role(&["use"])?
        ))
    }

    fn function_name(&self) -> Result<String, String> {
        Ok(format!(
            "FunctionOp::Name {{ name: {}, handle: {} }}",
            self.role(&["out string"])?,
            self.role(&["use"])?
        ))
    }

    fn range(&self, operation: &str) -> Result<String, String> {
        Ok(format!(
            "VirtualMemoryOp::{operation} {{ address: {}, size: {} }}",
            self.role(&["device"])?,
            self.named("size")?
        ))
    }

    fn node(&self, operation: &str) -> Result<String, String> {
        let params = self.function.params.iter().zip(0_u8..);
        let found: Vec<(u8, &str)> = params
            .flat_map(|(param, at)| {
                let kind = NODES.iter().find(|(c_type, _)| param.0.contains(c_type));
                kind.map(|(_, kind)| (at, *kind))
            })
            .collect();
        let (at, kind) = match (found.as_slice(), self.optional("child")?) {
            ([one], child) if child == "None" => *one,
            ([], child) if child != "None" => (self.named("child")?, "ChildGraph"),
            _ => return Err("not one struct of a node's parameters, or one child graph".to_owned()),
        };
        Ok(format!(
            "Graph(GraphOp::{operation}(NodeParams {{ position: {at}, kind: NodeKind::{kind} }}))"
        ))
    }

    fn kernel_attribute(&self, operation: &str) -> Result<String, String> {
        Ok(format!(
            "Graph(GraphOp::{operation} {{ attribute: {}, value: {} }})",
            self.c_type(&["CUkernelNodeAttrID"])?,
            self.c_type(&["CUkernelNodeAttrValue"])?
        ))
    }

    /// A copy of bytes between the parameters `src...` and `dst...`; the roles say what they are.
    fn transfer(&self, both: Option<&str>) -> Result<String, String> {
        let side = |prefix: &str| {
            let fits = |role: &str| match both {
                Some(_) => role.starts_with("device"),
                None => ["host ", "device ", "use array"]
                    .iter()
                    .any(|start| role.starts_with(start)),
            };
            let at = self.only(&format!("an operand {prefix}..."), |name, _, role| {
                name.starts_with(prefix) && fits(role)
            })?;
            let role = &self.roles[usize::from(at)].words;
            let memory = both.unwrap_or(match role.split(' ').next() {
                Some("host") => "Host",
                Some("device") => "Device",
                _ => "Array",
            });
            Ok::<_, String>((at, memory.to_owned()))
        };
        let (source, from) = side("src")?;
        let (target, to) = side("dst")?;
        Ok(format!(
            "Transfer {{ source: {source}, target: {target}, bytes: {}, from: MemoryType::{from}, to: MemoryType::{to} }}",
            self.named("bytes")?
        ))
    }

    /// The first of six dimensions in a row.
    fn grid(&self) -> Result<u8, String> {
        let at = self.named("grid")?;
        let names = self.function.params[usize::from(at)..].iter().take(6);
        let all = names
            .filter(|param| param.1.contains("Dim") && param.0 == "unsigned int")
            .count();
        if all == 6 {
            Ok(at)
        } else {
            Err("grid= is not the first of six dimensions".to_owned())
        }
    }

    /// An array of options of that C type, its count and its values; `None` if the function takes none.
    fn options(&self, c_type: &str) -> Result<Option<String>, String> {
        let params = &self.function.params;
        let Some(options) = params.iter().position(|param| param.0 == c_type) else {
            return Ok(None);
        };
        let options = options as u8;
        let count = self.count_of(options)?;
        let counted = format!("[{}]", params[usize::from(count)].1);
        let values = self.only("an array of option values", |_, c_type, role| {
            c_type == "void **" && role.ends_with(&counted)
        })?;
        Ok(Some(format!(
            "OptionArray {{ count: {count}, options: {options}, values: {values} }}"
        )))
    }

    fn required_options(&self) -> Result<String, String> {
        self.options("CUjit_option *")?
            .ok_or_else(|| "no parameter is a CUjit_option *".to_owned())
    }

    /// The parameter that says how many elements or bytes the one at a position has.
    fn count_of(&self, position: u8) -> Result<u8, String> {
        let role = &self.roles[usize::from(position)].words;
        let name = role
            .split(['[', ']', ' '])
            .find(|word| roles::position(self.function, word).is_some());
        name.and_then(|name| roles::position(self.function, name))
            .ok_or_else(|| format!("the role {role:?} has no count"))
    }

    /// The one parameter whose role begins with one of these words.
    fn role(&self, starts: &[&str]) -> Result<u8, String> {
        self.only(&format!("a role {}", starts.join(" or ")), |_, _, role| {
            starts.iter().any(|start| {
                role.strip_prefix(start)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            })
        })
    }

    /// The one parameter whose C type contains one of these.
    fn c_type(&self, parts: &[&str]) -> Result<u8, String> {
        self.only(
            &format!("a C type {}", parts.join(" or ")),
            |_, c_type, _| parts.iter().any(|part| c_type.contains(part)),
        )
    }

    /// The one parameter that a test on name, C type and role finds.
    fn only(&self, what: &str, test: impl Fn(&str, &str, &str) -> bool) -> Result<u8, String> {
        let params = self.function.params.iter().zip(self.roles).zip(0_u8..);
        let mut found = params
            .filter(|((param, role), _)| test(&param.1, &param.0, &role.words))
            .map(|(_, at)| at);
        match (found.next(), found.next()) {
            (Some(at), None) => Ok(at),
            (None, _) => Err(format!(
                "{} has no parameter with {what}",
                self.function.name
            )),
            _ => Err(format!(
                "{} has several parameters with {what}",
                self.function.name
            )),
        }
    }

    /// The parameter that an operand names.
    fn named(&self, operand: &str) -> Result<u8, String> {
        let (_, parameter, used) = self
            .named
            .iter()
            .find(|(name, ..)| *name == operand)
            .ok_or_else(|| format!("needs {operand}=PARAMETER"))?;
        used.set(true);
        roles::position(self.function, parameter)
            .ok_or_else(|| format!("{} has no parameter {parameter}", self.function.name))
    }

    /// As `named`, for an operand that may be missing: `Some(n)` or `None`.
    fn optional(&self, operand: &str) -> Result<String, String> {
        if self.named.iter().all(|(name, ..)| *name != operand) {
            return Ok("None".to_owned());
        }
        Ok(format!("Some({})", self.named(operand)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::Facts;
    use crate::signatures::{Signatures, Types};

    fn read(text: &str, params: &[(&str, &str, &str)]) -> Result<String, String> {
        let signatures = Signatures::load(&crate::root()).map_err(|error| error.to_string())?;
        let types = Types::new(&signatures);
        let function = Function {
            name: "cuSample".to_owned(),
            params: params
                .iter()
                .map(|(c_type, name, _)| {
                    ((*c_type).to_owned(), (*name).to_owned(), "u8".to_owned())
                })
                .collect(),
            ..Default::default()
        };
        let roles: Vec<Role> = function
            .params
            .iter()
            .zip(params)
            .map(|(param, (c_type, _, role))| match *role {
                "" => roles::default_role(&types, c_type, true),
                role => roles::parse(role, &types, &Facts::default(), &function, &param.0),
            })
            .collect::<Result<_, _>>()?;
        parse(text, &function, &roles)
    }

    #[test]
    fn operands_are_found_by_role_and_type_or_named() {
        let copy = [
            ("void *", "dstHost", "host write n"),
            ("CUarray", "srcArray", ""),
            ("size_t", "srcOffset", ""),
            ("size_t", "n", ""),
        ];
        let options = [
            ("CUlinkState", "state", ""),
            ("unsigned int", "count", ""),
            ("CUjit_option *", "options", "in [count]"),
            ("void **", "values", "inout [count]"),
            ("const char *", "path", "string"),
        ];
        let node = [
            ("CUgraphNode", "node", ""),
            ("const CUDA_HOST_NODE_PARAMS *", "params", "in"),
        ];
        for (text, params, expected) in [
            ("plain", &copy[..], "Family::Plain"),
            ("by bus id", &copy, "no such family"),
            (
                "device by bus id",
                &copy,
                "Family::Device(DeviceOp::ByBusId)",
            ),
            (
                "copy linear bytes=n",
                &copy,
                "Family::Copy(CopyOp::Linear(Transfer { source: 1, target: 0, bytes: 3, \
                 from: MemoryType::Array, to: MemoryType::Host }))",
            ),
            ("copy linear", &copy, "needs bytes=PARAMETER"),
            ("copy linear bytes=m", &copy, "no parameter m"),
            ("copy linear bytes=n more=n", &copy, "no operand more"),
            (
                "copy linear bytes=n more",
                &copy,
                "\"more\" is no operand=parameter",
            ),
            (
                "copy unified bytes=n",
                &copy,
                "no parameter with an operand src",
            ),
            (
                "link add file",
                &options,
                "Family::Link(LinkOp::AddFile { path: 4, options: OptionArray { count: 1, options: 2, values: 3 } })",
            ),
            (
                "link create",
                &options,
                "no parameter with a role make link",
            ),
            (
                "launch legacy",
                &node,
                "no parameter with a role use function",
            ),
            (
                "graph set node",
                &node,
                "Family::Graph(GraphOp::SetNode(NodeParams { position: 1, kind: NodeKind::Host }))",
            ),
            ("graph set node", &copy, "not one struct"),
        ] {
            match read(text, params) {
                Ok(found) => assert_eq!(found, expected, "{text}"),
                Err(error) => assert!(error.contains(expected), "{text}: {error}"),
            }
        }
    }
}
