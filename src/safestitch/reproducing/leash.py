"""A command that ends with whoever started it: `python -m safestitch.reproducing.leash eval RUN`.

Its standard input is a pipe that the starter holds open. When the pipe closes, because the starter
lets go or has been killed in any way, the command is interrupted as by Ctrl-C and saves what it
has; if it does not end in time, it is killed with every process of its own.
"""

import os
import runpy
import signal
import sys
import threading
import time

PATIENCE = 60.0
"""Seconds that an interrupted command may take to save and end."""


def main() -> None:
    """Run `safestitch` with the arguments given, on the leash."""
    threading.Thread(target=_watch, daemon=True).start()
    sys.argv = ["safestitch", *sys.argv[1:]]
    runpy.run_module("safestitch", run_name="__main__", alter_sys=True)


def _watch() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(PATIENCE)
    if os.getpgrp() == os.getpid():  # started in a session of its own, with nobody else in it
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main()
