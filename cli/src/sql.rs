//! `cutape sql`: questions about traces in SQL, which DuckDB answers.

mod answer;
mod engine;
mod literals;
mod query;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;

use cutape_export::rows::TraceRow;
use cutape_export::tables::{
    Cell as Value, OWN_COLUMNS, ParquetFolder, TABLES, TableSink, TableWriter,
};
use cutape_export::{Error, Replayed};
use cutape_format::TemporaryFile;
use cutape_terminal::ending::Group;
use cutape_terminal::failure::Failure;
use cutape_terminal::input;
use cutape_terminal::output::{self, cannot_write};
use cutape_terminal::overwrite::Overwrite;
use cutape_terminal::private_folder::PrivateFolder;

use self::answer::{Answer, Format};
use self::engine::{Engine, Statements};
use self::literals::{Cell, Literals};
use crate::export::Export;
use crate::profile_file;

/// Rows of a text, if nothing else is asked for.
const MOST_OF_TEXT: usize = 100;

const EPILOGUE: &str = "\
Examples:
  cutape sql app.cutape                                     tables and columns
  cutape sql app.cutape 'SELECT function, count(*) FROM calls GROUP BY ALL'
  cutape sql ranks/ 'FROM findings' --format json
  cutape sql a.cutape b.cutape 'FROM launches' --format csv -o launches.csv

The tables are those of `cutape export`; the column `trace` says which trace a row is
of. The query is one statement of DuckDB, whose program or Python package must be
installed. It can read no other files, except with --files.";

/// What `sql` takes.
#[derive(clap::Args)]
#[command(after_help = EPILOGUE)]
#[command(override_usage = "cutape sql [OPTIONS] <TRACE|FOLDER>... [QUERY]")]
pub(crate) struct Arguments {
    /// Traces, or folders of traces, and the query: a word with a blank in it.
    /// Without a query: the tables, how many rows they have, and their columns.
    #[arg(
        value_name = "TRACE|FOLDER|QUERY",
        required = true,
        verbatim_doc_comment
    )]
    words: Vec<OsString>,
    /// How to print the result.
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    format: Format,
    /// Write the result to this file instead of stdout; must not exist, except with
    /// --overwrite.
    #[arg(short, long, value_name = "FILE", verbatim_doc_comment)]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// How many rows are printed. Default: 100 as text, else all.
    #[arg(long, value_name = "N")]
    most: Option<usize>,
    /// Let the query do what you may do: read and write files, load extensions.
    #[arg(long)]
    files: bool,
    /// DuckDB: its program, or a Python that has its package. Default: `duckdb`, else
    /// `python3`, of PATH.
    #[arg(long, value_name = "PROGRAM", verbatim_doc_comment)]
    engine: Option<PathBuf>,
    /// Fill `gpu_work`, `gpu_counters` and the columns about the GPU, from a replay:
    /// what `cutape profile --format json -o FILE` wrote of this trace.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    profile: Option<PathBuf>,
}

pub(crate) fn run(mut arguments: Arguments) -> Result<ExitCode, Failure> {
    let query = take_query(&mut arguments.words)?;
    let mut traces = Vec::new();
    for path in arguments.words.iter().map(PathBuf::from) {
        match path.is_dir() {
            true => traces.extend(input::traces_of(&path)?),
            false => traces.push(path),
        }
    }
    if arguments.profile.is_some() && traces.len() != 1 {
        return Err(Failure::unusable(format!(
            "--profile: a profile is of one trace, and these are {}; name that trace",
            traces.len()
        )));
    }
    let profile = arguments.profile.as_deref().map(profile_file::read);
    let replayed = profile.transpose()?.map(Replayed::new).map(Arc::new);
    let data = Data {
        traces: &traces,
        replayed,
    };
    let Some(query) = query else {
        let rows = data.counted()?;
        write(&arguments, |out| {
            let mut answer = Answer::new(arguments.format, output::columns(), out);
            list_tables(&rows, &mut answer)?;
            Ok(answer.end(false)?)
        })?;
        return Ok(ExitCode::SUCCESS);
    };
    if query::has_several_statements(&query) {
        return Err(Failure::unusable(
            "the query has several statements; give one, with `WITH name AS (...)` for its steps",
        ));
    }
    let engine = Engine::find(arguments.engine.as_deref())?;
    let folder = PrivateFolder::create("sql")?;
    let tables = query::tables(&query);
    data.write_tables(&query, &tables, &folder)?;
    let setup = setup(&folder.path(""), &tables, arguments.files)?;
    let statements = Statements {
        setup: &setup,
        query: &query,
        is_free: arguments.files,
    };
    let errors = folder.path("errors");
    let mut command = engine.command(&statements);
    let cannot_keep = |error| Failure::cannot_write(&errors, &error);
    command.stderr(File::create_new(&errors).map_err(cannot_keep)?);
    command.stdout(Stdio::piped());
    if !arguments.files {
        // Where it puts what does not fit into memory.
        command.current_dir(folder.path(""));
    }
    let mut duckdb = Group::start(&mut command).map_err(|error| {
        Failure::unusable(format!(
            "cannot start {}: {error}; name DuckDB's program with --engine",
            engine.path().display()
        ))
    })?;
    write(&arguments, |out| {
        let mut answer = Answer::new(arguments.format, output::columns(), out);
        let more = pass_on(&mut duckdb, arguments.most(), &mut answer)?;
        if !more {
            expect_success(duckdb, &errors)?;
        }
        Ok(answer.end(more)?)
    })?;
    Ok(ExitCode::SUCCESS)
}

