"""Libraries on disk: whether a cuDNN is complete, which directories the loader searches, and where a missing library is."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from posixpath import normpath

from cudnn_resolve.diagnosis.model import Match, of_symptom, values_of
from cudnn_resolve.diagnosis.specifier import requirements_of
from cudnn_resolve.facts.model import CudnnCopy, Facts, Loader, Unknown, or_none
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.library_name import Library, library_of
from cudnn_resolve.version import CudaVersion, CudnnVersion, parsed

_OWN_WORDS = ("incomplete: ", "none of its parts ")
"""Prefixes of the probe's wording for missing parts."""
_OF_OTHERS = r"opens \S+(?: and \S+)* when it is used|.{1,400} needs? \S+, which "
"""Prefixes of its wording for other libraries that a copy needs, or opens, and does not find."""
_PRECOMPILED = "engines_precompiled"
_DEFAULT = r"(?:/usr)?/lib(?:64|32)?(?:/[\w-]{1,40}-linux-gnu\w{0,10})?/?"
"""Default directories of the loader (ld.so(8)), including Debian's multiarch names."""
_PART_OF_SYSTEM = rf"(?:^|[\s'\"(]){_DEFAULT}libcudnn_\w{{1,60}}\.so[.\d]{{0,12}}: (?:undefined symbol|symbol lookup)"
"""A part of cuDNN in a default directory that does not fit the others."""
_LACKS = re.compile(
    r"(?:^|[\s'\"(:])(/[^\s'\":]{1,300}/)(lib[\w+.-]{1,60}\.so[\d.]{0,16}): (?:undefined symbol: |symbol )(\w{1,400})"
    r"(?:,? version (lib[\w+-]{1,40}\.so(?:\.\d{1,4}){0,3}))?"
)
"""A library that needs a function of another one: its directory and name, the function, and the other's name."""
_BESIDE_WHEELS = re.compile(r"(.{1,300}/(?:site|dist)-packages/)(?:nvidia/[\w-]{1,30}|torch)/lib/?$")
"""Directory of a library that uses those of NVIDIA's wheels."""
_OF_CONDA = re.compile(
    r"(?i)/(?:[\w.-]{0,12}conda\w{0,4}|(?:mini|micro)?mamba\w{0,6}|miniforge\w{0,4}|mambaforge)(?:/envs/[^/\s]{1,60})?/lib/?$"
)
_JIT_CUDA = re.compile(r"nvJitLink\w{1,40}?_(\d{2})_(\d{1,2})$")
"""CUDA of a function of nvJitLink, as its name states it."""
_GPU_WORDS = r"(?i)cuda|cudnn|nvidia|tensorrt|nvjitlink|cublas|cusparse|nccl"
_DRIVERS_OWN = r"/usr/lib/wsl/|/usr/local/nvidia/|/driver/|^/usr/lib\d{0,2}(?:/[\w-]{1,40}-linux-gnu)?[/-]nvidia[\w.-]{0,40}/(?:current/)?$"
"""Directories in which systems, containers, notebooks and WSL provide the driver."""
_IN_WHEEL_OF = {"cublaslt": "cublas", "cufftw": "cufft", "cusolvermg": "cusolver", "nvjitlink": "nvjitlink"}
_PLACED = ("context-cuda-listed", "context-cuda-listdir", "context-files-listed", "context-rpath")
"""Symptoms whose field `place` is a directory of libraries."""
_NAMES = ("context-cuda-names", "context-cudnn-listed")
"""Symptoms that show a file without its directory."""
_BEFORE = "${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
_EVERY_WHEEL = (
    'import glob, site; print(":".join(d for s in [*site.getsitepackages(), site.getusersitepackages()] '
    'for d in sorted(glob.glob(s + "/nvidia/*/lib"))))'
)


