//! Names for the places in the program that called: resolved while the program's files are still at hand.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::fs;

use cutape_analyzer::TraceContext;
use cutape_format::layout::BlobRef;
use cutape_format::{FileRange, Mapping, Signatures, Symbol, Trace};
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

/// The symbol of every caller in the trace that lies in a file of its memory map; those that the trace has already stay.
pub(crate) fn of_callers(trace: &Trace) -> Vec<Symbol> {
    let mut callers = BTreeSet::new();
    let mut last = 0;
    let walked = trace.walk().run(|call| {
        if call.caller != last {
            last = call.caller;
            callers.insert(last);
        }
        Ok::<_, cutape_format::Error>(())
    });
    if walked.is_err() {
        // Packing such a trace says what is wrong with it.
        return Vec::new();
    }
    let resolver = Resolver::default();
    callers
        .into_iter()
        .filter(|&address| trace.symbol(address).is_none())
        .filter_map(|address| {
            Some(Symbol {
                address,
                text: resolver.resolve(trace, address)?,
            })
        })
        .collect()
}

/// Names addresses by the files of a trace's memory map; each file is read once.
#[derive(Default)]
pub(crate) struct Resolver {
    files: RefCell<HashMap<String, Option<File>>>,
}

impl Resolver {
    /// `main+0x2f in saxpy`, or `libx.so+0x1234` where the file has no symbol there.
    fn resolve(&self, trace: &Trace, address: u64) -> Option<String> {
        let mapping = trace
            .mappings()
            .iter()
            .find(|map| (map.start..map.end).contains(&address))?;
        let mut files = self.files.borrow_mut();
        let file = files
            .entry(mapping.path.clone())
            .or_insert_with(|| File::read(mapping));
        let name = mapping.path.rsplit('/').next().unwrap_or(&mapping.path);
        let offset = address - mapping.start + mapping.offset;
        // A call returns behind itself: the address before belongs to it even at the end of a function.
        Some(
            match file
                .as_ref()
                .and_then(|file| file.symbol(offset.saturating_sub(1)))
            {
                Some((symbol, distance)) => format!("{symbol}+{:#x} in {name}", distance + 1),
                None => format!("{name}+{offset:#x}"),
            },
        )
    }
}

/// A trace whose callers have names although it was not packed.
pub(crate) struct Symbolised<'a> {
    trace: &'a Trace,
    resolver: &'a Resolver,
}

impl<'a> Symbolised<'a> {
    /// Looks names up in the trace first, then in the files of its memory map.
    pub(crate) fn new(trace: &'a Trace, resolver: &'a Resolver) -> Self {
        Self { trace, resolver }
    }
}

impl TraceContext for Symbolised<'_> {
    fn meta(&self, key: &str) -> Option<&str> {
        self.trace.meta_value(key)
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

    fn signatures(&self) -> &Signatures {
        self.trace.signatures()
    }
}

/// What is needed of a file: its function symbols by address, and where its segments lie.
struct File {
    /// (address, length, name), by address.
    symbols: Vec<(u64, u64, String)>,
    /// (offset in the file, length, address).
    segments: Vec<(u64, u64, u64)>,
}

impl File {
    /// Reads the file if it still is the one that was mapped.
    fn read(mapping: &Mapping) -> Option<Self> {
        let bytes = fs::read(&mapping.path).ok()?;
        let file = object::File::parse(&*bytes).ok()?;
        if !mapping.build_id.is_empty() && file.build_id().ok()? != Some(&mapping.build_id) {
            return None;
        }
        let mut symbols: Vec<_> = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
            .filter_map(|symbol| {
                Some((
                    symbol.address(),
                    symbol.size(),
                    demangle(symbol.name().ok()?),
                ))
            })
            .collect();
        symbols.sort();
        symbols.dedup_by_key(|symbol| symbol.0);
        let segments = file
            .segments()
            .map(|segment| {
                let (offset, length) = segment.file_range();
                (offset, length, segment.address())
            })
            .collect();
        Some(Self { symbols, segments })
    }

    /// The function at an offset of the file, and how far into it.
    fn symbol(&self, offset: u64) -> Option<(&str, u64)> {
        let &(start, _, address) = self
            .segments
            .iter()
            .find(|(start, length, _)| (*start..start + length).contains(&offset))?;
        let address = address + (offset - start);
        let at = self
            .symbols
            .partition_point(|symbol| symbol.0 <= address)
            .checked_sub(1)?;
        let (start, size, name) = &self.symbols[at];
        // Symbols from assembly may have no size.
        (*size == 0 || address < start + size).then_some((name.as_str(), address - start))
    }
}

/// The name as people wrote it.
pub(crate) fn demangle(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    // Names may be hostile: only those of sensible length are taken apart.
    if name.len() < 4096
        && let Ok(symbol) = cpp_demangle::Symbol::new(name)
        && let Ok(text) = symbol.demangle()
    {
        return text;
    }
    name.to_owned()
}
