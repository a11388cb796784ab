"""cutape records, replays and checks the CUDA driver calls of a program.

`open` reads a trace: its calls, and tables for pyarrow, polars, pandas and DuckDB. `check` finds
misuse, `replay` re-issues the calls, `record` cuts a block of the running program out of its
recording.
"""

# The command `cutape` starts here too, so importing this package must stay cheap: everything else
# is imported when it is used.
import importlib
import os

_MODULES = {
    "_native": (
        "Call Calls DamagedTrace Error NewerVersion NotATrace Table Thread Trace open schema"
    ),
    "_options": "check record replay",
    "_recording": "Block NotRecording is_recording mark range start stop",
    "_sql": "sql",
    "_values": "Address Missing Named Payload",
    "_verbs": (
        "CommandError Divergence Finding FindingCall Findings Frame ObjectHistory RecordedProcess"
        " RelatedCall ReplayReport"
    ),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

# Not those that `from cutape import *` would put in place of Python's own.
__all__ = ["program", *sorted(_HOMES.keys() - {"open", "range"})]


def program() -> str:
    """The path of the program `cutape`; its libraries are beside it."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "cutape")
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path}: no such file; install cutape from its wheel")
    return path


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> "list[str]":
    return sorted({*globals(), *__all__, *_HOMES})
