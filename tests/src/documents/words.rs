//! The command lines of cutape in a text, so that those that are not run can be parsed.

/// The command lines of cutape in commands of a shell, as words without the program's name. They
/// end at a pipe, a redirection or a comment.
pub fn command_lines(text: &str) -> Vec<Vec<String>> {
    let joined = text.replace("\\\n", " ");
    let mut commands: Vec<String> = Vec::new();
    for line in joined.lines() {
        // A quote may contain line breaks.
        match commands
            .last_mut()
            .filter(|last| shlex::split(last).is_none())
        {
            Some(last) => *last += &format!("\n{line}"),
            None => commands.push(line.to_owned()),
        }
    }
    commands.iter().flat_map(|command| line(command)).collect()
}

/// The command lines between backquotes in prose: `` `cutape pack FILE` ``.
pub fn inline_commands(text: &str) -> Vec<Vec<String>> {
    let mut spans = text.split('`').skip(1).step_by(2);
    std::iter::from_fn(|| spans.next())
        .filter(|span| span.starts_with("cutape "))
        .flat_map(line)
        .collect()
}

fn line(text: &str) -> Vec<Vec<String>> {
    let Some(words) = shlex::split(text) else {
        return vec![vec![format!("a quote without an end: {text}")]];
    };
    let mut lines = Vec::new();
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let is_cutape = word == "cutape" || word.ends_with("/cutape");
        // A path of a folder of that name is not the program.
        let verb = words.peek().filter(|word| is_cutape && !is_operator(word));
        if verb.is_none_or(|verb| !verb.starts_with(|c: char| c.is_ascii_lowercase() || c == '-')) {
            continue;
        }
        let mut line = Vec::new();
        while let Some(word) = words.next_if(|word| !is_operator(word)) {
            line.push(word.trim_end_matches(';').to_owned());
            if word.ends_with(';') {
                break;
            }
        }
        lines.push(line);
    }
    lines
}

fn is_operator(word: &str) -> bool {
    ["|", "||", "&&", ";", "&", "<"].contains(&word)
        || word.trim_start_matches(['1', '2']).starts_with('>')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_cutape() {
        for (text, expected) in [
            ("cutape info app.cutape", &["info app.cutape"][..]),
            (
                "cutape dump --calls 'a b' t | head -1",
                &["dump --calls a b t"],
            ),
            (
                "A=1 cutape record \\\n  -- ./app > log  # why",
                &["record -- ./app"],
            ),
            (
                "ncu --all cutape replay t && cutape check t",
                &["replay t", "check t"],
            ),
            (
                "docker run /opt/cutape/cutape record -- ./app",
                &["record -- ./app"],
            ),
            ("for t in *; do cutape check $t; done", &["check $t"]),
            ("duckdb -c 'a\nb'\ncutape info t", &["info t"]),
            ("git clone cutape", &[]),
            ("cd cutape && cargo build", &[]),
        ] {
            let found: Vec<String> = command_lines(text).iter().map(|l| l.join(" ")).collect();
            assert_eq!(found, expected, "{text}");
        }
        let found = inline_commands("a `cutape pack\nF` b `x` c `cutape --help` `cutape`");
        assert_eq!(found, [vec!["pack", "F"], vec!["--help"]]);
    }
}
