//! `codegen`: makes the committed tables and pages from signatures, semantics and rules. Needs no
//! network and no clang.

mod errata;
mod header;
mod pages;
mod tables;
mod text;

use std::fs;
use std::path::Path;

use crate::files;
use crate::members::Facts;
use crate::semantics::{self, Meaning};
use crate::signatures::{Function, Signatures, Types};
use crate::{Failure, semantics::Rule};

/// Everything that the generators read.
struct Input<'a> {
    signatures: &'a Signatures,
    types: &'a Types<'a>,
    meanings: &'a [Meaning],
    rules: &'a [Rule],
    facts: &'a Facts,
}

impl<'a> Input<'a> {
    /// Each function with its meaning.
    fn functions(&self) -> impl Iterator<Item = (&'a Function, &'a Meaning)> {
        self.signatures.functions.iter().zip(self.meanings)
    }
}

/// Writes the generated files, or with `check` names those that differ.
pub(crate) fn run(root: &Path, check: bool) -> Result<(), Failure> {
    let files = generate(root)?;
    let mut stale = Vec::new();
    for (name, text) in &files {
        let path = root.join(name);
        if fs::read_to_string(&path).is_ok_and(|old| old == *text) {
            continue;
        }
        stale.push(name.as_str());
        if check {
            continue;
        }
        files::write(&path, text)?;
    }
    let left_over = pages::left_over(root, &files);
    for name in &left_over {
        stale.push(name.as_str());
        if !check {
            fs::remove_file(root.join(name)).map_err(|error| failure!("{name}: {error}"))?;
        }
    }
    if check && !stale.is_empty() {
        return Err(failure!(
            "stale, run `cargo xtask codegen`: {}",
            stale.join(" ")
        ));
    }
    println!(
        "{} generated files, {}",
        files.len(),
        if check { "all fresh" } else { "written" }
    );
    Ok(())
}

