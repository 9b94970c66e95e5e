"""The tables on disk: where they are, read and checked once, then from a compiled copy.

The shipped tables are the `_matrices` directory of the installed package, or in a checkout its top-level `matrices/`. Overlays
have the same layout and come from `--matrix DIR` and from the `[tool.cudnn-resolve]` table of the user's pyproject.toml. Whoever fetches a
project runs commands in its folder, so the overlay of a project may not change what leads to root: `ROOT_FOLDER`.
"""

from __future__ import annotations

import os
import re
import stat as modes
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from cudnn_resolve.errors import MatrixError, WorldError
from cudnn_resolve.host.interrupt import held_back
from cudnn_resolve.host.tablecache import SHIPPED, Copies, checksum, user_copies
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.position import Fault
from cudnn_resolve.matrix.row import AptPackage, CudnnBuild
from cudnn_resolve.matrix.table import TABLES, PartT, Table, arrays_of, decode_part, decode_table, encode
from cudnn_resolve.matrix.toml import decode

LARGEST_FILE_BYTES = 32 * 1024 * 1024
"""No table comes near; a file beyond is refused before it is read."""

ROOT_FOLDER = "apt/"
"""Tables whose rows lead to root: repositories, their keys, and packages of the system."""

_Path = str | os.PathLike[str]
_T = TypeVar("_T")
_DAY = re.compile(rb"\d{4}-\d\d-\d\d")


def open_book(matrix_dirs: Sequence[_Path] = (), project_dirs: Sequence[str] = ()) -> Book:
    """The book of the shipped tables under the overlays that a project's settings name and then those of `matrix_dirs`.

    Overlays are read and checked whole, so MatrixError names every fault of them; a shipped table is checked when it is first
    needed. WorldError where the shipped tables are not there.
    """
    layers = _overlays(matrix_dirs, project_dirs)
    book = Book(_shipped(), *layers)
    if layers:
        faults = [fault for layer in layers for fault in layer.faults()]
        if not faults:
            from cudnn_resolve.matrix.table_rules import overlay_faults

            faults.extend(overlay_faults(book))
        if faults:
            raise _refusal(faults, ", ".join(layer.label for layer in layers))
    return book


def check_tables(matrix_dirs: Sequence[_Path] = (), project_dirs: Sequence[str] = ()) -> tuple[Fault, ...]:
    """Every fault of the shipped tables and of the overlays; the rules are asked only where every table can be read."""
    from cudnn_resolve.matrix.table_rules import check

    layers = [_shipped(), *_overlays(matrix_dirs, project_dirs)]
    faults = [fault for layer in layers for fault in layer.faults()]
    return tuple(faults) if faults else check(Book(*layers))


def _shipped() -> DirectoryTables:
    shipped = shipped_directory()
    compiled = os.path.join(os.path.dirname(shipped), SHIPPED)
    copies = (lambda _: Copies(compiled)) if os.path.isdir(compiled) else user_copies
    return DirectoryTables(shipped, label="matrices", copies=copies)


def _overlays(matrix_dirs: Sequence[_Path], project_dirs: Sequence[str]) -> list[DirectoryTables]:
    return [
        *(DirectoryTables(path, label=path, copies=user_copies, overlay=True, of_project=True) for path in project_dirs),
        *(DirectoryTables(path, label=os.fspath(path), copies=user_copies, overlay=True) for path in matrix_dirs),
    ]


