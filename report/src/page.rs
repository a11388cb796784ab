//! Joins a page: its sources, from `page/`, and the data.
//!
//! Scripts and styles run because they carry a nonce. It is a hash of the data, so that equal
//! traces give equal pages, and text in a trace cannot name it.

use std::io::{self, Write};

use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;

/// A page: its frame, and its scripts. What a script uses when the page is read comes before it.
pub(crate) struct Kind {
    frame: &'static str,
    scripts: &'static [&'static str],
}

/// The page of a trace.
pub(crate) const TRACE: Kind = Kind {
    frame: include_str!("../page/page.html"),
    scripts: &TRACE_SCRIPTS,
};

/// The page of comparisons and histories of `cutape matrix`.
pub(crate) const MATRIX: Kind = Kind {
    frame: include_str!("../page/matrix/page.html"),
    scripts: &MATRIX_SCRIPTS,
};

/// The head of all pages.
const HEAD: &str = include_str!("../page/head.html");

const STYLES: [&str; 4] = [
    include_str!("../page/style/theme.css"),
    include_str!("../page/style/layout.css"),
    include_str!("../page/style/parts.css"),
    include_str!("../page/style/views.css"),
];

const MATRIX_SCRIPTS: [&str; 7] = [
    include_str!("../page/script/data.js"),
    include_str!("../page/script/quantity.js"),
    include_str!("../page/script/element.js"),
    include_str!("../page/script/table.js"),
    include_str!("../page/script/theme.js"),
    include_str!("../page/matrix/views.js"),
    include_str!("../page/matrix/start.js"),
];

const TRACE_SCRIPTS: [&str; 32] = [
    include_str!("../page/script/data.js"),
    include_str!("../page/script/quantity.js"),
    include_str!("../page/script/element.js"),
    include_str!("../page/script/trace.js"),
    include_str!("../page/script/expression.js"),
    include_str!("../page/script/call_set.js"),
    include_str!("../page/script/filter.js"),
    include_str!("../page/script/memory_series.js"),
    include_str!("../page/script/painter.js"),
    include_str!("../page/script/lane.js"),
    include_str!("../page/script/tracks.js"),
    include_str!("../page/script/timeline_drawing.js"),
    include_str!("../page/script/timeline_controls.js"),
    include_str!("../page/script/timeline_details.js"),
    include_str!("../page/script/timeline.js"),
    include_str!("../page/script/gpu_timeline.js"),
    include_str!("../page/script/table.js"),
    include_str!("../page/script/why_view.js"),
    include_str!("../page/script/findings.js"),
    include_str!("../page/script/summary_view.js"),
    include_str!("../page/script/calls_view.js"),
    include_str!("../page/script/kernels_view.js"),
    include_str!("../page/script/gpu_view.js"),
    include_str!("../page/script/memory_view.js"),
    include_str!("../page/script/object_views.js"),
    include_str!("../page/script/replay_view.js"),
    include_str!("../page/script/bench_view.js"),
    include_str!("../page/script/help.js"),
    include_str!("../page/script/search.js"),
    include_str!("../page/script/app.js"),
    include_str!("../page/script/theme.js"),
    include_str!("../page/script/start.js"),
];

/// How hard deflate tries; higher levels take several times as long for a few per cent.
const LEVEL: u8 = 6;

/// Data that the page carries, under the id by which it finds it.
pub(crate) struct Part<'a> {
    pub(crate) id: &'static str,
    pub(crate) bytes: &'a [u8],
}

