"""The recording of the running program: blocks, `mark`, `range`.

A program that `cutape record` started has cutape's library in place of libcuda. Its functions put
ranges and marks into the trace; a block is cut out of the trace that exists so far.
"""

import contextlib
import ctypes
import itertools
import json
import os
import sys
import threading
import warnings
from types import TracebackType
from typing import Iterator, List, Optional, Type

from ._native import Error, Trace, open as open_trace, recorded_process
from ._verbs import CommandError, Path, run

_recorder: Optional[ctypes.CDLL] = None
_blocks = itertools.count(1)


class NotRecording(Error):
    """The running program is not being recorded."""

    __module__ = "cutape"


def _find_recorder() -> Optional[ctypes.CDLL]:
    """The recorder's library; None if this process has none."""
    global _recorder
    if _recorder is None and os.environ.get("CUTAPE_TRACE"):
        # With the backend gum, libcuda is the driver's own.
        for name in ("libcuda.so.1", None):
            try:
                library = ctypes.CDLL(name)
                for function in ("cutape_mark", "cutape_range_push"):
                    getattr(library, function).argtypes = [ctypes.c_char_p]
                    getattr(library, function).restype = None
                library.cutape_range_pop.restype = None
                for function in ("cutape_start", "cutape_stop"):
                    getattr(library, function).argtypes = []
                    getattr(library, function).restype = ctypes.c_int
            except (OSError, AttributeError):
                continue
            _recorder = library
            break
    return _recorder


def is_recording() -> bool:
    """Whether the running program is being recorded."""
    return _find_recorder() is not None


def _bytes(text: str) -> bytes:
    if "\0" in text:
        raise ValueError(f"a name with a NUL character: {text!r}")
    return text.encode()


def mark(text: str) -> None:
    """Marks this moment in the recording, for `mark:TEXT..` in sets of calls.

    Does nothing in a program that is not being recorded.
    """
    name, recorder = _bytes(text), _find_recorder()
    if recorder is not None:
        recorder.cutape_mark(name)


def start() -> bool:
    """Ends a pause of the recording: all calls are recorded from now on.

    Whether there was one; False too in a program that is not being recorded.
    """
    recorder = _find_recorder()
    return recorder is not None and bool(recorder.cutape_start())


def stop() -> bool:
    """Pauses the recording: calls that only give the device work, wait or ask are left out.

    Whether it was going on and could be paused; False too before the first call of the driver, and
    in a program that is not being recorded.
    """
    recorder = _find_recorder()
    return recorder is not None and bool(recorder.cutape_stop())


@contextlib.contextmanager
def range(name: str) -> Iterator[None]:
    """Names a part of the program in the recording, for `range:NAME` in sets of calls.

    Does nothing in a program that is not being recorded.
    """
    text, recorder = _bytes(name), _find_recorder()
    if recorder is not None:
        recorder.cutape_range_push(text)
    try:
        yield
    finally:
        if recorder is not None:
            recorder.cutape_range_pop()


def _own_trace() -> Optional[str]:
    """The trace that this process has mapped to write it."""
    process = os.getpid()
    paths: List[str] = []
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            # Address, permissions, offset, device, inode, path.
            columns = line.rstrip("\n").split(maxsplit=5)
            if len(columns) == 6 and "w" in columns[1] and columns[5] not in paths:
                paths.append(columns[5])
    for path in paths:
        # A process that forked has its parent's trace mapped, too.
        if path.startswith("/") and recorded_process(path) == process:
            return path
    return None


class Block:
    """A block of the program whose calls get a trace of their own: what `record` returns."""

    __module__ = "cutape"

    path: str
    """The file."""

    def __init__(self, path: Path, options: List[str]) -> None:
        self.path = os.path.abspath(os.fspath(path))
        self._options = options
        self._name = ""
        self._thread = 0

    @property
    def trace(self) -> Trace:
        """The trace of the block, once that has ended."""
        return open_trace(self.path)

    def __enter__(self) -> "Block":
        recorder = _find_recorder()
        if recorder is None:
            words = " ".join(["python3", *filter(None, sys.argv)])
            raise NotRecording(
                "this program is not being recorded, so no block of it can be; start it with "
                f"`cutape record -- {words}`"
            )
        if os.path.lexists(self.path) and "--overwrite" not in self._options:
            raise FileExistsError(f"{self.path}: exists already; choose another name, or overwrite=True")
        folder = os.path.dirname(self.path)
        if not os.path.isdir(folder):
            raise FileNotFoundError(f"{folder}: no such folder")
        self._name = f"cutape-record-{next(_blocks)}"
        self._thread = threading.get_ident()
        recorder.cutape_range_push(self._name.encode())
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        recorder = _find_recorder()
        if recorder is None or self._thread != threading.get_ident():
            raise Error("a block must end in the thread that began it")
        recorder.cutape_range_pop()
        try:
            self._cut()
        except Error as failure:
            if error is None:
                raise
            # The program's own error says more.
            warnings.warn(f"{self.path}: not written: {failure}", stacklevel=2)

    def _cut(self) -> None:
        whole = _own_trace()
        if whole is None:
            raise Error(f"{self.path}: not written: the program has not called the driver yet")
        choice = f"range:{self._name}"
        try:
            run(["trim", whole, "--calls", choice, "-o", self.path, *self._options])
        except CommandError:
            if self._has_calls(whole):
                raise
            raise Error(f"{self.path}: not written: no driver call in the block") from None

    def _has_calls(self, whole: str) -> bool:
        ranges = json.loads(run(["info", "--format", "json", whole]))["ranges"]
        # A range is named with those around it.
        own = [row for row in ranges if row["range"].split("/")[-1] == self._name]
        return any(row["calls"] for row in own)
