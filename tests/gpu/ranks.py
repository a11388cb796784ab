"""Replays the ranks of programs together and prints a table. The exit status is 1 if a result is
unexpected."""

import json
import os
import shutil
import sys
from pathlib import Path

from real import PROGRAMS, command
from run import Ended

COLUMNS = ["same", "ranks", "shared", "unmatched", "assumed", "findings", "replays", "agree", "divergences", "skipped", "elsewhere", "swapped", "one device", "alone", "by rank", "compared", "exchanges", "kept", "measured", "put back", "extracted"]
REPLAYS = int(os.environ.get("REPLAYS", "10"))
DRIVER = ["--driver", os.environ["DRIVER"]] if os.environ.get("DRIVER") else []
# NCCL would use multicast over NVLink, which not every virtual machine has.
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
os.environ.setdefault("OMP_NUM_THREADS", "4")


# Why calls are skipped that no replay makes.
EXPECTED_SKIPS = ["private table", "the recorded driver was shutting down"]
# Lets NCCL exchange through files in /dev/shm.
THROUGH_FILES = {"NCCL_P2P_DISABLE": "1", "NCCL_CUMEM_HOST_ENABLE": "0"}


class Program:
    """The command, or why it cannot be run here, and its environment."""

    def __init__(self, name, run, why="", variables=None, uses_two_devices=True):
        self.name, self.run, self.why = name, run, why
        # Whether ranks use memory of each other's device.
        self.uses_two_devices = uses_two_devices
        self.environment = os.environ | (variables or {})

    def ended(self, *recorder):
        """Runs it, by itself or with what records it."""
        return Ended([*recorder, *self.run], env=self.environment)


def launched(name, results, suffix="", variables=None, uses_two_devices=True):
    """A script of PyTorch as torchrun starts it, on two devices."""
    source = PROGRAMS / "multi" / f"{name}.py"
    run, why = command(source, results)
    if run is not None:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        run = [run[0], *launcher, source]
    return Program(name + suffix, run, why, variables, uses_two_devices)


def programs(results):
    yield Program("sharing", [results / "sharing", "3"], uses_two_devices=False)
    yield Program("sharing_two_devices", [results / "sharing", "3", "spread"])
    # Through gloo, which copies on the host.
    yield launched("torch_ranks", results, uses_two_devices=False)
    for name in ("torch_nccl", "torch_ddp", "torch_pipeline"):
        yield launched(name, results)
    for name in ("torch_nccl", "torch_ddp", "torch_pipeline"):
        yield launched(name, results, "_files", THROUGH_FILES, uses_two_devices=False)


def traces_of(folder):
    return sorted(folder.glob("*.cutape"))


def new_folder(results, name):
    """A folder without traces."""
    folder = results / name
    folder.mkdir(exist_ok=True)
    for old in traces_of(folder):
        old.unlink()
    return folder


def lines(ended):
    """The printed lines, sorted, because processes print in any order."""
    return sorted(ended.out.splitlines())


def problems_of(ended):
    """What a replay of a folder reported: agreement, the reports of the ranks, problems."""
    try:
        ranks = json.loads(ended.out)["ranks"]
    except (ValueError, KeyError):
        return False, [], [f"status {ended.status}: {ended.message()[-300:]}"]
    problems = []
    for rank in ranks:
        report, label = rank["report"], f"rank {rank['rank']}"
        if report["died"]:
            problems.append(f"{label}: {report['died']['text']}")
        for divergence in report["divergences"][:2]:
            problems.append(f"{label}: call {divergence['call']} {divergence['function']}: {json.dumps(divergence)[:300]}")
        unexpected = [skipped for skipped in report["skipped"] if not any(why in skipped["reason"] for why in EXPECTED_SKIPS)]
        for skipped in unexpected[:3]:
            problems.append(f"{label}: {skipped['count']} x {skipped['function']} not re-issued: {skipped['reason']}")
    return ended.status == 0, ranks, problems


def findings_over_ranks(cutape, folder):
    """What `check` finds between the processes of a correct program: nothing is right."""
    report = json.loads(Ended([cutape, "check", "--format", "json", folder]).out)
    return [finding for finding in report["findings"] if finding["rule"].startswith("ranks-")]


def total(ranks, number):
    return sum(number(rank["report"]) for rank in ranks)


