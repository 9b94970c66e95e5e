"""The tables on disk: where they are, read and checked once, then from a compiled copy in the user's cache.

The shipped tables are the `_matrices` directory of the installed package, or in a checkout its top-level `matrices/`. Overlays
have the same layout and come from `--matrix DIR` and from the `[tool.cudnn-resolve]` table of the user's pyproject.toml.
"""

from __future__ import annotations

import os
import re
import stat as modes
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cudnn_resolve.errors import MatrixError, WorldError
from cudnn_resolve.host.settings import read_project_settings
from cudnn_resolve.host.shippedcopy import FOLDER, ShippedCopies, copy_of
from cudnn_resolve.host.tablecache import TableCache, default_cache
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.parse import Compiled, Fault, compile_table, decode
from cudnn_resolve.matrix.table import TABLES, table_form

LARGEST_FILE_BYTES = 32 * 1024 * 1024
"""No table comes near; a file beyond is refused before it is read."""

__all__ = ["DirectoryTables", "check_tables", "open_book", "read_project_settings", "shipped_directory"]

_Path = str | os.PathLike[str]


def open_book(matrix_dirs: Sequence[_Path] = (), project: _Path | None = None) -> Book:
    """The book of the shipped tables under the overlays of the project around `project` and then those of `matrix_dirs`.

    Overlays are read and checked whole, so MatrixError names every fault of them; a shipped table is checked when it is first
    needed. InputError where the project's settings cannot be read, WorldError where the shipped tables are not there.
    """
    named: Sequence[str] = read_project_settings(project).get("matrix", ()) if project is not None else ()
    overlays = [*named, *(os.fspath(one) for one in matrix_dirs)]
    cache = default_cache()
    shipped = shipped_directory()
    base = DirectoryTables(shipped, label="matrices", cache=cache, copies=ShippedCopies(os.path.join(os.path.dirname(shipped), FOLDER)))
    layers = [DirectoryTables(path, label=path, cache=cache, overlay=True) for path in overlays]
    book = Book(base, *layers)
    if layers:
        faults = [fault for layer in layers for fault in layer.faults()]
        if not faults:
            from cudnn_resolve.matrix.law import overlay_faults

            faults.extend(overlay_faults(book))
        if faults:
            raise _refusal(faults, ", ".join(layer.label for layer in layers))
    return book


