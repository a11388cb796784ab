"""Exports folders of traces, reads the exports with the engines that users have, and compares.

Usage: check.py CUTAPE WORK FOLDER...

Every engine must count the calls, launches, bytes and leaks that `cutape info` counts, and DuckDB
and Spark must answer each query of export/queries alike. WORK is replaced.
"""

import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import duckdb

import perfetto_engine

QUERIES = pathlib.Path(__file__).parents[2] / "queries"
TABLES = (
    "traces calls launches graph_launches graph_kernels copies waits objects memory images ranges "
    "findings"
).split()
# Of `info`, and of the rows.
DIRECTIONS = {
    "host_to_device_bytes": "host-to-device",
    "device_to_host_bytes": "device-to-host",
    "device_to_device_bytes": "device-to-device",
    "host_to_host_bytes": "host-to-host",
    "filled_bytes": "memset",
}
# Of `info`, and tables.
WORK = ("launches", "graph_launches", "graph_kernels")
# Categories on timelines.
CATEGORIES = {"launch": "launches", "graph-launch": "graph_launches", "graph-kernel": "graph_kernels"}
failures = []


def check(what, found, expected):
    if found != expected:
        failures.append(f"{what}: {found}, but `info` has {expected}")


def cutape(*words):
    run = subprocess.run([CUTAPE, *words], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"cutape {' '.join(map(str, words))}: status {run.returncode}: {run.stderr}")
    return run.stdout


class Counts(collections.Counter):
    """calls, failed, findings, of WORK, and bytes by direction; zeros do not count."""

    def __eq__(self, other):
        return +self == +other

    __hash__ = None


def counts_of_info(folder):
    counts = Counts()
    for trace in sorted(folder.glob("*.cutape")):
        facts = json.loads(cutape("info", "--format", "json", trace))
        counts["calls"] += facts["calls"]["total"]
        counts["failed"] += facts["calls"]["failed"]
        for key in WORK:
            counts[key] += facts[key]
        counts["findings"] += findings(trace)
        for key, direction in DIRECTIONS.items():
            counts[direction] += facts["copies"][key]
    return counts


def findings(trace):
    run = subprocess.run(
        [CUTAPE, "check", "--all", "--most-repeats", "1000000", "--format", "json", trace],
        capture_output=True,
        text=True,
    )
    return len(json.loads(run.stdout)["findings"])


def counts_of_json_lines(path):
    counts = Counts()
    lines = map(json.loads, path.open())
    schema = next(lines)
    if schema.get("table") != "schema" or not schema.get("version", "").startswith("1."):
        failures.append(f"{path}: no schema in the first line")
    for row in lines:
        match row["table"]:
            case "calls":
                counts["calls"] += 1
                counts["failed"] += row["failed"]
            case "launches" | "graph_launches" | "graph_kernels" | "findings" as table:
                counts[table] += 1
            case "copies" if row.get("result") == 0:
                counts[row["direction"]] += row.get("bytes", 0)
    return counts


def counts_of_chrome(path):
    counts = Counts()
    flows = collections.Counter()
    for event in json.loads(path.read_text())["traceEvents"]:
        category, arguments = event.get("cat"), event.get("args", {})
        if category == "flow":
            flows[event["ph"]] += 1
        elif category in ("call", "copy", *CATEGORIES):
            add_event(counts, category, event["name"], arguments.get("failed", False),
                      arguments.get("bytes", 0))
    if flows["f"] > flows["s"] * 1000 or (flows["f"] and not flows["s"]):
        failures.append(f"{path}: {flows} flows")
    return counts


def add_event(counts, category, name, failed, size):
    if category == "call":
        counts["calls"] += 1
        counts["failed"] += bool(failed)
    elif category in CATEGORIES:
        counts[CATEGORIES[category]] += 1
    elif not failed:
        counts[name] += size or 0