/// Writes a page.
///
/// # Errors
/// Those of `out`.
pub(crate) fn write(
    kind: &Kind,
    title: &str,
    parts: &[Part<'_>],
    out: &mut dyn Write,
) -> io::Result<()> {
    let packed: Vec<(&str, Vec<u8>)> = parts
        .iter()
        .map(|part| {
            (
                part.id,
                miniz_oxide::deflate::compress_to_vec(part.bytes, LEVEL),
            )
        })
        .collect();
    let mut hash = blake3::Hasher::new();
    for (_, bytes) in &packed {
        hash.update(bytes);
    }
    let nonce = hash.finalize().to_hex();
    let frame = [HEAD, kind.frame].concat();
    let mut rest = &*frame;
    while let Some((before, after)) = rest.split_once("{{") {
        out.write_all(before.as_bytes())?;
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        match name {
            "nonce" => out.write_all(nonce.as_bytes())?,
            "version" => out.write_all(env!("CARGO_PKG_VERSION").as_bytes())?,
            "title" => out.write_all(escaped(title).as_bytes())?,
            "style" => write_all(&STYLES, out)?,
            "script" => write_all(kind.scripts, out)?,
            "data" => packed
                .iter()
                .try_for_each(|(id, bytes)| write_part(id, bytes, out))?,
            name => unreachable!("{name} is no part of the page"),
        }
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

fn write_all(sources: &[&str], out: &mut dyn Write) -> io::Result<()> {
    sources
        .iter()
        .try_for_each(|source| out.write_all(source.as_bytes()))
}

/// A block that browsers keep as text and do not run. Base64 has no character that ends it.
fn write_part(id: &str, bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
    write!(out, "<script type=\"text/plain\" id=\"{id}\">")?;
    let mut encoder = EncoderWriter::new(&mut *out, &STANDARD);
    encoder.write_all(bytes)?;
    encoder.finish()?;
    drop(encoder);
    writeln!(out, "</script>")
}

/// Text that an element of HTML shows as it is.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            character if character.is_control() => safe.push(' '),
            character => safe.push(character),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(title: &str, data: &[u8]) -> String {
        page_of(&TRACE, title, data)
    }

    fn page_of(kind: &Kind, title: &str, data: &[u8]) -> String {
        let mut out = Vec::new();
        let part = Part {
            id: "facts",
            bytes: data,
        };
        write(kind, title, &[part], &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_source_is_in_the_page() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/page");
        for (kind, folders) in [
            (&TRACE, ["script", "style"]),
            (&MATRIX, ["matrix", "style"]),
        ] {
            let page = page_of(kind, "app", b"{}");
            for entry in folders.iter().flat_map(|of| {
                let entries = std::fs::read_dir(format!("{folder}/{of}")).unwrap();
                entries.map(|entry| entry.unwrap().path())
            }) {
                let is_frame = entry.extension().is_some_and(|ending| ending == "html");
                let source = std::fs::read_to_string(&entry).unwrap();
                assert!(
                    is_frame || page.contains(&source),
                    "{} is not joined",
                    entry.display()
                );
            }
            assert!(!page.contains("{{"));
        }
    }

    #[test]
    fn names_cannot_leave_their_place() {
        let title = "</title><script>alert(1)</script>{{script}}";
        let data = b"</script><script>alert(2)</script>";
        let page = page(title, data);
        assert!(!page.contains("alert(1)</script>") && !page.contains("alert(2)"));
        assert!(page.contains("&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;{{script}}"));
        assert_eq!(page.matches("\"use strict\";").count(), 1);
    }

    #[test]
    fn sources_leave_no_way_in() {
        let frames = [TRACE.frame, MATRIX.frame];
        let all = [TRACE.scripts, MATRIX.scripts, &STYLES, &frames];
        let all = all.concat().join("\n");
        for (forbidden, why) in [
            ("innerHTML", "text of a trace would be read as HTML"),
            ("outerHTML", "text of a trace would be read as HTML"),
            (
                "insertAdjacentHTML",
                "text of a trace would be read as HTML",
            ),
            ("document.write", "text of a trace would be read as HTML"),
            ("eval(", "text of a trace could be run"),
            ("new Function", "text of a trace could be run"),
            ("http://", "the page needs no network"),
            ("https://", "the page needs no network"),
            ("fetch(", "the page needs no network"),
            ("</script>\";", "it would end the script"),
        ] {
            assert!(!all.contains(forbidden), "{forbidden}: {why}");
        }
        for script in TRACE.scripts.iter().chain(MATRIX.scripts) {
            assert!(!script.contains("</script"), "it would end the script");
        }
    }

    #[test]
    fn equal_data_gives_equal_pages() {
        let nonce = |page: &str| {
            let (_, rest) = page.split_once("'nonce-").unwrap();
            rest.split_once('\'').unwrap().0.to_owned()
        };
        let (one, same, other) = (page("a", b"1"), page("a", b"1"), page("a", b"2"));
        assert_eq!(one, same);
        assert_ne!(nonce(&one), nonce(&other));
        assert_eq!(
            one.matches(&nonce(&one)).count(),
            4,
            "the policy, style and script"
        );
    }
}
