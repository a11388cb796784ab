"""The command `cutape`, also as `python -m cutape`."""

import os
import sys

from cutape import program


def main() -> None:
    """Becomes the program `cutape`, with this process's arguments."""
    try:
        path = program()
        os.execv(path, [path, *sys.argv[1:]])
    except OSError as error:
        print(f"cutape: {error}", file=sys.stderr)
        # Cutape's status for an unusable installation.
        sys.exit(2)


if __name__ == "__main__":
    main()