impl Arguments {
    /// How many rows are printed.
    fn most(&self) -> usize {
        let all = match self.format {
            Format::Text => MOST_OF_TEXT,
            Format::Json | Format::Csv => usize::MAX,
        };
        self.most.unwrap_or(all)
    }
}

/// Takes the query from the end of the words: it has a blank and is not the name of a file.
fn take_query(words: &mut Vec<OsString>) -> Result<Option<String>, Failure> {
    let is_query = |word: &mut OsString| {
        let bytes = word.as_encoded_bytes();
        bytes.iter().any(u8::is_ascii_whitespace) && !Path::new(word).exists()
    };
    let Some(query) = words.pop_if(is_query) else {
        return Ok(None);
    };
    if words.is_empty() {
        return Err(Failure::unusable(
            "no trace: give traces in front of the query, e.g. `cutape sql app.cutape 'FROM calls'`",
        ));
    }
    let query = query.into_string();
    query
        .map(Some)
        .map_err(|_| Failure::unusable("the query is not UTF-8"))
}

/// Writes to the output that is chosen; a file appears when it is whole.
fn write(
    arguments: &Arguments,
    write: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Some(file) = &arguments.output else {
        return write(&mut BufWriter::new(output::stdout()));
    };
    let cannot = |error: io::Error| cannot_write("--output", file, &error);
    arguments.overwrite.write(file, |target| {
        let temporary = TemporaryFile::beside(target).map_err(cannot)?;
        write(&mut BufWriter::new(temporary.file()))?;
        temporary.publish(target).map_err(cannot)
    })
}

/// What the tables are made of.
struct Data<'a> {
    traces: &'a [PathBuf],
    /// A profile of the only one.
    replayed: Option<Arc<Replayed>>,
}

impl Data<'_> {
    /// Writes the tables that the query needs below the folder.
    fn write_tables(
        &self,
        query: &str,
        tables: &[usize],
        folder: &PrivateFolder,
    ) -> Result<(), Failure> {
        let writer = ParquetFolder::with_tables(&folder.path(""), tables.to_vec());
        let arguments = query::names(query, "arguments");
        let writer = self.read(tables, writer, arguments)?;
        writer.finish().map_err(cannot_keep)
    }

    /// How many rows each table has.
    fn counted(&self) -> Result<Vec<u64>, Failure> {
        let all: Vec<usize> = (0..TABLES.len()).collect();
        let counts = self.read(&all, Counts(vec![0; TABLES.len()]), false)?;
        Ok(counts.0)
    }

    /// Hands the rows of all traces to a writer of these tables.
    fn read<W: TableWriter>(
        &self,
        tables: &[usize],
        writer: W,
        arguments: bool,
    ) -> Result<W, Failure> {
        let mut sink = TableSink::new(writer, arguments).with_replay(self.replayed.clone());
        let failed = |error| match error {
            Error::Trace(error) => error.into(),
            Error::Write(error) => cannot_keep(error),
            Error::OtherTrace(_) => Failure::unusable(format!("--profile: {error}")),
        };
        let export = Export {
            traces: self.traces,
            set: None,
            with_findings: tables.iter().any(|&table| TABLES[table].name == "findings"),
            failed: &failed,
        };
        export.write(&mut sink)?;
        sink.finish().map_err(failed)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "maps errors")]
fn cannot_keep(error: io::Error) -> Failure {
    let folder = std::env::temp_dir();
    Failure::unusable(format!(
        "cannot write the tables below {}: {error}; set TMPDIR",
        folder.display()
    ))
}