def check_tables(matrix_dirs: Sequence[_Path] = ()) -> tuple[Fault, ...]:
    """Every fault of the shipped tables and of the overlays; the laws are asked only where every table can be read."""
    from cudnn_resolve.matrix.law import check

    layers = [DirectoryTables(shipped_directory(), label="matrices")]
    layers += [DirectoryTables(path, label=os.fspath(path), overlay=True) for path in matrix_dirs]
    faults = [fault for layer in layers for fault in layer.faults()]
    return tuple(faults) if faults else check(Book(*layers))


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

    `overlay` relaxes what a table must hold, see `parse.compile_table`. Without a `cache`, and `copies` that come with the program, every
    table is compiled anew.
    """

    def __init__(
        self, directory: _Path, *, label: str, cache: TableCache | None = None, overlay: bool = False, copies: ShippedCopies | None = None
    ) -> None:
        self.directory = os.path.abspath(os.fspath(directory))
        self.label = printable(label)
        self._cache, self._copies, self._overlay = cache, copies, overlay
        self._files: dict[str, str] | None = None
        self._stray: list[Fault] = []
        self._loaded: dict[str, Compiled] = {}

    def names(self) -> Sequence[str]:
        """Every table of which there is a file; MatrixError where the directory cannot be listed."""
        return tuple(self._listed())

    def path(self, name: str) -> str:
        """The file of a table, as messages show it."""
        return f"{self.label}/{name}.toml"

    def load(self, name: str) -> Compiled:
        """One table, checked; MatrixError with every fault of it where it is malformed or cannot be read."""
        found = self._loaded.get(name)
        if found is None:
            found, faults = self._compile(name)
            if faults:
                raise _refusal(faults, self.label)
            self._loaded[name] = found
        return found

    def head(self, name: str) -> Mapping[str, Any]:
        """The head of one table; from the cache it comes without the rows."""
        if name not in self._loaded:
            file = self._file(name)
            head = self._copies.head(name, file) if self._copies is not None else None
            if head is None and self._cache is not None:
                head = self._cache.head(file)
            if head is not None:
                return head
        found: Mapping[str, Any] = self.load(name)["head"]
        return found

    def faults(self) -> list[Fault]:
        """Every fault of every file of the directory; empty where all can be used."""
        try:
            names = self.names()
        except MatrixError as error:
            return [Fault(file=self.label, place="", message=error.faults[0])]
        found = list(self._stray)
        for name in names:
            if name not in self._loaded:
                compiled, faults = self._compile(name)
                found.extend(faults)
                if not faults:
                    self._loaded[name] = compiled
        return found

    def copies(self) -> Iterator[tuple[str, bytes]]:
        """Name and compiled copy of every table, as a wheel carries them; MatrixError where one is malformed."""
        for name in sorted(self.names()):
            yield name, copy_of(self._read(name)[0], self.load(name))

    def version(self) -> str:
        """The newest day on which a source was read and a digest of every file, `2026-11-21.3f9a0c41`."""
        from hashlib import sha256

        digest, days = sha256(), {"0000-00-00"}
        for name in sorted(self.names()):
            content = self._read(name)[0]
            digest.update(f"{name} {len(content)}\n".encode() + content)
            days.update(day.decode() for day in re.findall(rb"^read = (\d{4}-\d\d-\d\d)", content, re.MULTILINE))
        return f"{max(days)}.{digest.hexdigest()[:8]}"

    def _file(self, name: str) -> str:
        return self._listed()[name]

    def _listed(self) -> dict[str, str]:
        """Table name to file."""
        if self._files is None:
            files = {}
            try:
                for name, path in _toml_files(self.directory):
                    if table_form(name) is not None:
                        files[name] = path
                    else:
                        self._stray.append(Fault(file=f"{self.label}/{printable(name)}.toml", place="", message=_no_table()))
            except OSError as error:
                message = f"is not a directory that can be read ({error.strerror})"
                raise MatrixError(f"cannot read the tables in {self.label}", faults=(f"{self.label}: {message}",)) from None
            self._files = files
        return self._files

    def _compile(self, name: str) -> tuple[Compiled, tuple[Fault, ...]]:
        path = self._file(name)
        kept = self._copies.table(name, path) if self._copies is not None else None
        if kept is None and self._cache is not None:
            kept = self._cache.table(path)
        if kept is not None:
            return kept, ()
        file = self.path(name)
        try:
            content, seen = self._read(name)
            raw = decode(content.decode("utf-8"))
        except OSError as error:
            return {}, (Fault(file=file, place="", message=f"cannot be read ({error.strerror})"),)
        except UnicodeDecodeError as error:
            return {}, (Fault(file=file, place="", message=f"is not UTF-8 (byte {error.start})"),)
        except ValueError as error:
            return {}, (Fault(file=file, place="", message=f"is not TOML: {printable(str(error))}"),)
        compiled, faults = compile_table(name, raw, file=file, overlay=self._overlay)
        if not faults and self._cache is not None:
            self._cache.keep(path, seen, compiled)
        return compiled, faults

    def _read(self, name: str) -> tuple[bytes, os.stat_result]:
        """Content and state of a table's file; OSError where it is no regular file of a reasonable size."""
        # Not blocking: a pipe in the place of a file must not stop us.
        descriptor = os.open(self._file(name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            seen = os.fstat(stream.fileno())
            if not modes.S_ISREG(seen.st_mode):
                raise OSError(0, "not a regular file")
            if seen.st_size > LARGEST_FILE_BYTES:
                raise OSError(0, f"larger than {LARGEST_FILE_BYTES >> 20} MiB")
            return stream.read(LARGEST_FILE_BYTES), seen


def printable(text: str) -> str:
    """`text` without what a terminal cannot show: undecodable bytes of a file name, control characters."""
    shown = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in shown)


def _toml_files(directory: str) -> Iterator[tuple[str, str]]:
    """Name (`cudnn/release`) and path of each TOML file of a directory and of its folders."""
    folders = []
    for entry in sorted(os.scandir(directory), key=lambda one: one.name):
        if entry.name.endswith(".toml"):
            yield entry.name[:-5], entry.path
        elif not entry.name.startswith(".") and entry.is_dir():
            folders.append(entry)
    for folder in folders:
        for entry in sorted(os.scandir(folder.path), key=lambda one: one.name):
            if entry.name.endswith(".toml"):
                yield f"{folder.name}/{entry.name[:-5]}", entry.path


def _no_table() -> str:
    return f"is not the file of a table; there are {', '.join(sorted(f'{name}.toml' for name in TABLES))}"


def _refusal(faults: Sequence[Fault], where: str) -> MatrixError:
    count = "a fault" if len(faults) == 1 else f"{len(faults)} faults"
    hint = "install cudnn-resolve again, or report this" if where == "matrices" else "`cudnn-resolve matrix check` reads the overlays again"
    return MatrixError(f"{count} in the tables of {where}", faults=tuple(map(str, faults)), hint=hint)
