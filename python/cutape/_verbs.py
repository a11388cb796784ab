"""The program `cutape` in a process of its own: options as its words, its JSON as objects."""

import dataclasses
import json
import os
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Literal,
    Mapping,
    Optional,
    Sequence,
    Type,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from . import _program
from ._native import Error

Path = Union[str, os.PathLike[str]]
T = TypeVar("T")

# The program's exit statuses.
_CLEAN, _FOUND = 0, 1
# Parameters of functions that are no options.
_OPERANDS = ("trace", "path")


class CommandError(Error):
    """The program `cutape` refused, or failed."""

    __module__ = "cutape"

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message, status)
        self.message = message
        self.status = status
        """Its exit status: 2 for unusable input or an unusable machine, 3 for a bug in cutape."""

    def __str__(self) -> str:
        return self.message


def run(words: Sequence[Path]) -> str:
    """Runs `cutape` with these words and returns what it printed."""
    done = _program.run(*(os.fspath(word) for word in words))
    if done.returncode in (_CLEAN, _FOUND):
        return str(done.stdout)
    message = str(done.stderr).strip()
    if message.startswith("cutape: "):
        message = message[len("cutape: ") :]
    raise CommandError(message or f"cutape ended with status {done.returncode}", done.returncode)


def words(function: Callable[..., Any], keywords: Mapping[str, Any]) -> List[str]:
    """The options of `cutape` for the keywords that a function was called with."""
    found = []
    hints = get_type_hints(function)
    for name, value in keywords.items():
        if name in _OPERANDS:
            continue
        choices = _choices(hints[name])
        option = "--" + name.replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is None or one is False:
                continue
            if one is True:
                found.append(option)
            elif choices and one not in choices:
                raise ValueError(f"{name}: {one!r}; choose one of {', '.join(choices)}")
            else:
                text = os.fsdecode(one) if isinstance(one, os.PathLike) else one
                found.append(f"{option}={text}")
    return found


def _choices(hint: Any) -> List[str]:
    """The texts that a type consists of."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [choice for part in get_args(hint) for choice in _choices(part)]


def _of(kind: Type[T], members: Mapping[str, Any]) -> T:
    """The object with these members; later versions of cutape may add others."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: members[name] for name in names if name in members})


@dataclasses.dataclass(frozen=True)
class Frame:
    """A frame of a call stack."""

    function: str
    """Demangled; of Python the qualified name; empty if unknown."""
    file: str
    """Path of the source; empty if unknown."""
    line: int
    """From 1; 0 if unknown."""
    module: str
    """Path of the executable or library; empty for Python."""
    address: int
    """The return address; 0 for Python."""
    is_python: bool
    is_inlined: bool
    is_own: bool
    """Of the program itself, not of a library."""
    missing: str
    """Why there is no line; empty if there is one."""


@dataclasses.dataclass(frozen=True)
class RecordedProcess:
    """A process of a recording, where a folder of traces is checked."""

    trace: str
    """The name of its trace's file."""
    rank: Optional[int]
    """Its number in a parallel program, if no other process has it."""


@dataclasses.dataclass(frozen=True)
class FindingCall:
    """The call that a finding is about."""

    process: Optional[RecordedProcess]
    """None where one trace is checked."""

    call: int
    """Call index."""
    function: str
    text: str
    """The call with its arguments."""
    thread: int
    thread_number: int
    caller: str
    place: str
    """Where the program makes the call: `train.py:42 in step`."""
    driver_messages: List[str]
    ranges: List[str]
    """The program's ranges that the call is in, of all threads, in the order of their begin."""
    result: Optional[Dict[str, Any]]
    """`code` and `name` of what it returned; None if it did not return."""
    frames: List[Frame]
    """The call stack, the innermost frame first; empty without `cutape record --stacks`."""


@dataclasses.dataclass(frozen=True)
class RelatedCall(FindingCall):
    """A call that a finding is also about, of another process or an earlier one."""

    what: str
    """What it did: `opened here`."""


@dataclasses.dataclass(frozen=True)
class ObjectHistory:
    """An object that a finding is about, from its creation to its end."""

    process: Optional[RecordedProcess]
    """None where one trace is checked."""

    kind: str
    handle: int
    label: str
    created: str
    destroyed: Optional[str]
    created_call: int
    created_ranges: List[str]
    """The ranges that call is in."""
    destroyed_call: Optional[int]
    parents: List[str]


@dataclasses.dataclass(frozen=True)
class Finding:
    """One misuse of the API, with what explains it. `str` is its first line."""

    rule: str
    """Id of the rule; `cutape explain RULE` describes it."""
    severity: str
    """`error`, `warning` or `advice`."""
    class_: str
    """`misuse`, `probe`, `expected-error` or `teardown`."""
    confidence: str
    """What it rests on: `certain`, `contents` or `assumed`."""
    key: Dict[str, Any]
    """Which mistake of the program it is, by `names` and `lines`: baselines compare it."""
    repeats: int
    """How many more findings with this key were left out."""
    title: str
    text: str
    """As `cutape check` prints it."""
    message: str
    advice: str
    manual: str
    chain: List[str]
    """The causes, the first one first."""
    call: Optional[FindingCall]
    """None for what is missing at the end of the trace."""
    related: List[RelatedCall]
    """In findings about several processes: what the others did."""
    objects: List[ObjectHistory]

    def __str__(self) -> str:
        where = ""
        if self.call is not None:
            process = self.call.process
            rank = "" if process is None or process.rank is None else f"rank {process.rank} "
            where = f" ({rank}call {self.call.call} {self.call.function})"
        return f"{self.severity}[{self.rule}]: {self.title}{where}"


