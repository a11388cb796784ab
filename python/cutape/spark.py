"""A fleet's traces in Spark: each function makes a DataFrame with rows as `cutape export` writes
them, and with a row that has an `error` for each trace that cannot be read.

`traces` is a folder, whose traces are all taken, or a list of files: paths that every executor
reaches, or URLs that fsspec knows. The files are listed at once, and read when an action asks for
rows. Nothing is written, and a task that Spark repeats gives the same rows.

All functions take `partitions`, the number of tasks (one for 16 files, at most 2000), and
`max_bytes` and `storage_options` of `cutape.fleet.Question`.
"""

import os
from typing import TYPE_CHECKING, Any, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from . import fleet
from ._verbs import Path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["check", "diff", "info", "profile", "rows"]

Files = Union[Path, Sequence[Path]]

_TYPES = {"integer": "bigint", "number": "double", "boolean": "boolean", "text": "string"}
# To start a task takes some milliseconds, as to read a short trace does.
_FILES_OF_A_TASK, _MOST_TASKS = 16, 2000


def rows(
    spark: "SparkSession",
    traces: Files,
    table: str,
    *,
    arguments: bool = False,
    partitions: Optional[int] = None,
    **fetching: Any,
) -> "DataFrame":
    """The rows of a table of `cutape export`, such as `launches`, of all traces."""
    question = fleet.table(table, arguments=arguments, **fetching)
    return _frame(spark, question, _listed(traces, ".cutape", question), partitions)


def check(
    spark: "SparkSession",
    traces: Files,
    *,
    all: bool = False,
    partitions: Optional[int] = None,
    **fetching: Any,
) -> "DataFrame":
    """The findings that are misuse, as in the table `findings`; with `all` those of all classes."""
    question = fleet.check(all=all, **fetching)
    return _frame(spark, question, _listed(traces, ".cutape", question), partitions)


def info(
    spark: "SparkSession", traces: Files, *, partitions: Optional[int] = None, **fetching: Any
) -> "DataFrame":
    """A row for each trace: that of the table `traces`, and in `info` what `cutape info` prints as
    JSON."""
    question = fleet.info(**fetching)
    return _frame(spark, question, _listed(traces, ".cutape", question), partitions)


def profile(
    spark: "SparkSession", profiles: Files, *, partitions: Optional[int] = None, **fetching: Any
) -> "DataFrame":
    """The kernels, copies and memsets in files that `cutape profile --format json` wrote: in those
    of a list, or in all of a folder whose names end in `.json`."""
    question = fleet.profile(**fetching)
    return _frame(spark, question, _listed(profiles, ".json", question), partitions)


def diff(
    spark: "SparkSession",
    pairs: Iterable[Tuple[Path, Path]],
    *,
    partitions: Optional[int] = None,
    **fetching: Any,
) -> "DataFrame":
    """A row for each pair of traces: whether they differ, and in `diff` what `cutape diff` prints as
    JSON."""
    asked = [(os.fspath(a), os.fspath(b)) for a, b in pairs]
    return _frame(spark, fleet.diff(**fetching), asked, partitions)


def _listed(given: Files, suffix: str, question: fleet.Question) -> List[Tuple[str, ...]]:
    if isinstance(given, (str, os.PathLike)):
        return [(file,) for file in fleet.files(given, suffix, question.storage_options)]
    return [(os.fspath(file),) for file in given]


def _frame(
    spark: "SparkSession",
    question: fleet.Question,
    asked: Sequence[Tuple[str, ...]],
    partitions: Optional[int],
) -> "DataFrame":
    def answers(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from question.batches([row[name] for name in question.inputs])

    inputs = ", ".join(f"{name} string" for name in question.inputs)
    columns = ", ".join(f"`{name}` {_TYPES[kind]}" for name, kind in question.columns.items())
    tasks = partitions or min(_MOST_TASKS, -(-len(asked) // _FILES_OF_A_TASK)) or 1
    files = spark.createDataFrame(asked, inputs)
    return files.repartition(tasks).mapInArrow(answers, columns)
