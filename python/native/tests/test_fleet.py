"""Questions about many traces: `cutape.fleet`, and `cutape.spark` in a small Spark."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import fsspec
import pyarrow
import pytest

import cutape
from conftest import ROOT, run
from cutape import fleet

GOOD, MISUSED = ("events", "graph"), "double-free"


def rows(question, *asked):
    """The rows about files or pairs."""
    given = pyarrow.table(dict(zip(question.inputs, map(list, zip(*asked)))))
    found = question(given)
    assert found.schema == question.schema()
    return found.to_pylist()


@pytest.fixture
def folder(corpus, tmp_path):
    """Four traces, one of them cut off; a test must not change the folder."""
    folder = tmp_path / "traces"
    (folder / "node1").mkdir(parents=True)
    for name in (*GOOD, MISUSED):
        shutil.copy(corpus[name], folder)
    (folder / "node1/cut.cutape").write_bytes(corpus["graph"].read_bytes()[:2000])
    (folder / "notes.txt").write_text("no trace")
    before = listing(folder)
    yield folder
    assert listing(folder) == before


def listing(folder):
    return [(str(path), path.stat().st_mtime_ns) for path in sorted(folder.rglob("*"))]


@pytest.fixture
def bucket(folder):
    """The same in an object storage."""
    storage = fsspec.filesystem("memory")
    storage.put(str(folder), "/bucket", recursive=True)
    yield "memory:///bucket"
    storage.rm("/bucket", recursive=True)


def test_files_are_found_by_their_ends(folder, bucket):
    names = ["double-free.cutape", "events.cutape", "graph.cutape", "node1/cut.cutape"]
    for where in (str(folder), bucket):
        assert fleet.files(where) == [f"{where}/{name}" for name in names]
    assert fleet.files(folder, ".txt") == [f"{folder}/notes.txt"]
    assert fleet.files(f"file://{folder}") == fleet.files(folder)
    with pytest.raises(FileNotFoundError):
        fleet.files(folder / "none")


def test_rows_are_those_of_the_tables(folder):
    for name in cutape.schema():
        question = fleet.table(name)
        assert list(question.columns) == [
            "file", *(column for column, _, _ in cutape.schema()[name]), "error"
        ]
        for path in fleet.files(folder)[:3]:
            expected = cutape.open(path).table(name).to_pyarrow().to_pylist()
            assert rows(question, (path,)) == [
                {"file": path, **row, "error": None} for row in expected
            ]
    (arguments,) = rows(fleet.table("calls", arguments=True), (f"{folder}/events.cutape",))[:1]
    assert json.loads(arguments["arguments"]) is not None


def test_questions_without_an_answer_on_any_file():
    with pytest.raises(ValueError, match="launchs: no such table; there are traces, calls"):
        fleet.table("launchs")


def test_a_damaged_trace_is_a_row(folder):
    for question in (fleet.table("launches"), fleet.check(), fleet.info()):
        for name, why in [("node1/cut", "damaged at byte"), ("none", "No such file")]:
            path = f"{folder}/{name}.cutape"
            (row,) = rows(question, (path,))
            assert row.pop("file") == path and why in row.pop("error")
            assert set(row.values()) == {None}


def test_findings_are_those_of_check(folder):
    path = f"{folder}/{MISUSED}.cutape"
    for all in (False, True):
        expected = cutape.check(path, all=all, most_repeats=1000)
        found = rows(fleet.check(all=all), (path,))
        assert [(row["rule"], row["call"], row["title"]) for row in found] == [
            (finding.rule, finding.call.call, finding.title) for finding in expected
        ]
        assert found


def test_info_is_a_row(folder):
    path = f"{folder}/graph.cutape"
    (row,) = rows(fleet.info(), (path,))
    assert row["trace"] == "graph" and row["driver_version"] > 12000
    assert json.loads(row["info"]) == json.loads(run("info", "--format", "json", path))


def test_pairs_are_compared(folder):
    same, other, missing = rows(
        fleet.diff(),
        *[(f"{folder}/events.cutape", f"{folder}/{name}.cutape") for name in (*GOOD, "none")],
    )
    assert (same["differs"], same["total"], same["first"], same["error"]) == (False, 0, None, None)
    differences = json.loads(other["diff"])
    assert other["differs"] and other["total"] == differences["total"] > 0
    assert differences == json.loads(run("diff", "--format", "json", other["a"], other["b"]))
    assert (other["first_call_a"], other["first_call_b"]) == (4, 4) and "code" in other["first"]
    assert missing["differs"] is None and "none.cutape" in missing["error"]


def test_profiles_are_rows(folder, tmp_path):
    path = f"{tmp_path}/graph.json"
    words = ["--driver", "null", "--force", "--format", "json", "-o", path]
    run("profile", *words, f"{folder}/graph.cutape")
    measured = json.load(open(path))
    work = measured["runs"][0]["work"]
    found = rows(fleet.profile(), (path,))
    for row, one in zip(found, work, strict=True):
        assert {name: row[name] for name in one if name in row} == {
            name: value for name, value in one.items() if name in row
        }
        assert row["trace"] == measured["trace"] and row["measured_by"] == "events"
        assert row["function"] == measured["calls"][str(one["call"])]["function"]
    for wrong in ('{"runs": 3}', "[]", "{", '{"devices":[],"calls":{},"runs":[{"work":[1]}]}'):
        (tmp_path / "wrong.json").write_text(wrong)
        (row,) = rows(fleet.profile(), (f"{tmp_path}/wrong.json",))
        assert "wrong.json: not of `cutape profile --format json`: " in row["error"]


def test_object_storage(folder, bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = os.listdir(tmp_path)
    for question in (fleet.table("calls"), fleet.check(), fleet.info()):
        for path in fleet.files(folder):
            there = path.replace(str(folder), bucket)
            expected = json.dumps(rows(question, (path,)))
            # The message of a repair has the length of the file, and no name of a private folder.
            assert json.dumps(rows(question, (there,))) == expected.replace(str(folder), bucket)
    (pair,) = rows(fleet.diff(), [f"{bucket}/{name}.cutape" for name in GOOD])
    assert [side["trace"] for side in json.loads(pair["diff"])["traces"]] == [pair["a"], pair["b"]]
    there = f"{bucket}/graph.cutape"
    size = (folder / "graph.cutape").stat().st_size
    for most, error in [
        (size, None),
        (size - 1, f"{there}: larger than {size - 1} bytes: not fetched; set max_bytes"),
    ]:
        assert rows(fleet.info(max_bytes=most), (there,))[0]["error"] == error
    assert os.listdir(tmp_path) == before


def test_the_page_runs(folder):
    page = (ROOT / "docs/fleet.md").read_text()
    (block,) = re.findall(r"<!-- example: everywhere -->\n```python\n(.*?)```", page, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=folder.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "memory-double-free" in done.stdout and "damaged at byte" in done.stdout
    assert done.stdout.splitlines()[-1] == str(list(fleet.check().columns))


@pytest.fixture
def spark(monkeypatch):
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    if shutil.which("java") is None:
        pytest.skip("java is not installed")
    from pyspark.sql import SparkSession

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    # Small data: most of the time goes into compiling.
    options = "--driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", options)
    # A task may fail once.
    builder = SparkSession.builder.master("local[1,2]").appName("cutape")
    for key, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "OFF",
        "spark.sql.codegen.wholeStage": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


def test_spark(spark, folder, tmp_path):
    from pyspark import TaskContext

    from cutape import spark as fleet_in_spark

    def fail_once(batches):
        """Reads a part of the rows in the first attempt, and fails."""
        for batch in batches:
            yield batch
            if TaskContext.get().attemptNumber() == 0:
                raise OSError("as when a machine is lost")

    path = f"{tmp_path}/graph.json"
    words = ["--driver", "null", "--force", "--format", "json", "-o", path]
    run("profile", *words, f"{folder}/graph.cutape")
    files = [(path,) for path in fleet.files(folder)]
    pair = tuple(f"{folder}/{name}.cutape" for name in GOOD)
    for frame, question, asked in [
        (fleet_in_spark.rows(spark, folder, "launches"), fleet.table("launches"), files),
        (fleet_in_spark.check(spark, [path for (path,) in files]), fleet.check(), files),
        (fleet_in_spark.info(spark, folder, partitions=3), fleet.info(), files),
        (fleet_in_spark.profile(spark, tmp_path), fleet.profile(), [(path,)]),
        (fleet_in_spark.diff(spark, [pair]), fleet.diff(), [pair]),
    ]:
        again = frame.mapInArrow(fail_once, frame.schema)
        found = [row.asDict() for row in again.collect()]
        expected = rows(question, *asked)
        assert sorted(found, key=repr) == sorted(expected, key=repr) != []
    assert fleet_in_spark.check(spark, []).collect() == []
