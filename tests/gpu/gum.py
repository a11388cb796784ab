"""Tests the backend gum on the machine's driver: functions that it patches, calls that it records, cost.

The exit status is 1 if a function cannot be patched, if tests/programs/loading/ways.toml differs, or
if a program's calls differ from those that preload records.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import loading

BRIDGE = loading.ROOT / "interposer/tests/gum/bridge.py"
INTERPOSER = "test/libcutape_interposer_gum_bridge.so"
PROGRAMS = ["streams", "events", "launch_ex", "graph", "proc_address"]
# Runs of each case, and calls of a run: short runs are seldom disturbed.
ROUNDS, CALLS = 40, "10000"


def unpacked(scratch):
    """The environment in which Python finds Frida; None if it is not available."""
    wheel = os.environ.get("CUTAPE_FRIDA_WHEEL")
    if wheel:
        zipfile.ZipFile(wheel).extractall(scratch / "frida")
        return {**os.environ, "PYTHONPATH": str(scratch / "frida")}
    return dict(os.environ) if importlib.util.find_spec("frida") else None


class Bridge:
    """A running bridge.py; with its socket in the environment, `record --backend gum` works."""

    def __init__(self, environment, socket, log):
        self.log = log
        self.process = subprocess.Popen([sys.executable, BRIDGE, socket, log], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        if self.process.stdout.readline() != "ready\n":
            sys.exit("gum.py: bridge.py has ended; it said why")
        os.environ["CUTAPE_GUM_BRIDGE_SOCKET"] = str(socket)

    def last(self):
        return json.loads(self.log.read_text().splitlines()[-1])

    def end(self):
        """The lines that it prints, and whether all processes were patched."""
        lines = self.process.communicate()[0].splitlines()
        return lines, self.process.returncode == 0


def some(names):
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def counts(bridge, cutape, folder, results):
    """How many functions are replaced by which method; and how many by `replace` alone."""
    lines, bad = [], 0
    for refused in ["", "fast"]:
        os.environ["CUTAPE_GUM_BRIDGE_REFUSES"] = refused
        words = [cutape, "record", "--backend", "gum", "--driver", folder / "driver/libcuda.so.1", "-o", results / "count.cutape", "--", folder / "open", folder / "driver/other_name.so"]
        (results / "count.cutape").unlink(missing_ok=True)
        begun = time.monotonic()
        status, _, err = loading.run(words)
        done = bridge.last()
        if status != 0 or "error" in done:
            lines.append(f"NOT PATCHED: status {status}: {done.get('error', '')} {err[-300:]}")
            bad += 1
            continue
        what = "where replaceFast is refused: " if refused else ""
        lines.append(f"{what}{done['fast']} functions by replaceFast, {len(done['slow'])} by replace, {len(done['refused'])} by neither; the program took {time.monotonic() - begun:.1f} s")
        if not refused and done["slow"]:
            lines.append(f"  by replace: {some(done['slow'])}")
        if done["refused"]:
            lines.append(f"  by neither: {some(done['refused'])}")
            bad += not refused
        lines += [f"  {error}" for error in done["errors"][:5]]
    os.environ["CUTAPE_GUM_BRIDGE_REFUSES"] = ""
    return lines, bad


def ways(cutape, folder, results):
    """The table of ways with `gum`; with `replace` alone, for the ways that only `gum` records."""
    lines, bad, problems = [f"{'way':62}  {'gum':>8}  {'replace':>8}"], 0, []
    for way in loading.WAYS:
        cells = []
        for refused in ["", "fast"] if way["recorded"] == ["gum"] else [""]:
            os.environ["CUTAPE_GUM_BRIDGE_REFUSES"] = refused
            cell, problem, wrong = loading.way_cell(way, "gum", cutape, folder, results)
            cells.append(cell)
            problems += [problem] if problem else []
            bad += wrong
        if cells == ["OTHER"]:
            # Whether the patches are the cause: Frida's agent is in these processes, too.
            os.environ["CUTAPE_GUM_BRIDGE_REFUSES"] = "any"
            cell, _, _ = loading.way_cell(way, "gum", cutape, folder, results)
            cells.append(f"{'':8}  with nothing patched: {cell}")
        lines.append("  ".join([f"{way['name']:62}"] + [f"{cell:>8}" for cell in cells]))
    os.environ["CUTAPE_GUM_BRIDGE_REFUSES"] = ""
    return lines + problems, bad


def programs(cutape, package, folder, results):
    """Test programs make the same calls with `gum` as with `preload`."""
    lines, bad = [], 0
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{folder}/driver"}
    for name in PROGRAMS:
        runs, outputs = [], []
        for via in ["preload", "gum"]:
            trace = results / f"{name}.{via}.cutape"
            trace.unlink(missing_ok=True)
            words = [cutape, "record", "--backend", via, "--driver", folder / "driver/libcuda.so.1", "-o", trace, "--", package / f"programs/clean.{name}"]
            status, out, err = loading.run(words, env=environment)
            if status != 0 or not trace.exists():
                lines.append(f"{name:20} {via}: status {status}: {err[-200:]}")
                bad += 1
                break
            runs.append(loading.threads(cutape, trace))
            outputs.append(out)
        else:
            other = loading.difference(*runs) or ("" if outputs[0] == outputs[1] else "another output")
            lines.append(f"{name:20} calls {sum(map(len, runs[1]))}: {other or 'equal'}")
            bad += other not in ("", loading.SPREAD)
    return lines, bad


def costs(cutape, package, folder, results):
    """Nanoseconds of a call of cuCtxGetCurrent: the least of all rounds, in turn."""
    program, usual, other = package / "bench/scalar_calls", folder / "driver/libcuda.so.1", folder / "driver/other_name.so"
    trace = results / "cost.cutape"

    def cost(via, words, refused=""):
        trace.unlink(missing_ok=True)
        record = [cutape, "record", "--backend", via, "--driver", usual, "--no-pack", "-o", trace, "--"] if via else []
        status, out, err = loading.run([*record, program, *words], env={**os.environ, "CUTAPE_GUM_BRIDGE_REFUSES": refused})
        if status != 0:
            raise RuntimeError(f"cost of a call: {via or 'alone'}: status {status}: {err[-200:]}")
        return [float(word) for word in out.split()]

    kinds = {
        "alone": (None, usual, ""),
        "preload": ("preload", usual, ""),
        "gum, called by the loader's way": ("gum", usual, ""),
        "gum, through the patch": ("gum", other, ""),
        "gum, through the patch of replace": ("gum", other, "fast"),
    }
    figures, pairs = {kind: [] for kind in kinds}, []
    try:
        for _ in range(ROUNDS):
            for kind, (via, driver, refused) in kinds.items():
                figures[kind] += cost(via, [driver, CALLS], refused)
            # Both in one process, with the same memory layout.
            pairs.append(cost("gum", [usual, CALLS, other]))
    except RuntimeError as error:
        return [str(error)], 1
    finally:
        trace.unlink(missing_ok=True)
    lines = [f"a call of cuCtxGetCurrent, ns, the least of {ROUNDS} runs of {CALLS} calls; and what is added to preload"]
    preload = min(figures["preload"])
    lines += [f"  {kind:40} {min(values):8.1f} {min(values) - preload:+8.1f}" for kind, values in figures.items()]
    differences = sorted(patched - led for led, patched in pairs)
    lines += [f"the patch alone, in one process, ns: median {differences[len(differences) // 2]:+.1f}, least {differences[0]:+.1f}, most {differences[-1]:+.1f}"]
    return lines, 0


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="gum-"))
    environment = unpacked(scratch)
    if environment is None:
        print("skipped: gum: CUTAPE_FRIDA_WHEEL names no wheel, and this Python has no frida")
        return 0
    if not (package / INTERPOSER).exists():
        print(f"skipped: gum: {package} has no {INTERPOSER}: cargo xtask package FOLDER --gum")
        return 0
    tried = subprocess.run([sys.executable, BRIDGE, "--try"], env=environment, capture_output=True, text=True)
    if tried.returncode != 0:
        print(f"gum.py: Frida cannot be brought into a process here: {tried.stderr.strip()}", file=sys.stderr)
        return 2
    begun = time.monotonic()
    real = loading.driver()
    os.environ.pop("CUTAPE_DRIVER", None)
    cutape = package / "cutape"
    folder = loading.lay_out(package, results, real)
    os.environ["CUTAPE_INTERPOSER"] = str(package / INTERPOSER)
    bridge = Bridge(environment, scratch / "socket", results / "gum.jsonl")
    lines, bad = [time.strftime("%Y-%m-%d"), f"{os.confstr('CS_GNU_LIBC_VERSION')}, {real}, the gum of Frida 17.9.5", ""], 0
    parts = [
        lambda: counts(bridge, cutape, folder, results),
        lambda: ways(cutape, folder, results),
        lambda: programs(cutape, package, folder, results),
        lambda: loading.framework("torch_training.py", "torch", cutape, results, "gum"),
        lambda: costs(cutape, package, folder, results),
    ]
    for part in parts:
        more, wrong = part()
        # Written also if a later part takes too long.
        print("\n".join(more), flush=True)
        lines += [*more, ""]
        bad += wrong
    more, whole = bridge.end()
    lines += [*more, f"{bad + (not whole)} problems, {time.monotonic() - begun:.0f} s"]
    text = "\n".join(lines) + "\n"
    (results / "gum.txt").write_text(text)
    (folder / "driver" / "copy.so").unlink()
    shutil.rmtree(scratch, ignore_errors=True)
    print("\n" + text)
    return 1 if bad or not whole else 0


if __name__ == "__main__":
    sys.exit(main())
