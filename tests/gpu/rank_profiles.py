"""Profiles two ranks of which one is slower, in turn (programs/multi/torch_skewed.py), and compares
what the profile says of waits with the time of the kernels. The exit status is 1 if it is wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Of the difference between the ranks' kernels, in each range.
TOLERANCE = 0.1


def run(words, log):
    # NCCL would use multicast over NVLink, which not every virtual machine has.
    variables = {"NCCL_NVLS_ENABLE": "0", "OMP_NUM_THREADS": "4"}
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=300, env=variables | os.environ)
    log.write_text(done.stdout[-20000:] + "\n--- stderr\n" + done.stderr[-20000:])
    if done.returncode:
        sys.exit(f"rank_profiles: {' '.join(map(str, words[:3]))}: exit status {done.returncode}: {done.stderr.strip()[-800:]}")
    return done.stdout


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    folder = results / "ranks"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.cutape"):
        old.unlink()
    cutape, wrong = package / "cutape", []
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    program = HERE / "programs" / "multi" / "torch_skewed.py"
    print(run([cutape, "record", "-o", folder / "run.cutape", "--", *launcher, program], results / "record.txt").strip())
    print(run([cutape, "profile", folder], results / "profile.txt"))
    document = json.loads(run([cutape, "profile", folder, "--format", "json"], results / "json.txt"))
    (results / "profile.json").write_text(json.dumps(document))
    summary, ranks = document["summary"], document["ranks"]

    def expect(what, good, found):
        print(f"{'ok' if good else 'WRONG':6}{what}: {found}")
        if not good:
            wrong.append(what)

    wall = summary["wall_ns"]
    on_path = sum(share["total_ns"] for rank in summary["ranks"] for share in rank["critical_path"]["shares"])
    expect("the path's parts add up to the time", abs(on_path - wall) <= 0.001 * wall, f"{on_path} of {wall}")
    for slow in (1, 0):
        name, fast = f"slow {slow}", 1 - slow
        exchanges = [exchange for exchange in summary["exchanges"] if exchange["range"] == name]
        last = sum(exchange["last"] == slow for exchange in exchanges)
        expect(f"{name}: all-reduces in which rank {slow} is the last", len(exchanges) == 10 and last == 10, f"{last} of {len(exchanges)}")
        waited = sum(arrival["waited_ns"] for exchange in exchanges for arrival in exchange["arrivals"] if arrival["rank"] == fast)
        times = [
            sum(
                work["end_ns"] - work["begin_ns"]
                for work in rank["profile"]["runs"][0]["work"]
                if work["kind"] == "kernel" and "nccl" not in work["name"] and rank["profile"]["calls"].get(str(work.get("call")), {}).get("range") == name
            )
            for rank in ranks
        ]
        difference = times[slow] - times[fast]
        good = abs(waited - difference) <= TOLERANCE * difference
        expect(f"{name}: rank {fast} waits as long as rank {slow} multiplies more", good, f"{waited / 1e6:.3f} ms, {difference / 1e6:.3f} ms")
        rows = [row for row in summary["ranges"] if row["range"] == name]
        expect(f"{name}: bound by rank {slow}", bool(rows) and rows[0]["bound_by"] == slow, rows[:1])
    print(f"{len(wrong)} problems", *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