class Findings(List[Finding]):
    """The findings of a trace, in the order of their calls."""

    def __init__(
        self,
        findings: Iterable[Finding],
        omitted: Dict[str, Any],
        still_recording: bool = False,
        ended_early: Optional[str] = None,
    ) -> None:
        super().__init__(findings)
        self.omitted = omitted
        """How many findings are not in the list, by reason: hidden, suppressed, known and so on."""
        self.still_recording = still_recording
        """Whether the program was still running when the trace was read."""
        self.ended_early = ended_early
        """Why the recording ended early, so that calls are missing, or None."""


def _process(members: Mapping[str, Any]) -> Optional[RecordedProcess]:
    process = members["process"]
    return None if process is None else _of(RecordedProcess, process)


def _call(members: Mapping[str, Any]) -> Dict[str, Any]:
    frames = [_of(Frame, frame) for frame in members["frames"]]
    return {**members, "frames": frames, "process": _process(members)}


def _finding(members: Mapping[str, Any]) -> Finding:
    call = members["call"]
    own = {
        **members,
        # `class` is a word of Python.
        "class_": members["class"],
        "call": None if call is None else _of(FindingCall, _call(call)),
        "related": [_of(RelatedCall, _call(call)) for call in members["related"]],
        "objects": [
            _of(ObjectHistory, {**history, "process": _process(history)})
            for history in members["objects"]
        ],
    }
    return _of(Finding, own)


def findings_of(trace: Path, options: List[str]) -> Findings:
    """What `cutape check` finds with these options."""
    verb = ["check", "--format=json", "--fail-on=never"]
    found = json.loads(run([*verb, *options, operand(trace)]))
    return Findings(
        map(_finding, found["findings"]),
        found["omitted"],
        found.get("still_recording", False),
        found.get("ended_early"),
    )


def operand(path: Path) -> str:
    """The path in a form that is no option."""
    path = os.fspath(path)
    return os.path.join(os.curdir, path) if path.startswith("-") else path


@dataclasses.dataclass(frozen=True)
class Divergence:
    """A call whose replay differs from the recording."""

    call: int
    """Call index."""
    function: str
    what: Any
    """What differs."""
    parameter: Optional[str]
    expected: str
    """What the recording has."""
    received: str
    """What the replay got."""
    verdict: str
    """`not-reproduced`, `nondeterministic`, `uninitialised-read`, ...: see the guide."""
    history: List[str]
    """Where the objects of the call come from."""

    def __str__(self) -> str:
        return (
            f"call {self.call} {self.function}: {self.what}: expected {self.expected}, "
            f"received {self.received}"
        )


class ReplayReport:
    """The report of a replay. `report["skipped"]` is a member of its JSON form."""

    def __init__(self, data: Dict[str, Any]) -> None:
        self.data = data
        """The whole report, as `cutape replay --report` writes it."""
        self.divergences = [_of(Divergence, divergence) for divergence in data["divergences"]]

    @property
    def calls(self) -> int:
        """Calls of the trace."""
        return int(self.data["calls"])

    @property
    def calls_replayed(self) -> int:
        return int(self.data["calls_replayed"])

    @property
    def divergence_count(self) -> int:
        """All divergences; the list has the first of them."""
        return int(self.data["divergence_count"])

    @property
    def skipped(self) -> List[Dict[str, Any]]:
        """What was not re-issued: function, count, first call, reason."""
        return list(self.data["skipped"])

    @property
    def died(self) -> Optional[Dict[str, Any]]:
        """In which call the replay died, and of what; None if it did not."""
        died: Optional[Dict[str, Any]] = self.data["died"]
        return died

    @property
    def still_recording(self) -> bool:
        """Whether the program was still running when the trace was read."""
        return bool(self.data.get("still_recording", False))

    @property
    def ended_early(self) -> Optional[str]:
        """Why the recording ended early, so that calls are missing, or None."""
        why: Optional[str] = self.data.get("ended_early")
        return why

    @property
    def agrees(self) -> bool:
        """Whether the replay got to the end, without a divergence or data that is missing."""
        return self.divergence_count == 0 and self.died is None and not self.data["consequences"]

    def __getitem__(self, member: str) -> Any:
        return self.data[member]

    def __repr__(self) -> str:
        return (
            f"<cutape.ReplayReport {self.calls_replayed} of {self.calls} calls replayed, "
            f"{self.divergence_count} divergences>"
        )


def report_of(trace: Path, options: List[str]) -> ReplayReport:
    """What `cutape replay` reports with these options."""
    return ReplayReport(json.loads(run(["replay", "--format=json", *options, operand(trace)])))
