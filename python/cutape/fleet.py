"""Questions about many traces, with rows of Arrow data as answers: what `cutape.spark` asks.

`table`, `check`, `info`, `diff` and `profile` make a `Question`. It can be sent to another machine,
answers for one file after the other, and writes nothing beside them.
"""

import contextlib
import dataclasses
import functools
import json
import os
import tempfile
from typing import Any, Callable, Dict, Iterator, List, Mapping, NoReturn, Optional, Sequence, Tuple

from . import _native, _verbs
from ._verbs import Path

__all__ = ["Question", "check", "diff", "files", "info", "profile", "table"]

# Bytes that are fetched at a time.
_CHUNK = 8 << 20
# Rows of a batch.
_ROWS = 1 << 16

# A row of `diff`, from the JSON object.
_DIFFERENCES = {
    "differs": "boolean",
    "total": "integer",
    "first": "text",
    "first_call_a": "integer",
    "first_call_b": "integer",
    "diff": "text",
}
# A row of `profile`: `runs[].work[]` of the file, with what it refers to.
_WORK = {
    "trace": "text",
    "measured_by": "text",
    "run": "integer",
    "kind": "text",
    "name": "text",
    "begin_ns": "integer",
    "end_ns": "integer",
    "device": "integer",
    "device_name": "text",
    "stream": "integer",
    "stream_name": "text",
    "call": "integer",
    "function": "text",
    "node": "integer",
    "bytes": "integer",
    **{f"{what}_{axis}": "integer" for what in ("grid", "block") for axis in "xyz"},
    "registers": "integer",
    "shared_bytes": "integer",
}


def files(
    folder: Path, suffix: str = ".cutape", storage_options: Optional[Mapping[str, Any]] = None
) -> List[str]:
    """The files below a folder whose names end in `suffix`, in the order of their names.

    folder: A path, or a URL that fsspec knows, such as `s3://bucket/traces`.
    storage_options: What fsspec needs for it: credentials, an endpoint.
    """
    url = os.fspath(folder)
    path = _path(url)
    if path is None:
        system, root = _system(url, storage_options)
        found = [system.unstrip_protocol(name) for name in system.find(root)]
    else:
        walk = os.walk(path, onerror=_raise)
        found = [os.path.join(parent, name) for parent, _, names in walk for name in names]
    return sorted(name for name in found if name.endswith(suffix))


@dataclasses.dataclass(frozen=True)
class Question:
    """What is asked about each file, or about each pair of files."""

    inputs: Tuple[str, ...]
    """Names of the columns with files: `file`, or `a` and `b`."""
    columns: Dict[str, str]
    """Columns of the answer with their types, `integer`, `text` or `boolean`: the inputs, what was
    asked, and `error`, which says why there is no answer."""
    ask: Callable[..., Any]
    """The rows about local files: an Arrow table, or a list of dicts."""
    max_bytes: int = 4 << 30
    """Larger files are not fetched from object storage, in bytes."""
    storage_options: Optional[Mapping[str, Any]] = None
    """As of `files`."""

    def schema(self) -> Any:
        """The columns as a schema of pyarrow."""
        pyarrow = _pyarrow()
        kinds = {
            "integer": pyarrow.int64(),
            "number": pyarrow.float64(),
            "boolean": pyarrow.bool_(),
            "text": pyarrow.string(),
        }
        return pyarrow.schema([(name, kinds[kind]) for name, kind in self.columns.items()])

    def batches(self, given: Sequence[str]) -> Iterator[Any]:
        """The rows about one file or pair, as record batches of pyarrow.

        There is none before all of it has been read: of a damaged file there is one row, its error.
        """
        with contextlib.ExitStack() as fetched:
            # The private folder that a file is fetched to, and its folder: messages have the latter.
            names: Dict[str, str] = {}
            try:
                local = [fetched.enter_context(self._fetched(file, names)) for file in given]
                rows = self._rows(self.ask(*local), given, names)
            # One file in ten thousand must not end the job, whatever is wrong with it: a reader, a
            # storage and a table that is too large for the memory have exceptions of their own.
            except Exception as error:
                why = str(error) or type(error).__name__
                rows = self._rows([{"error": why}], given, names)
        yield from rows.to_batches(max_chunksize=_ROWS)

    def __call__(self, asked: Any) -> Any:
        """The rows about the files in an Arrow table with the columns `inputs`, as a table: for
        `ray.data.Dataset.map_batches`."""
        rows = zip(*(asked[name].to_pylist() for name in self.inputs))
        batches = [batch for given in rows for batch in self.batches(given)]
        return _pyarrow().Table.from_batches(batches, self.schema())

    def _rows(self, found: Any, given: Sequence[str], names: Mapping[str, str]) -> Any:
        """Rows with all columns."""
        pyarrow = _pyarrow()
        schema = self.schema()
        inputs = dict(zip(self.inputs, given))
        if isinstance(found, list):
            found = [{**_renamed(row, names), **inputs} for row in found]
            return pyarrow.Table.from_pylist(found, schema)

        def column(field: Any) -> Any:
            if field.name in found.column_names:
                return found[field.name].cast(field.type)
            return pyarrow.repeat(pyarrow.scalar(inputs.get(field.name), field.type), len(found))

        return pyarrow.Table.from_arrays([column(field) for field in schema], schema=schema)

    @contextlib.contextmanager
    def _fetched(self, url: str, names: Dict[str, str]) -> Iterator[str]:
        """A local path of the file: its own, or that of a private copy, which is removed."""
        path = _path(url)
        if path is not None:
            yield path
            return
        system, remote = _system(url, self.storage_options)
        with tempfile.TemporaryDirectory(prefix="cutape-") as folder:
            parent, _, name = url.rpartition("/")
            names[folder] = parent
            path = os.path.join(folder, name)
            left = self.max_bytes
            with system.open(remote, "rb") as source, open(path, "xb") as copy:
                # The size is known when it has been read: an object may be replaced meanwhile.
                while chunk := source.read(min(_CHUNK, left + 1)):
                    left -= len(chunk)
                    if left < 0:
                        raise ValueError(
                            f"{url}: larger than {self.max_bytes} bytes: not fetched; set max_bytes"
                        )
                    copy.write(chunk)
            yield path