def measure(program, cutape, results):
    folder = new_folder(results, f"{program.name}.traces")
    program.ended()  # what is compiled and cached at first use
    bare = program.ended()
    recorded = program.ended(cutape, "record", *DRIVER, "-o", folder / "run.cutape", "--")
    same = lines(bare) == lines(recorded) and bare.status == recorded.status == 0
    cells = {"same": "yes" if same else "NO"}
    problems = [] if same else [f"bare {bare.status} {bare.message()[-200:]}, recorded {recorded.status} {recorded.message()[-300:]}"]
    info = json.loads(Ended([cutape, "info", "--format", "json", folder]).out)
    shared = info["shared"] or {"objects": [], "unmatched": []}
    cells["ranks"] = len([trace for trace in info["traces"] if trace["calls"]["total"]])
    cells["shared"], cells["unmatched"] = len(shared["objects"]), len(shared["unmatched"])
    cells["assumed"] = sum(known["known_by"] == "order" for known in shared["objects"])
    findings = findings_over_ranks(cutape, folder)
    cells["findings"] = len(findings)
    problems += [f"check: {finding['rule']}: {finding['message']}" for finding in findings[:3]]
    agree, first = 0, None
    for number in range(REPLAYS):
        ended = Ended([cutape, "replay", *DRIVER, "--keep-going", "--format", "json", folder])
        (folder / f"replay{number}.json").write_bytes(ended.out)
        (folder / f"replay{number}.err").write_bytes(ended.err)
        does_agree, ranks, found = problems_of(ended)
        agree += does_agree
        if first is None:
            first = ranks
            problems += found
        if not does_agree and number > 0:
            problems += [f"replay {number}: {text}" for text in found[:3]]
    cells["replays"], cells["agree"] = REPLAYS, agree
    cells["divergences"] = total(first, lambda report: report["divergence_count"])
    cells["skipped"] = total(first, lambda report: sum(skipped["count"] for skipped in report["skipped"]))
    cells["elsewhere"] = total(first, lambda report: report["placed"]["allocations"] - report["placed"]["at_recorded_address"])
    if program.uses_two_devices:
        on_devices, found = measure_devices(cutape, folder)
        cells |= on_devices
        problems += found
    alone = []
    for trace in traces_of(folder):
        ended = Ended([cutape, "replay", *DRIVER, "--keep-going", "--report", "-", trace])
        try:
            alone.append(str(json.loads(ended.out)["divergence_count"]))
        except ValueError:
            alone.append(f"status {ended.status}")
    cells["alone"] = ",".join(alone)
    by_rank, found = measure_by_rank(program, cutape, results, [rank["rank"] for rank in first if rank["rank"] is not None])
    cells |= by_rank
    problems += found
    if agree < REPLAYS:
        problems.append(f"{agree} of {REPLAYS} replays agree")
    return cells, problems


def measure_devices(cutape, folder):
    """All ranks on each other's devices, and the refusal to replay ranks 0 and 1 on one device."""
    cells, problems = {}, []
    swapped = Ended([cutape, "replay", *DRIVER, "--keep-going", "--format", "json", "--devices", "0=1,1=0", folder])
    (folder / "swapped.json").write_bytes(swapped.out)
    does_agree, _, found = problems_of(swapped)
    cells["swapped"] = "yes" if does_agree else "NO"
    if not does_agree:
        problems += [f"on each other's devices: {text}" for text in found[:3] + [swapped.message()[-300:]]]
    one = Ended([cutape, "replay", *DRIVER, "--devices", "0:0=1,1=0", "--devices", "1:0=0,1=1", folder])
    is_refused = one.status == 2 and b"here both are device 1" in one.err
    cells["one device"] = "refused" if is_refused else "NO"
    if not is_refused:
        problems.append(f"two ranks on one device: status {one.status}: {one.message()[-300:]}")
    return cells, problems


