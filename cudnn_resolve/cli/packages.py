"""Where packages come from: options and the target's configuration to a source of packages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudnn_resolve.cli.options import Options
    from cudnn_resolve.cli.request import Wishes
    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.requirement.source import Direct, Source


def open_packages(options: Options, wishes: Wishes, facts: Facts) -> Source | None:
    """The indexes that the options or the configuration of the target's pip or uv name."""
    del options, wishes, facts
    return None


def direct_of(wishes: Wishes, source: Source | None, facts: Facts) -> Sequence[Direct]:
    """What is behind the archives and folders that the wishes name."""
    del wishes, source, facts
    return ()