def faults_of(copy: CudnnCopy, book: Book) -> tuple[str, ...]:
    """Defects of a copy; empty for a complete release."""
    missing = missing_parts(copy, book)
    own = tuple(problem for problem in copy.problems if not re.match(_OF_OTHERS, problem))
    if missing is None:
        return own or (("parts of it are missing or of another release",) if copy.complete is False else ())
    others = tuple(problem for problem in own if not problem.startswith(_OWN_WORDS))
    if not missing:
        return others
    files = ", ".join(f"libcudnn_{part}.so.{copy.soname}" for part in missing)
    return (f"incomplete: {files} {'is' if len(missing) == 1 else 'are'} not there", *others)


def lacks_of(copy: CudnnCopy) -> tuple[str, ...]:
    """Other libraries that a copy needs and does not find, as worded by the probe."""
    return tuple(problem for problem in copy.problems if re.match(_OF_OTHERS, problem))


def is_outer_alone(copy: CudnnCopy) -> bool:
    """True for a libcudnn bundled by another package without its parts, which must come from elsewhere.

    auditwheel, which bundles into `.libs`, renames libraries, so that parts are not found there by their own names.
    """
    is_without = copy.parts == () or (copy.parts is None and copy.complete is False and (copy.path or "").endswith(".libs"))
    return is_without and copy.owner is not None and not copy.owner.startswith(("nvidia-cudnn", "libcudnn"))


def missing_parts(copy: CudnnCopy, book: Book) -> tuple[str, ...] | None:
    """Parts of its release that a copy lacks; None if its parts or its release are unknown."""
    version = parsed(CudnnVersion, copy.version)
    if copy.parts is None or version is None:
        return None
    release, major = version.parts[:3], (copy.cuda or "").partition(".")[0]
    known = [build for build in book.cudnn_builds() if build.version.parts[:3] == release and build.parts]
    if len(release) < 3 or not known:
        return None
    build = next((build for build in known if str(build.cuda_major) == major), known[0])
    without = {_PRECOMPILED} if copy.owner and "-jit" in copy.owner else set()
    return tuple(part for part in build.parts if part not in copy.parts and part not in without)


def is_searched(directory: str | None, facts: Facts) -> bool:
    """True for a directory that the loader searches by default, or that its cache contains."""
    loader = or_none(facts.loader) or Loader()
    place = (directory or "").rstrip("/")
    return is_default(place) or place in {path.rpartition("/")[0] for path in loader.ldconfig}


def has_part_of_system(matches: Iterable[Match]) -> bool:
    """True if the loader's output has parts of cuDNN from default and from other directories, or a failing part is in a default one."""
    matches = list(matches)
    loaded = {is_default(str(place)) for place in values_of(matches, "loaded")}
    return len(loaded) > 1 or any(re.search(_PART_OF_SYSTEM, match.text) for match in matches)


def is_default(directory: str) -> bool:
    """True for a default directory of the loader."""
    return re.fullmatch(_DEFAULT, directory) is not None


def path_values(matches: Iterable[Match], facts: Facts | None, python: str, book: Book) -> dict[str, str]:
    """Fields of commands.

    `away`: removes other copies from the loader path, if there are any; `on_path`: adds the library's directory; `wheels_on_path`: adds
    those of all wheels.
    """
    every, matches = wheels_on_path(python), list(matches)
    places = dict.fromkeys(place for library in missing(matches) if (place := place_of(library, facts, book)))
    # If nothing else is known, a directory in which the log itself shows the library.
    places = places or dict.fromkeys(_nearest([place for match in matches if (place := place_listed(match))], python))
    wheels = any("/site-packages/nvidia/" in place and (facts is not None or _is_of(place, python)) for place in places)
    values = {"wheels_on_path": every, "on_path": put_on_path(*places) if places and not wheels else every}
    away = _away(facts)
    return values if away is None else values | {"away": away}


def wheels_on_path(python: str) -> str:
    """Command that puts the directories of all of NVIDIA's wheels first on the loader path."""
    return f"export LD_LIBRARY_PATH=\"$({python} -c '{_EVERY_WHEEL}'){_BEFORE}\""


def put_on_path(*directories: str) -> str:
    """Command that puts directories first on the loader path."""
    return f"export LD_LIBRARY_PATH={':'.join(map(shlex.quote, directories))}{_BEFORE}"


