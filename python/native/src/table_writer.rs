//! Collects the records of tables as Arrow arrays.

use std::io;
use std::sync::Arc;

use arrow_array::builder::{
    BooleanBuilder, Float64Builder, Int32Builder, Int64Builder, StringBuilder,
};
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, Int32Array, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use cutape_export::rows::TraceRow;
use cutape_export::tables::{
    Cell, Column, OWN_COLUMNS, SCHEMA_VERSION, TABLES, Table, TableWriter, Type,
};
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

/// Rows of a batch.
const BATCH: usize = 1 << 20;
/// Records between two looks for signals such as Ctrl-C.
const RECORDS_WORTH_SIGNALS: u64 = 1 << 17;

/// Keeps the records of the wanted tables in memory.
#[derive(Debug)]
pub(crate) struct ArrowTables {
    /// By number in [`TABLES`].
    tables: Vec<Option<Collected>>,
    process: i64,
    rank: Option<i64>,
    records: u64,
}

impl ArrowTables {
    pub(crate) fn new(wanted: &[usize]) -> Self {
        let table = |(number, table)| wanted.contains(&number).then(|| Collected::new(table));
        Self {
            tables: TABLES.iter().enumerate().map(table).collect(),
            process: 0,
            rank: None,
            records: 0,
        }
    }

    /// The whole table of that number.
    pub(crate) fn finish(
        &mut self,
        number: usize,
    ) -> Result<(SchemaRef, Vec<RecordBatch>), ArrowError> {
        match self.tables.get_mut(number) {
            Some(Some(table)) => table.finish(),
            _ => Err(ArrowError::InvalidArgumentError("not wanted".to_owned())),
        }
    }
}

impl TableWriter for ArrowTables {
    fn begin(&mut self, trace: &TraceRow) -> io::Result<()> {
        self.process = trace.process.into();
        self.rank = trace.any_rank().map(u64::cast_signed);
        Ok(())
    }

    fn wants(&self, table: usize) -> bool {
        matches!(self.tables.get(table), Some(Some(_)))
    }

    fn record(&mut self, table: usize, cells: &[Cell<'_>]) -> io::Result<()> {
        self.records += 1;
        if self.records.is_multiple_of(RECORDS_WORTH_SIGNALS) {
            Python::attach(|py| py.check_signals())?;
        }
        let Some(Some(table)) = self.tables.get_mut(table) else {
            return Ok(());
        };
        let own = [Cell::Integer(self.process), self.rank.into()];
        for (values, cell) in table.columns.iter_mut().zip(cells.iter().chain(&own)) {
            values.push(*cell);
        }
        table.rows += 1;
        if table.rows == BATCH {
            table.end_batch();
        }
        Ok(())
    }
}

/// The records of a table.
#[derive(Debug)]
struct Collected {
    schema: SchemaRef,
    columns: Vec<Values>,
    /// Rows since the last batch.
    rows: usize,
}

impl Collected {
    fn new(table: &Table) -> Self {
        let columns: Vec<&Column> = table.columns().chain(OWN_COLUMNS).collect();
        let field = |column: &&Column| {
            let kind = match (column.kind, column.repeats) {
                (Type::Integer | Type::Distinct, _) => DataType::Int64,
                (Type::Number, _) => DataType::Float64,
                (Type::Boolean, _) => DataType::Boolean,
                (Type::Text, false) => DataType::Utf8,
                (Type::Text, true) => {
                    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
                }
            };
            Field::new(column.name, kind, true)
        };
        let fields: Vec<Field> = columns.iter().map(field).collect();
        let version = ("cutape.schema".to_owned(), SCHEMA_VERSION.to_owned());
        Self {
            schema: Arc::new(Schema::new_with_metadata(fields, [version])),
            columns: columns.into_iter().map(Values::of).collect(),
            rows: 0,
        }
    }

    fn end_batch(&mut self) {
        self.columns.iter_mut().for_each(Values::end_batch);
        self.rows = 0;
    }

