"""A machine made up in a test: its files are a dictionary, its programs a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.protocol import TEXT_LIMIT_BYTES, CommandResult, FileStat

Programs = Callable[[tuple[str, ...]], CommandResult | None]


def no_programs(argv: tuple[str, ...]) -> CommandResult | None:
    """Nothing can be run."""
    del argv
    return None


def really(environ: Mapping[str, str]) -> Programs:
    """Programs are really run, with exactly that environment."""
    host = LinuxHost(environ=environ)
    return lambda argv: host.run(argv, timeout_seconds=30)


class FakeHost:
    """Answers from what it was given; a program that `programs` says nothing of is missing."""

    def __init__(
        self,
        files: Mapping[str, str | bytes] | None = None,
        *,
        links: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        executables: Sequence[str] = (),
        programs: Programs = no_programs,
        python: str = "/usr/bin/python3",
    ) -> None:
        self._files = {path: text.encode() if isinstance(text, str) else text for path, text in (files or {}).items()}
        self._files |= {path: b"\x7fELF" for path in executables if path not in self._files}
        self._links = dict(links or {})
        self._executables = frozenset(executables)
        self._programs = programs
        self.environ: Mapping[str, str] = dict(environ or {})
        self.python = python
        self.asked: list[tuple[str, ...]] = []
        """Every command that was run."""

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_seconds: float,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        memory_limit_mib: int | None = None,
    ) -> CommandResult:
        del timeout_seconds, env, input, memory_limit_mib
        self.asked.append(tuple(argv))
        return self._programs(tuple(argv)) or CommandResult(missing=True, stderr=f"{argv[0]} is not there")

    def read_text(self, path: str, limit_bytes: int = TEXT_LIMIT_BYTES) -> str | None:
        content = self.read_bytes(path, 0, limit_bytes)
        return None if content is None else content.decode("utf-8", "replace")

    def read_bytes(self, path: str, offset: int, size: int) -> bytes | None:
        content = self._files.get(self.realpath(path))
        return None if content is None else content[offset : offset + size]

    def list_dir(self, path: str) -> tuple[str, ...]:
        inside = f"{self.realpath(path).rstrip('/')}/"
        known = (*self._files, *self._links)
        return tuple(sorted({one[len(inside) :].partition("/")[0] for one in known if one.startswith(inside)}))

    def stat(self, path: str) -> FileStat | None:
        real = self.realpath(path)
        content = self._files.get(real)
        if content is None and not self.list_dir(real):
            return None
        is_dir = content is None
        size = len(content or b"")
        return FileStat(is_file=not is_dir, is_dir=is_dir, executable=is_dir or real in self._executables, size=size, mtime_ns=0)

    def realpath(self, path: str) -> str:
        for link, target in self._links.items():
            if path == link or path.startswith(f"{link}/"):
                return self.realpath(target + path[len(link) :])
        return path
