"""Traces with hashes instead of payloads have the same replay and the same findings as with bytes.

    python3 tests/gpu/hashes.py PACKAGE TRACES RESULTS [DRIVER]

PACKAGE is the output of `cargo xtask package`. TRACES is a folder of traces that were recorded on
this machine, for example the `traces` of tests/gpu/run.sh. Each is replayed unchanged, with hashes of
the returned bytes, and with hashes of all payloads. RESULTS gets the traces, the reports and
table.txt. The exit status is 1 if a result differs, or if no bytes were compared by their hash.
"""

import json
import subprocess
import sys
from pathlib import Path


def run(*words):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)


def replayed(cutape, trace, driver):
    """The report of a replay; None if it was refused."""
    report = trace.with_suffix(".json")
    report.unlink(missing_ok=True)
    run(cutape, "replay", *driver, "--keep-going", "--report", report, trace)
    return json.loads(report.read_text()) if report.exists() else None


def findings(cutape, trace):
    answer = run(cutape, "check", "--format", "json", trace)
    return [(found["rule"], (found["call"] or {}).get("call")) for found in json.loads(answer.stdout)["findings"]]


def tried(cutape, trace, results, driver):
    """The cells of a trace's row, and what is wrong."""
    wrong = []
    kept = {"outputs": ["--outputs", "hash"], "both": ["--payloads", "hash", "--outputs", "hash"]}
    copies = {}
    for name, options in kept.items():
        copies[name] = results / f"{trace.stem}.{name}.cutape"
        copies[name].unlink(missing_ok=True)
        packed = run(cutape, "pack", *options, "-o", copies[name], trace)
        if packed.returncode != 0:
            return ["-"] * 5, [packed.stderr.strip()]
    whole = results / f"{trace.stem}.cutape"
    whole.unlink(missing_ok=True)
    run(cutape, "pack", "-o", whole, trace)
    if findings(cutape, whole) != findings(cutape, copies["both"]):
        wrong.append("other findings")
    reports = [replayed(cutape, path, driver) for path in (whole, copies["outputs"], copies["both"])]
    if None in reports:
        # On a machine that does not fit, all three are refused.
        return ["refused"] * 5, [] if not any(reports) else ["refused only as one of them"]
    first, hashed, both = reports
    for key in ("divergence_count", "bytes_compared", "bytes_not_compared"):
        if first[key] != hashed[key]:
            wrong.append(f"{key}: {first[key]} with bytes, {hashed[key]} with hashes")
    if first["bytes_compared_by_hash"] != 0:
        wrong.append("a hash was compared where there is none")
    zeros = any("only a hash" in note for note in both["notes"])
    if zeros and both["bytes_compared"] > first["bytes_compared"]:
        wrong.append("more was compared without payloads than with them")
    return [first["bytes_compared"], hashed["bytes_compared_by_hash"], both["bytes_compared"], whole.stat().st_size, copies["both"].stat().st_size], wrong


def main():
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    package, traces, results = (Path(word).resolve() for word in sys.argv[1:4])
    driver = ["--driver", sys.argv[4]] if len(sys.argv) == 5 else []
    results.mkdir(parents=True, exist_ok=True)
    failed, by_hash = 0, 0
    lines = [f"{'trace':34} {'compared':>12} {'by hash':>12} {'of zeros':>12} {'size':>10} {'hashed':>10}"]
    for trace in sorted(traces.glob("*.cutape")):
        cells, wrong = tried(package / "cutape", trace, results, driver)
        failed += bool(wrong)
        by_hash += cells[1] if isinstance(cells[1], int) else 0
        lines.append(f"{trace.stem:34} {cells[0]:>12} {cells[1]:>12} {cells[2]:>12} {cells[3]:>10} {cells[4]:>10} {'; '.join(wrong)}".rstrip())
    lines.append(f"{len(lines) - 1} traces, {failed} not as they should be, {by_hash} bytes compared by their hash")
    (results / "table.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    sys.exit(failed > 0 or by_hash == 0)


main()
