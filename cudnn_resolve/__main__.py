"""`python -m cudnn_resolve`."""

from __future__ import annotations

import sys

from cudnn_resolve.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
