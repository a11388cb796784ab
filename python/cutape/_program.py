"""Where the program `cutape` is, and how tests run it."""

import os
import shutil
import subprocess

from cutape import program


def path() -> str:
    """The program of this package; in cutape's sources the one on the search path."""
    try:
        return program()
    except FileNotFoundError as error:
        found = shutil.which("cutape")
        if found is None:
            raise FileNotFoundError(f"{error}; there is none on the search path either") from None
        return found


def unrecorded_environment() -> dict:
    """This process's environment without what makes cutape record a program.

    A replay or a check that a recorded test starts must not become part of the recording.
    """
    environment = dict(os.environ)
    for name in ("CUTAPE_TRACE", "CUTAPE_DRIVER", "CUTAPE_BACKEND", "CUTAPE_AUDIT_LEADS_TO"):
        environment.pop(name, None)
    for name in ("LD_AUDIT", "LD_PRELOAD", "NVTX_INJECTION64_PATH"):
        libraries = environment.get(name, "").split(":")
        own = [one for one in libraries if os.path.basename(one).startswith("libcutape")]
        if own:
            rest = ":".join(one for one in libraries if one not in own)
            environment[name] = rest
            if not rest:
                del environment[name]
    return environment


def run(*arguments) -> subprocess.CompletedProcess:
    """Runs `cutape` and collects what it prints."""
    command = [path(), *map(str, arguments)]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace",
        env=unrecorded_environment(), check=False,
    )
