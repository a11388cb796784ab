"""`cutape sql`, with DuckDB's program and with its Python package, and `Trace.sql`."""

import csv
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

import cutape
from conftest import ROOT, run_json

PAGE = (ROOT / "docs/sql.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
PROGRAM = shutil.which("duckdb", path=os.path.dirname(sys.executable))
# Runs until it is ended.
ENDLESS = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range + b.range = 1"


@pytest.fixture(params=["duckdb", "python3"])
def engine(request):
    """A way to find DuckDB."""
    path = {"duckdb": PROGRAM, "python3": sys.executable}[request.param]
    if path is None:
        pytest.skip("the package duckdb-cli is not installed")
    return request.param, path


@pytest.fixture
def sql(engine, tmp_path):
    """Runs `cutape sql` with an empty folder for temporary files, which must be empty again."""
    programs, temporary = tmp_path / "bin", tmp_path / "it's temporary"
    programs.mkdir()
    temporary.mkdir()
    name, path = engine
    for file, words in ((name, path), ("cutape", cutape.program())):
        (programs / file).write_text(f'#!/bin/sh\nexec "{words}" "$@"\n')
        (programs / file).chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:/usr/bin:/bin", "TMPDIR": str(temporary)}

    def start(*words, program="cutape", verb=("sql",)):
        words = [program, *verb, *map(str, words)]
        return subprocess.Popen(
            words, env=environment, cwd=tmp_path, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )

    def run(*words, status=0, **options):
        process = start(*words, **options)
        out, errors = process.communicate(timeout=60)
        assert process.returncode == status, errors
        assert list(temporary.iterdir()) == []
        assert status == 0 or out == ""
        return out if status == 0 else errors

    run.start, run.temporary = start, temporary
    return run


def rows(answer):
    return json.loads(answer)["rows"]


@pytest.mark.parametrize("engine", ["duckdb"], indirect=True)
def test_examples_of_the_page(sql, corpus, tmp_path):
    (tmp_path / "ranks").mkdir()
    for name, source in (("app", "graph"), ("train", "ranges"), ("ranks/0", "events")):
        source = corpus.get(source, corpus["graph"])
        (tmp_path / f"{name}.cutape").write_bytes(source.read_bytes())
    assert len(BLOCKS) == 12
    for block in BLOCKS:
        sql("-euc", block, program="bash", verb=())
    with (tmp_path / "findings.csv").open() as file:
        assert next(csv.reader(file)) == ["trace", "rule", "class", "findings"]


def test_every_table_has_the_rows_of_an_export(sql, corpus):
    path = corpus["graph"]
    listed = rows(sql(path, "--format", "json"))
    counts = {row["table"]: row["rows"] for row in listed}
    columns = [(table, *column) for table in cutape.schema() for column in cutape.schema()[table]]
    assert [(row["table"], row["column"], row["type"], row["meaning"]) for row in listed] == columns
    query = " UNION ALL ".join(f"SELECT '{table}' AS name, count(*) AS n FROM {table}"
                               for table in counts)
    assert {row["name"]: row["n"] for row in rows(sql(path, query, "--format", "json"))} == counts
    assert counts["calls"] == run_json("info", "--format", "json", path)["calls"]["total"]
    both = sql(path, corpus["events"], "SELECT DISTINCT trace FROM calls ORDER BY 1",
               "--format", "json")
    assert [row["trace"] for row in rows(both)] == ["events", "graph"]


def test_values(sql, corpus):
    answer = json.loads(sql(corpus["graph"], """
        SELECT sum(call)::HUGEINT + 170141183460469231731687303715884105000 AS large, NULL AS none,
               'it''s|
two' AS text, 'nan'::DOUBLE AS nan, 1.50::DECIMAL(4, 2) AS "a,b", true AS yes,
               DATE '2026-01-02' AS day, [1, 2] AS list, '' AS empty
        FROM calls WHERE call < 3""", "--format", "json"))
    assert answer["rows"] == [{
        "large": 170141183460469231731687303715884105003, "none": None, "text": "it's|\ntwo",
        "nan": None, "a,b": 1.5, "yes": True, "day": "2026-01-02", "list": "[1, 2]", "empty": "",
    }]
    assert answer["columns"] == list(answer["rows"][0]) and answer["more"] is False
    arguments = "SELECT arguments->>'$.bytesize.value' AS n FROM calls WHERE function LIKE 'cuMemAlloc%'"
    sizes = rows(sql(corpus["graph"], arguments, "--format", "json"))
    assert sizes and all(int(row["n"]) > 0 for row in sizes)


@pytest.mark.parametrize("engine", ["duckdb"], indirect=True)
def test_formats_and_limits(sql, corpus, tmp_path):
    path, query = corpus["graph"], "SELECT call, function FROM calls ORDER BY call"
    total = len(cutape.open(path))
    text = sql(path, query, "--most", 2).splitlines()
    assert [line.split() for line in text[:2]] == [["call", "function"], ["0", "cuInit"]]
    assert len(text) == 4 and "--most" in text[-1]
    answer = json.loads(sql(path, query, "--format", "json", "--most", 2))
    assert len(answer["rows"]) == 2 and answer["more"] is True
    file = tmp_path / "out.csv"
    words = [path, query, "--format", "csv", "-o", file]
    assert sql(*words) == ""
    assert len(list(csv.DictReader(file.open()))) == total
    assert "--overwrite" in sql(*words, status=2)
    sql(path, "SELECT 1 AS one FROM calls LIMIT 1", "--format", "csv", "-o", file, "--overwrite")
    assert file.read_text() == "one\n1\n"
    sql(path, "SELEC 1", "-o", tmp_path / "none", status=2)
    assert not (tmp_path / "none").exists()
    assert sql(path, "SELECT call FROM calls WHERE false", "--format", "csv") == "call\n"


def test_a_query_has_only_the_tables(sql, corpus, tmp_path):
    (tmp_path / "own.csv").write_text("a\n1\n")
    own = tmp_path / "own.csv"
    before = sorted(tmp_path.rglob("*"))
    queries = (
        f"FROM '{own}'", "SELECT * FROM read_text('/etc/passwd')",
        f"COPY calls TO '{tmp_path}/out.csv'", f"ATTACH '{tmp_path}/out.db'", "LOAD httpfs",
        "SET enable_external_access = true", f"SET temp_directory = '{tmp_path}'",
        ".shell touch out", "SELECT 1; SELECT 2", "FROM sys",
    )
    for query, process in [(query, sql.start(corpus["graph"], query)) for query in queries]:
        out, errors = process.communicate(timeout=60)
        assert (process.returncode, out) == (2, ""), (query, errors)
    assert sorted(tmp_path.rglob("*")) == before
    assert "--files" in sql(corpus["graph"], "FROM read_text('/etc/passwd')", status=2)
    assert sql(corpus["graph"], "SELECT a FROM 'own.csv' , calls LIMIT 1", "--files",
               "--format", "csv") == "a\n1\n"


def test_errors_have_their_place(sql, corpus, tmp_path):
    path = corpus["graph"]
    error = sql(path, "SELECT call,\n  functoin FROM calls", status=2)
    assert "functoin" in sql(path, "SELECT functoin FROM calls", "--format", "json", status=2)
    assert "LINE 2:" in error and "^" in error and "without a query" in error
    assert 'Did you mean "launches"' in sql(path, "FROM lanches", status=2)
    assert "no trace" in sql("FROM calls", status=2)
    assert "No such file" in sql(tmp_path / "none.cutape", "FROM calls", status=2)
    damaged = tmp_path / "damaged.cutape"
    damaged.write_bytes(path.read_bytes()[:-100] + b"\0" * 100)
    assert "damaged" in sql(damaged, "FROM calls WHERE true", status=2)


def test_names_are_no_sql(sql, corpus, tmp_path):
    name = "x'); DROP VIEW calls; --\" $$ ;\x1b[31m"
    path = tmp_path / f"{name}.cutape"
    path.write_bytes(corpus["graph"].read_bytes())
    query = "SELECT DISTINCT trace FROM calls"
    assert rows(sql(path, query, "--format", "json")) == [{"trace": name}]
    assert "\x1b" not in sql(path, query)


def read(file):
    try:
        return file.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_without_a_trace(sql, corpus, number):
    process = sql.start(corpus["graph"], ENDLESS + " AND EXISTS (FROM calls)")
    limit = time.monotonic() + 30
    while not list(sql.temporary.glob("*/errors")):
        assert time.monotonic() < limit and process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == 128 + number
    mark = f"TMPDIR={sql.temporary}".encode()
    environments = pathlib.Path("/proc").glob("[0-9]*/environ")
    # Also the program that the script `duckdb` of pip starts.
    limit = time.monotonic() + 10
    while any(mark in read(file) for file in environments):
        assert time.monotonic() < limit
        environments = pathlib.Path("/proc").glob("[0-9]*/environ")
    assert list(sql.temporary.iterdir()) == []


def test_without_an_engine(corpus, tmp_path):
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python3").chmod(0o755)
    # The program is not installed as the wheel does it, so it has no Python of its own.
    for engine in ([], ["--engine", tmp_path / "python3"], ["--engine", tmp_path / "none"]):
        done = subprocess.run(
            [cutape.program(), "sql", *engine, corpus["graph"], "FROM calls"],
            env={"PATH": str(tmp_path)}, capture_output=True, text=True,
        )
        assert done.returncode == 2 and "--engine" in done.stderr and "\n" == done.stderr[-1]
        assert "pip install 'cutape[sql]'" in done.stderr or "none" in done.stderr


def test_in_python(corpus):
    trace = cutape.open(corpus["graph"])
    relation = trace.sql("SELECT function, count(*) AS n FROM calls GROUP BY ALL ORDER BY n DESC")
    assert sum(n for _, n in relation.fetchall()) == len(trace)
    joined = "SELECT count(*) FROM launches JOIN Calls USING (trace, call)"
    assert trace.sql(joined).fetchall() == [(len(trace.table("launches")),)]
    assert len(trace.sql("SHOW TABLES").fetchall()) == len(cutape.schema())
    frame = trace.sql("SELECT arguments FROM calls WHERE function = 'cuInit'").df()
    assert json.loads(frame["arguments"][0])["Flags"]["value"] == 0


def test_the_corpus(engine):
    traces = pathlib.Path(ROOT / "traces/misuse")
    answer = run_json("sql", "--engine", engine[1], traces, "--format", "json",
                      "SELECT rule, count(*) AS n FROM findings WHERE class = 'misuse' GROUP BY ALL")
    assert len(answer["rows"]) > 5
