"""Values of arguments that are more than a number."""

from typing import TYPE_CHECKING, Any, Dict, NamedTuple, Optional

if TYPE_CHECKING:
    from ._native import Blob


class Named(int):
    """A number with the name that it has in an enum, or the names of its flags."""

    name: str

    def __new__(cls, value: int, name: str) -> "Named":
        self = super().__new__(cls, value)
        self.name = name
        return self

    def __reduce__(self) -> Any:
        return Named, (int(self), self.name)

    def __repr__(self) -> str:
        return f"{self.name} ({int(self)})"

    __str__ = __repr__


class Address(int):
    """A pointer or handle: a number with what the trace knows of it."""

    label: Optional[str]
    """The object, e.g. `module#2`, or a place in memory, e.g. `memory#7+0x100`."""
    pointee: Any
    """What it pointed at before the call; None if the trace does not have it."""
    pieces: Dict[str, Any]
    """Further parts behind the pointer by name, e.g. `kernel_parameters`."""

    def __new__(
        cls,
        value: int,
        label: Optional[str] = None,
        pointee: Any = None,
        pieces: Optional[Dict[str, Any]] = None,
    ) -> "Address":
        self = super().__new__(cls, value)
        self.label = label
        self.pointee = pointee
        self.pieces = {} if pieces is None else pieces
        return self

    def __reduce__(self) -> Any:
        return Address, (int(self), self.label, self.pointee, self.pieces)

    def __repr__(self) -> str:
        return hex(self) if self.label is None else f"{hex(self)} ({self.label})"

    __str__ = __repr__


class Payload:
    """Bytes behind a pointer that the trace stores outside the record of the call: an image, or
    what a copy read or wrote.

    From Python 3.12 on it has the buffer protocol, for `memoryview`, `numpy.frombuffer` and others.
    """

    size: int
    """How many bytes there are."""

    def __init__(self, blob: "Blob") -> None:
        self._blob = blob
        self.size = blob.size

    def read(self) -> bytes:
        """Reads the bytes from the trace."""
        return self._blob.read()

    __bytes__ = read

    def __buffer__(self, flags: int) -> memoryview:
        return memoryview(self.read())

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"<cutape.Payload of {self.size} bytes>"


class Missing(NamedTuple):
    """Bytes that the trace does not have."""

    reason: str
    """Why, e.g. `not kept`: see `cutape record --payloads`."""
    size: Optional[int]
    """How many bytes there were, if that is known."""
    hash: Optional[str]
    """The first 16 bytes of their blake3 hash in hexadecimal, if the trace has it."""
