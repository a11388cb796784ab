"""Records programs with a planted misuse and their call stacks; checks which line findings name.

The exit status is 1 if a finding is missing or names another line.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

from run import Ended

PROGRAMS = Path(__file__).resolve().parent / "programs" / "stacks"


def prepared(source, results):
    """The command of a program; or None, and why."""
    if source.suffix == ".py":
        package = source.stem.removeprefix("planted_")
        if importlib.util.find_spec(package) is None:
            return None, f"{package} is not installed"
        return [sys.executable, source], ""
    if not shutil.which("nvcc"):
        return None, "nvcc is not installed"
    options = source.read_text().splitlines()[0].removeprefix("// nvcc:").split()
    binary = results / source.stem
    built = subprocess.run(["nvcc", "-arch=native", "-o", binary, source, *options])
    return ([binary], "") if built.returncode == 0 else (None, "nvcc failed")


def main():
    package, results = (Path(word).resolve() for word in sys.argv[1:3])
    results.mkdir(parents=True, exist_ok=True)
    cutape, wrong = package / "cutape", 0
    print(f"{'program':18} {'stacks':7} {'place':50} {'seconds':>8} {'distinct':>9}")
    for source in sorted(PROGRAMS.iterdir()):
        if sys.argv[3:] and not any(word in source.stem for word in sys.argv[3:]):
            continue
        command, why = prepared(source, results)
        if command is None:
            print(f"{source.stem:18} skipped: {why}")
            continue
        lines = source.read_text().splitlines()
        line = next(number for number, text in enumerate(lines, 1) if text.endswith("misuse"))
        expected = f"{source.name}:{line} in "
        for stacks in ["off", "some", "all"]:
            trace = results / f"{source.stem}.{stacks}.cutape"
            trace.unlink(missing_ok=True)
            ended = Ended([cutape, "record", f"--stacks={stacks}", "-o", trace, "--", *command])
            report = Ended([cutape, "check", "--format", "json", trace])
            facts = json.loads(Ended([cutape, "info", "--format", "json", trace]).out)
            found = json.loads(report.out)["findings"]
            places = {f["call"]["place"] for f in found if f["rule"] == "memory-double-free"}
            named = [place for place in places if expected in place]
            is_right = bool(places) and (stacks == "off" or len(named) == len(places))
            wrong += not is_right or ended.status != 0
            place = ", ".join(sorted(Path(place).name for place in places)) or "no finding"
            mark = "" if is_right else "  WRONG"
            distinct = facts["trace"]["distinct_stacks"]
            print(f"{source.stem:18} {stacks:7} {place[:50]:50} {ended.seconds:8.2f} {distinct:9}{mark}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
