//! `.family` in `registry/semantics`: the family of a function, and its operands among the
//! parameters.
//!
//! `FAMILY operand=parameter ...`. Only operands that no role and no C type tells apart are named.

use std::cell::Cell;

use crate::kinds::camel;
use crate::roles::{self, Role};
use crate::signatures::Function;

/// Families without operands: the enum of a group, and its variants in words.
const GROUPS: &str = "\
plain, init, export table, module unload, library unload, loading mode, library module
driver version
host function, stream callback, memset, prefetch
device DeviceOp: count, by bus id, property, hardware
context ContextOp: create, destroy, push, pop, set, current, device, detach, synchronize, \
enable peer, disable peer, set limit
green GreenOp: create, create stream
checkpoint CheckpointOp: lock, checkpoint, restore, unlock
multicast MulticastOp: create, add device, bind, unbind
pool PoolOp: set attribute, set current
sharing SharingOp: close
primary context PrimaryOp: retain, release, reset, set flags
global GlobalOwner: module, library, managed
function FunctionOp: count, get attribute, set attribute, set cache config, parameter info, \
set launch state
kernel FunctionOp: count, get attribute, set attribute, set cache config, parameter info
link LinkOp: destroy
occupancy OccupancyOp: function
memory MemoryOp: allocate, allocate managed, allocate async, free, free async, address range
host memory HostMemoryOp: allocate, free, register, unregister, device pointer, flags
virtual memory VirtualMemoryOp: reserve, free reservation, release
pointer PointerOp: attribute, set attribute, range attribute
stream StreamOp: query, synchronize, destroy, wait event, begin capture, end capture, attach memory
stream memory StreamMemoryOp: wait, write, batch
event EventOp: create, record, query, synchronize, elapsed time
graph GraphOp: set enabled, list, update, destroy exec, clone, add edges, remove edges, \
copy attributes, upload, launch, conditional handle
user references UserReferenceOp: retain, release, retain for graph, release of graph";

