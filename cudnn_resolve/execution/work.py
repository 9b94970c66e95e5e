"""The context of an execution: what carries a task out, and how the user wants it done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from cudnn_resolve.execution.fetch import Download, download_local
from cudnn_resolve.execution.model import Reporter, Silent
from cudnn_resolve.host.tool import Tooling

if TYPE_CHECKING:
    from cudnn_resolve.execution.environment import Environment
    from cudnn_resolve.execution.journal import Journal
    from cudnn_resolve.execution.journals import Journals
    from cudnn_resolve.host.hold import Hold
    from cudnn_resolve.host.port import Host
    from cudnn_resolve.requirement.source import Contents


class Work(Struct, frozen=True, kw_only=True):
    """Execution context."""

    host: Host
    environment: Environment
    journals: Journals
    hold: Hold
    words: tuple[str, ...] = ()
    """The words of the command line that ask for it, so that it can be done again."""
    reporter: Reporter = field(default_factory=Silent)
    download: Download = download_local
    verify: Callable[[], tuple[str, ...]] = tuple
    """Looks at the environment again; the differences to what was planned, in words."""
    watch: Callable[[str], None] | None = None
    installer: str = "auto"
    managed: bool = False
    """True where an environment that the system manages may be changed."""
    members: Callable[[Any], Contents | None] | None = None
    """What is in a wheel that is not here yet; where it can be asked, uv may fetch by itself, into its own cache."""
    force: bool = False
    """True where the user has read what others did to the environment meanwhile, and wants it put back all the same."""
    trusted: bool = False
    """True where files that nobody knows a hash of may be installed."""

    def tooling(self, journal: Journal) -> Tooling:
        """What tools of this run have in common."""
        return Tooling(log=journal.log, share=(self.hold.handle,), cwd=journal.folder)