def _nearest(places: Sequence[str], python: str) -> Sequence[str]:
    """Of the directories that a log lists, the first one in the interpreter's environment, else all of them."""
    return next(([place] for place in places if _is_of(place, python)), places)


def _is_of(place: str, python: str) -> bool:
    """True for a directory in the environment of an interpreter, if that is known."""
    return python.endswith("/bin/python") and place.startswith(f"{python.removesuffix('/bin/python')}/")


def own_values(matches: Iterable[Match]) -> dict[str, str]:
    """Fields for the copy of a library that belongs to the one that needs it.

    `own_library`: its file, in the same release of wheels or in the same directory; `own_on_path`: puts its directory first on the loader
    path; `jit_wheel` and `jit_conda`: the requirement of a nvJitLink that has the missing function.
    """
    for hit in (hit for match in matches for hit in _LACKS.finditer(match.text)):
        place, wheels = normpath(hit[1]), _BESIDE_WHEELS.match(normpath(hit[1]))
        needed = hit[4] or ("libnccl.so.2" if hit[3].startswith("nccl") and wheels else hit[2] if hit[2].startswith("libcudnn") else "")
        library = library_of(needed) if needed else None
        if library is not None and library.major is None and library.family == "cudnn":
            library = library_of(hit[2])  # of the same major version; the line was cut
        if library is None or is_default(place) or (library.family == "cudnn" and library.major is None):
            continue
        directory = f"{wheels[1]}nvidia/{wheel_component(library)}/lib" if wheels else place
        file = f"libcudnn.so.{library.major}" if library.family == "cudnn" else library.file
        values = {"own_on_path": put_on_path(directory), "own_library": f"{directory}/{file}"}
        jit = _JIT_CUDA.search(hit[3])
        if jit and wheels and library.major:
            values["jit_wheel"] = shlex.quote(f"nvidia-nvjitlink-cu{library.major}>={jit[1]}.{jit[2]}")
        elif jit and _OF_CONDA.search(place):
            values["jit_conda"] = shlex.quote(f"libnvjitlink>={jit[1]}.{jit[2]}")
        return values
    return {}


def place_listed(match: Match) -> str:
    """Directory in which a log line lists a library; empty without one."""
    field = "where" if match.symptom.id == "context-cudnn-file" else "place" if match.symptom.id in _PLACED else ""
    place = str(match.fields.get(field, "")).rstrip("/")
    return place if place.startswith("/") else ""


def command_of(match: Match | None, matches: Sequence[Match]) -> Match | None:
    """The command that lists the directory of a file which a line shows by its name alone."""
    if match is None or match.symptom.id not in _NAMES:
        return None
    before = (each for each in of_symptom(matches, "context-files-listed") if each.line < match.line)
    command = max(before, key=lambda each: each.line, default=None)
    return command if command and place_listed(command) else None


def shown_at(match: Match | None, matches: Sequence[Match]) -> str:
    """Directory in which a line, or the command that it answers, shows a file; empty if unknown."""
    shown = command_of(match, matches) or match
    return place_listed(shown) if shown else ""


def shown_twice(built: CudnnVersion, matches: Iterable[Match]) -> list[Match]:
    """Lines that show one library of cuDNN in two directories, of which none is another name of the other."""
    places: dict[str, dict[str, Match]] = {}
    for match in matches:
        library = match.fields.get("present")
        if match.symptom.id == "context-cudnn-file" and isinstance(library, Library) and library.major == built.major:
            place = re.sub(r"/targets/[\w-]{1,30}/lib\b", "/lib64", re.sub(r"^/lib", "/usr/lib", str(match.fields.get("where", ""))))
            if place.strip("./\\") and not place.startswith("/usr/local/cuda/"):
                places.setdefault(library.stem, {}).setdefault(place.lower(), match)
    return next((list(shown.values())[:2] for shown in places.values() if len(shown) > 1), [])