def measure_by_rank(program, cutape, results, ranks):
    """Each rank of a recording with the outputs of exchanges, alone on one device: divergences and
    compared bytes by rank, exchanges that were left out, those whose changes were put back."""
    folder = new_folder(results, f"{program.name}.outputs")
    recorded = program.ended(cutape, "record", "--outputs-of-exchanges", *DRIVER, "-o", folder / "run.cutape", "--")
    if recorded.status != 0:
        return {}, [f"recorded with outputs: {recorded.status} {recorded.message()[-300:]}"]
    cells, problems = {name: [] for name in ("by rank", "compared", "exchanges", "kept")}, []
    one_device = os.environ | {"CUDA_VISIBLE_DEVICES": "0"}
    for rank in ranks:
        ended = Ended([cutape, "replay", *DRIVER, "--rank", str(rank), "--keep-going", "--watchdog", "20", "--format", "json", folder], env=one_device)
        (folder / f"rank{rank}.json").write_bytes(ended.out)
        try:
            report = json.loads(ended.out)
        except ValueError:
            problems.append(f"rank {rank} alone: status {ended.status}: {ended.message()[-300:]}")
            continue
        exchanges = report["exchanges"]
        cells["by rank"].append(report["divergence_count"])
        cells["compared"].append(report["bytes_compared"])
        cells["exchanges"].append(sum(left["changing"] for left in exchanges["left_out"]))
        cells["kept"].append(sum(left["put_back"] for left in exchanges["left_out"]))
        if report["died"]:
            problems.append(f"rank {rank} alone: {report['died']['text']}")
        if exchanges["first_missing"]:
            problems.append(f"rank {rank} alone: {json.dumps(exchanges['first_missing'])}")
        for divergence in report["divergences"][:2]:
            problems.append(f"rank {rank} alone: {json.dumps(divergence)[:300]}")
    cells = {name: ",".join(map(str, values)) for name, values in cells.items()}
    for verb in (bench_rank, extract_rank):
        of_verb, found = verb(cutape, results, program.name, folder, one_device)
        cells |= of_verb
        problems += found
    return cells, problems


def bench_rank(cutape, results, name, folder, one_device):
    """The calls of rank 0 that are measured without the others, and what each iteration puts back."""
    short = ["--samples", "10", "--measure-seconds", "0.5", "--warm-up-seconds", "0.1", "--no-plots"]
    ended = Ended([cutape, "bench", *DRIVER, "--rank", "0", *short, "--output", results / f"{name}.bench", "--report", "-", folder], env=one_device)
    (results / f"{name}.bench.json").write_bytes(ended.out)
    try:
        memory = json.loads(ended.out)["memory"][0]
    except (ValueError, LookupError):
        return {}, [f"bench of rank 0: status {ended.status}: {ended.message()[-300:]}"]
    return {"measured": memory["calls"], "put back": memory["put_bytes"]}, []


def extract_rank(cutape, results, name, folder, one_device):
    """Some launches of rank 0, as programs: how many of them write what they wrote in the replay."""
    target = results / f"{name}.launches"
    shutil.rmtree(target, ignore_errors=True)
    ended = Ended([cutape, "extract", *DRIVER, "--rank", "0", folder, target, "--all", "--sample", "20"], env=one_device)
    if ended.status != 0:
        # A program of which every launch exchanges data.
        only_exchanges = b"exchanges data with" in ended.err
        return {"extracted": 0}, [] if only_exchanges else [f"extract of rank 0: {ended.message()[-300:]}"]
    count = len(json.loads((target / "index.json").read_text())["launches"])
    if DRIVER:
        return {"extracted": count}, []
    listed = target / "results.json"
    run = Ended([sys.executable, target / "run_all.py", "--json", listed], env=one_device)
    if not listed.exists():
        return {"extracted": f"0/{count}"}, [f"extracted launches: status {run.status}: {run.message()[-300:]}"]
    ends = json.loads(listed.read_text())["results"]
    # The replay wrote what the recording had; what does so at random is no failure.
    other = [end for end in ends if end["result"] not in ("same", "nondeterministic")]
    problems = [f"extracted {end['file']}: {end['result']} {end['lines'][-1:]}" for end in other[:3]]
    return {"extracted": f"{count - len(other)}/{count}"}, problems


def main():
    package, results, names = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3:]
    cutape = package / "cutape"
    header = "  ".join([f"{'program':22}"] + [f"{column:>11}" for column in COLUMNS])
    table, failed = [header], False
    for program in programs(results):
        if names and program.name not in names:
            continue
        if program.run is None:
            table.append(f"{program.name:22}  skipped: {program.why}")
            continue
        cells, problems = measure(program, cutape, results)
        table.append("  ".join([f"{program.name:22}"] + [f"{str(cells.get(column, '')):>11}" for column in COLUMNS]))
        table += [f"    {problem}" for problem in problems]
        failed |= bool(problems)
    text = "\n".join(table) + "\n"
    (results / "table.txt").write_text(text)
    print(text, end="")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