def table(name: str, *, arguments: bool = False, **fetching: Any) -> Question:
    """The rows of a table of `cutape export`. `arguments` is that of `Trace.table`; `fetching` has
    `max_bytes` and `storage_options` of the `Question`."""
    return _question(_schema(name), functools.partial(_table, name, arguments), fetching)


def check(*, all: bool = False, **fetching: Any) -> Question:
    """The rows of the table `findings`: misuse; with `all` also what `cutape check --all` shows."""
    return _question(_schema("findings"), functools.partial(_findings, all), fetching)


def info(**fetching: Any) -> Question:
    """The row of the table `traces` and, as `info`, the JSON object of `cutape info`."""
    return _question({**_schema("traces"), "info": "text"}, _info, fetching)


def diff(**fetching: Any) -> Question:
    """Whether two traces differ, in how much, what differs first and at which calls, and, as `diff`,
    the JSON object of `cutape diff`."""
    return _question(_DIFFERENCES, _diff, fetching, ("a", "b"))


def profile(**fetching: Any) -> Question:
    """The work of devices in files that `cutape profile --format json` wrote."""
    return _question(_WORK, _profile, fetching)


def _question(
    columns: Mapping[str, str],
    ask: Callable[..., Any],
    fetching: Mapping[str, Any],
    inputs: Tuple[str, ...] = ("file",),
) -> Question:
    columns = {**{name: "text" for name in inputs}, **columns, "error": "text"}
    return Question(inputs, columns, ask, **fetching)


def _schema(name: str) -> Dict[str, str]:
    tables = _native.schema()
    if name not in tables:
        raise ValueError(f"{name}: no such table; there are {', '.join(tables)}")
    return {column: kind for column, kind, _ in tables[name]}


def _table(name: str, arguments: bool, path: str) -> Any:
    with _native.open(path) as trace:
        return trace.table(name, arguments=arguments).to_pyarrow()


def _findings(all: bool, path: str) -> Any:
    found = _table("findings", False, path)
    if all:
        return found
    return found.filter(_pyarrow().compute.equal(found["class"].cast("string"), "misuse"))


def _info(path: str) -> List[Dict[str, Any]]:
    (row,) = _table("traces", False, path).to_pylist()
    return [{**row, "info": _compact(_document("info", path))}]


def _diff(a: str, b: str) -> List[Dict[str, Any]]:
    found = _document("diff", a, b)
    row = {"differs": found["differs"], "total": found["total"], "diff": _compact(found)}
    if found["first"] is not None:
        first = found["differences"][found["first"]]
        calls = {f"first_call_{side}": first[side]["index"] for side in "ab" if first[side]}
        row.update(calls, first=first["title"])
    return [row]


def _profile(path: str) -> List[Dict[str, Any]]:
    with open(path, encoding="utf-8") as file:
        try:
            return _work(json.load(file))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            why = f"{type(error).__name__}: {error}"
            raise ValueError(f"{path}: not of `cutape profile --format json`: {why}") from error


def _work(measured: Any) -> List[Dict[str, Any]]:
    """The work of a profile."""
    devices = {device["ordinal"]: device["name"] for device in measured["devices"]}
    rows = []
    for number, run in enumerate(measured["runs"]):
        for work in run["work"]:
            shape = {
                f"{what}_{axis}": size
                for what in ("grid", "block")
                for axis, size in zip("xyz", work.get(what, ()))
            }
            call = measured["calls"].get(str(work.get("call")), {})
            rows.append({
                **{name: work[name] for name in _WORK.keys() & work.keys()},
                **shape,
                "trace": measured["trace"],
                "measured_by": measured["method"]["by"],
                "run": number,
                "device_name": devices.get(work["device"]),
                "stream_name": measured["streams"].get(str(work["stream"])),
                "function": call.get("function"),
            })
    return rows


def _document(verb: str, *traces: str) -> Any:
    """The JSON that a verb prints about traces."""
    return json.loads(_verbs.run([verb, "--format=json", *map(_verbs.operand, traces)]))


def _compact(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _renamed(row: Mapping[str, Any], names: Mapping[str, str]) -> Dict[str, Any]:
    """The row with other names of folders in its texts."""

    def renamed(value: Any) -> Any:
        if isinstance(value, str):
            for name, other in names.items():
                value = value.replace(name, other)
        return value

    return {name: renamed(value) for name, value in row.items()}


def _path(url: str) -> Optional[str]:
    """The path, where a URL is one of this machine's files."""
    if url.startswith("file://"):
        return url[len("file://") :]
    return None if "://" in url else url


def _system(url: str, storage_options: Optional[Mapping[str, Any]]) -> Tuple[Any, str]:
    """fsspec's file system for a URL, and the name in it."""
    import fsspec  # type: ignore[import-untyped]

    system, name = fsspec.url_to_fs(url, **(storage_options or {}))
    return system, name


def _pyarrow() -> Any:
    """Imported where it is needed: the module can be read without it."""
    import pyarrow.compute  # type: ignore[import-untyped]

    return pyarrow


def _raise(error: OSError) -> NoReturn:
    raise error