/// Families with operands, as Rust. `<role R>` is the only parameter whose role begins with R,
/// `<type T>` the only one whose C type contains T, `<count F>` the count of the operand F,
/// `<named>` the one that the entry names, `<optional>` the same or none. `Reader::operand` has the
/// other rules.
const WITH_OPERANDS: &str = "\
proc address = ProcAddress { name: <role string>, address: <named> }
module load = ModuleLoad(<image load>)
library load = LibraryLoad(<image load>)
function find = Function(FunctionOp::Find { output: <role find>, owner: <role use>, \
name: <role string> })
kernel find = Kernel(FunctionOp::Find { output: <role find>, owner: <role use>, \
name: <role string> })
function of kernel = Function(FunctionOp::OfKernel { output: <role find>, \
kernel: <role use kernel> })
function list = Function(FunctionOp::List { output: <role find>, count: <count output>, \
owner: <role use> })
kernel list = Kernel(FunctionOp::List { output: <role find>, count: <count output>, \
owner: <role use> })
function name = Function(FunctionOp::Name { name: <role out string>, handle: <role use> })
kernel name = Kernel(FunctionOp::Name { name: <role out string>, handle: <role use> })
link create = Link(LinkOp::Create { options: <options>, output: <role make link> })
link add data = Link(LinkOp::AddData { data: <type void *>, size: <count data>, \
options: <options> })
link add file = Link(LinkOp::AddFile { path: <role string>, options: <options> })
link complete = Link(LinkOp::Complete { cubin: <type void **>, size: <type size_t *> })
launch arguments = Launch(LaunchOp::Arguments(LaunchArguments { function: <role use function>, \
grid: <named>, shared: <shared>, stream: <role use stream>, parameters: <named>, \
extra: <optional> }))
launch config = Launch(LaunchOp::Config(LaunchConfig { config: <type CUlaunchConfig>, \
function: <role use function>, parameters: <named>, extra: <named> }))
launch multi device = Launch(LaunchOp::MultiDevice { list: <type CUDA_LAUNCH_PARAMS>, \
count: <count list> })
launch legacy = Launch(LaunchOp::Legacy { function: <role use function> })
occupancy config = Occupancy(OccupancyOp::Config { config: <type CUlaunchConfig>, \
function: <role use function> })
copy linear = Copy(CopyOp::Linear(<transfer>))
copy peer = Copy(CopyOp::Peer(<transfer>))
copy unified = Copy(CopyOp::Unified(<transfer unified>))
copy described = Copy(CopyOp::Described(CopyShape::<copy shape>))
copy batch = Copy(CopyOp::Batch { targets: <named>, sources: <named>, sizes: <named>, \
count: <count sizes>, attributes: <type CUmemcpyAttributes>, starts: <named>, \
attribute_count: <count attributes> })
copy batch 3d = Copy(CopyOp::Batch3D { operations: <type CUDA_MEMCPY3D_BATCH_OP>, \
count: <count operations> })
memory allocate pitch = Memory(MemoryOp::AllocatePitch { pitch: <type size_t *> })
virtual memory create = VirtualMemory(VirtualMemoryOp::Create { size: <named>, \
properties: <type CUmemAllocationProp> })
virtual memory map = VirtualMemory(VirtualMemoryOp::Map { address: <role device>, size: <named>, \
allocation: <role use allocation> })
virtual memory unmap = VirtualMemory(VirtualMemoryOp::Unmap { address: <role device>, \
size: <named> })
virtual memory set access = VirtualMemory(VirtualMemoryOp::SetAccess { address: <role device>, \
size: <named> })
pointer attributes = Pointer(PointerOp::Attributes { data: <type void **>, count: <count data>, \
attributes: <type _attribute *> })
pointer range attributes = Pointer(PointerOp::RangeAttributes { data: <type void **>, \
count: <count data>, attributes: <type _attribute *>, sizes: <type size_t *> })
sharing export memory = Sharing(SharingOp::Export(Shared { kind: SharedKind::Memory, \
handle: <named>, object: <named>, handle_type: <optional> }))
sharing export event = Sharing(SharingOp::Export(Shared { kind: SharedKind::Event, \
handle: <named>, object: <named>, handle_type: <optional> }))
sharing export allocation = Sharing(SharingOp::Export(Shared { kind: SharedKind::Allocation, \
handle: <named>, object: <named>, handle_type: <optional> }))
sharing export pool = Sharing(SharingOp::Export(Shared { kind: SharedKind::Pool, \
handle: <named>, object: <named>, handle_type: <optional> }))
sharing export pool memory = Sharing(SharingOp::Export(Shared { kind: SharedKind::PoolMemory, \
handle: <named>, object: <named>, handle_type: <optional> }))
sharing import memory = Sharing(SharingOp::Import(Shared { kind: SharedKind::Memory, \
handle: <named>, object: <named>, handle_type: <optional> }))
sharing import event = Sharing(SharingOp::Import(Shared { kind: SharedKind::Event, \
handle: <named>, object: <named>, handle_type: <optional> }))
sharing import allocation = Sharing(SharingOp::Import(Shared { kind: SharedKind::Allocation, \
handle: <named>, object: <named>, handle_type: <optional> }))
sharing import pool = Sharing(SharingOp::Import(Shared { kind: SharedKind::Pool, \
handle: <named>, object: <named>, handle_type: <optional> }))
sharing import pool memory = Sharing(SharingOp::Import(Shared { kind: SharedKind::PoolMemory, \
handle: <named>, object: <named>, handle_type: <optional> }))
external buffer = ExternalBuffer { description: <type CUDA_EXTERNAL_MEMORY_BUFFER_DESC> }
stream set attribute = Stream(StreamOp::SetAttribute { attribute: <type AttrID>, \
value: <type AttrValue> })
stream capture info = Stream(StreamOp::CaptureInfo { status: <type CUstreamCaptureStatus *> })
graph add node = Graph(GraphOp::AddNode(<node>))
graph get node = Graph(GraphOp::GetNode(<node>))
graph set node = Graph(GraphOp::SetNode(<node>))
graph set exec node = Graph(GraphOp::SetExecNode(<node>))
graph get kernel attribute = Graph(GraphOp::GetKernelAttribute { attribute: <type AttrID>, \
value: <type AttrValue> })
graph set kernel attribute = Graph(GraphOp::SetKernelAttribute { attribute: <type AttrID>, \
value: <type AttrValue> })
graph instantiate = Graph(GraphOp::Instantiate { params: <optional> })
graph dot file = Graph(GraphOp::DotFile { path: <role string> })
user object = UserObject { pointer: <role pointer>, destructor: <role callback> }";

