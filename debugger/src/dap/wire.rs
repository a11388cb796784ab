//! Messages: a head with the length, and JSON.

use std::io::{self, BufRead, ErrorKind, Write};

use serde::Deserialize;
use serde_json::{Value, json};

/// Bytes of the longest message that is taken.
const LONGEST: u64 = 64 << 20;

/// A request of the editor.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Request {
    seq: i64,
    /// What is wanted.
    pub(crate) command: String,
    /// With what.
    #[serde(default)]
    pub(crate) arguments: Value,
}

impl Request {
    pub(crate) fn text(&self, name: &str) -> Result<&str, String> {
        let value = self.arguments.get(name).and_then(Value::as_str);
        value.ok_or_else(|| format!("{} needs `{name}`, a text", self.command))
    }

    pub(crate) fn number(&self, name: &str) -> Result<i64, String> {
        let value = self.arguments.get(name).and_then(Value::as_i64);
        value.ok_or_else(|| format!("{} needs `{name}`, a number", self.command))
    }

    /// A number that may be missing.
    pub(crate) fn offset(&self, name: &str) -> i64 {
        self.number(name).unwrap_or(0)
    }

    pub(crate) fn list(&self, name: &str) -> &[Value] {
        let value = self.arguments.get(name).and_then(Value::as_array);
        value.map(Vec::as_slice).unwrap_or_default()
    }
}

/// A text in an object that a request has.
pub(crate) fn member<'v>(object: &'v Value, name: &str) -> Result<&'v str, String> {
    let text = object.get(name).and_then(Value::as_str);
    text.ok_or_else(|| format!("a breakpoint needs `{name}`, a text"))
}

/// Sets a member of an object.
pub(crate) fn set(object: &mut Value, name: &str, value: impl Into<Value>) {
    if let Some(members) = object.as_object_mut() {
        members.insert(name.to_owned(), value.into());
    }
}

/// The streams.
pub(crate) struct Wire<'a> {
    input: &'a mut dyn BufRead,
    output: &'a mut dyn Write,
    seq: i64,
}

impl<'a> Wire<'a> {
    pub(crate) fn new(input: &'a mut dyn BufRead, output: &'a mut dyn Write) -> Self {
        Self {
            input,
            output,
            seq: 0,
        }
    }

    /// The next request; `None` if the editor has closed its end.
    pub(crate) fn read(&mut self) -> io::Result<Option<Request>> {
        let mut length = None;
        loop {
            let mut line = String::new();
            if self.input.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("Content-Length")
            {
                length = value.trim().parse().ok();
            }
        }
        let wrong = |what: String| io::Error::new(ErrorKind::InvalidData, what);
        let length = length.filter(|&length: &u64| length <= LONGEST);
        let length = length.ok_or_else(|| wrong("a message without Content-Length".into()))?;
        let mut bytes = vec![0; length as usize];
        self.input.read_exact(&mut bytes)?;
        let request = serde_json::from_slice(&bytes);
        request
            .map(Some)
            .map_err(|error| wrong(format!("a message: {error}")))
    }

    pub(crate) fn respond(
        &mut self,
        request: &Request,
        outcome: Result<Value, String>,
    ) -> io::Result<()> {
        let mut response = json!({
            "type": "response",
            "request_seq": request.seq,
            "success": outcome.is_ok(),
            "command": request.command,
        });
        match outcome {
            Ok(Value::Null) => {}
            Ok(body) => set(&mut response, "body", body),
            Err(why) => {
                set(
                    &mut response,
                    "body",
                    json!({ "error": { "id": 1, "format": why, "showUser": true } }),
                );
                set(&mut response, "message", why);
            }
        }
        self.write(response)
    }

    pub(crate) fn event(&mut self, event: &str, body: Value) -> io::Result<()> {
        let mut message = json!({ "type": "event", "event": event });
        if !body.is_null() {
            set(&mut message, "body", body);
        }
        self.write(message)
    }

    fn write(&mut self, mut message: Value) -> io::Result<()> {
        self.seq += 1;
        set(&mut message, "seq", self.seq);
        let text = message.to_string();
        write!(self.output, "Content-Length: {}\r\n\r\n{text}", text.len())?;
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_framed() {
        let text = r#"{"seq":3,"type":"request","command":"next","arguments":{"threadId":1}}"#;
        let head = format!(
            "Content-Type: x\r\ncontent-length: {}\r\n\r\n{text}",
            text.len()
        );
        let (mut input, mut output) = (head.as_bytes(), Vec::new());
        let mut wire = Wire::new(&mut input, &mut output);
        let request = wire.read().unwrap().unwrap();
        assert_eq!(request.number("threadId"), Ok(1));
        assert!(request.text("x").unwrap_err().contains("next needs `x`"));
        assert!(wire.read().unwrap().is_none());
        wire.respond(&request, Err("no".into())).unwrap();
        wire.event("initialized", Value::Null).unwrap();
        let written = String::from_utf8(output).unwrap();
        let (first, second) = written.rsplit_once("Content-Length").unwrap();
        for part in [
            "\"request_seq\":3",
            "\"success\":false",
            "\"message\":\"no\"",
        ] {
            assert!(first.contains(part), "{first}");
        }
        assert!(second.contains("\"event\":\"initialized\"") && second.contains("\"seq\":2"));
        for wrong in [
            "Content-Length: x\r\n\r\n",
            "Content-Length: 2\r\n\r\n{]",
            "\r\n",
        ] {
            let (mut input, mut output) = (wrong.as_bytes(), Vec::new());
            assert!(
                Wire::new(&mut input, &mut output).read().is_err(),
                "{wrong}"
            );
        }
    }
}
