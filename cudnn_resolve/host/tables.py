"""Tables on disk, parsed and checked once and then read from compiled copies.

The shipped tables are the `_matrices` directory of the installed package, or in a checkout its top-level `matrices/`. Overlays
have the same layout and come from `--matrix DIR` and from the `[tool.cudnn-resolve]` table of the user's pyproject.toml. Users run
commands in projects of others, so a project's overlay may not change what is done as root: `ROOT_FOLDER`.
"""

from __future__ import annotations

import os
import re
import stat as modes
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from cudnn_resolve.errors import MatrixError, WorldError
from cudnn_resolve.host.interrupt import deferred_signals
from cudnn_resolve.host.tablecache import SHIPPED, Copies, checksum, user_copies
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.row import AptPackage, CudnnBuild
from cudnn_resolve.matrix.row_fault import Fault
from cudnn_resolve.matrix.table import TABLES, PartT, Table, arrays_of, decode_part, encode, table_type
from cudnn_resolve.matrix.toml import decode

LARGEST_FILE_BYTES = 32 * 1024 * 1024
"""Far above any table; a larger file is refused before it is read."""

ROOT_FOLDER = "apt/"
"""Tables whose rows are acted on as root: repositories, their keys, and packages of the system."""

_Path = str | os.PathLike[str]
_READ_DAY = re.compile(rb"\nread = (\d{4}-\d\d-\d\d)")


