"""Values of arguments that are more than a number."""

from typing import Any, Dict, NamedTuple, Optional


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


class Missing(NamedTuple):
    """Bytes that the trace does not have."""

    reason: str
    """Why, e.g. `not kept`: see `cutape record --payloads`."""
    size: Optional[int]
    """How many bytes there were, if that is known."""
    hash: Optional[str]
    """The first 16 bytes of their blake3 hash in hexadecimal, if the trace has it."""