/// What a graph node does, by the C type of its parameters; a child graph is a handle.
const NODES: [(&str, &str); 9] = [
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
    let (words, named): (Vec<&str>, Vec<&str>) = text
        .split_whitespace()
        .partition(|word| !word.contains('='));
    let reader = Reader {
        function,
        roles,
        named: named
            .iter()
            .filter_map(|word| word.split_once('='))
            .map(|(operand, parameter)| (operand, parameter, Cell::new(false)))
            .collect(),
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

/// The variant without operands that has these words.
fn without_operands(words: &str) -> Option<String> {
    GROUPS.lines().find_map(|line| {
        let (group, operations, members) = match line.split_once(": ") {
            Some((head, members)) => {
                let (group, operations) = head.rsplit_once(' ')?;
                (group, operations, members)
            }
            None => ("", "", line),
        };
        let member = words.strip_prefix(group)?.trim_start();
        let is_member = members.split(", ").any(|known| known == member);
        let variant = camel(member);
        match group {
            _ if !is_member => None,
            "" => Some(variant),
            _ => Some(format!("{}({operations}::{variant})", camel(group))),
        }
    })
}

/// The function that a family is read for.
struct Reader<'a> {
    function: &'a Function,
    roles: &'a [Role],
    /// Operand, parameter, whether the family has it.
    named: Vec<(&'a str, &'a str, Cell<bool>)>,
}

impl Reader<'_> {
    fn family(&self, words: &str) -> Result<String, String> {
        if let Some(found) = without_operands(words) {
            return Ok(found);
        }
        let mut families = WITH_OPERANDS
            .lines()
            .filter_map(|line| line.split_once(" = "));
        let (_, template) = families
            .find(|(known, _)| *known == words)
            .ok_or("no such family; xtask/src/families.rs lists them")?;
        let mut rust = String::new();
        // The operands so far, for `<count F>`.
        let mut found: Vec<(&str, String)> = Vec::new();
        let mut parts = template.split(['<', '>']);
        while let Some(text) = parts.next() {
            rust.push_str(text);
            let Some(rule) = parts.next() else { break };
            let operand = text
                .trim_end_matches([':', ' '])
                .rsplit([' ', '{'])
                .next()
                .unwrap_or_default();
            let value = self.operand(operand, rule, &found)?;
            rust.push_str(&value);
            found.push((operand, value));
        }
        Ok(rust)
    }

    /// The Rust text of an operand, by its rule in the template.
    fn operand(
        &self,
        operand: &str,
        rule: &str,
        found: &[(&str, String)],
    ) -> Result<String, String> {
        let (rule, of) = rule.split_once(' ').unwrap_or((rule, ""));
        let position = match (rule, of) {
            ("role", start) => self.role(start)?,
            ("type", part) => self.c_type(part)?,
            ("named", "") => self.named(operand)?,
            ("count", of) => {
                let known = found.iter().find(|(name, _)| *name == of);
                self.count_of(known.and_then(|(_, at)| at.parse().ok()).unwrap_or(u8::MAX))?
            }
            ("optional", "") if self.names(operand) => {
                return Ok(format!("Some({})", self.named(operand)?));
            }
            ("optional", "") => return Ok("None".to_owned()),
            ("image", _) => return self.image_load(),
            ("options", "") => {
                return self
                    .options("CUjit_option *")?
                    .ok_or_else(|| "no parameter is a CUjit_option *".to_owned());
            }
            ("shared", "") => self.named("grid")? + 6,
            ("transfer", of) => return self.transfer(of == "unified"),
            ("copy", _) => return self.copy_shape(),
            ("node", _) => return self.node(),
            _ => return Err(format!("<{rule} {of}> is no rule for an operand")),
        };
        if operand == "shared" {
            self.check_grid(position)?;
        }
        Ok(position.to_string())
    }

    fn image_load(&self) -> Result<String, String> {
        let source = match self.role("image") {
            // cuModuleLoadFatBinary accepts no other kind of image.
            Ok(at) if self.name_at(at) == "fatCubin" => format!("FatBinary({at})"),
            Ok(at) => format!("Data({at})"),
            Err(_) => format!("File({})", self.role("string")?),
        };
        let some = |c_type: &str| {
            Ok::<_, String>(match self.options(c_type)? {
                Some(options) => format!("Some({options})"),
                None => "None".to_owned(),
            })
        };
        Ok(format!(
            "ImageLoad {{ source: ImageSource::{source}, options: {}, library_options: {} }}",
            some("CUjit_option *")?,
            some("CUlibraryOption *")?
        ))
    }

    fn node(&self) -> Result<String, String> {
        let of_type = |(part, kind): &(&str, &'static str)| Some((self.c_type(part).ok()?, *kind));
        let (position, kind) = match (NODES.iter().find_map(of_type), self.names("child")) {
            (Some(params), false) => params,
            (None, true) => (self.named("child")?, "ChildGraph"),
            _ => return Err("needs one struct of node parameters, or child=PARAMETER".to_owned()),
        };
        Ok(format!(
            "NodeParams {{ position: {position}, kind: NodeKind::{kind} }}"
        ))
    }

    fn copy_shape(&self) -> Result<String, String> {
        let shapes = [
            ("MEMCPY2D", "Plane"),
            ("3D_PEER", "PeerVolume"),
            ("MEMCPY3D", "Volume"),
        ];
        let found = shapes.iter().find(|(part, _)| self.c_type(part) == Ok(0));
        let (_, shape) = found.ok_or("the first parameter describes no copy")?;
        Ok((*shape).to_owned())
    }

    /// A copy of bytes between the parameters `src...` and `dst...`, whose roles say what they are.
    fn transfer(&self, is_unified: bool) -> Result<String, String> {
        let side = |prefix: &str| {
            let at = self.only(
                &format!("named {prefix}... and a role of memory"),
                |name, _, role| {
                    name.starts_with(prefix)
                        && ["host ", "device ", "use array"]
                            .iter()
                            .any(|start| role.starts_with(start))
                },
            )?;
            let memory = match self.words_at(at).split(' ').next() {
                _ if is_unified => "Unified",
                Some("host") => "Host",
                Some("device") => "Device",
                _ => "Array",
            };
            Ok::<_, String>((at, memory))
        };
        let ((source, from), (target, to)) = (side("src")?, side("dst")?);
        Ok(format!(
            "Transfer {{ source: {source}, target: {target}, bytes: {}, \
             from: MemoryType::{from}, to: MemoryType::{to} }}",
            self.named("bytes")?
        ))
    }

    /// Six dimensions must come before the bytes of shared memory.
    fn check_grid(&self, shared: u8) -> Result<(), String> {
        let before = self.function.params.iter().take(shared.into()).rev();
        let dimensions = before.take_while(|param| param.1.contains("Dim")).count();
        if dimensions == 6 && self.name_at(shared).contains("shared") {
            Ok(())
        } else {
            Err("grid= is not the first of six dimensions".to_owned())
        }
    }

    /// An array of options of that C type with its count and values; `None` if the function takes
    /// none.
    fn options(&self, c_type: &str) -> Result<Option<String>, String> {
        let Ok(options) = self.c_type(c_type) else {
            return Ok(None);
        };
        let count = self.count_of(options)?;
        let counted = format!("[{}]", self.name_at(count));
        let values = self.only("that holds option values", |_, c_type, role| {
            c_type == "void **" && role.ends_with(&counted)
        })?;
        Ok(Some(format!(
            "OptionArray {{ count: {count}, options: {options}, values: {values} }}"
        )))
    }

    fn name_at(&self, at: u8) -> &str {
        let params = &self.function.params;
        params.get(usize::from(at)).map_or("", |param| &param.1)
    }

    fn words_at(&self, at: u8) -> &str {
        let role = self.roles.get(usize::from(at));
        role.map_or("", |role| &role.words)
    }

    /// The parameter that says how many elements or bytes the one at a position has.
    fn count_of(&self, at: u8) -> Result<u8, String> {
        let role = self.words_at(at);
        let count = role.split_once('[').map_or(role, |(_, count)| count);
        count
            .split([']', ' '])
            .find_map(|word| roles::position(self.function, word))
            .ok_or_else(|| format!("the role {role:?} has no count"))
    }

    /// The one parameter whose role begins with these words.
    fn role(&self, start: &str) -> Result<u8, String> {
        self.only(&format!("with a role {start:?}"), |_, _, role| {
            role.strip_prefix(start)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        })
    }

    /// The one parameter whose C type contains that; `void *` and the like must be all of it.
    fn c_type(&self, part: &str) -> Result<u8, String> {
        let is_whole = |c_type: &str| !part.starts_with("void") || c_type == part;
        self.only(&format!("of a C type {part}"), |_, c_type, _| {
            c_type.contains(part) && is_whole(c_type)
        })
    }

    /// The one parameter that a test on name, C type and role finds.
    fn only(&self, what: &str, test: impl Fn(&str, &str, &str) -> bool) -> Result<u8, String> {
        let params = self.function.params.iter().zip(self.roles).zip(0_u8..);
        let mut found = params
            .filter(|((param, role), _)| test(&param.1, &param.0, &role.words))
            .map(|(_, at)| at);
        let function = &self.function.name;
        match (found.next(), found.next()) {
            (Some(at), None) => Ok(at),
            (None, _) => Err(format!("{function} has no parameter {what}")),
            _ => Err(format!("{function} has several parameters {what}")),
        }
    }

    fn names(&self, operand: &str) -> bool {
        self.named.iter().any(|(name, ..)| *name == operand)
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
        let list = [
            ("CUfunction *", "functions", "find function of mod [n]"),
            ("unsigned int", "n", ""),
            ("CUmodule", "mod", ""),
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
                "link add file",
                &options,
                "Family::Link(LinkOp::AddFile { path: 4, \
                 options: OptionArray { count: 1, options: 2, values: 3 } })",
            ),
            (
                "function list",
                &list,
                "Family::Function(FunctionOp::List { output: 0, count: 1, owner: 2 })",
            ),
            (
                "link create",
                &options,
                "no parameter with a role \"make link\"",
            ),
            (
                "launch legacy",
                &node,
                "no parameter with a role \"use function\"",
            ),
            (
                "graph set node",
                &node,
                "Family::Graph(GraphOp::SetNode(NodeParams { position: 1, kind: NodeKind::Host }))",
            ),
            ("graph set node", &copy, "needs one struct"),
        ] {
            match read(text, params) {
                Ok(found) => assert_eq!(found, expected, "{text}"),
                Err(error) => assert!(error.contains(expected), "{text}: {error}"),
            }
        }
    }
}
