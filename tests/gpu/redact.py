"""Redacts traces of clean programs and compares findings and replays with those of the sources. Prints a
table. The exit status is 1 if findings differ, or if a replay that keeps payloads and parameters does.

Replays without data may end otherwise, on a real driver, where kernels follow the data: the table shows
them, and they are no problem.
"""

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from run import AT_ONCE, Ended, machine

DRIVER = ["--driver", os.environ["DRIVER"]] if "DRIVER" in os.environ else []
COLUMNS = ["removed", "contents", "KiB", "redacted KiB", "s", "findings", "replay", "source"]
ALL = "payloads,parameters,environment,paths"
CHOICES = [("environment,paths", "zeros"), (ALL, "zeros"), (ALL, "pattern"), (ALL, "statistics")]
OTHERWISE = ["clean.graph", "clean.launch_vector_add", "clean.managed", "clean.host_visible", "clean.library",
             "clean.launch_struct", "clean.tensor_map", "clean.textures", "clean.virtual_memory", "clean.link_ptx"]


def found(cutape, trace):
    """Rule and call of each finding, but for those that rest on contents; None if there is no report."""
    ended = Ended([cutape, "check", "--format", "json", trace])
    try:
        findings = json.loads(ended.out)["findings"]
    except (ValueError, KeyError):
        return None
    return [(one["rule"], one["call"] and one["call"]["call"]) for one in findings if one["confidence"] != "contents"]


def rows_of(cutape, program, results):
    """Lines of the table, and what is wrong."""
    source, lines, wrong = results / f"{program.name}.cutape", [], []
    source.unlink(missing_ok=True)
    recorded = Ended([cutape, "record", *DRIVER, "-o", source, "--", program])
    if not source.exists():
        return [], [f"{program.name}: not recorded: {recorded.message()[-200:]}"]
    before, replayed = found(cutape, source), Ended([cutape, "replay", *DRIVER, source])
    for removed, contents in CHOICES:
        target = results / f"{program.name}.redacted.cutape"
        target.unlink(missing_ok=True)
        ended = Ended([cutape, "redact", source, "--remove", removed, "--contents", contents, "-o", target])
        if ended.status != 0:
            wrong.append(f"{program.name}: redact: {ended.message()[-200:]}")
            continue
        after, again = found(cutape, target), Ended([cutape, "replay", *DRIVER, target])
        is_same = before is not None and before == after
        sizes = [path.stat().st_size >> 10 for path in (source, target)]
        short = "all" if removed == ALL else "env, paths"
        cells = [short, contents, *sizes, f"{ended.seconds:.1f}", "same" if is_same else "OTHER", again.status, replayed.status]
        lines.append("  ".join([f"{program.name:28}"] + [f"{str(cell):>12}" for cell in cells]))
        if not is_same:
            wrong.append(f"{program.name}: findings {before} before, {after} after")
        if removed != ALL and again.status != replayed.status:
            wrong.append(f"{program.name}: the replay ended with {again.status}: {again.message()[-300:]}")
    return lines, wrong


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    cutape = package / "cutape"
    names = sys.argv[3:] or OTHERWISE
    programs = [path for path in sorted((package / "programs").glob("clean.*")) if os.access(path, os.X_OK)]
    programs = [path for path in programs if any(name in path.name for name in names)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        rows = list(pool.map(lambda program: rows_of(cutape, program, results), programs))
    lines = ["  ".join([f"{'program':28}"] + [f"{column:>12}" for column in COLUMNS])]
    lines += [line for of, _ in rows for line in of]
    wrong = [problem for _, of in rows for problem in of]
    text = "\n".join([*lines, "", *wrong, f"{len(wrong)} problems"]) + "\n"
    (results / "table.txt").write_text(f"{time.strftime('%Y-%m-%d')}\n\n{machine(cutape, results, package / 'programs')}\n{text}")
    print(text)
    return 1 if wrong or len(lines) == 1 else 0


if __name__ == "__main__":
    sys.exit(main())
