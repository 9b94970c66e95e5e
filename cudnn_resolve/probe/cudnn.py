"""Every copy of cuDNN that could be loaded: where it is, which release, for which CUDA, whether it is whole, and what it lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from cudnn_resolve.facts.cudnn_files import NEWEST_KNOWN, LibraryName, parse_header, parse_name, parts_of
from cudnn_resolve.facts.elf import Elf
from cudnn_resolve.facts.model import CudnnCopy, Problem
from cudnn_resolve.host.port import Host
from cudnn_resolve.probe.cudnn_ask import Said, ask_libraries
from cudnn_resolve.probe.cudnn_needs import find_lacks
from cudnn_resolve.probe.cudnn_owner import Owner, choose_owner, find_owners, same_release
from cudnn_resolve.probe.cudnn_places import find_directories
from cudnn_resolve.probe.environment import TargetEnvironment
from cudnn_resolve.probe.loader import Loading
from cudnn_resolve.version import CudnnVersion

MOST_COPIES = 64
"""More are not a machine but a mirror."""
_HEADERS = ("cudnn_version.h", "cudnn_version_v{}.h", "cudnn.h", "cudnn_v{}.h")


class Draft(Struct, frozen=True, kw_only=True):
    """The libraries of one soname in one directory."""

    directory: str
    """As it was found."""
    soname: int
    files: Mapping[str, str]
    """Part to the path that the loader would open; "" is libcudnn itself."""

    @property
    def library(self) -> str | None:
        """Path of libcudnn itself; None where only parts lie there."""
        return self.files.get("")

    @property
    def can_answer(self) -> bool:
        """False where the part that knows the version does not lie beside libcudnn, which ends the process when it is asked then."""
        teller = {8: "ops_infer", 9: "graph"}.get(self.soname)
        return teller is None or teller in self.files


def find_copies(host: Host, environment: TargetEnvironment) -> tuple[tuple[CudnnCopy, ...], tuple[Problem, ...]]:
    """Every copy that could be loaded, those that the loader searches first at the beginning, and what is wrong with them."""
    loading = Loading(host, environment)
    drafts = tuple(find_drafts(loading, environment, find_directories(host, environment)))[:MOST_COPIES]
    usable = [draft.library for draft in drafts if draft.library and draft.can_answer and isinstance(loading.look(draft.library), Elf)]
    said, problems = ask_libraries(host, environment, usable)
    copies = []
    found = list(problems)
    for draft in drafts:
        copy, more = _Examination(host, environment, loading, draft).examine(said.get(draft.library or "", Said()))
        copies.append(copy)
        found += more
    return tuple(copies), tuple(dict.fromkeys(found))


def find_drafts(loading: Loading, environment: TargetEnvironment, directories: tuple[str, ...]) -> Iterator[Draft]:
    """The libraries in the directories by soname; the same files under two names, and files of another architecture, only once or not."""
    seen: set[frozenset[str]] = set()
    for directory in directories:
        for soname, names in _by_soname(loading, directory).items():
            files = {name.part: f"{directory}/{name.file}" for name in reversed(_preferred(names, soname))}
            real = frozenset(loading.identify(path) for path in files.values())
            elf = loading.look(next(iter(files.values())))
            if real in seen or (isinstance(elf, Elf) and environment.arch not in (None, elf.arch)):
                continue
            seen.add(real)
            yield Draft(directory=directory, soname=soname, files=files)


def _by_soname(loading: Loading, directory: str) -> dict[int, list[LibraryName]]:
    """The libraries of cuDNN in a directory by the number in their soname, which a name without one does not tell."""
    found: dict[int, list[LibraryName]] = {}
    names = [name for name in map(parse_name, sorted(loading.names(directory))) if name is not None]
    for name in names:
        if name.soname is not None:
            found.setdefault(name.soname, []).append(name)
    for name in () if found else names:
        elf = loading.look(f"{directory}/{name.file}")
        told = parse_name(elf.soname or "") if isinstance(elf, Elf) else None
        if told is not None and told.soname is not None:
            found.setdefault(told.soname, []).append(name)
    return found


def _preferred(names: list[LibraryName], soname: int) -> list[LibraryName]:
    """Names in the order in which they count: the one that programs ask for, then the highest number."""
    return sorted(
        names,
        key=lambda name: (name.numbers == str(soname) and not name.mangled, CudnnVersion(name.numbers or "0")),
        reverse=True,
    )


class _Examination:
    """One draft looked at from all sides."""

    def __init__(self, host: Host, environment: TargetEnvironment, loading: Loading, draft: Draft) -> None:
        self._host = host
        self._environment = environment
        self._loading = loading
        self._draft = draft
        self._label = f"cuDNN in {draft.directory}"
        self._said = Said()
        self._faults: list[str] = []
        self._problems: list[Problem] = []
        self._is_mixed = False

    def examine(self, said: Said) -> tuple[CudnnCopy, list[Problem]]:
        """The copy, and the problems that are of the machine rather than of the copy alone."""
        self._said = said
        real = self._real_directory()
        owners = find_owners(self._host, self._environment, real, self._draft.soname)
        told = said.version or self._named_version() or self._header_version()
        owner = choose_owner(owners, told, str(said.cuda.major) if said.cuda else None)
        version = self._version(told, owner)
        cuda = said.cuda.line if said.cuda else (owner.package.cuda if owner.package else None)
        self._judge_library()
        missing = self._missing_parts(version, owner)
        self._judge_releases()
        self._judge_owners(owners, owner)
        self._judge_needs(version, cuda)
        if self._is_mixed:
            self._problems.append(Problem(what=self._label, why="; ".join(self._faults)))
        copy = CudnnCopy(
            version=version.text if version else None,
            soname=self._draft.soname,
            cuda=cuda,
            path=real,
            source=owner.source,
            complete=self._is_complete(missing),
            parts=tuple(sorted(part for part in self._draft.files if part)),
            owner=owner.name,
            problems=tuple(self._faults),
        )
        return copy, self._problems

    def _is_complete(self, missing: tuple[str, ...]) -> bool | None:
        """None for a generation of cuDNN whose parts nobody here knows."""
        if self._draft.library is None or missing or self._is_mixed:
            return False
        return None if self._draft.soname > NEWEST_KNOWN else True

    def _real_directory(self) -> str:
        """The directory with links resolved: where a link leads to a library elsewhere, it is still this one."""
        return self._loading.identify(self._draft.directory)

    def _version(self, told: CudnnVersion | None, owner: Owner) -> CudnnVersion | None:
        """The version that is told, with the build number of the package where that is the same release."""
        package = owner.package
        if package is None:
            return told
        if told is None or same_release(package.version, told):
            return package.version
        self._faults.append(f"the files are {told}, though {owner.label} is installed")
        self._problems.append(Problem(what=self._label, why=self._faults[-1]))
        return told

    def _named_version(self) -> CudnnVersion | None:
        """The release in the name of the file behind the soname, `libcudnn.so.8.9.7`."""
        if self._draft.library is None:
            return None
        name = parse_name(self._loading.identify(self._draft.library).rpartition("/")[2])
        return name.version if name else None

    def _header_version(self) -> CudnnVersion | None:
        """The release in a header that lies where this copy's headers would."""
        above = self._draft.directory.rpartition("/")[0]
        parent = above.rpartition("/")[0]
        arch = self._environment.arch or "x86_64"
        folders = [f"{above}/include", f"{self._draft.directory}/include"]
        if self._draft.directory.endswith(f"/{arch}-linux-gnu"):
            folders = [f"{parent}/include/{arch}-linux-gnu", f"{parent}/include"]
        for folder in folders:
            for file in _HEADERS:
                version = parse_header(self._host.read_text(f"{folder}/{file.format(self._draft.soname)}") or "")
                if version is not None and version.major == self._draft.soname:
                    return version
        return None

    def _judge_library(self) -> None:
        library = self._draft.library
        if library is None:
            self._faults.append(f"parts of cuDNN {self._draft.soname} without libcudnn.so.{self._draft.soname} itself")
            return
        elf = self._loading.look(library)
        if isinstance(elf, str):
            self._faults.append(f"{library.rpartition('/')[2]} cannot be used: {elf}")
        name = parse_name(library.rpartition("/")[2])
        if name is not None and not name.mangled and name.numbers != str(self._draft.soname):
            self._faults.append(f"there is no libcudnn.so.{self._draft.soname}, the name that programs ask for, only {name.file}")
        if self._said.fault is not None:
            self._faults.append(f"{library.rpartition('/')[2]} {self._said.fault}")
            self._problems.append(Problem(what=self._label, why=self._said.fault))

    def _missing_parts(self, version: CudnnVersion | None, owner: Owner) -> tuple[str, ...]:
        release = version or CudnnVersion(str(self._draft.soname))
        jit = owner.package is not None and owner.package.jit
        missing = tuple(part for part in parts_of(release, jit=jit) if part not in self._draft.files)
        if missing and len(missing) == len(parts_of(release, jit=jit)):
            self._faults.append("none of its parts lies beside it: they are looked for elsewhere")
        elif missing:
            names = ", ".join(f"libcudnn_{part}.so.{self._draft.soname}" for part in missing)
            self._faults.append(f"incomplete: {names} {'is' if len(missing) == 1 else 'are'} not there")
        return missing

    def _judge_releases(self) -> None:
        """Parts of several releases: by the names of their files, or because libcudnn says so."""
        by_release: dict[str, list[str]] = {}
        for path in self._draft.files.values():
            name = parse_name(self._loading.identify(path).rpartition("/")[2])
            if name is not None and name.version is not None:
                by_release.setdefault(name.version.text, []).append(name.file)
        if len(by_release) > 1:
            self._is_mixed = True
            self._faults.append("mixed releases: " + "; ".join(", ".join(sorted(files)) for _, files in sorted(by_release.items())))
        if self._said.other_release:
            self._is_mixed = True
            names = ", ".join(f"libcudnn_{part}.so.{self._draft.soname}" for part in self._said.other_release)
            self._faults.append(f"mixed releases: libcudnn does not take {names} for its own (CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH)")

    def _judge_owners(self, owners: tuple[Owner, ...], owner: Owner) -> None:
        """Wheels that wrote over each other's files, and files that are not what their wheel brought."""
        if len(owners) > 1 and owner.source == "pip":
            labels = sorted(one.label for one in owners)
            why = f"they own the same files in {self._draft.directory}; those that lie there are of {owner.label}"
            self._problems.append(Problem(what=" and ".join(labels), why=f"{why}, and uninstalling one takes them from the other"))
        if owner.strange:
            self._is_mixed = self._is_mixed or len(owner.strange) < len(self._draft.files)
            self._faults.append(f"not the files that {owner.label} brought: {', '.join(owner.strange)}")
        if owner.gone:
            self._faults.append(f"gone since {owner.label} was installed: {', '.join(owner.gone)}")

    def _judge_needs(self, version: CudnnVersion | None, cuda: str | None) -> None:
        """Libraries that it needs, or opens when it is used, and that the loader would not find from here."""
        library = self._draft.library
        if library is not None and isinstance(self._loading.look(library), Elf):
            release = version or CudnnVersion(str(self._draft.soname))
            major = int(cuda.partition(".")[0]) if cuda else None
            self._faults += find_lacks(self._host, self._environment, self._loading, self._draft.files, (release, major))