def counts_of_perfetto(path):
    """Also what a viewer needs: flows to all work, counters, no complaint of the importer."""
    counts = Counts()
    events, flows, work, errors, counters = perfetto_engine.query(path, [
        "SELECT category, name, extract_arg(arg_set_id, 'debug.failed') AS failed,"
        " extract_arg(arg_set_id, 'debug.bytes') AS bytes FROM slice"
        " WHERE category IN ('call', 'launch', 'graph-launch', 'graph-kernel', 'copy')",
        "SELECT count(*) AS n FROM flow",
        "SELECT count(*) AS n FROM slice"
        " WHERE category IN ('launch', 'graph-launch', 'copy', 'wait')",
        "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0",
        "SELECT count(*) AS n FROM counter",
    ])
    for event in events:
        add_event(counts, event["category"], event["name"], event["failed"], event["bytes"])
    if flows != work:
        failures.append(f"{path}: {flows} flows to {work} pieces of work")
    if errors:
        failures.append(f"{path}: the importer complains: {errors}")
    if not counters[0]["n"]:
        failures.append(f"{path}: no memory counter")
    return counts


def counts_of_tables(query):
    """From an engine of SQL; `query` returns tuples."""
    counts = Counts()
    ((counts["calls"], counts["failed"]),) = query(
        "SELECT count(*), count(CASE WHEN failed THEN 1 END) FROM calls")
    for table in (*WORK, "findings"):
        ((counts[table],),) = query(f"SELECT count(*) FROM {table}")
    for direction, _, size, _ in query((QUERIES / "bytes_by_direction.sql").read_text()):
        counts[direction] = int(size or 0)
    return counts


def duckdb_query(folder):
    database = duckdb.connect()
    for table in TABLES:
        database.execute(f"CREATE VIEW {table} AS SELECT * FROM '{folder}/{table}/*.parquet'")
    return lambda sql: database.execute(sql).fetchall()


def spark_query(spark, folder):
    for table in TABLES:
        spark.read.parquet(f"{folder}/{table}").createOrReplaceTempView(table)
    return lambda sql: [tuple(row) for row in spark.sql(sql).collect()]


def start_spark():
    """Small data: most of the time of the defaults goes into compiling and scheduling."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        "--driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' pyspark-shell")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("cutape")
    for key, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def text(rows):
    """Rows without the types that engines differ in."""
    number = lambda value: int(value) if not isinstance(value, (str, type(None))) else value
    return [tuple(map(number, row)) for row in rows]


def main(work, folders):
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    exports = []
    for place, folder in enumerate(folders):
        expected = counts_of_info(folder)
        started = time.time()
        paths = {name: work / f"{place}.{name}" for name in
                 ("parquet", "jsonl", "chrome", "perfetto")}
        for name, path in paths.items():
            cutape("export", "--format", name, folder, "-o", path)
        print(f"{folder}: {dict(+expected)}; exported in {time.time() - started:.1f} s")
        timeline = Counts(expected)
        del timeline["findings"]
        check(f"{folder}: JSON Lines", counts_of_json_lines(paths["jsonl"]), expected)
        check(f"{folder}: Chrome", counts_of_chrome(paths["chrome"]), timeline)
        check(f"{folder}: Perfetto", counts_of_perfetto(paths["perfetto"]), timeline)
        query = duckdb_query(paths["parquet"])
        check(f"{folder}: DuckDB", counts_of_tables(query), expected)
        exports.append((folder, paths["parquet"], expected, query))
    started = time.time()
    spark = start_spark()
    for folder, path, expected, duck in exports:
        query = spark_query(spark, path)
        check(f"{folder}: Spark", counts_of_tables(query), expected)
        for file in sorted(QUERIES.glob("*.sql")):
            sql = file.read_text()
            one, other = text(duck(sql)), text(query(sql))
            if one != other:
                failures.append(f"{folder}: {file.name}: DuckDB {one}, Spark {other}")
            print(f"{folder}: {file.name}: {len(one)} rows")
    spark.stop()
    print(f"Spark took {time.time() - started:.1f} s")
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    CUTAPE = os.path.abspath(sys.argv[1])
    sys.exit(main(pathlib.Path(sys.argv[2]), [pathlib.Path(name) for name in sys.argv[3:]]))
