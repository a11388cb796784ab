"""Records programs with graphs, and replays these node by node.

The exit status is 1 if a replay node by node differs from the recording, and one as a whole does not.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from run import SOURCES, Ended

PROGRAMS = Path(__file__).resolve().parent / "programs"
FRAMEWORKS = PROGRAMS / "planted"
# Digests wait for its graph, which waits for what the program does next.
WITHOUT_DIGESTS = {"graph_awaits_cpu"}


def programs(package, results):
    """Names and commands."""
    for source in sorted((SOURCES / "clean").glob("*.c")):
        if "cuGraphLaunch" not in source.read_text():
            continue
        binary = results / source.stem
        include = [f"-I{SOURCES}", f"-I{SOURCES / 'include'}"]
        built = subprocess.run(
            ["gcc", "-w", *include, source, "-o", binary, "-lcuda", "-ldl", "-lpthread"], capture_output=True, text=True
        )
        if built.returncode:
            print(f"{source.stem:28} skipped: {built.stderr.strip().splitlines()[-1:]}")
            continue
        yield source.stem, [binary]
    for source in [*sorted((PROGRAMS / "graphs").glob("*.cu")), PROGRAMS / "cudart_memory_nodes.cu"]:
        if not shutil.which("nvcc"):
            print(f"{source.stem:28} skipped: nvcc is not installed")
            continue
        binary = results / source.stem
        first = source.read_text().splitlines()[0]
        options = first.removeprefix("// nvcc:").split() if first.startswith("// nvcc:") else []
        built = subprocess.run(
            ["nvcc", "-arch=native", "-o", binary, source, *options], capture_output=True, text=True
        )
        if built.returncode:
            print(f"{source.stem:28} skipped: {built.stderr.strip().splitlines()[-1:]}")
            continue
        yield source.stem, [binary]
    yield "training graph", [sys.executable, FRAMEWORKS / "training.py", "graph"]
    planted = FRAMEWORKS / "planted.py"
    for name in re.findall(r"^def (?!planted)(\w*graph\w*|jax\w*)\(\)", planted.read_text(), re.MULTILINE):
        yield name, [sys.executable, planted, name]


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    cutape, wrong = package / "cutape", 0
    print(f"{'program':28} {'whole s':>8} {'nodes s':>8}  result")
    for name, command in programs(package, results):
        if sys.argv[3:] and not any(word in name for word in sys.argv[3:]):
            continue
        trace = results / f"{name.replace(' ', '_')}.cutape"
        trace.unlink(missing_ok=True)
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        digests = [] if name in WITHOUT_DIGESTS else ["--digests=launch"]
        recorded = Ended([cutape, "record", *digests, "-o", trace, "--", *command], text=True)
        if recorded.status != 0:
            print(f"{name:28} skipped: {recorded.err.strip().splitlines()[-1:]}")
            continue
        whole = Ended([cutape, "replay", trace], text=True)
        nodes = Ended([cutape, "first", trace, "--inf", "--type", "f64", "--from", "0"], text=True)
        as_whole = re.findall(r"graph of call \d+ runs as a whole: (.*)", nodes.err)
        differs = "the replay differs" in nodes.err or nodes.status not in (0, 1)
        if differs and whole.status == 0:
            wrong += 1
            result = f"WRONG: {nodes.err.strip()[-200:]}"
        elif differs:
            result = "differs as a whole too"
        else:
            result = "same"
        if as_whole:
            result += f"; {len(as_whole)} as a whole: {sorted(set(as_whole))}"
        not_looked_at = [line for line in nodes.err.splitlines() if "not looked at" in line and "as a whole" not in line]
        if not_looked_at:
            result += f"; {not_looked_at[0].removeprefix('cutape: ')}"
        print(f"{name:28} {whole.seconds:8.2f} {nodes.seconds:8.2f}  {result}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
