"""Loads Frida's agent into each process that requests it through bridge.c, and keeps it there.

    bridge.py SOCKET LOG    serves until standard input ends
    bridge.py --try         exit status 0 if Frida 17.9.5 can load its agent into a process here

Prints "ready" once it listens on SOCKET. LOG gets a line of JSON for each process. At the end it
prints how many functions were replaced in how many processes. The exit status is 1 if a
function could not be replaced, or if no process connected.
"""

import json
import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import frida

# The version that the crate frida-gum is made for.
VERSION = "17.9.5"
SOURCE = (Path(__file__).parent / "bridge.js").read_text()
# A process that any process of the user may trace, like those of bridge.c: PR_SET_PTRACER with
# PR_SET_PTRACER_ANY.
OPEN_TO_ALL = """
import ctypes, time
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
print(flush=True)
time.sleep(60)
"""
# Sessions and their scripts; while their processes live, because dropping them reverts the patches.
kept = {}
# Number of processes by outcome.
outcomes = Counter()


def attach(pid):
    session = frida.attach(pid)
    script = session.create_script(SOURCE)
    kept[id(session)] = session, script
    session.on("detached", lambda *_: kept.pop(id(session), None))
    script.load()
    return script


def patch(channel):
    """Serves one process, from its request to the last of its functions; the line for the log."""
    with channel, channel.makefile("rw") as stream:
        pid, next_request, give_answer = stream.readline().split()
        try:
            script = attach(int(pid))
            program = os.readlink(f"/proc/{pid}/exe")
        except Exception as error:
            stream.write(" ".join(f"{type(error).__name__}: {error}".split()) + "\n")
            raise
        stream.write("attached\n")
    done = script.exports_sync.serve(next_request, give_answer)
    try:
        script.exports_sync.release()
    except frida.InvalidOperationError:
        # The process went on, and has ended or become another program.
        pass
    return {"process": int(pid), "program": program, **done}


def serve(channel, log):
    try:
        line = patch(channel)
        outcomes[f"{line['fast']} functions by replaceFast, {len(line['slow'])} by replace, {len(line['refused'])} by neither"] += 1
    except Exception as error:
        line = {"error": f"{type(error).__name__}: {error}"}
        outcomes[line["error"]] += 1
    log.write(json.dumps(line) + "\n")
    log.flush()


def try_it():
    if frida.__version__ != VERSION:
        return f"Frida {frida.__version__} is here, and {VERSION} is needed"
    process = subprocess.Popen([sys.executable, "-c", OPEN_TO_ALL], stdout=subprocess.PIPE)
    process.stdout.readline()
    try:
        attach(process.pid)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        process.kill()


def main():
    if sys.argv[1:] == ["--try"]:
        return try_it()
    place, log = sys.argv[1:3]
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place)
    listener.listen(64)
    with open(log, "w") as log:

        def accept():
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0], log), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        print("ready", flush=True)
        sys.stdin.read()
        os.unlink(place)
        for outcome, processes in outcomes.most_common():
            print(f"Frida's gum: {processes} processes: {outcome}", flush=True)
        whole = bool(outcomes) and all("0 by neither" in outcome for outcome in outcomes)
        # Sessions end with this process; to wait for each of them is of no use.
        os._exit(0 if whole else 1)


if __name__ == "__main__":
    sys.exit(main())
