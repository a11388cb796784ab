//! Parquet: a folder for each table, with a file for each trace.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type as ParquetType};
use rustc_hash::FxHashMap;

use super::schema::{Column, OWN_COLUMNS, SCHEMA_VERSION, TABLES, Table, Type};
use super::sink::{Cell, TableWriter};
use crate::rows::TraceRow;

/// Records of a row group: what a table holds in memory.
const GROUP: usize = 1 << 16;
/// Distinct texts of a column that are looked up; those after them are not.
const LOOKED_UP: usize = 1 << 10;

/// Writes the tables of traces below a folder: `TABLE/rank0.process4711.parquet`.
///
/// Process and rank are columns of the files: as Hive partitions, pyarrow and pandas refuse tables
/// in which no process has a rank.
pub struct ParquetFolder {
    folder: PathBuf,
    /// Numbers of the tables that are written.
    wanted: Vec<usize>,
    properties: WriterPropertiesPtr,
    tables: Vec<Option<OpenTable>>,
    /// The name of the trace's files, without `.parquet`.
    name: String,
    /// Values of the columns that each record of the trace has.
    own: [Cell<'static>; 2],
}

/// The file of a table that is being written.
struct OpenTable {
    writer: SerializedFileWriter<BufWriter<File>>,
    columns: Vec<Values>,
    records: usize,
}

/// The values of a column that are not written yet, and for each record whether it has one.
#[derive(Debug)]
struct Values {
    present: Vec<i16>,
    values: Typed,
}

#[derive(Debug)]
enum Typed {
    Integer(Vec<i64>),
    Number(Vec<f64>),
    Boolean(Vec<bool>),
    Text(Texts),
}

/// Texts share their bytes where they are equal: most columns repeat a few, and a million small
/// allocations take longer than all else.
#[derive(Debug, Default)]
struct Texts {
    values: Vec<ByteArray>,
    known: FxHashMap<Box<str>, ByteArray>,
}

impl Texts {
    fn push(&mut self, text: &str) {
        if let Some(known) = self.known.get(text) {
            return self.values.push(known.clone());
        }
        let value = ByteArray::from(text);
        if self.known.len() < LOOKED_UP {
            self.known.insert(text.into(), value.clone());
        }
        self.values.push(value);
    }
}

impl ParquetFolder {
    /// Writes all tables below an existing folder.
    pub fn new(folder: &Path) -> Self {
        Self::with_tables(folder, (0..TABLES.len()).collect())
    }

    /// Writes the tables of these numbers.
    pub fn with_tables(folder: &Path, wanted: Vec<usize>) -> Self {
        let version = KeyValue::new("cutape.schema".to_owned(), SCHEMA_VERSION.to_owned());
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(format!("cutape {}", env!("CARGO_PKG_VERSION")))
            .set_key_value_metadata(Some(vec![version]));
        let columns = TABLES.iter().flat_map(|table| table.columns());
        let properties = columns
            .filter(|column| column.kind == Type::Distinct)
            .fold(properties, |properties, column| {
                let path = ColumnPath::from(column.name);
                properties.set_column_dictionary_enabled(path, false)
            })
            .build();
        Self {
            folder: folder.to_owned(),
            wanted,
            properties: Arc::new(properties),
            tables: Vec::new(),
            name: String::new(),
            own: [Cell::Null; 2],
        }
    }

    /// Completes the files.
    ///
    /// # Errors
    /// If writing fails.
    pub fn finish(mut self) -> io::Result<()> {
        self.close()
    }

    fn close(&mut self) -> io::Result<()> {
        for table in self.tables.drain(..).flatten() {
            table.close()?;
        }
        Ok(())
    }

    fn path(&self, table: &Table, name: &str) -> PathBuf {
        let folder = self.folder.join(table.name);
        folder.join(format!("{name}.parquet"))
    }

