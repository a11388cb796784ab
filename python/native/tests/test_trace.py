"""Traces and their calls agree with what the program `cutape` says."""

import collections
import json
import os
import pickle
import struct

import pytest

import cutape
from conftest import CORPUS, run, run_json


def dump(path):
    return map(json.loads, run("dump", "--format", "json", path).splitlines())


def test_corpus_is_there():
    assert len(CORPUS) > 20


def test_calls_are_those_of_info(path):
    info = run_json("info", "--format", "json", path)
    functions = collections.Counter()
    failed = launches = in_flight = 0
    for index, call in enumerate(cutape.open(path)):
        assert call.index == index
        functions[call.function] += 1
        failed += call.failed
        launches += len(call.kernels)
        in_flight += call.leave_ns is None
        assert list(call.arguments) and repr(call) or not call.arguments
        assert isinstance(call.outputs, dict)
        if call.result is not None and call.section is not None:
            assert call.failed == (call.result != 0)
    calls = info["calls"]
    assert sum(functions.values()) == calls["total"]
    assert (failed, in_flight) == (calls["failed"], calls["in_flight"])
    assert launches == info["launches"]


def test_facts(corpus):
    trace = cutape.open(corpus["threads"])
    info = run_json("info", "--format", "json", corpus["threads"])
    assert trace.path == str(corpus["threads"]) == os.fspath(trace)
    assert trace.process == info["program"]["process"]
    assert trace.program.startswith("/") and trace.arguments
    assert trace.exit_status == 0 and trace.exit_signal is None and trace.rank is None
    assert not trace.still_recording and trace.ended_early is None
    assert trace.driver_version >= 12000 and trace.devices
    assert [thread.ordinal for thread in trace.threads] == list(range(len(trace.threads)))
    assert len(trace.threads) > 1 and all(thread.number > 0 for thread in trace.threads)
    assert trace.meta["program"] == trace.program
    assert trace.started_unix_ns > 1_600_000_000 * 10**9
    assert "threads.cutape" in repr(trace)


def test_arguments(corpus):
    calls = {call.function: call for call in cutape.open(corpus["module_fatbin"])}
    get = calls["cuModuleGetFunction"]
    assert get.arguments["hmod"].label.startswith("module#")
    assert get.arguments["name"].pointee
    assert isinstance(get.arguments["name"].pointee, str)
    assert get.outputs["hfunc"].label.startswith("function#")
    assert get.result == 0 and get.result.name == "CUDA_SUCCESS"
    assert get.duration_ns == get.leave_ns - get.enter_ns
    for function, call in calls.items():
        if function.startswith("cuLaunchKernel"):
            (kernel,) = call.kernels
            assert isinstance(kernel, str)
            assert call.arguments["gridDimX"] > 0
            assert call.arguments["kernelParams"].pieces["kernel_parameters"]


def test_values_survive_a_pickle():
    for value in (cutape.Named(3, "THREE"), cutape.Address(5, "module#1", [1], {"a": b"x"})):
        copy = pickle.loads(pickle.dumps(value))
        assert (copy, repr(copy), vars(copy)) == (value, repr(value), vars(value))


def test_calls_are_chosen(corpus):
    trace = cutape.open(corpus["graph"])
    everything = list(trace)
    chosen = [call.index for call in trace.calls("cuMem*")]
    assert chosen == [call.index for call in everything if call.function.startswith("cuMem")]
    assert chosen
    assert [call.index for call in trace.calls(start=3, stop=6)] == [3, 4, 5]
    assert [call.index for call in trace.calls("cuGraph*", stop=0)] == []
    assert len(list(trace.calls(start=len(everything)))) == 0


def test_unknown_names_are_refused(corpus):
    trace = cutape.open(corpus["graph"])
    for pattern, words in [
        ("cuNoSuch*", "cuNoSuch*: no function"),
        ("kernel:saxpy", "kernel:saxpy: no function"),
        ("cuLaunchKernle", "did you mean `cuLaunchKernel`"),
    ]:
        with pytest.raises(ValueError) as raised:
            trace.calls(pattern)
        assert words in str(raised.value)
    # By the exported name, or the manual's.
    assert [call.index for call in trace.calls("cuMemAlloc")] == [
        call.index for call in trace.calls("cuMemAlloc_v2")
    ]
    # Known, but never called.
    assert list(trace.calls("cuTexObjectCreate")) == []


