//! The rows as tables with named columns, for formats that have tables.

mod json_lines;
mod parquet;
mod schema;
mod sink;

pub use json_lines::JsonLines;
pub use parquet::ParquetFolder;
pub use schema::{Column, OWN_COLUMNS, SCHEMA_VERSION, TABLES, Table, Type};
pub use sink::{Cell, TableSink, TableWriter};