/// The statements that make the tables views of their files, and forbid all else.
fn setup(folder: &Path, tables: &[usize], is_free: bool) -> Result<String, Failure> {
    let is_usable = |text: &&str| !text.contains(['*', '?', '[', '{']);
    let Some(path) = folder.to_str().filter(is_usable) else {
        return Err(Failure::unusable(format!(
            "{}: DuckDB cannot read files below a folder of this name; set TMPDIR to another",
            folder.display()
        )));
    };
    let path = path.trim_end_matches('/').replace('\'', "''");
    let mut sql = match is_free {
        true => String::new(),
        false => format!(
            "SET autoinstall_known_extensions = false; SET autoload_known_extensions = false;\n\
             SET allowed_directories = ['{path}/'];\n"
        ),
    };
    for name in tables.iter().map(|&table| TABLES[table].name) {
        sql += &format!(
            "CREATE VIEW \"{name}\" AS SELECT * FROM read_parquet('{path}/{name}/*.parquet');\n"
        );
    }
    if !is_free {
        sql += "SET enable_external_access = false;\n";
    }
    Ok(sql)
}

/// Passes on the rows that DuckDB prints; true if there are more than `most`.
fn pass_on(duckdb: &mut Group, most: usize, answer: &mut Answer<'_>) -> io::Result<bool> {
    let Some(printed) = duckdb.take_output() else {
        return Ok(false);
    };
    let mut literals = Literals::new(BufReader::with_capacity(1 << 16, printed));
    if !literals.is_table() {
        // The plan of EXPLAIN, or nothing, as of a query that has failed.
        let text = literals.rest()?;
        if !text.trim().is_empty() {
            answer.begin(vec!["explain_value".to_owned()])?;
            answer.row(vec![Cell::Text(text)])?;
        }
        return Ok(false);
    }
    let names = literals.row()?.unwrap_or_default();
    let name = |cell| match cell {
        Cell::Text(name) | Cell::Plain(name) => name,
        Cell::Null => "NULL".to_owned(),
    };
    answer.begin(names.into_iter().map(name).collect())?;
    let mut rows = 0;
    while let Some(row) = literals.row()? {
        if rows == most {
            return Ok(true);
        }
        answer.row(row)?;
        rows += 1;
    }
    Ok(false)
}

/// Waits for DuckDB, and fails if it has failed.
fn expect_success(duckdb: Group, errors: &Path) -> Result<(), Failure> {
    let status = duckdb.wait();
    let status =
        status.map_err(|error| Failure::unusable(format!("waiting for DuckDB: {error}")))?;
    if status.success() {
        return Ok(());
    }
    let said = std::fs::read(errors).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    Err(Failure::unusable(match said.trim() {
        "" => format!("DuckDB ended without an answer: {status}"),
        said => format!("the query failed: {said}{}", hint(said)),
    }))
}

/// What to do about an error.
fn hint(error: &str) -> String {
    let is_about = |words: &[&str]| words.iter().any(|word| error.contains(word));
    if is_about(&["Table with name", "Referenced column"]) {
        let names = TABLES.iter().map(|table| table.name);
        let names = names.collect::<Vec<_>>().join(", ");
        return format!(
            "\ntables: {names}; `cutape sql TRACE` without a query lists their columns"
        );
    }
    match is_about(&["Permission Error", "in -safe mode"]) {
        true => "\nthe query may use no files but the tables; --files allows it".to_owned(),
        false => String::new(),
    }
}

/// Counts records.
struct Counts(Vec<u64>);

impl TableWriter for Counts {
    fn begin(&mut self, _: &TraceRow) -> io::Result<()> {
        Ok(())
    }

    fn record(&mut self, table: usize, _: &[Value<'_>]) -> io::Result<()> {
        self.0[table] += 1;
        Ok(())
    }
}

/// A row for each column of a table.
fn list_tables(rows: &[u64], answer: &mut Answer<'_>) -> io::Result<()> {
    let header = ["table", "rows", "column", "type", "meaning"];
    answer.begin(header.map(str::to_owned).to_vec())?;
    let text = |text: &str| Cell::Text(text.to_owned());
    for (table, rows) in TABLES.iter().zip(rows) {
        for column in table.columns().chain(OWN_COLUMNS) {
            answer.row(vec![
                text(table.name),
                Cell::Plain(rows.to_string()),
                text(column.name),
                text(column.kind.word()),
                text(column.meaning),
            ])?;
        }
    }
    Ok(())
}