/// Name from the root and text of each generated file.
pub(crate) fn generate(root: &Path) -> Result<Vec<(String, String)>, Failure> {
    let signatures = Signatures::load(root)?;
    let types = Types::new(&signatures);
    let entries = semantics::load(root)?;
    let facts = Facts::load(root)?;
    facts.check(&types)?;
    let meanings = semantics::join(&signatures, &types, &facts, &entries)?;
    let rules = crate::errata::load_rules(root)?;
    let errata = crate::errata::load(root)?;
    let input = Input {
        signatures: &signatures,
        types: &types,
        meanings: &meanings,
        rules: &rules,
        facts: &facts,
    };
    let table = |name: &str, text: String| (format!("registry/src/generated/{name}"), text);
    let mut files = vec![
        table("mod.rs", tables::modules()),
        table("functions.rs", tables::functions(&input)),
        table("ids.rs", tables::ids(&input)),
        table("enums.rs", tables::enums(&input)),
        table("structs.rs", tables::structs(&input)),
        table("attribute_table.rs", tables::attribute_table(&input)),
        table("attributes.rs", tables::attributes(&input)?),
        table("kinds.rs", tables::kinds(&input)),
        table("rules.rs", tables::rules(&input)),
        table("errata.rs", errata::table(&errata)),
        table("entries.rs", tables::entries(&input)),
        table("signatures.txt", text::signatures(&input)),
        (
            "tests/programs/include/cuda_api.h".to_owned(),
            header::header(&input)?,
        ),
    ];
    files.extend(pages::rules(root, &rules)?);
    files.push(errata::page(&errata));
    files.push(pages::not_replayed(&input));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of<'a>(files: &'a [(String, String)], name: &str) -> &'a str {
        &files.iter().find(|file| file.0.ends_with(name)).unwrap().1
    }

    #[test]
    fn every_symbol_is_in_every_table() {
        let root = crate::root();
        let files = generate(&root).unwrap_or_else(|failure| panic!("{failure}"));
        let signatures = Signatures::load(&root).unwrap();
        let count = signatures.functions.len();
        assert!(count >= 672);
        for (page, words) in [("README.md", "symbols"), ("docs/record.md", "functions")] {
            let text = std::fs::read_to_string(root.join(page)).unwrap();
            let said = format!("{count} {words}");
            assert!(text.contains(&said), "{page} does not say {said}");
        }
        let text = text_of(&files, "signatures.txt");
        assert!(text.starts_with("cutape-signatures\t1\n"));
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("function\t"))
            .collect();
        assert_eq!(lines.len(), signatures.functions.len());
        for (function, line) in signatures.functions.iter().zip(lines) {
            let words: Vec<&str> = line.split('\t').collect();
            assert_eq!(words[1], function.id.to_string());
            assert_eq!(words[2], function.name);
            assert_eq!(words.len(), 7 + function.params.len(), "{line}");
            assert!(
                words[7..].iter().all(|param| param.split('|').count() == 4),
                "{line}"
            );
            for (name, start) in [
                ("ids.rs", "pub const "),
                ("entries.rs", ", "),
                ("cuda_api.h", "CUresult "),
            ] {
                assert!(
                    text_of(&files, name).contains(&format!("{start}{}", function.name)),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn the_c_header_compiles_and_its_layouts_hold() {
        let folder = std::env::temp_dir().join(format!("cutape-header-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let files = generate(&crate::root()).unwrap_or_else(|failure| panic!("{failure}"));
        fs::write(folder.join("cuda_api.h"), text_of(&files, "cuda_api.h")).unwrap();
        fs::write(
            folder.join("probe.c"),
            "#include \"cuda_api.h\"\nCUresult probe(CUdeviceptr *p) {\n\
             return cuMemFree_v2(*p) ? cuInit(0) : CUDA_SUCCESS; }\n",
        )
        .unwrap();
        for flag in [
            "-DNOTHING",
            "-DCUDA_API_PER_THREAD_DEFAULT_STREAM",
            "-D__CUDA_API_VERSION_INTERNAL",
        ] {
            let output = std::process::Command::new("cc")
                .args([
                    "-std=gnu11",
                    "-Wall",
                    "-Wextra",
                    "-Werror",
                    "-fsyntax-only",
                    "-DCUTAPE_CHECK_LAYOUT",
                    flag,
                ])
                .arg(folder.join("probe.c"))
                .output()
                .unwrap();
            assert!(
                output.status.success(),
                "{flag}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn check_names_what_is_stale() {
        let real = crate::root();
        let root = std::env::temp_dir().join(format!("cutape-codegen-{}", std::process::id()));
        for folder in [
            "registry/signatures",
            "registry/semantics",
            "registry/rules",
        ] {
            fs::create_dir_all(root.join(folder)).unwrap();
            for entry in fs::read_dir(real.join(folder)).unwrap().flatten() {
                fs::copy(entry.path(), root.join(folder).join(entry.file_name())).unwrap();
            }
        }
        let versions = "registry/versions.txt";
        fs::copy(real.join(versions), root.join(versions)).unwrap();
        assert!(run(&root, true).unwrap_err().to_string().contains("ids.rs"));
        run(&root, false).unwrap_or_else(|failure| panic!("{failure}"));
        run(&root, true).unwrap_or_else(|failure| panic!("{failure}"));
        let gone = root.join("docs/rules/link-no-such-rule.md");
        fs::write(&gone, "a page of a rule that was removed").unwrap();
        let error = run(&root, true).unwrap_err().to_string();
        assert!(error.contains("link-no-such-rule.md"), "{error}");
        run(&root, false).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(!gone.exists());
        let table = root.join("registry/src/generated/enums.rs");
        fs::write(&table, "// edited by hand").unwrap();
        let error = run(&root, true).unwrap_err().to_string();
        assert!(
            error.contains("enums.rs") && !error.contains("ids.rs"),
            "{error}"
        );
        assert_eq!(
            fs::read_to_string(&table).unwrap(),
            "// edited by hand",
            "--check writes nothing"
        );
        fs::remove_dir_all(&root).unwrap();
    }
}
