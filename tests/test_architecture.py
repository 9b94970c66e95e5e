"""The rules of the house, each with a planted violation that shows that it can fail.

A rule takes one source file and gives its faults, a line each. docs/architecture.md says what the rules are for.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeGuard

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "cudnn_resolve"
MODULE_LINES = 500

ROOMS = (
    ("_version",),
    ("errors",),
    ("masking",),
    ("version",),
    ("facts",),
    ("matrix",),
    ("evidence",),
    ("requirement",),
    ("resolution",),
    ("package_lists",),
    ("locking",),
    ("planning",),
    ("diagnosis",),
    ("host", "index"),
    ("listener",),
    ("probe", "execution", "validation"),
    ("fleet",),
    ("report",),
    ("operations",),
    ("api",),
    ("cli",),
    ("__main__", "__init__"),
)
"""Bottom up: a room imports from lines above its own, and from itself."""

DOORS = ("host", "index")
"""The rooms that may touch the machine and the network."""
EFFECT_MODULES = frozenset(
    {"asyncio", "ctypes", "fcntl", "fileinput", "glob", "http", "io", "mmap", "multiprocessing", "pathlib", "pty", "requests", "select"}
    | {"shutil", "signal", "socket", "ssl", "subprocess", "tempfile", "threading", "time", "urllib"}
    | {"getpass", "importlib.metadata", "importlib.resources", "locale", "platform", "pwd", "site", "sysconfig"}
)
PURE_PARTS = frozenset(
    {"io.BytesIO", "io.StringIO", "pathlib.PurePath", "pathlib.PurePosixPath", "pathlib.PureWindowsPath", "urllib.parse"}
    | {"os.PathLike", "os.fspath", "os.linesep", "os.path", "os.path.basename", "os.path.commonpath", "os.path.dirname", "os.path.isabs"}
    | {"os.path.join", "os.path.normpath", "os.path.relpath", "os.path.split", "os.path.splitext", "os.sep"}
    | {"sys.intern", "sys.maxsize", "sys.version_info"}
)
"""What modules with effects hold that has none."""
RIM = ("cli", "__main__", "__init__")
"""The rooms that may speak to the user and end the process."""
CLOCK_CALLS = frozenset({"now", "today", "utcnow"})
"""Methods that ask what time it is, unless it is a host that is asked."""
FILE_CALLS = frozenset({"read_text", "write_text", "read_bytes", "write_bytes"})
"""Methods that read or write, unless it is a host that is asked."""
RUNNING_MACHINE = frozenset({"default_environment", "sys_tags"})
"""Functions of packaging that answer for the machine that runs, which is not the target's."""
ONLY_IN = {
    "tomllib": ("matrix.toml",),
    "tomli": ("matrix.toml",),
    "tomli_w": ("locking",),
    "packaging.pylock": ("locking",),
    "requests": ("index.session",),
    "rich": ("report", "cli"),
    "urllib3": ("index.session",),
}
"""Modules that one room knows, and the rooms that do."""
DISTRIBUTIONS = {
    "ansible": "ansible_core",
    "cyclonedx": "cyclonedx_python_lib",
    "packageurl": "packageurl_python",
    "elftools": "pyelftools",
    "yaml": "PyYAML",
}
"""Modules that are not called as their distribution is."""


class Source(NamedTuple):
    """One module of the package."""

    name: str
    """Dotted, without the package: `host.tables`; `__init__` for the package itself."""
    text: str

    @property
    def room(self) -> str:
        return self.name.partition(".")[0]

    @property
    def is_payload(self) -> bool:
        """True for a program that runs in the target's interpreter."""
        return self.name.rpartition(".")[2].startswith("payload")

    @property
    def tree(self) -> ast.Module:
        return parsed(self.text)


@cache
def parsed(text: str) -> ast.Module:
    """The tree of a module, which six rules look at."""
    return ast.parse(text)


@cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Everything in a tree, walked once."""
    return tuple(ast.walk(tree))


@cache
def read_source(path: Path) -> Source:
    name = ".".join(path.relative_to(ROOT / PACKAGE).with_suffix("").parts)
    return Source(name.removesuffix(".__init__"), path.read_text("utf-8"))


def imports(source: Source) -> Iterator[tuple[int, str]]:
    """Each imported name with its line: `from a.b import c` is `a.b.c`, whether c is a module or not."""
    for node in nodes(source.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{'.' * node.level}{node.module or ''}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in ("import_module", "__import__"):
            yield node.lineno, imported_by_call(node)
        elif isinstance(node, ast.Attribute) and dotted(node.value) == PACKAGE:
            yield node.lineno, dotted(node)


def imported_by_call(node: ast.Call) -> str:
    """What `import_module` would import, "?" where only the running program knows; an f-string counts up to its first field."""
    word = node.args[0] if node.args else None
    if isinstance(word, ast.JoinedStr) and word.values:
        word = word.values[0]
    return word.value.rstrip(".") if isinstance(word, ast.Constant) and isinstance(word.value, str) else "?"


def dotted(node: ast.expr) -> str:
    """`a.b.c` for an attribute of an attribute of a name; "?" stands for anything else."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def within(name: str, prefixes: tuple[str, ...] | frozenset[str]) -> bool:
    """True where `name` is one of the prefixes or below one."""
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


def level(room: str) -> int | None:
    return next((number for number, rooms in enumerate(ROOMS) if room in rooms), None)


def order(source: Source) -> Iterator[str]:
    """Imports run one way, bottom up, and rooms side by side know nothing of each other."""
    own = level(source.room)
    if own is None:
        yield f"{source.room} has no place in the import rule"
        return
    for line, name in imports(source):
        if name.startswith(".") or (name == "?" and not source.is_payload):
            yield f"line {line}: import by its full name"
        room = name.removeprefix(f"{PACKAGE}.").partition(".")[0]
        if not within(name, (PACKAGE,)) or room in (PACKAGE, "__version__", "__file__"):
            continue
        other = level(room)
        if room != source.room and (other is None or other >= own):
            yield f"line {line}: {source.room} may not import {name}"