    fn finish(&mut self) -> Result<(SchemaRef, Vec<RecordBatch>), ArrowError> {
        if self.rows > 0 {
            self.end_batch();
        }
        let columns = std::mem::take(&mut self.columns);
        let finished = columns.into_iter().map(Values::finish);
        let mut columns: Vec<_> = finished.collect::<Result<_, _>>()?;
        let mut batches = Vec::new();
        loop {
            let next = columns.iter_mut().map(Iterator::next);
            let Some(arrays) = next.collect::<Option<Vec<ArrayRef>>>() else {
                return Ok((Arc::clone(&self.schema), batches));
            };
            batches.push(RecordBatch::try_new(Arc::clone(&self.schema), arrays)?);
        }
    }
}

/// The values of a column: complete batches, and what builds the next one.
#[derive(Debug)]
enum Values {
    Integer(Vec<ArrayRef>, Int64Builder),
    Number(Vec<ArrayRef>, Float64Builder),
    Boolean(Vec<ArrayRef>, BooleanBuilder),
    Text(Vec<ArrayRef>, StringBuilder),
    Repeated(Vec<Int32Array>, Box<Dictionary>),
}

impl Values {
    fn of(column: &Column) -> Self {
        let batches = Vec::new();
        match (column.kind, column.repeats) {
            (Type::Integer | Type::Distinct, _) => Self::Integer(batches, Int64Builder::new()),
            (Type::Number, _) => Self::Number(batches, Float64Builder::new()),
            (Type::Boolean, _) => Self::Boolean(batches, BooleanBuilder::new()),
            (Type::Text, false) => Self::Text(batches, StringBuilder::new()),
            (Type::Text, true) => Self::Repeated(Vec::new(), Box::default()),
        }
    }

    /// A value of another type than the column's counts as none.
    fn push(&mut self, cell: Cell<'_>) {
        match (self, cell) {
            (Self::Integer(_, builder), Cell::Integer(number)) => builder.append_value(number),
            (Self::Integer(_, builder), _) => builder.append_null(),
            (Self::Number(_, builder), Cell::Number(number)) => builder.append_value(number),
            (Self::Number(_, builder), _) => builder.append_null(),
            (Self::Boolean(_, builder), Cell::Boolean(flag)) => builder.append_value(flag),
            (Self::Boolean(_, builder), _) => builder.append_null(),
            (Self::Text(_, builder), Cell::Text(text)) => builder.append_value(text),
            (Self::Text(_, builder), _) => builder.append_null(),
            (Self::Repeated(_, dictionary), Cell::Text(text)) => {
                let key = dictionary.key(text);
                dictionary.keys.append_option(key);
            }
            (Self::Repeated(_, dictionary), _) => dictionary.keys.append_null(),
        }
    }

    fn end_batch(&mut self) {
        match self {
            Self::Integer(batches, builder) => batches.push(Arc::new(builder.finish())),
            Self::Number(batches, builder) => batches.push(Arc::new(builder.finish())),
            Self::Boolean(batches, builder) => batches.push(Arc::new(builder.finish())),
            Self::Text(batches, builder) => batches.push(Arc::new(builder.finish())),
            Self::Repeated(batches, dictionary) => batches.push(dictionary.keys.finish()),
        }
    }

    /// The batches. Those of repeated texts share one array of texts.
    fn finish(self) -> Result<std::vec::IntoIter<ArrayRef>, ArrowError> {
        let batches = match self {
            Self::Integer(batches, _)
            | Self::Number(batches, _)
            | Self::Boolean(batches, _)
            | Self::Text(batches, _) => batches,
            Self::Repeated(batches, mut dictionary) => {
                let texts: ArrayRef = Arc::new(dictionary.texts.finish());
                let array = |keys| {
                    let array = DictionaryArray::<Int32Type>::try_new(keys, Arc::clone(&texts))?;
                    Ok::<ArrayRef, ArrowError>(Arc::new(array))
                };
                batches.into_iter().map(array).collect::<Result<_, _>>()?
            }
        };
        Ok(batches.into_iter())
    }
}

/// Texts, each once, and the keys of the rows of the next batch.
#[derive(Debug, Default)]
struct Dictionary {
    known: FxHashMap<Box<str>, i32>,
    texts: StringBuilder,
    keys: Int32Builder,
    /// The text of the row before, which most rows repeat.
    last: String,
    last_key: Option<i32>,
}

impl Dictionary {
    /// The key of a text; `None` if there are more than a key can count.
    fn key(&mut self, text: &str) -> Option<i32> {
        if self.last_key.is_some() && self.last == text {
            return self.last_key;
        }
        let key = match self.known.get(text) {
            Some(&key) => key,
            None => {
                let key = i32::try_from(self.known.len()).ok()?;
                self.known.insert(text.into(), key);
                self.texts.append_value(text);
                key
            }
        };
        self.last.clear();
        self.last.push_str(text);
        self.last_key = Some(key);
        Some(key)
    }
}
