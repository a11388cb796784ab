"""What `record --outputs-of-exchanges` finds and keeps, whether it is what programs read back, and
what it costs. Prints a table. The exit status is 1 if a result is unexpected."""

import json
import os
import statistics
import sys
import time
from pathlib import Path

from ranks import DRIVER, Program, launched, lines, new_folder, traces_of
from run import Ended

COLUMNS = ["same", "ranks", "exchanges", "nccl", "complete", "compared", "changed", "left out", "read back", "equal"]
ROUNDS = int(os.environ.get("ROUNDS", "5"))
OPTION = "--outputs-of-exchanges=" + os.environ.get("SIZE", "256M")
STEPS = "torch_ddp_steps"


def programs(results):
    yield Program("exchanges", [results / "exchanges"])
    yield Program("sharing", [results / "sharing", "3"])
    for name in ("torch_ranks", "torch_nccl", "torch_ddp", "torch_pipeline", STEPS):
        yield launched(name, results)


def number(text):
    return int(text, 16)


def kept_and_read(calls):
    """How often a copy to the host begins where an exchange of the call before has changed bytes,
    and how often it has those bytes."""
    outputs, compared, equal = {}, 0, 0
    for call in calls:
        for note in call.get("notes") or []:
            if note["kind"] == "exchange_output" and note["data"].get("hex"):
                outputs.setdefault((note["thread"], note["number"]), []).append(note)
    counts = {}
    for call in calls:
        thread = call["thread"]
        counts[thread] = counts.get(thread, 0) + 1
        if not call["function"].startswith("cuMemcpyDtoHAsync"):
            continue
        read = call["outputs"].get("dstHost", {}).get("value") or {}
        source = number(call["arguments"]["srcDevice"]["value"])
        for note in outputs.get((thread, counts[thread] - 2), []):
            at, kept = number(note["address"]) - source, note["data"]["hex"]
            held = read.get("hex", "")[2 * at : 2 * at + len(kept)]
            if at >= 0 and len(held) == len(kept):
                compared += 1
                equal += held == kept
    return compared, equal


def measure(program, cutape, results):
    folder = new_folder(results, f"{program.name}.exchanges")
    Ended(program.run)  # what is compiled and cached at first use
    bare = Ended(program.run)
    recorded = Ended([cutape, "record", *DRIVER, OPTION, "-o", folder / "run.cutape", "--", *program.run])
    same = lines(bare) == lines(recorded) and bare.status == recorded.status == 0
    cells = {"same": "yes" if same else "NO"}
    problems = [] if same else [f"bare {bare.status} {bare.message()[-200:]}, recorded {recorded.status} {recorded.message()[-300:]}"]
    total = {"exchanges": 0, "nccl": 0, "complete": 0, "compared": 0, "changed": 0, "left out": 0, "read back": 0, "equal": 0}
    ranks = 0
    for trace in traces_of(folder):
        info = json.loads(Ended([cutape, "info", "--format", "json", trace]).out)
        if not info["calls"]["total"] or not info["exchanges"]:
            continue
        ranks += 1
        found = info["exchanges"]
        total["exchanges"] += found["calls"]
        total["complete"] += found["complete"]
        total["compared"] += found["compared_bytes"]
        total["changed"] += found["changed_bytes"]
        total["left out"] += found["left_out_bytes"]
        total["nccl"] += sum(kernel["launches"] for kernel in info["kernels"] if "nccl" in kernel["name"])
        problems += [f"{trace.stem}: {count} {why}" for why, count in found["left_out"].items()]
        if program.name in ("exchanges", "sharing"):
            dump = Ended([cutape, "dump", "--format", "json", trace]).out
            compared, equal = kept_and_read([json.loads(line) for line in dump.splitlines()])
            total["read back"] += compared
            total["equal"] += equal
    cells |= {"ranks": ranks, **total}
    failed = not same
    if total["equal"] != total["read back"]:
        problems.append("what is kept is not what the program reads back")
        failed = True
    if not total["exchanges"] or total["nccl"] > total["exchanges"]:
        problems.append(f"{total['exchanges']} exchanges found, {total['nccl']} kernels of NCCL launched")
        failed = True
    return cells, problems, failed


def cost(program, cutape, results):
    """Milliseconds of a step, bare, recorded, and with the outputs of exchanges, in turn."""
    ways = {"bare": None, "recorded": [], "with outputs": [OPTION]}
    steps, walls, sizes, notes = ({way: [] for way in ways} for _ in range(4))
    for _ in range(ROUNDS):
        for way, options in ways.items():
            folder = new_folder(results, "cost")
            times = folder / "times.json"
            times.unlink(missing_ok=True)
            words = [] if options is None else [cutape, "record", *DRIVER, *options, "-o", folder / "run.cutape", "--"]
            started = time.monotonic()
            ended = Ended([*words, *program.run], env=os.environ | {"STEP_TIMES": str(times)})
            walls[way].append(time.monotonic() - started)
            if ended.status != 0 or not times.exists():
                return [f"cost: {way}: status {ended.status}: {ended.message()[-300:]}"], True
            steps[way] += [1000 * seconds for seconds in json.loads(times.read_text())]
            sizes[way].append(sum(trace.stat().st_size for trace in traces_of(folder)))
            notes[way] = [line for line in ended.message().splitlines() if line.startswith("cutape:")]
    text = [f"a step of {program.name} on rank 0, {ROUNDS} rounds in turn: median (range of all steps)"]
    for way in ways:
        middle, all_steps = statistics.median(steps[way]), steps[way]
        ratio = middle / statistics.median(steps["bare"])
        text.append(
            f"  {way:13} {middle:9.2f} ms ({min(all_steps):.2f} to {max(all_steps):.2f}), {ratio:.2f} x bare;"
            f" the program with packing {statistics.median(walls[way]):.1f} s; traces {statistics.median(sizes[way]) / 1e6:.0f} MB"
        )
    return text + [f"    {line}" for line in notes["with outputs"]], False


def main():
    package, results, names = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3:]
    cutape = package / "cutape"
    header = "  ".join([f"{'program':16}"] + [f"{column:>11}" for column in COLUMNS])
    table, costs, failed = [header], [], False
    for program in programs(results):
        if names and program.name not in names:
            continue
        if program.run is None:
            table.append(f"{program.name:16}  skipped: {program.why}")
            continue
        cells, problems, is_wrong = measure(program, cutape, results)
        table.append("  ".join([f"{program.name:16}"] + [f"{str(cells.get(column, '')):>11}" for column in COLUMNS]))
        table += [f"    {problem}" for problem in problems]
        failed |= is_wrong
        if program.name == STEPS and not is_wrong:
            costs, is_wrong = cost(program, cutape, results)
            failed |= is_wrong
    text = "\n".join(table + costs) + "\n"
    (results / "table.txt").write_text(text)
    print(text, end="")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