def effects(source: Source) -> Iterator[str]:
    """Only the doors run, read, write, connect, wait, or ask what machine this is."""
    if source.room in DOORS or source.is_payload:
        return
    for line, name in imports(source):
        if touches(name, source.room) and not name.startswith("urllib.parse."):
            yield f"line {line}: imports {name}"
    for node in nodes(source.tree):
        if isinstance(node, ast.Attribute):
            yield from effect_of_attribute(source, node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCK_CALLS:
            if not dotted(node.func.value).endswith("host"):
                yield f"line {node.lineno}: calls {dotted(node.func)}"
        elif isinstance(node, ast.Name) and node.id in {"open", *RUNNING_MACHINE}:
            yield f"line {node.lineno}: uses {node.id}"


def effect_of_attribute(source: Source, node: ast.Attribute) -> Iterator[str]:
    name = dotted(node)
    if name.startswith(("os.", "sys.")) and touches(name, source.room):
        yield f"line {node.lineno}: touches {name}"
    if node.attr in FILE_CALLS and not dotted(node.value).endswith("host"):
        yield f"line {node.lineno}: calls {name}"
    if node.attr in RUNNING_MACHINE:
        yield f"line {node.lineno}: uses {name}"


def touches(name: str, room: str) -> bool:
    """True for a module, or a part of one, that has effects or that knows the running machine."""
    shut = within(name, EFFECT_MODULES) or name.startswith("os.") or (name.startswith("sys.") and room not in RIM)
    return shut and name not in PURE_PARTS


def specialists(source: Source) -> Iterator[str]:
    """A library with a job is known to the room that has that job."""
    for line, name in imports(source):
        for module, rooms in ONLY_IN.items():
            if within(name, (module,)) and not within(source.name, rooms):
                yield f"line {line}: {name} is for {', '.join(rooms)}"


_OF_TYPE_CHECKERS = {"typing_extensions"}
"""What every type checker knows, whatever is installed."""


def dependencies(source: Source) -> Iterator[str]:
    """What is neither ours nor Python's is a dependency that pyproject.toml declares."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["yaml"], *extras["completion"], *extras["sbom"], *extras["fleet"]]
    declared = {re.split(r"[^\w-]", text, maxsplit=1)[0].replace("-", "_") for text in wanted}
    checked = {line for node in nodes(source.tree) if is_for_type_checkers(node) for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    for line, name in imports(source):
        top = name.partition(".")[0]
        known = declared | {PACKAGE, "?", "tomllib"} | sys.stdlib_module_names | (_OF_TYPE_CHECKERS if line in checked else set())
        if top and DISTRIBUTIONS.get(top, top) not in known:
            yield f"line {line}: {top} is not a dependency"


def is_for_type_checkers(node: ast.AST) -> TypeGuard[ast.If]:
    """True for `if TYPE_CHECKING:`."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def payloads(source: Source) -> Iterator[str]:
    """A program for the target's interpreter is Python 3.6 and needs the standard library only; it may import what it is asked about."""
    if not source.is_payload:
        return
    try:
        ast.parse(source.text, feature_version=(3, 6))
    except SyntaxError as error:
        yield f"line {error.lineno}: not Python 3.6: {error.msg}"
    for line, name in imports(source):
        beside = name.startswith(f"{PACKAGE}.{source.room}.payload")  # sent to the child in one text
        if not beside and (name.partition(".")[0] not in sys.stdlib_module_names | {"?"} or name == "__future__.annotations"):
            yield f"line {line}: imports {name}"


def docstrings(source: Source) -> Iterator[str]:
    """Every public module, class, function and method says what it gives."""
    if not ast.get_docstring(source.tree):
        yield "the module has no docstring"
    yield from undocumented(source.tree)


def undocumented(parent: ast.Module | ast.ClassDef) -> Iterator[str]:
    for node in parent.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        variant = {dotted(mark).rpartition(".")[2] for mark in node.decorator_list} & {"overload", "setter"}
        if not variant and not ast.get_docstring(node):
            yield f"line {node.lineno}: {node.name} has no docstring"
        if isinstance(node, ast.ClassDef):
            yield from undocumented(node)


def size(source: Source) -> Iterator[str]:
    """A module that has become a hall wants to be several rooms."""
    lines = source.text.count("\n")
    if lines > MODULE_LINES:
        yield f"{lines} lines, more than {MODULE_LINES}"


def headings(source: Source) -> Iterator[str]:
    """The heading of a section has something below it."""
    yield from (f"nothing is below {found[1]!r}" for found in re.finditer(r"(?m)^# -+ (.*?)(?: -+)?\n\s*(?=# -+ |\Z)", source.text))


RULES: tuple[Callable[[Source], Iterator[str]], ...] = (order, effects, specialists, dependencies, payloads, docstrings, size, headings)
SOURCES = sorted(path for path in (ROOT / PACKAGE).rglob("*.py") if "ansible_collections" not in path.parts)
"""A collection of Ansible has rules of its own: `ansible-test` and tests/fleet."""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_package_keeps(rule: Callable[[Source], Iterator[str]]) -> None:
    faults = [f"{path.relative_to(ROOT)}: {fault}" for path in SOURCES for fault in rule(read_source(path))]

    assert len(SOURCES) > len(ROOMS)
    assert not faults, "\n".join(faults)


def circles(needs: Mapping[str, set[str]]) -> list[set[str]]:
    """Modules that import one another, directly or through others (the strongly connected components of more than one)."""
    reach: dict[str, set[str]] = {}
    for start in needs:
        seen, waiting = set[str](), list(needs[start])
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += needs.get(name, ())
        reach[start] = seen
    found: list[set[str]] = []
    for name in needs:
        ring = {other for other in reach[name] if name in reach.get(other, ())}
        if len(ring) > 1 and ring not in found:
            found.append(ring)
    return found


def test_no_modules_import_one_another_in_a_circle() -> None:
    """Imports for type checkers count: a circle of types is one of thoughts, too."""
    sources = {source.name: source for source in map(read_source, SOURCES)}
    needs = {
        name: {
            next((one for one in (target, target.rpartition(".")[0]) if one in sources and one != name), "")
            for target in (found.removeprefix(f"{PACKAGE}.") for _, found in imports(source) if found.startswith(f"{PACKAGE}."))
        }
        - {""}
        for name, source in sources.items()
    }

    assert circles(needs) == []


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [{"a", "b", "c"}]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []


@pytest.mark.parametrize(
    ("rule", "name", "text", "fault"),
    [
        (
            order,
            "planning.order",
            "from cudnn_resolve.host.protocol import Host",
            "planning may not import cudnn_resolve.host.protocol.Host",
        ),
        (order, "planning.order", "from cudnn_resolve import host", "planning may not import cudnn_resolve.host"),
        (order, "locking.fit", "import cudnn_resolve.planning.model", "locking may not import cudnn_resolve.planning.model"),
        (order, "facts.model", "import cudnn_resolve\ncudnn_resolve.plan()", "line 2: facts may not import cudnn_resolve.plan"),
        (order, "facts.model", "from cudnn_resolve import detect", "facts may not import cudnn_resolve.detect"),
        (order, "facts.model", "def f():\n    from cudnn_resolve.cli import main", "line 2: facts may not import"),
        (order, "facts.model", "from importlib import import_module\nimport_module('cudnn_resolve.cli')", "facts may not import"),
        (order, "facts.model", "__import__(f'cudnn_resolve.cli.{1}')", "facts may not import cudnn_resolve.cli"),
        (order, "cli.main", "import_module(name)", "import by its full name"),
        (order, "facts.model", "from . import codec", "import by its full name"),
        (order, "facts.model", "from cudnn_resolve.utils import x", "facts may not import cudnn_resolve.utils.x"),
        (order, "utils", "", "utils has no place"),
        (effects, "planning.order", "import subprocess", "imports subprocess"),
        (effects, "planning.order", "from urllib.request import urlopen", "imports urllib.request.urlopen"),
        (effects, "planning.order", "from pathlib import Path", "imports pathlib.Path"),
        (effects, "cli.plan", "from os import environ", "imports os.environ"),
        (effects, "cli.plan", "from os.path import exists", "imports os.path.exists"),
        (effects, "planning.order", "from sys import argv", "imports sys.argv"),
        (effects, "planning.order", "datetime.now(UTC)", "calls datetime.now"),
        (effects, "cli.plan", "import os\nos.environ['A']", "line 2: touches os.environ"),
        (effects, "cli.plan", "import os\nos.path.exists('a')", "touches os.path.exists"),
        (effects, "cli.plan", "with open('a') as f: pass", "uses open"),
        (effects, "cli.plan", "path.read_text()", "calls path.read_text"),
        (effects, "report.text", "import sys\nsys.stdout.write('a')", "touches sys.stdout"),
        (effects, "resolution.tag", "from packaging import tags\ntags.sys_tags()", "uses tags.sys_tags"),
        (effects, "resolution.tag", "from packaging.markers import default_environment\ndefault_environment()", "uses default_environment"),
        (specialists, "facts.model", "import tomllib", "tomllib is for matrix.toml"),
        (specialists, "host.linux", "import tomli as tomllib", "tomli is for"),
        (specialists, "planning.model", "from packaging.pylock import Pylock", "packaging.pylock.Pylock is for locking"),
        (specialists, "index.client", "import requests", "requests is for index.session"),
        (specialists, "probe.gpu", "from rich.table import Table", "rich.table.Table is for report, cli"),
        (dependencies, "host.linux", "import numpy", "numpy is not a dependency"),
        (dependencies, "host.linux", "from typing_extensions import Self", "typing_extensions is not a dependency"),
        (payloads, "probe.payload", "if (a := 1): pass", "not Python 3.6"),
        (payloads, "probe.payload_elf", "from __future__ import annotations", "imports __future__.annotations"),
        (payloads, "probe.payload_elf", "import cudnn_resolve.errors", "imports cudnn_resolve.errors"),
        (payloads, "probe.payload", "from cudnn_resolve.validation.payload import x", "imports cudnn_resolve.validation.payload.x"),
        (docstrings, "planning.order", "def f(): pass", "f has no docstring"),
        (docstrings, "planning.order", "'''Doc.'''\nclass A:\n  '''Doc.'''\n  def f(self): pass", "line 4: f has no docstring"),
        (docstrings, "planning.order", "", "the module has no docstring"),
        (size, "planning.order", "\n" * (MODULE_LINES + 1), "501 lines"),
        (headings, "planning.order", "# --- a ---\nx = 1\n\n# --- b ---\n", "nothing is below 'b'"),
    ],
)
def test_rule_sees(rule: Callable[[Source], Iterator[str]], name: str, text: str, fault: str) -> None:
    assert any(fault in said for said in rule(Source(name, text)))


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        (order, "planning.order", "from cudnn_resolve.planning.model import Plan\nfrom cudnn_resolve.facts.model import Facts"),
        (order, "cli.plan", "from cudnn_resolve import __version__"),
        (order, "host.tables", "import cudnn_resolve\ncudnn_resolve.__file__"),
        (order, "__init__", "from cudnn_resolve.cli import main"),
        (effects, "host.linux", "import os, subprocess\nopen('a')\nos.environ['A']"),
        (effects, "probe.payload", "import ctypes\nopen('a')"),
        (effects, "probe.driver", "host.read_text('a')\nself.host.read_text('a')"),
        (effects, "cli.plan", "import sys, os.path\nsys.stdout.write(os.path.join('a'))\nfrom urllib.parse import quote"),
        (specialists, "matrix.toml", "import tomllib"),
        (specialists, "matrix.toml", "import tomli"),
        (dependencies, "resolution.resolve", "import packaging.tags, json, tomli"),
        (payloads, "probe.payload", "import json\nx: int = 1\nf'{x}'"),
        (payloads, "probe.payload", "from cudnn_resolve.probe.payload_elf import x"),
        (payloads, "probe.payload", "import sys\n__import__(sys.argv[1])"),
        (order, "probe.payload", "import sys\n__import__(sys.argv[1])"),
        (docstrings, "planning.order", "'''Doc.'''\ndef _f(): pass\nclass A:\n  '''Doc.'''\n  def __len__(self): pass"),
    ],
)
def test_rule_allows(rule: Callable[[Source], Iterator[str]], name: str, text: str) -> None:
    assert list(rule(Source(name, text))) == []


