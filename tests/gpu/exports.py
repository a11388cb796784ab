"""Tests that a program finds every function of the driver while it is recorded, also unknown ones.

    tests/gpu/exports.py PACKAGE RESULTS [DRIVER]

PACKAGE is the output of `cargo xtask package`. RESULTS gets the trace. The script reads the names from
the driver's file. A process looks each up with `dlsym` in the handle of `dlopen("libcuda.so.1")`, bare
and recorded; with preload also in RTLD_DEFAULT. It calls one unknown function, `cudbgGetAPIVersion`,
which writes three numbers. The exit status is 1 if a name is missing.
"""

import ctypes
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

HARMLESS = "cudbgGetAPIVersion"


def exported(path):
    """The functions whose names begin with cu, from the dynamic symbol table of an ELF file."""
    data = Path(path).read_bytes()
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, start + index * size) for index in range(count)]
    names = set()
    for section in (section for section in sections if section[1] == 11):
        strings = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            name, info, _, where = struct.unpack_from("<IBBH", data, at)
            text = data[strings + name : data.index(b"\0", strings + name)].decode()
            # A function (FUNC or GNU_IFUNC) that is defined here.
            if info & 15 in (2, 10) and where != 0 and text.startswith("cu"):
                names.add(text)
    return sorted(names)


def address(library, name):
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    except AttributeError:
        return None


def look(driver, everywhere):
    """What a program sees: the same text bare and recorded, without `everywhere`."""
    names = exported(driver)
    library = ctypes.CDLL("libcuda.so.1")
    missing = [name for name in names if not address(library, name)]
    print(f"{len(names)} names, {len(missing)} missing", *missing)
    print("cuInit", library.cuInit(0))
    if HARMLESS in names:
        numbers = [ctypes.c_uint32(), ctypes.c_uint32(), ctypes.c_uint32()]
        for _ in range(2):
            result = getattr(library, HARMLESS)(*map(ctypes.byref, numbers))
            print(HARMLESS, result, *(number.value for number in numbers))
    if everywhere:
        loaded = ctypes.CDLL(None)
        missing = [name for name in names if not address(loaded, name)]
        print(f"among all that is loaded: {len(missing)} missing", *missing)


def main():
    package, results = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    results.mkdir(parents=True, exist_ok=True)
    cutape = package / "cutape"
    chosen = ["--driver", sys.argv[3]] if len(sys.argv) > 3 else []
    doctor = subprocess.run([cutape, "doctor", *chosen], capture_output=True, text=True).stdout
    driver = next(line.split(None, 1)[1] for line in doctor.splitlines() if line.startswith("driver "))
    print(doctor)
    trace = results / "exports.cutape"
    trace.unlink(missing_ok=True)
    environment = dict(os.environ, LD_LIBRARY_PATH=f"{Path(driver).parent}:{os.environ.get('LD_LIBRARY_PATH', '')}")
    program = [sys.executable, __file__, "look", driver]
    bare = subprocess.run(program, capture_output=True, text=True, env=environment)
    recorded = subprocess.run([cutape, "record", *chosen, "-o", trace, "--", *program], capture_output=True, text=True)
    preloaded = subprocess.run(
        [cutape, "record", *chosen, "--backend", "preload", "-o", results / "preloaded.cutape", "--", *program, "everywhere"],
        capture_output=True, text=True,
    )
    print("bare:", bare.stdout + bare.stderr, "recorded:", recorded.stdout + recorded.stderr, "preloaded:", preloaded.stdout + preloaded.stderr, sep="\n")
    info = subprocess.run([cutape, "info", "--format", "json", trace], capture_output=True, text=True)
    remarks = json.loads(info.stdout)["remarks"]
    print("remarks:", *remarks, sep="\n")
    *same, everywhere = preloaded.stdout.splitlines() or [""]
    wrong = []
    if bare.returncode or recorded.returncode or preloaded.returncode:
        wrong.append(f"exit status {bare.returncode} bare, {recorded.returncode} recorded, {preloaded.returncode} preloaded")
    if not bare.stdout.splitlines() == recorded.stdout.splitlines() == same:
        wrong.append("the program sees something else recorded")
    if " 0 missing" not in bare.stdout or not everywhere.endswith(": 0 missing"):
        wrong.append("names are missing")
    if HARMLESS in bare.stdout and not any(HARMLESS in remark for remark in remarks):
        wrong.append(f"the trace does not name {HARMLESS}")
    print("exports:", "; ".join(wrong) or "ok")
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["look"]:
        look(sys.argv[2], "everywhere" in sys.argv[3:])
    elif len(sys.argv) in (3, 4):
        sys.exit(main())
    else:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
