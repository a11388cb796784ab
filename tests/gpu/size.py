"""Records programs that copy a model to the GPU from a mapping of its file, or from memory of their
own that they have filled from the file. Prints a table.

The exit status is 1 if a trace has 50 MB or more, if its replay differs, or if a replay with a changed
file is not refused.
"""

import json
import os
import random
import sys
from pathlib import Path

import run
from run import Ended, machine

PROGRAMS = Path(__file__).resolve().parent / "programs" / "size"
MEBIBYTES = int(os.environ.get("MEBIBYTES", "2048"))
TENSORS = 32
MOST_BYTES = 50_000_000
DRIVER = ["--driver", os.environ["DRIVER"]] if "DRIVER" in os.environ else []
COLUMNS = ["bare s", "recorded s", "trace MB", "in file MB", "divergences", "changed file"]


def write_model(path):
    """A safetensors file with tensors of float32, in the words of the format: a length, a header in
    JSON, the tensors."""
    count = MEBIBYTES * (1 << 20) // TENSORS // 4
    header = {
        f"layer.{at}": {"dtype": "F32", "shape": [count], "data_offsets": [at * count * 4, (at + 1) * count * 4]}
        for at in range(TENSORS)
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    numbers = random.Random(1)
    # Numbers from 0 to 1 that cannot be compressed.
    mask = int.from_bytes(bytes([0xFF, 0xFF, 0x7F, 0x3F]) * (1 << 18), "little")
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _ in range(MEBIBYTES):
            block = int.from_bytes(numbers.randbytes(1 << 20), "little") & mask
            file.write(block.to_bytes(1 << 20, "little"))


def change(path):
    """Flips a bit of a file; the next time, it is as it was."""
    with open(path, "r+b") as file:
        middle = path.stat().st_size // 2
        file.seek(middle)
        byte = file.read(1)
        file.seek(middle)
        file.write(bytes([byte[0] ^ 1]))


def row(source, cutape, model, results):
    folder = results / source.stem
    folder.mkdir(parents=True, exist_ok=True)
    trace = folder / "recorded.cutape"
    trace.unlink(missing_ok=True)
    program = [sys.executable, source, model]
    bare = Ended(program)
    if bare.status:
        return {}, [f"not run: {bare.message()[-200:]}"], False
    recorded = Ended([cutape, "record", *DRIVER, "-o", trace, "--", *program])
    cells = {"bare s": f"{bare.seconds:.1f}", "recorded s": f"{recorded.seconds:.1f}"}
    if recorded.status or not trace.exists():
        return cells, [f"record: {recorded.message()[-300:]}"], True
    problems = [f"record: {recorded.message()[-300:]}"] if recorded.message() else []
    if recorded.out != bare.out:
        problems.append("the recorded program prints something else")
    size = trace.stat().st_size
    cells["trace MB"] = f"{size / 1e6:.1f}"
    summary = json.loads(Ended([cutape, "info", "--format", "json", trace]).out)
    cells["in file MB"] = f"{sum(file['bytes'] for file in summary['payload_files']) / 1e6:.1f}"
    if size >= MOST_BYTES:
        problems.append(f"the trace has {size} bytes")
    report = folder / "replay.json"
    report.unlink(missing_ok=True)
    replayed = Ended([cutape, "replay", *DRIVER, "--report", report, trace])
    if report.exists():
        cells["divergences"] = json.loads(report.read_text())["divergence_count"]
    if replayed.status:
        problems.append(f"replay: {replayed.message()[-200:]} {replayed.out.decode()[-400:]}")
    change(model)
    changed = Ended([cutape, "replay", *DRIVER, trace])
    change(model)
    is_refused = changed.status == 2 and "has changed since the recording" in changed.message()
    cells["changed file"] = "refused" if is_refused else "not refused"
    if not is_refused:
        problems.append(f"with a changed file: status {changed.status}: {changed.message()[-200:]}")
    # The same bytes, at a later time.
    again = Ended([cutape, "replay", *DRIVER, trace])
    if again.status:
        problems.append(f"with the file as it was: {again.message()[-200:]}")
    return cells, problems, bool(problems)


def main():
    package, results, *wanted = sys.argv[1:]
    package, results = Path(package).resolve(), Path(results).resolve()
    cutape = package / "cutape"
    results.mkdir(parents=True, exist_ok=True)
    model = results / "model.safetensors"
    write_model(model)
    lines, failed = [], False
    for source in sorted(PROGRAMS.glob("*.py")):
        if wanted and not any(word in source.stem for word in wanted):
            continue
        cells, problems, is_failure = row(source, cutape, model, results)
        failed |= is_failure
        lines.append(f"{source.stem:22}" + "".join(f"{cells.get(column, '-')!s:>14}" for column in COLUMNS))
        lines += [f"  {problem}" for problem in problems]
        print(lines[-1 - len(problems)], file=sys.stderr, flush=True)
    model.unlink()
    print(f"{'program':22}" + "".join(f"{column:>14}" for column in COLUMNS))
    print("\n".join(lines))
    print(machine(cutape, results, package / "programs"))
    sys.exit(failed)


run.TIMEOUT = 100
main()