def open_book(matrix_dirs: Sequence[_Path] = (), project_dirs: Sequence[str] = ()) -> Book:
    """Book of the shipped tables, overlaid by the directories of a project's settings and then by `matrix_dirs`.

    Overlays are read and checked at once: MatrixError names all their faults. A shipped table is checked when it is first needed.
    Raise WorldError if the shipped tables are missing.
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
    """Every fault of the shipped tables and of the overlays; rules across tables are checked only if every table can be read."""
    from cudnn_resolve.matrix.table_rules import check

    layers = [_shipped(), *_overlays(matrix_dirs, project_dirs)]
    faults = [fault for layer in layers for fault in layer.faults()]
    return tuple(faults) if faults else check(Book(*layers))


def _shipped() -> DirectoryTables:
    shipped = shipped_directory()
    compiled = os.path.join(os.path.dirname(shipped), SHIPPED)
    return DirectoryTables(shipped, label="matrices", copies=Copies(compiled) if os.path.isdir(compiled) else user_copies(shipped))


def _overlays(matrix_dirs: Sequence[_Path], project_dirs: Sequence[str]) -> list[DirectoryTables]:
    places = [*((path, True) for path in project_dirs), *((os.fspath(path), False) for path in matrix_dirs)]
    return [
        DirectoryTables(path, label=path, copies=user_copies(os.path.abspath(path)), overlay=True, of_project=of_project)
        for path, of_project in places
    ]


def shipped_directory() -> str:
    """Directory of the shipped tables; raise WorldError if there is none."""
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
        hint="reinstall cudnn-resolve",
    )


class DirectoryTables:
    """The tables of one directory, each read when it is first needed; `label` names the directory in messages.

    `overlay` relaxes what a table must hold, see `parse.compile_table`; one `of_project` has no tables of `ROOT_FOLDER`. Without
    compiled `copies`, every table is parsed each time.
    """

    def __init__(
        self,
        directory: _Path,
        *,
        label: str,
        copies: Copies | None = None,
        overlay: bool = False,
        of_project: bool = False,
    ) -> None:
        self.directory = os.path.abspath(os.fspath(directory))
        self.label = printable(label)
        self._copies = copies
        self._overlay = overlay
        self._of_project = of_project
        self._ignored: list[str] = []
        self._files: dict[str, str] | None = None
        self._stray: list[Fault] = []
        self._loaded: dict[str, Table] = {}
        self._compiled: dict[str, bytes | None] = {}
        """Content of the copies that were read; None for a copy that is missing or outdated."""

    @property
    def remark(self) -> str:
        """Note that every answer carries about the origin of rows; empty for the shipped tables."""
        if not self._overlay:
            return ""
        if not self._of_project:
            return f"rows of {self.label} override the shipped tables (--matrix)"
        remark = f"rows of {self.label} override the shipped tables for plans made in this folder, because pyproject.toml names it"
        if self._ignored:
            remark += f"; rows that are acted on as root are ignored ({', '.join(self._ignored)}): only --matrix can supply them"
        return remark

    def names(self) -> Sequence[str]:
        """Names of the tables; raise MatrixError if the directory cannot be listed."""
        return tuple(self._listed())

    def path(self, name: str) -> str:
        """File of a table, as messages show it."""
        return f"{self.label}/{name}.toml"

    def load(self, name: str) -> Table:
        """One table, checked; raise MatrixError with all its faults if it is malformed or cannot be read."""
        faults = self._load(name)
        if faults:
            raise _refusal(faults, self.label)
        return self._loaded[name]

    def _load(self, name: str) -> Sequence[Fault]:
        """Load a table unless it is loaded already; its faults if it has any."""
        if name in self._loaded:
            return ()
        table, faults = self._read_table(name)
        if not faults:
            self._loaded[name] = self._without_root(name, table)
        return faults

    def part(self, name: str, part: type[PartT]) -> PartT | None:
        """The fields of a table that a struct has; None if there is no copy to read them from, or the whole table is loaded."""
        return self._from_copy(name, part) if name not in self._loaded else None

    def faults(self) -> list[Fault]:
        """Faults of all files of the directory; empty if all can be used."""
        try:
            names = self.names()
        except MatrixError as error:
            return [Fault(file=self.label, place="", message=error.faults[0])]
        found = list(self._stray)
        if self._overlay and not (names or self._stray or self._ignored):
            return [Fault(file=self.label, place="", message="contains no table, such as driver/minimum.toml or framework/torch.toml")]
        for name in names:
            found.extend(self._load(name))
        return found

    def _without_root(self, name: str, table: Table) -> Table:
        """Remove the apt packages from a project's rows of cuDNN."""
        if not self._of_project or name != "cudnn/release":
            return table
        rows: tuple[CudnnBuild, ...] = getattr(table, "build")  # noqa: B009 - a field of this kind of table
        without = tuple(replace(row, apt=AptPackage(), apt_basis=None) for row in rows)
        if without != rows:
            self._ignored.append(f"apt packages of {name}.toml")
        return replace(table, build=without)

    def compile(self, copies: Copies) -> None:
        """Write a copy of every table, as a wheel carries them; raise MatrixError if one is malformed."""
        for name in sorted(self.names()):
            copies.keep(name, self._read(name), encode(self.load(name)))

    def version(self) -> str:
        """The newest day on which a source was read and a checksum of all files, `2026-11-21.3f9a0c41`."""
        contents = {name: self._read(name) for name in sorted(self.names())}
        days = {day for content in contents.values() for day in _READ_DAY.findall(b"\n" + content)}
        parts = (part for name, content in contents.items() for part in (f"{name} {len(content)}\n".encode(), content))
        return f"{max(days, default=b'0000-00-00').decode()}.{checksum(parts)}"

    def _listed(self) -> dict[str, str]:
        """Path of each table's file, by name."""
        if self._files is None:
            files = {}
            try:
                for name, path in _toml_files(self.directory):
                    if self._of_project and name.startswith(ROOT_FOLDER):
                        self._ignored.append(f"{printable(name)}.toml")
                    elif arrays_of(name):
                        files[name] = path
                    else:
                        message = f"is not a table; the tables are {', '.join(sorted(f'{table}.toml' for table in TABLES))}"
                        self._stray.append(Fault(file=f"{self.label}/{printable(name)}.toml", place="", message=message))
            except (OSError, ValueError) as error:  # ValueError: a name that no file can have
                message = f"is not a readable directory ({getattr(error, 'strerror', None) or 'no such name'})"
                raise MatrixError(f"cannot read the tables in {self.label}", faults=(f"{self.label}: {message}",)) from None
            self._files = files
        return self._files

    def _from_copy(self, name: str, part: type[PartT]) -> PartT | None:
        """Decode the compiled copy of a table, or a part of it; None if there is no usable one."""
        try:
            if name not in self._compiled:
                self._compiled[name] = self._copies.load(name, self._read(name)) if self._copies is not None else None
            copy = self._compiled[name]
            return decode_part(part, copy) if copy is not None else None
        except (OSError, ValueError, RecursionError):
            return None

    def _read_table(self, name: str) -> tuple[Table, tuple[Fault, ...]]:
        """A table, from its copy or else from its file, and the faults of the file."""
        kind = table_type(name)
        table = self._from_copy(name, kind) if kind is not None else None
        if table is not None:
            return table, ()
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
        # msgspec looks types up in dictionaries; exceptions raised while Python hashes keys there are dropped, Ctrl-C included.
        with deferred_signals():
            table, faults = compile_table(name, raw, file=file, overlay=self._overlay)
        if not faults and self._copies is not None:
            self._copies.keep(name, content, encode(table))
        return table, faults

    def _read(self, name: str) -> bytes:
        """Content of a table's file; raise OSError if it is not a regular file of a reasonable size."""
        # Non-blocking, so that a pipe in place of a file cannot hang us.
        with open(os.open(self._listed()[name], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as stream:
            status = os.fstat(stream.fileno())
            if not modes.S_ISREG(status.st_mode):
                raise OSError(0, "not a regular file")
            if status.st_size > LARGEST_FILE_BYTES:
                raise OSError(0, f"larger than {LARGEST_FILE_BYTES >> 20} MiB")
            return stream.readall()


def printable(text: str) -> str:
    """Escape what a terminal cannot show: undecodable bytes of a file name, control characters."""
    decodable = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in decodable)


def _toml_files(directory: str) -> Iterator[tuple[str, str]]:
    """Name (`cudnn/release`) and path of each TOML file in a directory and its immediate subdirectories."""
    names = sorted(os.listdir(directory))
    folders = [name for name in names if not name.startswith(".") and not name.endswith(".toml") and os.path.isdir(f"{directory}/{name}")]
    names += [f"{folder}/{name}" for folder in folders for name in sorted(os.listdir(f"{directory}/{folder}"))]
    return ((name[:-5], os.path.join(directory, name)) for name in names if name.endswith(".toml"))


def _refusal(faults: Sequence[Fault], where: str) -> MatrixError:
    count = "a fault" if len(faults) == 1 else f"{len(faults)} faults"
    hint = "reinstall cudnn-resolve, or report this" if where == "matrices" else "`cudnn-resolve matrix check` checks the overlays again"
    return MatrixError(f"{count} in the tables of {where}", faults=tuple(map(str, faults)), hint=hint)
