"""Blocks of a recorded program."""

import pathlib
import sys

import pytest

import cutape
from conftest import ROOT, run

# A device, memory, and bytes in it.
PREPARED = (ROOT / "xtask/src/dist/train.py").read_text().partition("check(cuda.cuMemcpyDtoH")[0]


def test_a_block_is_a_trace(record_script):
    done, whole = record_script(PREPARED + """
with cutape.range("work"):
    with cutape.record("one.cutape") as one:
        check(cuda.cuMemcpyDtoH_v2(received, memory, size))
    print(one.trace.path)
    with cutape.record("two.cutape"):
        check(cuda.cuMemFree_v2(memory))
cutape.mark("done")
assert cutape.is_recording()
""")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(whole.with_name("one.cutape"))
    functions = [call.function for call in cutape.open(whole)]
    blocks = {
        "one": ["cuMemAlloc_v2", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2"],
        "two": ["cuMemAlloc_v2", "cuMemFree_v2"],
    }
    for name, expected in blocks.items():
        trace = cutape.open(whole.with_name(f"{name}.cutape"))
        own = [call.function for call in trace]
        assert [function for function in own if "Mem" in function] == expected
        assert set(own) <= set(functions) and len(own) < len(functions)
        assert trace.replay(driver="null").agrees
    # A leak in the middle of the program is none in a part that does not end it.
    assert [finding for finding in cutape.check(trace) if finding.severity == "error"] == []
    ranges = cutape.open(whole).table("ranges").to_pyarrow().to_pylist()
    assert [(row["path"], row["mark"]) for row in ranges] == [
        ("work", False),
        ("work/cutape-record-1", False),
        ("work/cutape-record-2", False),
        ("done", True),
    ]


def test_calls_of_all_threads_count(record_script):
    done, whole = record_script(PREPARED + """
import threading

def work(is_over, pause):
    check(cuda.cuCtxSetCurrent(context))
    while not is_over():
        check(cuda.cuMemcpyHtoD_v2(memory, sent, size))
        stop.wait(pause)

# A thread that goes on while blocks are cut out.
stop = threading.Event()
other = threading.Thread(target=work, args=[stop.is_set, 0.0002])
other.start()
for number in range(2):
    with cutape.record(f"block{number}.cutape"):
        rest = iter(range(60))
        thread = threading.Thread(target=work, args=[lambda: next(rest, None) is None, 0])
        thread.start()
        thread.join()
stop.set()
other.join()
""")
    assert done.returncode == 0, done.stderr
    for number in range(2):
        trace = cutape.open(whole.with_name(f"block{number}.cutape"))
        threads = [call.thread for call in trace.calls("cuMemcpyHtoD_v2")]
        assert max(map(threads.count, set(threads))) >= 60
        run("check", "--fail-on", "never", trace.path)
        assert trace.replay(driver="null").agrees


def test_errors_of_a_block(record_script):
    done, whole = record_script("""
import pathlib
def error_of(path, body=lambda: None, **options):
    try:
        with cutape.record(path, **options):
            body()
    except (cutape.Error, OSError, ValueError) as error:
        print(type(error).__name__, error)
error_of("early.cutape")
""" + PREPARED + """
error_of("empty.cutape")
pathlib.Path("there.cutape").write_text("mine")
error_of("there.cutape")
with cutape.record("replaced.cutape"):
    check(cuda.cuMemcpyHtoD_v2(memory, sent, size))
with cutape.record("replaced.cutape", overwrite=True):
    check(cuda.cuMemcpyDtoH_v2(received, memory, size))
error_of("no/such/folder.cutape")
error_of("x.cutape", state="else")
def failing():
    check(cuda.cuMemFree_v2(memory))
    raise ValueError("of the program")
error_of("failed.cutape", failing)
def failing_without_calls():
    raise ValueError("before any call")
error_of("unwritten.cutape", failing_without_calls)
""")
    assert done.returncode == 0, done.stderr
    folder = whole.parent
    expected = [
        "Error {0}/early.cutape: not written: the program has not called the driver yet",
        "Error {0}/empty.cutape: not written: no driver call in the block",
        "FileExistsError {0}/there.cutape: exists already; choose another name, or overwrite=True",
        "FileNotFoundError {0}/no/such: no such folder",
        "ValueError state: 'else'; choose one of recorded, replay",
        "ValueError of the program",
        "ValueError before any call",
    ]
    assert done.stdout.splitlines() == [line.format(folder) for line in expected]
    assert "unwritten.cutape: not written: no driver call in the block" in done.stderr
    assert (folder / "there.cutape").read_text() == "mine"
    last = list(cutape.open(folder / "failed.cutape"))[-1]
    assert last.function == "cuMemFree_v2"
    names = sorted(path.name for path in folder.glob("*.cutape*"))
    assert names == ["failed.cutape", "replaced.cutape", "there.cutape", "whole.cutape"]
    last = list(cutape.open(folder / "replaced.cutape"))[-1]
    assert last.function == "cuMemcpyDtoH_v2"


def test_state_of_a_replay(record_script):
    done, whole = record_script(PREPARED + """
for _ in range(50):
    check(cuda.cuMemcpyHtoD_v2(memory, sent, size))
with cutape.record("step.cutape", state="replay", driver="null"):
    check(cuda.cuMemcpyDtoH_v2(received, memory, size))
""")
    assert done.returncode == 0, done.stderr
    trace = cutape.open(whole.with_name("step.cutape"))
    assert [call.function for call in trace.calls("cuMemcpy*")] == ["cuMemcpyDtoH_v2"]
    assert trace.replay(driver="null").agrees


def test_a_forked_process_has_its_own(record_script):
    done, whole = record_script(PREPARED.partition("check(cuda.cuInit")[0] + """
import os
cuda.cuInit(0)
if os.fork() == 0:
    with cutape.record("child.cutape"):
        cuda.cuDriverGetVersion(ctypes.byref(device))
    os._exit(0)
os.wait()
with cutape.record("parent.cutape"):
    cuda.cuDeviceGetCount(ctypes.byref(device))
""")
    assert done.returncode == 0, done.stderr
    for name, last in [("child", "cuDriverGetVersion"), ("parent", "cuDeviceGetCount")]:
        trace = cutape.open(whole.with_name(f"{name}.cutape"))
        assert [call.function for call in trace][-1] == last


def test_payloads_are_read(record_script):
    done, whole = record_script(PREPARED.replace("1024", "100000") + """
check(cuda.cuMemcpyDtoH_v2(received, memory, size))
""")
    assert done.returncode == 0, done.stderr
    expected = b"".join(number.to_bytes(4, "little") for number in range(100000))
    (sent,) = cutape.open(whole).calls("cuMemcpyHtoD*")
    (received,) = cutape.open(whole).calls("cuMemcpyDtoH*")
    for payload in (sent.arguments["srcHost"].pointee, received.outputs["dstHost"]):
        assert isinstance(payload, cutape.Payload) and "400000 bytes" in repr(payload)
        assert len(payload) == payload.size == 400000
        assert payload.read() == bytes(payload) == expected
        if sys.version_info >= (3, 12):
            assert memoryview(payload) == expected
        assert payload.__buffer__(0) == expected
    assert sent.arguments["ByteCount"] == 400000
    table = cutape.open(whole).table("calls", arguments=True).to_pandas()
    assert '"pointee":{"bytes":400000}' in table["arguments"][sent.index]


def test_without_a_recording(record_script):
    script = """
with cutape.range("work"):
    cutape.mark("nothing happens")
assert not cutape.is_recording()
with cutape.record("step.cutape"):
    raise SystemExit("the block must not run")
"""
    done, _ = record_script(script, is_recorded=False)
    line = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert line.startswith("cutape.NotRecording: this program is not being recorded")
    assert "cutape record -- python3" in line and "script.py" in line


def test_names_of_marks():
    for wrong in (cutape.mark, lambda text: cutape.range(text).__enter__()):
        with pytest.raises(ValueError, match="NUL"):
            wrong("a\0b")


def test_importing_is_cheap(record_script):
    script = "import sys\nprint([name for name in sys.modules if name.startswith('cutape')])"
    done, _ = record_script(script, is_recorded=False, before="import cutape\n")
    assert done.stdout == "['cutape']\n", done.stderr
    assert set(cutape.__all__) <= set(dir(cutape))
    hints = pathlib.Path(cutape.__file__).with_suffix(".pyi").read_text()
    everything = {}
    exec("from cutape import *", everything)
    assert {"check", "record"} <= set(everything) and not {"open", "range"} & set(everything)
    for name in [*cutape.__all__, "open", "range"]:
        assert hasattr(cutape, name) and f"{name} as {name}" in hints or f"def {name}(" in hints
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        cutape.opne
