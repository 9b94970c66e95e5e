"""Entry point of `python -m cudnn_resolve` and of the installed program."""

from __future__ import annotations

import sys

from cudnn_resolve.host.interrupt import silent_interrupt

with silent_interrupt():  # Ctrl-C during imports exits silently: there is nothing to put back yet
    from cudnn_resolve.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
