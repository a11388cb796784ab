//! What the analyzer needs of a trace, with symbols and sources from this machine's files.

use std::borrow::Cow;

use cutape_analyzer::{Frame, TraceContext};
use cutape_format::layout::BlobRef;
use cutape_format::{FileRange, Signatures, Trace};

use crate::resolver::Resolver;
use crate::stacks;

/// A trace with symbols for its callers, even if unpacked.
pub struct SymbolContext<'a> {
    trace: &'a Trace,
    resolver: &'a Resolver,
    /// Of a program whose trace does not have it yet.
    exit_status: Option<&'a str>,
}

impl<'a> SymbolContext<'a> {
    /// Looks symbols up in the trace, then in the files of its memory map.
    pub fn new(trace: &'a Trace, resolver: &'a Resolver) -> Self {
        Self {
            trace,
            resolver,
            exit_status: None,
        }
    }

    /// The program has just ended so.
    pub fn ended(self, exit_status: Option<&'a str>) -> Self {
        Self {
            exit_status,
            ..self
        }
    }
}

impl TraceContext for SymbolContext<'_> {
    fn meta(&self, key: &str) -> Option<&str> {
        let ended = self.exit_status.filter(|_| key == "exit.status");
        self.trace.meta_value(key).or(ended)
    }

    fn blob(&self, blob: BlobRef) -> Option<Cow<'_, [u8]>> {
        self.trace.blob(blob).ok()
    }

    fn file_range(&self, range: FileRange<'_>) -> Option<Cow<'_, [u8]>> {
        self.trace.file_range(range).ok()
    }

    fn symbol(&self, address: u64) -> Option<String> {
        match self.trace.symbol(address) {
            Some(symbol) => Some(symbol.to_owned()),
            None => self.resolver.resolve(self.trace, address),
        }
    }

    fn frames(&self, stack: u64) -> Vec<Frame> {
        stacks::frames(self.trace, self.resolver, stack).unwrap_or_default()
    }

    fn calls_left_out(&self) -> u64 {
        TraceContext::calls_left_out(self.trace)
    }

    fn ticks_per_second(&self) -> u64 {
        self.trace.ticks_per_second()
    }

    fn signatures(&self) -> &Signatures {
        self.trace.signatures()
    }
}
