"""Digests of device memory: recorded, replayed, compared. Prints a table. The exit status is 1 if a
program runs differently, if a digest is not reproduced, or if a replaced kernel is not named.
"""

import collections
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from real import chosen, has
from run import Ended, machine

COLUMNS = [
    "when", "bare s", "record s", "replay s", "same", "launches", "digests", "equal", "differing", "unclear",
    "left out", "skipped", "MiB", "verdicts", "other", "elsewhere",
]
# Programs of the package that call the driver API without the runtime.
OWN = ["clean.launch_vector_add", "clean.streams", "clean.graph_capture", "clean.stream_ordered", "clean.virtual_memory", "clean.threads"]

# fill as the program has it, vector_add one too much.
OTHER_KERNELS = """.version 7.0
.target sm_70
.address_size 64
.visible .entry fill(.param .u64 out, .param .u32 value, .param .u32 n)
{
    .reg .b64 %base, %address;
    .reg .b32 %index, %stride, %threads, %block, %blocks, %start, %count, %result;
    .reg .pred %done;
    mov.u32 %index, %tid.x;
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %blocks, %nctaid.x;
    mad.lo.u32 %index, %block, %threads, %index;
    mul.lo.u32 %stride, %threads, %blocks;
    ld.param.u64 %base, [out];
    cvta.to.global.u64 %base, %base;
    ld.param.u32 %start, [value];
    ld.param.u32 %count, [n];
again:
    setp.ge.u32 %done, %index, %count;
    @%done bra finished;
    mad.wide.u32 %address, %index, 4, %base;
    add.u32 %result, %start, %index;
    st.global.u32 [%address], %result;
    add.u32 %index, %index, %stride;
    bra again;
finished:
    ret;
}
.visible .entry vector_add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
    .reg .b64 %pa, %pb, %pc, %address, %offset;
    .reg .b32 %index, %stride, %threads, %block, %blocks, %count, %x, %y;
    .reg .pred %done;
    mov.u32 %index, %tid.x;
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %blocks, %nctaid.x;
    mad.lo.u32 %index, %block, %threads, %index;
    mul.lo.u32 %stride, %threads, %blocks;
    ld.param.u64 %pa, [a];
    ld.param.u64 %pb, [b];
    ld.param.u64 %pc, [c];
    cvta.to.global.u64 %pa, %pa;
    cvta.to.global.u64 %pb, %pb;
    cvta.to.global.u64 %pc, %pc;
    ld.param.u32 %count, [n];
again:
    setp.ge.u32 %done, %index, %count;
    @%done bra finished;
    mul.wide.u32 %offset, %index, 4;
    add.u64 %address, %pa, %offset;
    ld.global.u32 %x, [%address];
    add.u64 %address, %pb, %offset;
    ld.global.u32 %y, [%address];
    add.u32 %x, %x, %y;
    add.u32 %x, %x, 1;
    add.u64 %address, %pc, %offset;
    st.global.u32 [%address], %x;
    add.u32 %index, %index, %stride;
    bra again;
finished:
    ret;
}
"""

# The kernel of cupy_raw.py with another factor; prints its image in hexadecimal.
OTHER_SCALE = '''
from cupy.cuda import compiler
source = """
__constant__ float factor[2];
extern "C" __global__ void scale(float *values, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] = values[i] * factor[0] + factor[1] * 2;
}
"""
image = compiler.compile_using_nvrtc(source)[0]
print((image.encode() if isinstance(image, str) else image).hex())
'''


# Why a digest does not count where calls of several threads overlap.
OVERLAPPED = "a call of another thread overlapped with theirs"


def record(cutape, run, trace, when):
    return Ended([cutape, "record", f"--digests={when}", "-o", trace, "--", *run])


def replay(cutape, trace, results, *options):
    """One replay: how it ended, its report."""
    file = results / "report.json"
    file.unlink(missing_ok=True)
    ended = Ended([cutape, "replay", "--keep-going", *options, "--report", file, trace])
    return ended, json.loads(file.read_text()) if file.exists() else None


def calls(cutape, trace):
    """The calls of a trace, one at a time: a trace may be long."""
    with subprocess.Popen([cutape, "dump", "--format", "json", trace], stdout=subprocess.PIPE) as dump:
        # Markers have lines of their own.
        yield from (line for line in map(json.loads, dump.stdout) if "function" in line)


