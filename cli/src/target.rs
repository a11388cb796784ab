//! Which bytes are asked about: the same in all verbs that ask about bytes.

use cutape_history::Target;
use cutape_render::Element;
use cutape_terminal::failure::Failure;

/// The options.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("target").required(true))]
pub(crate) struct TargetOptions {
    /// The bytes: a recorded address, or an object as `dump` calls it.
    ///
    /// 0x7f0012340000+16 is 16 bytes from that address on; memory#3+0x40 is at byte 64
    /// of that memory, memory#3+0x40+16 is 16 bytes there.
    #[arg(value_name = "BYTES", group = "target", value_parser = Target::parse)]
    #[arg(verbatim_doc_comment)]
    bytes: Option<Target>,
    /// What call N has copied to the host.
    #[arg(long, value_name = "N", group = "target")]
    result: Option<u64>,
    /// What parameter N, from 0, of the kernel that CALL launches points at.
    #[arg(long, value_name = "CALL:N", group = "target")]
    #[arg(value_parser = Target::parse_parameter)]
    parameter: Option<Target>,
    /// Ask about the bytes before call N. Default: the call of --result or
    /// --parameter, else the end of the trace.
    #[arg(long, value_name = "N", verbatim_doc_comment)]
    pub(crate) at: Option<u64>,
    /// The type of the numbers: f16, bf16, f32, f64, i8 to i64, u8 to u64, and others.
    #[arg(long = "type", value_name = "TYPE", value_parser = Element::parse)]
    pub(crate) element: Option<&'static Element>,
}

impl TargetOptions {
    /// The target that is given.
    pub(crate) fn target(&self) -> Result<Target, Failure> {
        let result = self.result.map(Target::Result);
        let given = result.or_else(|| self.parameter.clone());
        let given = given.or_else(|| self.bytes.clone());
        given.ok_or_else(|| Failure::unusable("no bytes are given"))
    }
}
