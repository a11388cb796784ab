"""Questions about a trace in SQL, answered by DuckDB in this process."""

import re
from typing import TYPE_CHECKING, Any

from ._native import Error, Trace, schema

if TYPE_CHECKING:
    import duckdb


def sql(trace: Trace, query: str) -> "duckdb.DuckDBPyRelation":
    """The result of a query on the tables of the trace; only those that it names are read."""
    try:
        import duckdb
    except ImportError as error:
        raise Error(f"{error}; install DuckDB: pip install 'cutape[sql]'") from error
    words = {word.lower() for word in re.findall(r"\w+", query)}
    names = [name for name in schema() if name in words] or list(schema())
    database: Any = duckdb.connect()
    for name, table in zip(names, trace.tables(*names, arguments="arguments" in words)):
        database.register(name, table)
    relation: "duckdb.DuckDBPyRelation" = database.sql(query)
    return relation