def shipped_directory() -> str:
    """The directory of the shipped tables; WorldError where there is none."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    installed = os.path.join(package, "_matrices")
    checkout = os.path.join(os.path.dirname(package), "matrices")
    for path in (installed, checkout):
        if os.path.isdir(path):
            return path
    raise WorldError(
        "the compatibility tables are missing from this installation",
        code="matrix-missing",
        context=f"neither {printable(installed)} nor {printable(checkout)} is a directory",
        hint="install cudnn-resolve again",
    )


class DirectoryTables:
    """The tables of one directory, each read when it is asked for; `label` stands for the directory in messages.

    `overlay` relaxes what a table must hold, see `parse.compile_table`; an overlay `of_project` has no tables of `ROOT_FOLDER`. `copies`
    gives the compiled copies for the directory; without them every table is compiled each time.
    """

    def __init__(
        self,
        directory: _Path,
        *,
        label: str,
        copies: Callable[[str], Copies | None] | None = None,
        overlay: bool = False,
        of_project: bool = False,
    ) -> None:
        self.directory = os.path.abspath(os.fspath(directory))
        self.label = printable(label)
        self._copies = copies(self.directory) if copies is not None else None
        self._overlay = overlay
        self._of_project = of_project
        self._ignored: list[str] = []
        self._files: dict[str, str] | None = None
        self._stray: list[Fault] = []
        self._loaded: dict[str, Table] = {}
        self._bytes: dict[str, bytes | None] = {}
        """The copies that were read."""

    @property
    def remark(self) -> str:
        """Where the rows come from, as every answer says it; empty for the shipped tables."""
        if not self._overlay:
            return ""
        if not self._of_project:
            return f"rows of {self.label} count over the shipped tables (--matrix)"
        left = f"; what leads to root there is ignored ({', '.join(self._ignored)}): only --matrix can name it" if self._ignored else ""
        return f"rows of {self.label} count over the shipped tables for plans made in this folder, since pyproject.toml names it{left}"

    def names(self) -> Sequence[str]:
        """Every table of which there is a file; MatrixError where the directory cannot be listed."""
        return tuple(self._listed())

    def path(self, name: str) -> str:
        """The file of a table, as messages show it."""
        return f"{self.label}/{name}.toml"

    def load(self, name: str) -> Table:
        """One table, checked; MatrixError with every fault of it where it is malformed or cannot be read."""
        found = self._loaded.get(name)
        if found is None:
            found, faults = self._compile(name)
            if faults:
                raise _refusal(faults, self.label)
            found = self._loaded[name] = self._without_root(name, found)
        return found

    def part(self, name: str, part: type[PartT]) -> PartT | None:
        """As much of a table as a struct has; None where there is no copy to read it from, or the whole table is there."""
        return self._kept(name, partial(decode_part, part)) if name not in self._loaded else None

    def faults(self) -> list[Fault]:
        """Every fault of every file of the directory; empty where all can be used."""
        try:
            names = self.names()
        except MatrixError as error:
            return [Fault(file=self.label, place="", message=error.faults[0])]
        found = list(self._stray)
        if self._overlay and not (names or self._stray or self._ignored):
            return [Fault(file=self.label, place="", message="holds no table, such as driver/minimum.toml or framework/torch.toml")]
        for name in names:
            if name not in self._loaded:
                compiled, faults = self._compile(name)
                found.extend(faults)
                if not faults:
                    self._loaded[name] = self._without_root(name, compiled)
        return found

    def _without_root(self, name: str, table: Table) -> Table:
        """Take the apt packages out of a project's rows of cuDNN."""
        if not self._of_project or name != "cudnn/release":
            return table
        rows: tuple[CudnnBuild, ...] = getattr(table, "build")  # noqa: B009 - a field of this kind of table
        bare = tuple(replace(one, apt=AptPackage(), apt_basis=None) for one in rows)
        if bare != rows:
            self._ignored.append(f"apt packages of {name}.toml")
        return replace(table, build=bare)

    def compile(self, copies: Copies) -> None:
        """Write a copy of every table, as a wheel carries them; MatrixError where one is malformed."""
        for name in sorted(self.names()):
            copies.keep(name, self._read(name), encode(self.load(name)))

    def version(self) -> str:
        """The newest day on which a source was read and a check sum of every file, `2026-11-21.3f9a0c41`."""
        newest = b"0000-00-00"
        contents = {name: self._read(name) for name in sorted(self.names())}
        for content in contents.values():
            newest = max(newest, *(part[:10] for part in (b"\n" + content).split(b"\nread = ")[1:] if _DAY.match(part)), b"")
        parts = (part for name, content in contents.items() for part in (f"{name} {len(content)}\n".encode(), content))
        return f"{newest.decode()}.{checksum(parts)}"

    def _listed(self) -> dict[str, str]:
        """Table name to file."""
        if self._files is None:
            files = {}
            try:
                for name, path in _toml_files(self.directory):
                    if self._of_project and name.startswith(ROOT_FOLDER):
                        self._ignored.append(f"{printable(name)}.toml")
                    elif arrays_of(name):
                        files[name] = path
                    else:
                        message = f"is not the file of a table; there are {', '.join(sorted(f'{one}.toml' for one in TABLES))}"
                        self._stray.append(Fault(file=f"{self.label}/{printable(name)}.toml", place="", message=message))
            except (OSError, ValueError) as error:  # a ValueError for a name that no file can have
                message = f"is not a directory that can be read ({getattr(error, 'strerror', None) or 'no such name'})"
                raise MatrixError(f"cannot read the tables in {self.label}", faults=(f"{self.label}: {message}",)) from None
            self._files = files
        return self._files

    def _kept(self, name: str, decoded: Callable[[bytes], _T]) -> _T | None:
        """What a copy of the table says; None where there is none that can be used."""
        try:
            if name not in self._bytes:
                self._bytes[name] = self._copies.load(name, self._read(name)) if self._copies is not None else None
            copy = self._bytes[name]
            return decoded(copy) if copy is not None else None
        except (OSError, ValueError, RecursionError):
            return None

    def _compile(self, name: str) -> tuple[Table, tuple[Fault, ...]]:
        kept = self._kept(name, lambda copy: decode_table(name, copy))
        if kept is not None:
            return kept, ()
        from cudnn_resolve.matrix.parse import compile_table

        file = self.path(name)
        try:
            content = self._read(name)
            raw = decode(content.decode("utf-8"))
        except OSError as error:
            return Table(), (Fault(file=file, place="", message=f"cannot be read ({error.strerror})"),)
        except UnicodeDecodeError as error:
            return Table(), (Fault(file=file, place="", message=f"is not UTF-8 (byte {error.start})"),)
        except ValueError as error:
            return Table(), (Fault(file=file, place="", message=f"is not TOML: {printable(str(error))}"),)
        # msgspec looks types up in dictionaries, and what is raised while Python hashes them there is dropped: Ctrl-C, too.
        with held_back():
            table, faults = compile_table(name, raw, file=file, overlay=self._overlay)
        if not faults and self._copies is not None:
            self._copies.keep(name, content, encode(table))
        return table, faults

    def _read(self, name: str) -> bytes:
        """Content of a table's file; OSError where it is no regular file of a reasonable size."""
        # Not blocking: a pipe in the place of a file must not stop us.
        with open(os.open(self._listed()[name], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as stream:
            seen = os.fstat(stream.fileno())
            if not modes.S_ISREG(seen.st_mode):
                raise OSError(0, "not a regular file")
            if seen.st_size > LARGEST_FILE_BYTES:
                raise OSError(0, f"larger than {LARGEST_FILE_BYTES >> 20} MiB")
            return stream.readall()


def printable(text: str) -> str:
    """`text` without what a terminal cannot show: undecodable bytes of a file name, control characters."""
    shown = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in shown)


def _toml_files(directory: str) -> Iterator[tuple[str, str]]:
    """Name (`cudnn/release`) and path of each TOML file of a directory and of its folders."""
    names = sorted(os.listdir(directory))
    folders = [name for name in names if not name.startswith(".") and not name.endswith(".toml") and os.path.isdir(f"{directory}/{name}")]
    names += [f"{folder}/{name}" for folder in folders for name in sorted(os.listdir(f"{directory}/{folder}"))]
    return ((name[:-5], os.path.join(directory, name)) for name in names if name.endswith(".toml"))


def _refusal(faults: Sequence[Fault], where: str) -> MatrixError:
    count = "a fault" if len(faults) == 1 else f"{len(faults)} faults"
    hint = "install cudnn-resolve again, or report this" if where == "matrices" else "`cudnn-resolve matrix check` reads the overlays again"
    return MatrixError(f"{count} in the tables of {where}", faults=tuple(map(str, faults)), hint=hint)