def missing(matches: Iterable[Match]) -> Iterator[Library]:
    """Libraries named in the field `lib` of messages."""
    for match in matches:
        library = match.fields.get("lib")
        if isinstance(library, Library):
            yield library


def place_of(library: Library, facts: Facts | None, book: Book) -> str | None:
    """Directory with a library of exactly that name which the loader does not search by itself, according to the facts.

    None for copies with missing parts.
    """
    if facts is None or library.windows:
        return None
    if library.family == "cudnn":
        # Wheels contain no name without a version.
        same = [
            copy for copy in or_none(facts.cudnn) or () if copy.soname == library.major or (library.major is None and copy.source != "pip")
        ]
        return next((copy.path for copy in same if not faults_of(copy, book) and not is_searched(copy.path, facts)), None)
    if library.family != "cuda":
        return None
    site = _site(facts)
    return (_wheel_place(library, site, facts, book) if site else None) or _toolkit_place(library, facts, book)


def _wheel_place(library: Library, site: str, facts: Facts, book: Book) -> str | None:
    """Directory of the installed wheel that contains a CUDA library."""
    gone = {problem.what.removeprefix("packages.pip.") for problem in facts.problems if problem.why.startswith("removed: ")}
    rows = [row for name in or_none(facts.packages.pip) or {} if name not in gone and (row := book.component(name)) is not None]
    of_name = (row for row in rows if row.library.lower() == wheel_component(library) and carries(library, row.cuda_major, book))
    return next((f"{site}/{row.lib_dir}" for row in of_name), None)


def _toolkit_place(library: Library, facts: Facts, book: Book) -> str | None:
    """Directory of a toolkit whose release contains a library of that name, if neither the linker cache nor LD_LIBRARY_PATH leads to it."""
    loader = or_none(facts.loader)
    if loader is None:
        return None
    cached = {path.rpartition("/")[2] for path in loader.ldconfig}
    for toolkit in or_none(facts.cuda_toolkits) or ():
        # A version of two numbers in a conda environment may be the compiler's runtime alone.
        is_partial = toolkit.source == "pip" or (toolkit.source == "conda" and (toolkit.version or "").count(".") < 2)
        if toolkit.path is None or toolkit.version is None or is_partial:
            continue
        cuda, directory = CudaVersion(toolkit.version), f"{toolkit.path}/lib{'' if toolkit.source == 'conda' else '64'}"
        roots = (f"{toolkit.path}/", "/usr/local/cuda/")
        is_on_path = any(f"{entry}/".startswith(roots) for entry in loader.ld_library_path)
        is_found = is_on_path or is_default(directory) or _soname("cudart", cuda, book) in cached
        name = _soname(library.component, cuda, book)
        contains = name is not None and (library.version is None or name == library.file)
        if contains and not is_found and _is_for(library, cuda, facts):
            return directory
    return None


def _is_for(library: Library, cuda: CudaVersion, facts: Facts) -> bool:
    """False for a toolkit of another CUDA than the frameworks are built with, if the name of a library is the same in several."""
    built = [CudaVersion(one.cuda_built) for one in or_none(facts.frameworks) or () if one.cuda_built]
    if not built or str(library.version or "").startswith(str(cuda.major)):
        return True
    return any(cuda.major == each.major and (cuda.major > 10 or len(each.parts) < 2 or cuda.line == each.line) for each in built)


def _soname(component: str, cuda: CudaVersion, book: Book) -> str | None:
    """File name of a library of a toolkit, which until CUDA 10.0 had the release in it for every library."""
    return book.soname(component, cuda) or (f"lib{component}.so.{cuda.line}" if cuda < CudaVersion("10.1") else None)


def wheel_component(library: Library) -> str:
    """Library that the wheel containing this one is named after: cublasLt is in cublas."""
    name = library.component.lower()
    return _IN_WHEEL_OF.get(name, "npp" if name.startswith("npp") else name)