def test_a_trace_is_a_sequence(path):
    trace = cutape.open(path)
    calls = [call.index for call in trace]
    count = len(trace)
    assert calls == list(range(count))
    for place in (0, count // 2, count - 1, -1, -count):
        assert trace[place].index == calls[place]
        assert repr(trace[place]) == repr(next(trace.calls(start=calls[place])))
    for chosen in (slice(2, 5), slice(-3, None), slice(None, None, 7), slice(9, 1, -3), slice(4, 4)):
        assert [call.index for call in trace[chosen]] == calls[chosen]
    for place in (count, -count - 1, 2**63 - 1):
        with pytest.raises(IndexError, match=f"the trace has {count} calls"):
            trace[place]
    with pytest.raises(TypeError):
        trace["cuInit"]


def test_a_trace_is_closed(corpus):
    with cutape.open(corpus["graph"]) as trace:
        first = trace[0]
        calls = iter(trace)
    assert first.function == next(calls).function
    assert trace.path == str(corpus["graph"]) and trace.process > 0
    for use in (lambda: next(iter(trace)), lambda: trace[0], lambda: trace.table("calls")):
        with pytest.raises(ValueError, match="graph.cutape: the trace is closed"):
            use()
    trace.close()


def test_calls_are_decoded_as_dump_does(path):
    """Strings, names of kernels and their parameters."""
    lines = {line["call"]: line for line in dump(path) if "call" in line}
    for call in cutape.open(path):
        launch = lines[call.index]["launch"]
        if launch is None or launch["parameter_buffer"] is not None:
            assert call.kernel_parameters is None
        else:
            parameters = launch["parameters"]
            values = [one["value"] for one in parameters]
            values = [int(value, 16) if isinstance(value, str) else value for value in values]
            # Bytes of structs are objects in JSON.
            own = call.kernel_parameters or []
            own = [value if isinstance(value, (int, float)) else None for value in own]
            assert own == [None if isinstance(value, dict) else value for value in values]
            labels = [getattr(one, "label", None) for one in call.kernel_parameters or []]
            assert labels == [one.get("label") for one in parameters]
        if launch is not None and launch["kernel"] and call.function == "cuLaunchKernel":
            # `void a::(anonymous namespace)::f<int>(int)` is shown without what it returns and takes.
            name = call.kernels[0].removeprefix("void ")
            name = name if "::" in name else name.split("(")[0] + '"'
            assert name[:24] in repr(call)
        if call.function == "cuModuleGetFunction":
            assert f'name="{call.arguments["name"].pointee}"' in repr(call)


def test_parameters_of_kernels(corpus):
    (launch,) = cutape.open(corpus["module_fatbin"]).calls("cuLaunchKernel", stop=9)
    (parameter,) = launch.kernel_parameters
    assert parameter.label == "memory#1" and parameter > 2**32
    assert f'kernelParams=({parameter:#x} memory#1)' in repr(launch)
    assert 'function#1 "mark"' in repr(launch)


def test_iteration_may_stop(corpus):
    trace = cutape.open(corpus["threads"])
    for _ in range(50):
        assert next(iter(trace)).index == 0
    calls = trace.calls(stop=2)
    assert [next(calls).index, next(calls).index] == [0, 1]
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(calls)


def test_unusable_files(tmp_path, corpus):
    good = corpus["graph"].read_bytes()
    newer = bytearray(good)
    # The version is behind the magic number.
    newer[8:12] = struct.pack("<I", 99)
    for name, content, kind, words in [
        ("empty", b"", cutape.NotATrace, "not a cutape trace"),
        ("other", b"x" * 5000, cutape.NotATrace, "not a cutape trace"),
        ("newer", bytes(newer), cutape.NewerVersion, "use a later cutape"),
        ("cut", good[: len(good) * 2 // 3], cutape.DamagedTrace, "damaged at byte"),
    ]:
        path = tmp_path / f"{name}.cutape"
        path.write_bytes(content)
        with pytest.raises(kind, match=words) as raised:
            list(cutape.open(path))
        assert str(path) in str(raised.value) and isinstance(raised.value, cutape.Error)
    with pytest.raises(FileNotFoundError) as raised:
        cutape.open(tmp_path / "missing")
    assert raised.value.filename == str(tmp_path / "missing")
    with pytest.raises(cutape.NotATrace, match="not a regular file"):
        cutape.open(tmp_path)


def test_changed_bytes_are_errors(tmp_path, corpus):
    """Never a panic, whatever is changed; what is read of it is not wrong."""
    good = corpus["copies_2d3d"].read_bytes()
    path = tmp_path / "changed.cutape"
    whole = [repr(call) for call in cutape.open(corpus["copies_2d3d"])]
    outcomes = collections.Counter()
    for position in range(0, len(good), 97):
        changed = bytearray(good)
        changed[position] ^= 0x41
        path.write_bytes(changed)
        try:
            trace = cutape.open(path)
            calls = [repr(call) for call in trace]
            trace.tables("calls", "objects", "findings", arguments=True)
        except (cutape.Error, OSError) as error:
            outcomes[type(error).__name__] += 1
            continue
        outcomes["read"] += 1
        assert len(calls) <= len(whole)
    assert outcomes["DamagedTrace"] > 10, outcomes
