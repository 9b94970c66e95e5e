"""Describe the running interpreter and the distributions in its environment; prints one JSON line.

Runs as a program in the target interpreter, with `-I`: nothing is imported from the caller's directory, and the answer again includes what
`-I` removes from the import path (PYTHONPATH, the user's site-packages). Python 3.6 grammar, standard library only.
"""

import json
import os
import sys

TYPE_CHECKING = False  # importing typing costs more than all else here
if TYPE_CHECKING:
    from typing import Any

MARK = "cudnn-resolve-answer "
MOST_BYTES = 1 << 20
"""Limit for the header of a metadata file; real ones are far smaller."""
MOST_REQUIRES = 5000
FIRST_BYTES = 16384
LETTERS = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")


def describe() -> "dict[str, Any]":
    """Describe the interpreter, its import path and its distributions."""
    path = import_path()
    problems = []  # type: list[list[str]]
    return {
        "version": ".".join(str(number) for number in sys.version_info[:3]),
        "executable": text(sys.executable or ""),
        "implementation": sys.implementation.name,
        "prefix": text(sys.prefix),
        "externally_managed": is_externally_managed(),
        "free_threaded": "t" in getattr(sys, "abiflags", ""),
        "machine": machine(),
        "system": sys.platform,
        "libc": libc(),
        "ld_library_path": text(os.environ.get("LD_LIBRARY_PATH", "")),
        "path": [text(entry) for entry in path],
        "distributions": distributions(path, problems),
        "problems": problems,
    }


def import_path() -> "list[str]":
    """Existing directories on the import path without the standard library, in import order, each once."""
    home = os.path.dirname(os.__file__)
    standard = {os.path.realpath(home), os.path.realpath(os.path.join(home, "lib-dynload"))}
    found = []  # type: list[str]
    seen = set(standard)
    for entry in extra_path() + user_path() + sys.path:
        real = os.path.realpath(entry) if entry else ""
        if real and real not in seen and os.path.isdir(real):
            seen.add(real)
            found.append(os.path.abspath(entry))
    here = os.path.realpath(os.path.dirname(os.path.abspath(__file__)))
    return [entry for entry in found if os.path.realpath(entry) != here]


def extra_path() -> "list[str]":
    """Entries of PYTHONPATH, if they were ignored."""
    if not sys.flags.ignore_environment:
        return []
    return [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]


def user_path() -> "list[str]":
    """The user's site-packages with additions by its .pth files, if ignored through `-I` and visible to this environment.

    They come before the site-packages of the installation, as in the site module.
    """
    site = sys.modules.get("site")
    if site is None or not sys.flags.no_user_site or os.environ.get("PYTHONNOUSERSITE") or is_closed():
        return []
    # As in site: a process with changed user or group must not import the caller's files.
    if os.geteuid() != os.getuid() or os.getegid() != os.getgid():
        return []
    before = list(sys.path)
    try:
        entry = site.getusersitepackages()
        if not entry or not os.path.isdir(entry):
            return []
        site.addsitedir(entry)
    except Exception:
        return []
    return [entry] + [added for added in sys.path if added not in before and added != entry]


def is_closed() -> bool:
    """True in a virtual environment without access to the system's packages."""
    if sys.prefix == getattr(sys, "base_prefix", sys.prefix):
        return False
    try:
        with open(os.path.join(sys.prefix, "pyvenv.cfg"), encoding="utf-8", errors="replace") as lines:
            for line in lines:
                key, _, value = line.partition("=")
                if key.strip().lower() == "include-system-site-packages":
                    return value.strip().lower() != "true"
    except OSError:
        pass
    return True


def is_externally_managed() -> bool:
    """PEP 668: a marker file beside the standard library; virtual environments are never managed."""
    if sys.prefix != getattr(sys, "base_prefix", sys.prefix):
        return False
    return os.path.isfile(os.path.join(os.path.dirname(os.__file__), "EXTERNALLY-MANAGED"))


def machine() -> str:
    """Architecture of this interpreter, which may be 32-bit on a 64-bit kernel."""
    name = os.uname().machine
    if sys.maxsize < 1 << 32:
        return {"x86_64": "i686", "aarch64": "armv8l"}.get(name, name)
    return name


