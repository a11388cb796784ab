"""cutape records, replays and checks the CUDA driver calls of a program.

The command `cutape` starts here too, so importing this package must stay cheap.
"""

import os

__all__ = ["program"]


def program() -> str:
    """The path of the program `cutape`; its libraries are beside it."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "cutape")
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path}: no such file; install cutape from its wheel")
    return path