# --- every file that is handed on ---

REGISTRIES = re.compile(r"\b(?:py[p]i|pythonh[o]sted|debi[a]n|npmj[s]|anacond[a])\.(?:org|com)\b|\bcrat[e]s\.io\b", re.IGNORECASE)
"""Hosts of package registries: the program asks the index that the target has configured."""
BUILD_PATHS = re.compile(r"(?<![\w.~-])/(?:[w]ork|[f]arm|[r]oot|[o]pt/wheels|[o]pt/pypi[\w-]*)(?:/|\b(?=['\"\s]))")
"""Folders of the machines on which this is written."""


def handed_on() -> list[Path]:
    """Every file that git tracks; in an unpacked sdist, every file there is."""
    argv = ["git", "-C", str(ROOT), "ls-files", "-z"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False) if (ROOT / ".git").exists() else None
    if done is not None and done.returncode == 0:
        paths = [ROOT / name for name in done.stdout.split("\0") if name]
    else:
        generated = re.compile(r"(?:^|/)(?:\.git|\.venv|dist|build|__pycache__|\.\w+_cache)/")
        paths = [path for path in ROOT.rglob("*") if not generated.search(path.relative_to(ROOT).as_posix())]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def leaks(text: str) -> list[str]:
    """The registry hosts and build paths that the text names."""
    found = [*REGISTRIES.finditer(text), *BUILD_PATHS.finditer(text)]
    return [f"line {text.count(chr(10), 0, match.start()) + 1}: {match[0]}" for match in found]