def libc() -> str:
    """`glibc 2.35`, or "" for another C library."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return ""


def distributions(path: "list[str]", problems: "list[list[str]]") -> "list[list[Any]]":
    """`[name, version, directory, metadata, requires]` of each distribution; the first of a name on the path wins."""
    found = {}  # type: dict[str, list[Any]]
    for directory in path:
        newest = {}  # type: dict[str, tuple[float, list[Any]]]
        for entry in entries(directory, problems):
            row = distribution(directory, entry, problems)
            if row is None:
                continue
            name, version = row[:2]
            changed = os.stat(entry).st_mtime if os.path.exists(entry) else 0.0
            if name in newest:
                other_changed, other = newest[name]
                versions = sorted([version, other[1]])
                if versions[0] != versions[1]:
                    why = "there is metadata of both {} and {}; the one written last counts".format(*versions)
                    problems.append(["{} is installed twice in {}".format(name, text(directory)), why])
                if changed < other_changed:
                    continue
            newest[name] = (changed, row)
        for name in sorted(newest):
            found.setdefault(name, newest[name][1])
    return list(found.values())


def entries(directory: str, problems: "list[list[str]]") -> "list[str]":
    """Paths of metadata in one directory of the import path."""
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return []
    found = []
    for name in names:
        lower = name.lower()
        if not lower.endswith((".dist-info", ".egg-info")):
            continue
        if name.startswith("~"):
            problems.append(["{} in {}".format(text(name), text(directory)), "is left over from an interrupted uninstall"])
            continue
        found.append(os.path.join(directory, name))
    inside = os.path.join(directory, "EGG-INFO")
    if directory.lower().endswith(".egg") and os.path.isdir(inside):
        found.append(inside)
    return found


def distribution(directory: str, entry: str, problems: "list[list[str]]") -> "list[Any] | None":
    """Read one distribution; None if its metadata does not identify it."""
    stem = os.path.basename(directory if entry.endswith("EGG-INFO") else entry).rsplit(".", 1)[0]
    guessed_name, _, guessed_version = stem.partition("-")
    guessed_version = guessed_version.split("-py")[0]
    head = None
    if os.path.isdir(entry) and not any(os.path.lexists(os.path.join(entry, file)) for file in ("METADATA", "PKG-INFO", "RECORD")):
        problems.append(["metadata in {}".format(text(entry)), "is missing: the folder does not count as a package"])
        return None
    for file in (os.path.join(entry, "METADATA"), os.path.join(entry, "PKG-INFO"), entry):
        head = read_head(file)
        if head is not None:
            break
    fields = headers(head or "")
    name = (fields.get("name") or [guessed_name])[0].strip()
    version = (fields.get("version") or [guessed_version])[0].strip()
    if head is None or "name" not in fields or "version" not in fields:
        problems.append(["metadata in {}".format(text(entry)), "cannot be read or lacks the name or the version"])
    if not is_name(name) or not is_version(version):
        if head is not None and "name" in fields:
            problems.append(["metadata in {}".format(text(entry)), "has an invalid name or version"])
        return None
    requires = [line.strip() for line in fields.get("requires-dist", [])[:MOST_REQUIRES]]
    if not requires and not entry.endswith(".dist-info"):
        requires = egg_requires(os.path.join(entry, "requires.txt"))
    return [normalized(name), version, text(directory), text(entry), requires]


def read_head(file: str) -> "str | None":
    """A metadata file up to the first empty line; None if it is not readable."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        raw = os.read(descriptor, FIRST_BYTES)
        while b"\n\n" not in raw and b"\r\n\r\n" not in raw and len(raw) < MOST_BYTES:
            content = os.read(descriptor, 1 << 17)
            if not content:
                break
            raw += content
    except OSError:  # for example a directory
        return None
    finally:
        os.close(descriptor)
    return raw.replace(b"\r\n", b"\n").split(b"\n\n", 1)[0].decode("utf-8", "replace")


def headers(head: str) -> "dict[str, list[str]]":
    """Relevant fields by lower-case name, with continuation lines joined. `Requires-Dist: numpy (<2,>=1.17)`."""
    found = {}  # type: dict[str, list[str]]
    last = None  # type: list[str] | None
    for line in head.split("\n"):
        if line[:1] in (" ", "\t"):
            if last is not None:
                last[-1] += " " + line.strip()
            continue
        key, colon, value = line.partition(":")
        key = key.strip().lower()
        if colon and key in ("name", "version", "requires-dist"):
            last = found.setdefault(key, [])
            last.append(value.strip())
        else:
            last = None
    return found


def egg_requires(file: str) -> "list[str]":
    """Lines of an egg's requires.txt in the form of `Requires-Dist`; sections are `[extra:marker]`."""
    try:
        with open(file, encoding="utf-8", errors="replace") as lines:
            content = lines.read(MOST_BYTES).split("\n")
    except OSError:
        return []
    found = []
    marker = ""
    for raw in content:
        line = raw.strip()
        if line.startswith("[") and line.endswith("]"):
            extra, _, condition = line[1:-1].partition(":")
            parts = ["({})".format(condition)] if condition else []
            parts += ["extra == '{}'".format(extra)] if extra else []
            marker = " and ".join(parts)
        elif line and not line.startswith("#"):
            found.append(line + (" ; " + marker if marker else ""))
    return found[:MOST_REQUIRES]


def is_name(name: str) -> bool:
    """PEP 508: letters, digits, `-`, `_` and `.`, with a letter or digit at both ends."""
    return 0 < len(name) < 200 and set(name) <= LETTERS | set("-_.") and {name[0], name[-1]} <= LETTERS


def is_version(version: str) -> bool:
    """A possible version: characters of PEP 440, and `~` for distributions of the system."""
    return 0 < len(version) < 200 and set(version) <= LETTERS | set(".!+-_~")


def normalized(name: str) -> str:
    """PEP 503: lower case, runs of `-`, `_` and `.` as one `-`."""
    parts = name.lower().replace("_", "-").replace(".", "-").split("-")
    return "-".join(part for part in parts if part)


def text(path: str) -> str:
    """A path as UTF-8 text, whatever this interpreter's locale."""
    return os.fsencode(path).decode("utf-8", "surrogateescape")


if __name__ == "__main__":
    answer = json.dumps(describe())
    sys.stdout.write("\n" + MARK + answer + "\n")
    sys.stdout.flush()
    os._exit(0)  # skip exit handlers registered by the environment