    fn open(&self, table: &Table) -> io::Result<OpenTable> {
        let path = self.path(table, &self.name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let file = BufWriter::new(File::create_new(path)?);
        let fields = columns(table).map(field);
        let fields = fields.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let schema = ParquetType::group_type_builder(table.name).with_fields(fields);
        let schema = Arc::new(schema.build().map_err(failed)?);
        let properties = Arc::clone(&self.properties);
        Ok(OpenTable {
            writer: SerializedFileWriter::new(file, schema, properties).map_err(failed)?,
            columns: columns(table).map(Values::of).collect(),
            records: 0,
        })
    }
}

/// The columns of a table's files.
fn columns(table: &Table) -> impl Iterator<Item = &'static Column> + use<> {
    table.columns().chain(OWN_COLUMNS)
}

fn failed(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}

fn field(column: &Column) -> Result<Arc<ParquetType>, ParquetError> {
    let physical = match column.kind {
        Type::Integer | Type::Distinct => Physical::INT64,
        Type::Number => Physical::DOUBLE,
        Type::Boolean => Physical::BOOLEAN,
        Type::Text => Physical::BYTE_ARRAY,
    };
    let mut field = ParquetType::primitive_type_builder(column.name, physical)
        .with_repetition(Repetition::OPTIONAL);
    if column.kind == Type::Text {
        field = field
            .with_logical_type(Some(LogicalType::String))
            .with_converted_type(ConvertedType::UTF8);
    }
    field.build().map(Arc::new)
}

impl TableWriter for ParquetFolder {
    fn begin(&mut self, trace: &TraceRow) -> io::Result<()> {
        self.close()?;
        let rank = trace.any_rank();
        self.own = [trace.process.into(), rank.into()];
        let rank = rank.map_or_else(String::new, |rank| format!("rank{rank}."));
        let name = format!("{rank}process{}", trace.process);
        // Processes of two machines may have the same number.
        let further = (1..).map(|number: u32| format!("{name}.{number}"));
        let mut names = std::iter::once(name.clone()).chain(further);
        let is_taken = |name: &String| TABLES.iter().any(|table| self.path(table, name).exists());
        self.name = names.find(|name| !is_taken(name)).unwrap_or_default();
        // A table without records has a file too, so that its columns are known.
        for (number, table) in TABLES.iter().enumerate() {
            let open = self.wants(number).then(|| self.open(table)).transpose()?;
            self.tables.push(open);
        }
        Ok(())
    }

    fn wants(&self, table: usize) -> bool {
        self.wanted.contains(&table)
    }

    fn record(&mut self, table: usize, cells: &[Cell<'_>]) -> io::Result<()> {
        match self.tables.get_mut(table) {
            Some(Some(open)) => open.record(cells.iter().chain(&self.own)),
            _ => Err(io::Error::other("a record before its trace")),
        }
    }
}

impl OpenTable {
    fn record<'c>(&mut self, cells: impl Iterator<Item = &'c Cell<'c>>) -> io::Result<()> {
        for (values, cell) in self.columns.iter_mut().zip(cells) {
            values.push(*cell);
        }
        self.records += 1;
        if self.records == GROUP {
            self.write_group()?;
        }
        Ok(())
    }

    fn write_group(&mut self) -> io::Result<()> {
        let mut group = self.writer.next_row_group().map_err(failed)?;
        for values in &mut self.columns {
            let Some(mut column) = group.next_column().map_err(failed)? else {
                return Err(io::Error::other("a column too many"));
            };
            let present = Some(&*values.present);
            match &values.values {
                Typed::Integer(values) => column
                    .typed::<Int64Type>()
                    .write_batch(values, present, None),
                Typed::Number(values) => column
                    .typed::<DoubleType>()
                    .write_batch(values, present, None),
                Typed::Boolean(values) => column
                    .typed::<BoolType>()
                    .write_batch(values, present, None),
                Typed::Text(texts) => {
                    column
                        .typed::<ByteArrayType>()
                        .write_batch(&texts.values, present, None)
                }
            }
            .map_err(failed)?;
            column.close().map_err(failed)?;
            values.clear();
        }
        self.records = 0;
        group.close().map(drop).map_err(failed)
    }

    fn close(mut self) -> io::Result<()> {
        if self.records > 0 {
            self.write_group()?;
        }
        self.writer.close().map(drop).map_err(failed)
    }
}

impl Values {
    fn of(column: &Column) -> Self {
        Self {
            present: Vec::new(),
            values: match column.kind {
                Type::Integer | Type::Distinct => Typed::Integer(Vec::new()),
                Type::Number => Typed::Number(Vec::new()),
                Type::Boolean => Typed::Boolean(Vec::new()),
                Type::Text => Typed::Text(Texts::default()),
            },
        }
    }

    /// A value of another type than the column's counts as none.
    fn push(&mut self, cell: Cell<'_>) {
        let is_present = match (&mut self.values, cell) {
            (Typed::Integer(values), Cell::Integer(number)) => {
                values.push(number);
                true
            }
            (Typed::Number(values), Cell::Number(number)) => {
                values.push(number);
                true
            }
            (Typed::Boolean(values), Cell::Boolean(flag)) => {
                values.push(flag);
                true
            }
            (Typed::Text(texts), Cell::Text(text)) => {
                texts.push(text);
                true
            }
            _ => false,
        };
        self.present.push(i16::from(is_present));
    }

    fn clear(&mut self) {
        self.present.clear();
        match &mut self.values {
            Typed::Integer(values) => values.clear(),
            Typed::Number(values) => values.clear(),
            Typed::Boolean(values) => values.clear(),
            Typed::Text(texts) => {
                texts.values.clear();
                // What one group repeats, the next may not have.
                texts.known.clear();
            }
        }
    }
}
