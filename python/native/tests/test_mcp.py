"""`cutape mcp`, with the Python package of the Model Context Protocol as the client."""

import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

import cutape
from conftest import ROOT, run, run_json

anyio = pytest.importorskip("anyio", reason="the package mcp is not installed")
mcp = pytest.importorskip("mcp", reason="the package mcp is not installed")

READ_ONLY = ["traces", "info", "check", "dump", "sql", "diff"]
REPLAYING = ["inspect", "why", "first", "profile"]


@pytest.fixture
def folder(tmp_path, corpus):
    """Traces, a damaged one, and links that lead out."""
    folder = tmp_path / "traces"
    (folder / "ranks").mkdir(parents=True)
    (folder / "out").mkdir()
    shutil.copy(corpus["graph"], folder / "graph.cutape")
    shutil.copy(corpus["link-cubin-after-destroy"], folder / "misuse.cutape")
    for name in ("events", "threads"):
        shutil.copy(corpus[name], folder / "ranks" / f"{name}.cutape")
    whole = corpus["events"].read_bytes()
    (folder / "damaged.cutape").write_bytes(whole[: len(whole) // 2])
    outside = tmp_path / "outside.cutape"
    shutil.copy(corpus["events"], outside)
    (folder / "link.cutape").symlink_to(outside)
    (folder / "out/link.cutape").symlink_to(outside)
    return folder


def parameters(*words):
    # DuckDB's package is in the Python that runs the tests.
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    return mcp.StdioServerParameters(
        command=cutape.program(), args=["mcp", *map(str, words)], env=environment)


def session(*words):
    """Has the test talk with a server that is started with these words."""

    def decorate(test):
        # pytest passes what the test takes but the client.
        @functools.wraps(test)
        def wrapper(folder, tmp_path):
            async def talk():
                own = [word.format(folder=folder) for word in words]
                async with mcp.Client(parameters(*own)) as client:
                    with anyio.fail_after(60):
                        await test(client, folder, tmp_path)

            anyio.run(talk)

        del wrapper.__wrapped__
        return wrapper

    return decorate


async def ask(client, tool, **arguments):
    """The answer of a tool: its structured content, which the text repeats."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


async def refused(client, tool, **arguments):
    """Why a tool has no answer."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    return result.content[0].text


@session("{folder}")
async def test_a_client_learns_what_there_is(client, folder, _):
    assert client.server_info.name == "cutape"
    assert str(folder) in client.instructions and "--allow-replay" in client.instructions
    tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == READ_ONLY
    for tool in tools:
        assert tool.description and tool.annotations.read_only_hint
        assert tool.input_schema["additionalProperties"] is False
        for member in tool.input_schema["properties"].values():
            assert member.get("description") or member["items"]["description"]
    dump = next(tool for tool in tools if tool.name == "dump")
    assert dump.input_schema["required"] == ["trace"]
    assert "kernel:saxpy*" in dump.input_schema["properties"]["calls"]["description"]
    listed = await ask(client, "traces")
    names = [trace["trace"] for trace in listed["traces"]]
    assert names == ["damaged.cutape", "graph.cutape", "misuse.cutape", "ranks/events.cutape",
                     "ranks/threads.cutape"]
    assert [one["trace"] for one in (await ask(client, "traces", name="graph"))["traces"]] == names[1:2]


@session("{folder}")
async def test_answers_are_those_of_the_verbs(client, folder, _):
    graph, misuse = folder / "graph.cutape", folder / "misuse.cutape"
    assert await ask(client, "info", trace="graph.cutape") == run_json("info", "--format=json", graph)
    assert await ask(client, "info", trace="ranks") == run_json("info", "--format=json", folder / "ranks")
    found = await ask(client, "check", trace="misuse.cutape", rules="link-*")
    expected = run_json("check", "--format=json", "--rules=link-*", misuse)
    assert found == expected and found["findings"][0]["rule"] == "link-cubin-after-destroy"
    found = await ask(client, "diff", a="graph.cutape", b="misuse.cutape", ignore=["data", "code"])
    expected = run_json("diff", "--format=json", "--ignore=data,code", graph, misuse)
    assert found == expected and found["differs"]
    query = "SELECT trace, count(*) AS calls FROM calls GROUP BY ALL ORDER BY ALL"
    rows = (await ask(client, "sql", traces=["graph.cutape", "ranks"], query=query))["rows"]
    assert [row["trace"] for row in rows] == ["events", "graph", "threads"]
    error = await refused(client, "sql", traces=["graph.cutape"], query="FROM '/etc/passwd'")
    assert "LINE 1" in error
    tables = await ask(client, "sql", traces=["graph.cutape"], most=1000)
    assert {row["table"] for row in tables["rows"]} >= set(cutape.schema())


@session("{folder}")
async def test_dump_goes_on_where_it_has_ended(client, folder, _):
    lines = run("dump", "--format=json", "--calls=cu*", folder / "graph.cutape").splitlines()
    expected = [line for line in map(json.loads, lines) if "call" in line]
    found, calls = [], "cu*"
    while calls:
        answer = await ask(client, "dump", trace="graph.cutape", calls=calls, most=20)
        assert len(answer["calls"]) <= 20 and answer["more"] == bool(answer["next"])
        found += [line for line in answer["calls"] if "call" in line]
        calls = answer["next"]
    assert found == expected and len(found) > 40
    stacks = await ask(client, "dump", trace="graph.cutape", calls="3", stacks=True)
    assert [call["call"] for call in stacks["calls"]] == [3]


@session("{folder}", "--most-bytes", "3000")
async def test_answers_are_bounded(client, folder, _):
    answer = await ask(client, "info", trace="graph.cutape")
    assert len(json.dumps(answer)) < 4000
    assert answer["cutape"]["left_out"] and "sql" in answer["cutape"]["hint"]
    answer = await ask(client, "dump", trace="graph.cutape", most=1000)
    assert len(json.dumps(answer["calls"])) < 4000 and answer["more"]


@session("{folder}")
async def test_wrong_arguments_are_explained(client, folder, tmp_path):
    for tool, arguments, words in [
        ("info", {}, "trace: missing"),
        ("info", {"trace": 5}, "expected the name of a trace"),
        ("info", {"trace": "grahp.cutape"}, "the tool `traces` lists them"),
        ("info", {"trace": "graph.cutape", "output": "x"}, "output: no such argument"),
        ("check", {"trace": "graph.cutape", "rules": "no-such"}, "no-such"),
        ("check", {"trace": "graph.cutape", "all": 1}, "expected true or false"),
        ("dump", {"trace": "graph.cutape", "calls": "100000.."}, "100000"),
        ("dump", {"trace": "graph.cutape", "most": 0}, "expected a number from 1"),
        ("diff", {"a": "graph.cutape"}, "b: missing"),
        ("diff", {"a": "graph.cutape", "b": "ranks"}, "a folder; name a trace"),
        # What is no option stays none.
        ("dump", {"trace": "--help"}, "no trace of this name"),
        ("sql", {"traces": ["graph.cutape"], "query": "--files\nSELECT"}, ""),
        ("info", {"trace": "damaged.cutape"}, "cutape repair"),
        ("check", {"trace": "damaged.cutape"}, "damaged"),
        ("sql", {"traces": ["damaged.cutape"]}, "damaged"),
        ("dump", {"trace": "damaged.cutape"}, "damaged"),
        ("why", {"trace": "graph.cutape", "bytes": "memory#1"}, "--allow-replay"),
        ("profile", {"trace": "graph.cutape"}, "--allow-replay"),
        *[("info", {"trace": name}, "no trace of this name") for name in (
            "../outside.cutape", "link.cutape", "out/link.cutape", "ranks/../../outside.cutape",
            str(tmp_path / "outside.cutape"), "/etc/passwd", "", "a\0b")
            if name],
        ("info", {"trace": "out"}, "leads out"),
        ("check", {"trace": "out"}, "leads out"),
        ("sql", {"traces": ["out"]}, "leads out"),
    ]:
        assert words in await refused(client, tool, **arguments), (tool, arguments)
    with pytest.raises(mcp.MCPError, match="no such tool"):
        await client.call_tool("record", {})
    # It goes on.
    assert (await ask(client, "info", trace="graph.cutape"))["calls"]["total"] > 0


SCRIPT = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer, host = ctypes.c_void_p(), ctypes.c_uint64(), (ctypes.c_float * 4)()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(16)) == 0
assert cuda.cuMemsetD32_v2(pointer, 0x3f800000, ctypes.c_size_t(4)) == 0
assert cuda.cuMemcpyDtoH_v2(host, pointer, ctypes.c_size_t(16)) == 0
"""


@pytest.fixture
def recorded(folder, record_script):
    """A trace of the null driver, on which replays run here."""
    done, path = record_script(SCRIPT, before="")
    assert done.returncode == 0, done.stderr
    shutil.copy(path, folder / "null.cutape")


@pytest.mark.usefixtures("recorded")
@session("{folder}", "--allow-replay", "--driver", "null")
async def test_replays_where_they_are_allowed(client, folder, tmp_path):
    tools = [tool.name for tool in (await client.list_tools()).tools]
    assert sorted(tools) == sorted(READ_ONLY + REPLAYING)
    assert (await ask(client, "profile", trace="null.cutape"))["summary"]
    found = await ask(client, "inspect", trace="null.cutape", bytes="memory#1", type="f32")
    expected = run_json("inspect", "--driver=null", "--report=-", "--type=f32",
                        folder / "null.cutape", "memory#1")
    assert found == expected and "1.0" in json.dumps(found)
    found = await ask(client, "why", trace="null.cutape", bytes="memory#1", type="f32")
    assert "cuMemsetD32" in json.dumps(found)
    found = await ask(client, "first", trace="null.cutape", above=0.5, type="f32")
    assert len(found["findings"]) == 1
    assert (await ask(client, "first", trace="null.cutape", nan=True))["findings"] == []
    for option in ("--driver=/x.so", "--no-sandbox", "--report=/tmp/x"):
        assert option in await refused(client, "why", trace="null.cutape", bytes=option)
    assert "not a number" in await refused(client, "first", trace="null.cutape", above="much")
    error = await refused(client, "why", trace="graph.cutape", bytes="memory#1")
    assert "does not fit" in error


def processes(mark):
    """The processes with that text in their environment."""
    found = set()
    for file in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in file.read_bytes():
                found.add(int(file.parent.name))
        except OSError:
            continue
    return found - {os.getpid()}


class Raw:
    """A client of which the test decides each line."""

    def __init__(self, *words, **options):
        self.process = subprocess.Popen(
            [cutape.program(), "mcp", *map(str, words)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **options)
        self.send(id=0, method="initialize", params={
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "raw", "version": "1"}})
        assert self.read()["result"]["serverInfo"]["name"] == "cutape"
        self.send(method="notifications/initialized")

    def write(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def send(self, **members):
        self.write(json.dumps({"jsonrpc": "2.0", **members}))

    def call(self, number, tool, **arguments):
        self.send(id=number, method="tools/call", params={"name": tool, "arguments": arguments})

    def read(self):
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=10) == 0
        self.process.stdout.close()


def test_a_bad_client_does_not_end_the_server(folder):
    client = Raw(folder)
    for line in ("no JSON", "{", "[]", "null", '{"jsonrpc":"2.0"}', '{"jsonrpc":"2.0","id":1}', "\x00",
                 '{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":5}}', "x" * 100_000):
        client.write(line)
    client.call(7, "info", trace="graph.cutape")
    while (answer := client.read()).get("id") != 7:
        assert "error" in answer
    assert answer["result"]["structuredContent"]["calls"]["total"] > 0
    client.close()


def wait_for(condition):
    limit = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


ENDLESS = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range + b.range = 1"


@pytest.fixture
def engine_path(tmp_path):
    """An environment in which `cutape sql` finds DuckDB, with an own folder for temporary files."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / "bin/python3").chmod(0o755)
    (tmp_path / "temporary").mkdir()
    return {**os.environ, "PATH": f"{tmp_path}/bin", "TMPDIR": str(tmp_path / "temporary")}


@pytest.mark.parametrize("how", ["cancelled", "closed", "killed", "timed-out"])
def test_a_verb_ends_with_its_question(folder, tmp_path, engine_path, how):
    limit = ["--time-limit", "3"] if how == "timed-out" else []
    temporary = tmp_path / "temporary"
    client = Raw(*limit, folder, env=engine_path)
    client.call(1, "sql", traces=["graph.cutape"], query=ENDLESS)
    # The server, the verb, and DuckDB.
    wait_for(lambda: len(processes(str(temporary))) >= 3)
    if how == "cancelled":
        client.send(method="notifications/cancelled", params={"requestId": 1, "reason": "enough"})
    elif how == "timed-out":
        answer = client.read()
        assert answer["id"] == 1 and answer["result"]["isError"]
        assert "--time-limit" in answer["result"]["content"][0]["text"]
    elif how == "closed":
        client.close()
    else:
        client.process.kill()
        client.process.wait()
    wait_for(lambda: processes(str(temporary)) <= {client.process.pid})
    assert list(temporary.iterdir()) == []
    if how in ("cancelled", "timed-out"):
        client.call(2, "info", trace="graph.cutape")
        while (answer := client.read()).get("id") != 2:
            pass
        assert not answer["result"].get("isError")
        client.close()
    elif how == "killed":
        client.process.stdin.close()
        client.process.stdout.close()


def test_folders_are_checked_first(tmp_path):
    done = subprocess.run([cutape.program(), "mcp", tmp_path / "none"], capture_output=True, text=True)
    assert done.returncode == 2 and "none" in done.stderr
    done = subprocess.run([cutape.program(), "mcp", ROOT], stdin=subprocess.DEVNULL, capture_output=True)
    assert done.returncode == 0 and done.stdout == b""
