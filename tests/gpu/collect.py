"""Copies traces of a run of run.py into traces/ and writes traces/manifest.toml.

    python3 tests/gpu/collect.py RESULTS CUTAPE

The script chooses small programs, correct ones and violations, also fatal ones.
"""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLEAN = [
    "clean.copies_2d3d", "clean.events", "clean.init_device", "clean.launch_ex", "clean.launch_struct", "clean.library",
    "clean.link_ptx", "clean.memory_host", "clean.module_fatbin", "clean.per_thread_stream", "clean.threads", "clean.graph",
]
MISUSE = [
    "demo.link_demo", "misuse.double-free.violate", "misuse.double-link-destroy.violate", "misuse.event-after-destroy.violate",
    "misuse.stream-after-destroy.violate", "misuse.memory-after-free.violate", "misuse.context-after-destroy.violate",
    "rules.library-use-after-unload.violate", "rules.link-cubin-after-destroy.violate", "rules.link-use-after-destroy.violate",
    "rules.module-function-after-unload.violate", "rules.module-global-after-unload.violate",
    "rules.module-use-after-unload.violate", "rules.module-double-unload.violate", "rules.link-option-values-lifetime.violate",
]


def source(name):
    group, stem = name.split(".")[:2]
    text = f"tests/programs/{group}/{stem}.c"
    return text + " with -DVIOLATE" if name.endswith(".violate") else text


def said(what, text):
    """The first word after a label of `cutape info`."""
    return re.search(what + " +([^ ]+)", text)[1]


def wanted(name):
    """The rules of the program's `expect:` and `may:` lines."""
    text = (ROOT / source(name).split(" ")[0]).read_text()
    words = {key: set(re.findall(r"\S+", " ".join(re.findall(f"^// {key}: (.*)", text, re.M)))) for key in ("expect", "may")}
    checked = {
        rule["id"]
        for path in (ROOT / "registry" / "rules").glob("*.toml")
        for rule in tomllib.loads(path.read_text())["rule"]
    }
    expected = words["expect"] & checked if name.startswith("demo") or name.endswith(".violate") else set()
    return expected, expected | words["may"]


def main():
    results, cutape = Path(sys.argv[1]), Path(sys.argv[2])
    manifest = ROOT / "traces" / "manifest.toml"
    lines = [
        "# Written by tests/gpu/collect.py from a run of tests/gpu/run.sh on real hardware; those of frameworks are",
        "# from tests/gpu/frameworks.sh, those in perf/ from tests/gpu/perf_corpus.sh, those in played/ from",
        "# tests/gpu/play.sh.",
        "",
    ]
    others = [block for block in manifest.read_text().split("\n\n") if re.search('file = "(frameworks|perf|played)/', block)]
    for group, names in (("clean", CLEAN), ("misuse", MISUSE)):
        folder = ROOT / "traces" / group
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.cutape"):
            old.unlink()
        for name in names:
            file = folder / (re.sub(r"^\w+\.|\.violate$", "", name) + ".cutape")
            if file.exists():
                file = folder / (name.split(".")[0] + "-" + file.name)
            shutil.copyfile(results / "traces" / f"{name}.cutape", file)
            calls = [json.loads(line) for line in subprocess.run([cutape, "dump", "--format", "json", file], capture_output=True, check=True).stdout.splitlines()]
            run = subprocess.run([cutape, "check", "--format", "json", file], capture_output=True)
            found = {finding["rule"] for finding in json.loads(run.stdout)["findings"]}
            expected, allowed = wanted(name)
            if not expected <= found <= allowed:
                sys.exit(f"{name}: found {sorted(found)}, its source expects {sorted(expected)}")
            flight = [call["function"] for call in calls if call["result"] is None]
            meta = subprocess.run([cutape, "info", file], capture_output=True, text=True, check=True).stdout
            lines += [
                "[[trace]]",
                f'file = "{group}/{file.name}"',
                f'program = "{source(name)}"',
                f'date = "{said("started", meta)}"',
                f'driver = "{re.search("libcuda.so.([0-9.]+)", meta)[1]}"',
                f'gpu = "{re.search("GPU +([^,]+),", meta)[1]}"',
                f"calls = {len(calls)}",
            ]
            if flight:
                lines.append(f'in_flight = "{flight[0]}"')
            lines += [f"findings = {json.dumps(sorted(found))}", ""]
    manifest.write_text("\n".join(lines) + "\n".join(f"\n{block.strip()}\n" for block in others))


if __name__ == "__main__":
    main()
