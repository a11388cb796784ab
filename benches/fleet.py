"""How long questions about a fleet's traces take in a local Spark with two executors.

    python3 benches/fleet.py [--traces 10000] [--folder FOLDER] [--master local-cluster[2,1,1024]]

Copies the traces in `traces/` until there are that many, cuts the end off one, and asks each question
of `cutape.spark` about all of them. Afterwards the findings are asked for again while an executor is
killed: the rows must be the same, and the folder must not have changed. Needs the packages of
`pip install 'cutape[spark]'` and Java 17.
"""

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import threading
import time

import pyspark
from pyspark.sql import SparkSession, functions

import cutape
from cutape import spark as fleet

CORPUS = pathlib.Path(__file__).parents[1] / "traces"
# Cut here.
DAMAGED, BYTES = 4321, 1500


def make(folder, count):
    """The traces, in folders of a thousand."""
    sources = sorted(CORPUS.rglob("*.cutape"))
    for number in range(count):
        place = folder / f"{number // 1000:03}"
        place.mkdir(parents=True, exist_ok=True)
        source = sources[number % len(sources)]
        copy = place / f"{number:05}-{source.name}"
        shutil.copy(source, copy)
        if number == min(DAMAGED, count - 1):
            copy.write_bytes(source.read_bytes()[:BYTES])


def listing(folder):
    """What must not change."""
    return [(path, path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")]


def processes():
    """Processes that this one has started, also indirectly: number to name and peak memory."""
    parents, facts = {}, {}
    for status in pathlib.Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines())
            words = (status.parent / "cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue
        number = int(status.parent.name)
        parents[number] = int(fields["PPid"])
        facts[number] = (fields["Name"].strip(), int(fields.get("VmHWM", "0").split()[0]), words)

    def is_own(number):
        while number in parents and number != os.getpid():
            number = parents[number]
        return number == os.getpid()

    return {number: fact for number, fact in facts.items() if number != os.getpid() and is_own(number)}


class Memory(threading.Thread):
    """The largest peak of one process, by name, in MiB."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peaks, self.over = {}, threading.Event()

    def run(self):
        while not self.over.wait(0.5):
            for name, peak, _ in processes().values():
                self.peaks[name] = max(self.peaks.get(name, 0), peak // 1024)


def kill_an_executor():
    """Kills one that this script's Spark has started."""
    for number, (_, _, words) in processes().items():
        if any(word.endswith(b"CoarseGrainedExecutorBackend") for word in words):
            os.kill(number, signal.SIGKILL)
            return True
    return False


def digest(frame):
    """Of the rows, in whatever order they come."""
    rows = sorted(json.dumps(row.asDict(), default=str, sort_keys=True) for row in frame.collect())
    return len(rows), hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]


def main():
    sys.stdout.reconfigure(line_buffering=True)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=int, default=10000)
    parser.add_argument("--folder", type=pathlib.Path, help="where the traces are kept")
    parser.add_argument("--master", default="local-cluster[2,1,1024]")
    arguments = parser.parse_args()
    folder = arguments.folder or pathlib.Path(tempfile.mkdtemp(prefix="cutape-fleet-"))
    if not folder.is_dir() or not any(folder.iterdir()):
        make(folder, arguments.traces)
    before = listing(folder)
    size = sum(size for _, size, _ in before)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_HOME", os.path.dirname(pyspark.__file__))
    builder = SparkSession.builder.master(arguments.master).appName("cutape-fleet")
    for key, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "spark.log.level": "OFF",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    # So that no question pays for the start of the executors.
    session.range(100, numPartitions=4).count()
    files = fleet.fleet.files(folder)
    print(f"{len(files)} traces, {size / 1e6:.0f} MB, {arguments.master}, Spark {session.version}")
    memory = Memory()
    memory.start()
    pairs = list(zip(files[::2], files[1::2]))
    for name, count, frame in [
        ("check", len(files), fleet.check(session, folder)),
        ("info", len(files), fleet.info(session, folder)),
        ("rows of launches", len(files), fleet.rows(session, folder, "launches")),
        ("diff", len(pairs), fleet.diff(session, pairs)),
    ]:
        started = time.time()
        counts = frame.agg(functions.count("*"), functions.count("error")).collect()[0]
        seconds = time.time() - started
        print(f"{name}: {seconds:.1f} s, {count / seconds:.0f} a second, {counts[0]} rows, "
              f"{counts[1]} with an error")
    frame = fleet.check(session, folder)
    expected = digest(frame)
    killed = []
    timer = threading.Timer(3, lambda: killed.append(kill_an_executor()))
    timer.start()
    started = time.time()
    again = digest(frame)
    print(f"check while an executor was killed ({killed == [True]}): {time.time() - started:.1f} s, "
          f"{again[0]} rows, {'the same' if again == expected else 'OTHER'}")
    (reason,) = frame.where("error IS NOT NULL").select("error").collect()
    print(f"the damaged trace: {reason.error}")
    print(f"the folder: {'unchanged' if listing(folder) == before else 'CHANGED'}")
    memory.over.set()
    peaks = sorted(memory.peaks.items(), key=lambda peak: -peak[1])
    print("the most memory of a process: " + ", ".join(f"{n} {peak} MiB" for n, peak in peaks[:4]))
    session.stop()
    if not arguments.folder:
        shutil.rmtree(folder)
    return 0 if again == expected and listing(folder) == before else 1


if __name__ == "__main__":
    sys.exit(main())
