"""Records threads that create and destroy objects for a while, and looks at what grows. Prints a
table; the exit status is 1 if something grows, or if what is left does not replay and check.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from run import SOURCES, Ended

THREADS = os.environ.get("THREADS", "8")
ROUNDS = os.environ.get("ROUNDS", "1000")
STEPS = os.environ.get("STEPS", "20")
# So many launches by a driver that does nothing instead.
CALLS = os.environ.get("CALLS")
STUB = SOURCES.parents[1] / "benches/programs/stub_driver.c"
SAMPLES = 12
# What may be so much more at the end than in the middle.
GROWTH = 1.25
# Descriptors, threads, and MiB that come and go.
SLACK = 16


def driver_library(package, results):
    """The driver that the program is linked with."""
    if CALLS:
        library = results / "libcuda.so.1"
        include = ["-I", SOURCES / "include", "-I", SOURCES.parent / "gpu/bench"]
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", *include, "-o", library, STUB], check=True)
        return library
    if os.environ.get("DRIVER") == "null":
        library = results / "libcuda.so.1"
        library.unlink(missing_ok=True)
        library.symlink_to(package / "libcutape_null.so")
        return library
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout
    return Path(re.search(r"libcuda\.so\.1 .*=> (\S+)", listed).group(1))


def size_of(process):
    """Its memory in MiB, descriptors and threads."""
    folder = Path("/proc") / str(process)
    status = (folder / "status").read_text()
    memory, threads = (re.search(rf"^{key}:\s+(\d+)", status, re.M).group(1) for key in ("RssAnon", "Threads"))
    return int(memory) // 1024, len(list((folder / "fd").iterdir())), int(threads)


def main():
    package, results = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    seconds = int(sys.argv[3]) if len(sys.argv) > 3 else 60
    options = sys.argv[4:] or ["--keep-last", "64MiB"]
    results.mkdir(parents=True, exist_ok=True)
    program, trace = results / "every_object", results / "soak.cutape"
    trace.unlink(missing_ok=True)
    library = driver_library(package, results)
    if CALLS:
        run, chosen = [package / "bench/call_cost", "loop", "launch8", CALLS], ["--driver", library]
        replayed = ["--driver", "null", "--force"]
    else:
        source = SOURCES / "growing" / "every_object.c"
        include = ["-I", SOURCES, "-I", SOURCES / "include"]
        subprocess.run(["gcc", "-O1", *include, "-o", program, source, library, "-pthread"], check=True)
        run, arguments = [program, str(seconds)], [THREADS, ROUNDS, STEPS]
        path = f"{library.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        bare = Ended([program, "5", *arguments], env=os.environ | {"LD_LIBRARY_PATH": path})
        print("not recorded, 5 s:", bare.status, bare.message())
        run += arguments
        chosen = replayed = ["--driver", "null"] if os.environ.get("DRIVER") == "null" else []
    command = [package / "cutape", "record", *chosen, *options, "-o", trace, "--", *run]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    begin, rows = time.monotonic(), []
    print("seconds | program: MiB, descriptors, threads | recorder: the same | trace: MiB on disk, MiB long")
    while child.poll() is None:
        time.sleep(seconds / SAMPLES / 4)
        try:
            recorded = subprocess.run(["pgrep", "-P", str(child.pid)], capture_output=True, text=True).stdout.split()[0]
            file = trace.stat()
            row = [*size_of(recorded), *size_of(child.pid), file.st_blocks // 2048, file.st_size // 2**20]
        except (OSError, IndexError, AttributeError):
            continue
        rows.append(row)
        if len(rows) % 4 == 0:
            print(f"{time.monotonic() - begin:7.0f} | " + " ".join(f"{value:6}" for value in row), flush=True)
    print("status", child.returncode, child.stderr.read().strip()[-1500:])
    middle, end = rows[len(rows) // 4 : len(rows) // 2], rows[3 * len(rows) // 4 :]
    names = ["memory", "descriptors", "threads", "the recorder's memory", "its descriptors", "its threads", "disk"]
    growing = []
    for place, name in enumerate(names):
        before, after = (max(row[place] for row in part) for part in (middle, end))
        if after > before * GROWTH + SLACK:
            growing.append(f"{name}: {before} to {after}")
    info = Ended([package / "cutape", "info", trace])
    facts = [line for line in info.out.decode().splitlines() if line.startswith(("trace", "kept", "calls"))]
    print("\n".join(facts))
    replay = Ended([package / "cutape", "replay", *replayed, trace])
    check = Ended([package / "cutape", "check", trace])
    for ended in (replay, check):
        if ended.status != 0:
            print(ended.out.decode()[-1500:], ended.message()[-500:])
    print("growing:", ", ".join(growing) or "nothing")
    print(f"most on disk {max(row[6] for row in rows)} MiB, replay {replay.status}, check {check.status}")
    sys.exit(bool(growing) or child.returncode != 0 or replay.status != 0 or check.status != 0)


if __name__ == "__main__":
    main()