def test_no_file_names_a_registry_or_a_path_of_the_machine_that_built_it() -> None:
    files = handed_on()

    faults = [f"{path.relative_to(ROOT)}: {leak}" for path in files for leak in leaks(path.read_text("utf-8", "replace"))]

    assert ROOT / "pyproject.toml" in files
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    "text",
    [
        "https://py" + "pi.org/simple",
        "files.python" + "hosted.org",
        "deb.debian" + ".org",
        "a '/wo" + "rk/main/x'",
        'cd "/ro' + 'ot"',
        "/opt/" + "wheels/x",
    ],
)
def test_a_leak_is_seen(text: str) -> None:
    assert leaks(f"first\n{text}\n")[0].startswith("line 2: ")


@pytest.mark.parametrize(
    "text", ["https://download.pytorch.org/whl/cu118", "src/work/x", "/opt/cudnn-8.9/lib", "~/root/x", "pypi-index", "/rooted"]
)
def test_what_is_no_leak_is_left_alone(text: str) -> None:
    assert leaks(text) == []


def test_no_python_file_is_a_hall() -> None:
    assert [
        f"{path.relative_to(ROOT)}: {fault}"
        for path in handed_on()
        if path.suffix == ".py"
        for fault in size(Source("", path.read_text("utf-8")))
    ] == []
