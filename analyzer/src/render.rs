//! The call of a finding as text: `name(parameter: value, ...)`, with what pointers led to before
//! and after the call.

use std::borrow::Cow;

use cutape_format::{Bytes, Call, Note, Snapshot};
use cutape_image::ImageKind;
use serde_json::Value as Json;

use crate::context::TraceContext;
use crate::decode::{
    CallPlan, Decoding, Form, Nameless, Names, Value, image_word, is_image, write_joined,
};
use crate::finding::CallResult;

/// How many elements of arrays and bytes of blocks are shown.
const MOST_ELEMENTS: usize = 16;

/// The call as text, without its result; `names` labels the handles that it was given.
pub fn render_call(call: &Call<'_>, context: &dyn TraceContext, names: &dyn Names) -> String {
    let signatures = context.signatures();
    let decoding = Decoding {
        signatures,
        names,
        // The model has not applied the call yet, so it does not know what the call created.
        names_after: &Nameless,
        elements: MOST_ELEMENTS,
    };
    let plan = CallPlan::of(call.signature, signatures);
    let decoded = plan.decode(call, decoding, &mut |snapshot| shown(call, snapshot));
    let mut out = String::with_capacity(128);
    out.push_str(&call.signature.name);
    out.push('(');
    write_joined(&decoded.arguments, &mut out, |argument, out| {
        out.push_str(argument.name);
        out.push_str(": ");
        argument.value.write_in(Form::FINDING, out);
        let before = argument.pointee.iter().map(|value| (None, value));
        let pieces = argument.pieces.iter();
        let pieces = pieces.map(|(name, value)| (Some(*name), value));
        for (name, value) in before.chain(pieces) {
            write_piece(" ", name, value, out);
        }
        let own = decoded.outputs.iter();
        for output in own.filter(|output| output.name == argument.name) {
            write_piece(" -> ", output.piece, &output.value, out);
        }
    });
    out.push(')');
    out
}

fn write_piece(before: &str, name: Option<&str>, value: &Value, out: &mut String) {
    out.push_str(before);
    let words = match name {
        None | Some("text") => String::new(),
        Some("directory") => "in ".to_owned(),
        Some("file") => "content ".to_owned(),
        Some("info_log") => "information log ".to_owned(),
        Some(name) => name.replace('_', " ") + " ",
    };
    out.push_str(&words);
    value.write_in(Form::FINDING, out);
}

/// The bytes of a snapshot if they are in the record; others are described, not read.
fn shown<'c>(call: &Call<'_>, snapshot: Snapshot<'c>) -> Result<Cow<'c, [u8]>, Value> {
    let described = |text| Err(Value::Described(text, Json::Null));
    match snapshot.bytes {
        Bytes::Inline(bytes) if is_image(call, usize::from(snapshot.parameter), snapshot.field) => {
            let kind = match cutape_image::kind(bytes) {
                ImageKind::Unknown => "no known image",
                known => image_word(known),
            };
            described(format!("({kind}, {} bytes)", bytes.len()))
        }
        Bytes::Inline(bytes) => Ok(Cow::Borrowed(bytes)),
        Bytes::Blob(blob) => described(format!("({} bytes)", blob.length)),
        Bytes::InFile(range) => {
            let file = range.file().display();
            described(format!("({} bytes of {file})", range.length))
        }
        other => Err(Value::missing(other)),
    }
}

/// What the driver's error log said about a call, but for lines that repeat its result.
pub(crate) fn driver_messages(call: &Call<'_>) -> Vec<String> {
    let texts = call.notes().filter_map(|note| match note {
        Note::DriverMessage(_, text) => Some(text.trim_end().to_owned()),
        _ => None,
    });
    texts
        .filter(|text| !text.starts_with("Returning "))
        .collect()
}

/// What a call returned, with its name; `None` if it did not return.
pub fn result_of(call: &Call<'_>, signatures: &cutape_format::Signatures) -> Option<CallResult> {
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
