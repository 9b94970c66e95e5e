"""`python -m cudnn_resolve`, and what the installed program calls."""

from __future__ import annotations

import sys

from cudnn_resolve.host.interrupt import silent_interrupt

with silent_interrupt():  # Ctrl-C while modules are read ends in silence: there is nothing yet to put back
    from cudnn_resolve.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
