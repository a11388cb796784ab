"""Tables are those of `cutape export`, and other libraries take them."""

import collections
import json

import duckdb
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

import cutape
from conftest import ROOT, run

TABLES = list(cutape.schema())


def test_tables_are_those_of_an_export(path, tmp_path):
    run("export", "--format", "jsonl", "--arguments", path, "-o", tmp_path / "out.jsonl")
    rows = collections.defaultdict(list)
    for line in map(json.loads, (tmp_path / "out.jsonl").open()):
        rows[line.pop("table")].append(line)
    assert rows["schema"] == [{"version": cutape.Trace.schema_version}]
    for table in cutape.open(path).tables(*TABLES, arguments=True):
        found = pyarrow.table(table).to_pylist()
        assert len(found) == len(table) == len(rows[table.name])
        for own, row in zip(found, rows[table.name]):
            own = {key: value for key, value in own.items() if value is not None}
            # An export looks up callers in the program's files, which may be here.
            for texts in (own, row):
                texts.pop("message", None)
            assert own == row


def test_schema_is_that_of_the_tables(corpus):
    tables = cutape.open(corpus["graph"]).tables(*TABLES)
    kinds = {"integer": "int64", "number": "double", "boolean": "bool"}
    for table in tables:
        columns = cutape.schema()[table.name]
        assert table.columns == [name for name, _, _ in columns]
        types = pyarrow.table(table).schema
        assert pyarrow.schema(table) == types
        for (name, kind, meaning), field in zip(columns, types):
            assert field.name == name and meaning and field.nullable
            if kind == "text":
                is_repeated = pyarrow.types.is_dictionary(field.type)
                assert is_repeated or field.type == pyarrow.string()
            else:
                assert str(field.type) == kinds[kind]


def test_memory_is_shared(corpus):
    table = cutape.open(corpus["graph"]).table("calls")
    addresses = [
        buffer.address
        for _ in range(2)
        for chunk in pyarrow.table(table)["duration_ns"].chunks
        for buffer in chunk.buffers()
        if buffer is not None
    ]
    half = len(addresses) // 2
    assert half > 0 and addresses[:half] == addresses[half:]


def test_data_outlives_the_table(corpus):
    table = pyarrow.table(cutape.open(corpus["graph"]).table("calls"))
    assert table["function"].to_pylist()[0] == "cuInit"


def test_libraries_take_tables(corpus):
    launches = cutape.open(corpus["graph"]).table("launches")
    expected = len(launches)
    assert expected > 0 and "launches" in repr(launches)
    assert launches.to_pyarrow().num_rows == expected
    frame = launches.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == expected
    assert frame.groupby("kernel", observed=True)["call"].count().sum() == expected
    frame = launches.to_polars()
    assert isinstance(frame, polars.DataFrame) and frame.height == expected
    assert frame.group_by("kernel").len()["len"].sum() == expected
    ((count,),) = duckdb.sql("SELECT count(kernel) FROM launches").fetchall()
    assert count == expected


def test_exports_are_opened_by_folder(corpus, tmp_path):
    """Also where no process has a rank."""
    run("export", "--format", "parquet", corpus["graph"], "-o", tmp_path / "out")
    process = cutape.open(corpus["graph"]).process
    for name, table in zip(TABLES, cutape.open(corpus["graph"]).tables(*TABLES)):
        folder = tmp_path / "out" / name
        frame = pandas.read_parquet(folder)
        assert list(frame) == table.columns == polars.read_parquet(folder).columns
        assert len(frame) == len(table) == pyarrow.parquet.read_table(folder).num_rows
        assert (frame["process"] == process).all() and frame["rank"].isna().all()


def test_queries_of_exports_work(path):
    tables = dict(zip(TABLES, cutape.open(path).tables(*TABLES)))
    database = duckdb.connect()
    for name, table in tables.items():
        database.register(name, pyarrow.table(table))
    queries = sorted((ROOT / "export/queries").glob("*.sql"))
    assert len(queries) > 5
    for query in queries:
        database.execute(query.read_text()).fetchall()


def test_names(corpus):
    trace = cutape.open(corpus["graph"])
    with pytest.raises(ValueError, match="kernels: no such table; there are traces, calls"):
        trace.table("kernels")
    with pytest.raises(TypeError, match="names of tables"):
        trace.tables()
    with pytest.raises(ValueError, match="calls: named twice"):
        trace.tables("calls", "launches", "calls")


def test_a_profile_adds_gpu_times(corpus, tmp_path):
    trace = cutape.open(corpus["graph"])
    launch = next(call for call in trace if call.kernels)
    work = {"kind": "kernel", "name": "k", "begin_ns": 10, "end_ns": 30, "device": 0, "stream": 1}
    facts = {"function": launch.function, "thread": 0}
    run = {"work": [{**work, "call": launch.index}], "host": [], "lost": 0, "not_timed": 0}
    profile = {
        "trace": "graph", "driver": "d", "method": {"by": "events"}, "devices": [],
        "streams": {"1": "stream#1"}, "calls": {str(launch.index): facts},
        "runs": [{**run, "overhead_ns": 0}], "notes": {},
    }
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(profile))
    calls, ran = trace.tables("calls", "gpu_work", profile=path)
    times = pyarrow.table(calls).select(["call", "gpu_begin_ns", "gpu_ns"]).to_pylist()
    expected = {"call": launch.index, "gpu_begin_ns": 10, "gpu_ns": 20}
    assert [row for row in times if row["gpu_ns"] is not None] == [expected]
    (row,) = pyarrow.table(ran).to_pylist()
    assert (row["name"], row["call"], row["gpu_ns"]) == ("k", launch.index, 20)
    assert len(trace.table("gpu_work")) == 0
    profile["calls"][str(launch.index)]["function"] = "cuInit"
    path.write_text(json.dumps(profile))
    with pytest.raises(ValueError, match="the profile is of another trace"):
        trace.table("calls", profile=path)
    path.write_text("{}")
    with pytest.raises(ValueError, match="it is no profile"):
        trace.table("calls", profile=str(path))
    with pytest.raises(FileNotFoundError):
        trace.table("calls", profile=tmp_path / "missing")
