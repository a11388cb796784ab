from ._native import (
    Call as Call,
    Calls as Calls,
    DamagedTrace as DamagedTrace,
    Error as Error,
    NewerVersion as NewerVersion,
    NotATrace as NotATrace,
    Table as Table,
    Thread as Thread,
    Trace as Trace,
    open as open,
    schema as schema,
)
from ._options import check as check, record as record, replay as replay
from ._recording import (
    Block as Block,
    NotRecording as NotRecording,
    is_recording as is_recording,
    mark as mark,
    range as range,
    start as start,
    stop as stop,
)
from ._sql import sql as sql
from ._values import Address as Address, Missing as Missing, Named as Named, Payload as Payload
from ._verbs import (
    CommandError as CommandError,
    Divergence as Divergence,
    Finding as Finding,
    FindingCall as FindingCall,
    Findings as Findings,
    Frame as Frame,
    ObjectHistory as ObjectHistory,
    RecordedProcess as RecordedProcess,
    RelatedCall as RelatedCall,
    ReplayReport as ReplayReport,
)

__all__: list[str]

def program() -> str: ...