def row(name, run, when, cutape, results):
    cells, problems = {"when": when}, []
    # Once beforehand: programs compile and cache at first use.
    Ended(run)
    bare = Ended(run)
    trace = results / f"{name}.{when}.cutape"
    trace.unlink(missing_ok=True)
    recorded = record(cutape, run, trace, when)
    cells["bare s"], cells["record s"] = f"{bare.seconds:.2f}", f"{recorded.seconds:.2f}"
    same = bare.out == recorded.out and bare.status == recorded.status == 0
    cells["same"] = "yes" if same else "NO"
    if not same:
        problems.append(f"bare {bare.status}, recorded {recorded.status}: {recorded.message()[-200:]}")
    if not trace.exists():
        return cells, [*problems, "no trace"], None
    ended, got = replay(cutape, trace, results)
    cells["replay s"] = f"{ended.seconds:.2f}"
    if got is None:
        return cells, [*problems, f"replay: {ended.message()[:300]}"], trace
    digests = got["digests"]
    cells["launches"] = got["launches"]
    cells["digests"], cells["equal"], cells["differing"] = (digests[key] for key in ("recorded", "equal", "differing"))
    cells["unclear"], cells["left out"] = digests["unclear"], digests["not_compared"]
    cells["skipped"] = sum(count for note, count in got["notes"].items() if note.startswith("no digest"))
    cells["MiB"] = digests["bytes"] >> 20
    cells["elsewhere"] = len(got["translated"])
    problems += [f"{note} ({count})" for note, count in got["notes"].items() if "digest" in note and not note.startswith("no digest") and not note.endswith(OVERLAPPED)]
    if got["died"]:
        problems.append(got["died"]["text"])
    if digests["recorded"] == 0 and got["launches"] > 0:
        problems.append("nothing was digested")
    cells["other"] = got["divergence_count"] - sum(found["what"] == "digest" for found in got["divergences"])
    if got["divergence_count"]:
        # What differs between replays is the program's own.
        _, repeated = replay(cutape, trace, results, "--repeat", "4")
        found = (repeated or got)["divergences"]
        verdicts = collections.Counter(one["verdict"] for one in found)
        cells["verdicts"] = ",".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
        wrong = [one for one in found if one["verdict"] != "nondeterministic"]
        for one in wrong[:3]:
            problems.append(
                f"call {one['call']} {one['function']} {one['kernel'] or ''} {one['what']} {one['parameter']}: "
                f"{one['verdict']}, {one['expected']}, {one['received']}; {'; '.join(one['history'][:3])}"
            )
    return cells, problems, trace


def replaced(name, trace, kernel, image, cutape, results):
    """Replays with another image for a kernel: what is wrong with the report, or how it names the kernel."""
    file = results / f"{name}.{kernel}.image"
    file.write_bytes(image)
    load = launch = None
    for call in calls(cutape, trace):
        image = (call["arguments"].get("image") or call["arguments"].get("code") or {}).get("pointee") or {}
        if load is None and isinstance(image, dict) and kernel in image.get("kernels", []):
            load = call["call"]
        if call["launch"] and call["launch"]["kernel"] == kernel:
            launch = call["call"]
            break
    if load is None or launch is None:
        return f"{name}: the trace loads or launches no {kernel}", False
    ended, got = replay(cutape, trace, results, "--replace-image", f"{load}={file}")
    if got is None:
        return f"{name}: replay: {ended.message()[:300]}", False
    if not got["divergences"]:
        return f"{name}: {kernel} was replaced, and the replay found no divergence", False
    first = got["divergences"][0]
    is_named = first["call"] == launch and first["what"] == "digest" and first["kernel"] == kernel
    text = (
        f"{name}: image of call {load} replaced; first launch of {kernel} is call {launch}; first divergence: call {first['call']} "
        f"{first['function']} (kernel {first['kernel']}), {first['what']} of {first['parameter']}; "
        f"{got['digests']['equal']} digests equal, {got['digests']['differing']} different"
    )
    return text, is_named


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    cutape = package / "cutape"
    os.environ.setdefault("CUPY_CACHE_DIR", str(results / "cupy"))
    wanted = lambda name: not sys.argv[3:] or any(word in name for word in sys.argv[3:])
    programs, missing = chosen(OWN, package, results, wanted)
    lines = ["  ".join([f"{'program':24}"] + [f"{column:>9}" for column in COLUMNS])]
    print(lines[0])
    wrong, traces = [], {}
    for name, run in programs:
        for when in ("launch", "sync"):
            cells, problems, trace = row(name, run, when, cutape, results)
            if when == "launch":
                traces[name] = trace
            mark = "  !" if problems else ""
            lines.append("  ".join([f"{name:24}"] + [f"{str(cells.get(column, '-')):>9}" for column in COLUMNS]) + mark)
            # At once, for when the time is limited.
            print(lines[-1], flush=True)
            wrong += [f"{name} {when}: {problem}" for problem in problems]
    cases = [("clean.streams", "vector_add", OTHER_KERNELS.encode())]
    if has("cupy") and traces.get("cupy_raw"):
        printed = Ended([sys.executable, "-c", OTHER_SCALE])
        if printed.status == 0:
            cases.append(("cupy_raw", "scale", bytes.fromhex(printed.out.decode().strip())))
        else:
            wrong.append(f"cupy_raw: no other image: {printed.message()[-200:]}")
    lines += ["", "a kernel replaced:"]
    for name, kernel, image in cases:
        if not traces.get(name):
            continue
        text, is_named = replaced(name, traces[name], kernel, image, cutape, results)
        lines.append(f"  {'named' if is_named else 'NOT NAMED'}: {text}")
        print(lines[-1], flush=True)
        wrong += [] if is_named else [text]
    lines += ["", *missing, *wrong, f"{len(programs)} programs, {len(wrong)} problems"]
    text = "\n".join(lines) + "\n"
    (results / "table.txt").write_text(f"{time.strftime('%Y-%m-%d')}\n\n{machine(cutape, results, package / 'programs')}\n{text}")
    print("\n".join(lines[-(len(wrong) + len(missing) + 1):]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