def carries(library: Library, cuda_major: int, book: Book) -> bool:
    """True if the wheels of a CUDA major, which are of its later releases, contain a library of exactly that name."""
    newest = max((release.cuda for release in book.cuda_releases() if release.cuda.major == cuda_major), default=None)
    soname = book.soname(library.component, newest) if newest is not None else None
    return library.file == soname or library.version is None if soname is not None else library.major in (None, cuda_major)


def declared_of(facts: Facts, libraries: Iterable[Library], book: Book) -> list[str]:
    """Missing NVIDIA wheels that installed packages require, if one of them contains a missing library."""
    pip = or_none(facts.packages.pip) or {}
    required = requirements_of((line for lines in facts.packages.requires.values() for line in lines), facts)
    lacking = {
        requirement.name: f"{requirement.name}{requirement.specifier}"
        for requirement in required
        if requirement.name.startswith("nvidia-") and requirement.name not in pip
    }
    carried = {row.library.lower() for name in lacking if (row := book.component(name)) is not None}
    missed = {wheel_component(library) for library in libraries}
    return list(lacking.values()) if missed & carried or not missed else []


def wheels_of(library: Library, beside: set[str], book: Book) -> tuple[str, ...]:
    """Wheels that contain a library of that name: only the one for the CUDA of installed or named wheels, if known."""
    component = wheel_component(library)
    rows = (component for major in (12, 13, 11) for component in book.components(major) if carries(library, major, book))
    found = dict.fromkeys(row.package for row in rows if row.library.lower() == component)
    fitting = tuple(package for package in found if suffix_of(package) in beside or (not suffix_of(package) and "cu13" in beside))
    return fitting or (() if beside and len(found) > 1 else tuple(found))


def suffix_of(package: str) -> str:
    """`cu12` of nvidia-cublas-cu12; empty for CUDA 13 packages."""
    last = package.rpartition("-")[2]
    return last if last.startswith("cu") and last[2:].isdigit() else ""


def _site(facts: Facts) -> str | None:
    """Directory of the packages: where NVIDIA's wheels are, else that of the interpreter."""
    copies = [(copy.source, copy.path or "") for copy in or_none(facts.cudnn) or ()]
    copies += [(toolkit.source, toolkit.path or "") for toolkit in or_none(facts.cuda_toolkits) or ()]
    of_wheel = next((path for source, path in copies if source == "pip" and "/nvidia/" in path), None)
    if of_wheel is not None:
        return of_wheel.partition("/nvidia/")[0]
    prefix, version = facts.python.prefix, facts.python.version
    if not prefix or not version or prefix == "/usr":
        return None
    return f"{prefix}/lib/python{'.'.join(version.split('.')[:2])}/site-packages"


def _away(facts: Facts | None) -> str | None:
    """Command that removes CUDA and cuDNN, but not the driver, from LD_LIBRARY_PATH; None if they are not on it."""
    if facts is None or isinstance(facts.loader, Unknown):
        return "unset LD_LIBRARY_PATH"
    copies = {copy.path for copy in or_none(facts.cudnn) or () if copy.path}
    entries = [directory for directory in facts.loader.ld_library_path if directory]
    # A default directory is searched in any case, but last.
    gone = [entry for entry in entries if entry in copies or is_default(entry) or re.search(_GPU_WORDS, entry)]
    kept = [entry for entry in entries if entry not in gone or _lends_driver(entry, facts.loader)]
    if len(kept) == len(entries):
        return None
    return f"export LD_LIBRARY_PATH={':'.join(map(shlex.quote, kept))}" if kept else "unset LD_LIBRARY_PATH"


def _lends_driver(directory: str, loader: Loader) -> bool:
    """True for a directory of the driver's own libraries, which programs need; a compat directory has those of another driver."""
    if "compat" in directory:
        return False
    files = (path.rpartition("/") for path in loader.ldconfig)
    lends = any(file.startswith("libcuda.so") and place == directory.rstrip("/") for place, _, file in files)
    return re.search(_DRIVERS_OWN, f"{directory.rstrip('/')}/") is not None or (lends and re.search(_GPU_WORDS, directory) is not None)
