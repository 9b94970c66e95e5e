"""Simulate what shell lines of notebooks and Dockerfiles install. Unsupported lines are reported, and nothing is executed."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import takewhile

from cudnn_resolve.masking import without_logins
from cudnn_resolve.package_lists.conda import read_specs
from cudnn_resolve.package_lists.install_lines import SimulatedInstalls, shell_words
from cudnn_resolve.package_lists.model import ReadContext

_PROGRAM = re.compile(r"(?:.*/)?(pip|python|\{sys\.executable\}|conda|mamba|micromamba|apt|apt-get|uv|poetry|pdm|pipenv)[\d.]*")
_ABOUT = re.compile(r"cudnn|cuda|torch|tensorflow|\bjax|nvidia", re.IGNORECASE)
_FETCHING = frozenset(
    {"wget", "curl", "dpkg", "yum", "dnf", "microdnf", "apk", "zypper", "sh", "bash", "cp", "ln", "tar", "pip-sync", "make"}
)
"""Programs that could add libraries."""
_LOCKS = {"uv": "uv.lock", "poetry": "poetry.lock", "pdm": "pdm.lock", "pipenv": "Pipfile.lock"}
_PREFIX = re.compile(r"\w+=.*|--\w+=.*")
"""Variables and options of RUN before a program."""
_KEYWORDS = frozenset({"if", "elif", "while", "until", "then", "do", "else", "{", "!", "-E"})
_WRAPPERS = {
    "sudo": {"-u", "-g", "-h", "-p", "-C", "-T", "--user", "--group"}, "env": {"-u", "-C", "--unset", "--chdir"}, "time": {"-f", "-o"},
    "nice": {"-n"}, "nohup": set(), "exec": {"-a"}, "command": set(),
}  # fmt: skip
"""Programs that run another program, and their options that take a value."""
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "su"})
_DEEPEST = 3
"""Nested shells to follow."""
LONGEST_LINE = 100_000
LONGEST_TEXT = 400_000
"""Characters of all lines of a file, with variables expanded."""
_SETTING = re.compile(r"(?<!\w)(UV_TORCH_BACKEND|(?:PIP|UV)_[A-Z_]*INDEX[A-Z_]*)[\"']?\]?(?:\s*=\s*|\s+)[\"']?([^\s\"';&|]{1,500})")
"""A variable that chooses the origin of packages, and its value."""
_VARIANT = re.compile(r"(?:cu\d{2,3}|cpu|xpu|rocm[\d.]*)/?$")
_RELEVANT = re.compile(r"pip|uv|conda|mamba|poetry|pdm|apt", re.IGNORECASE)
"""A line without this contains nothing that this module evaluates."""
_ENDS = re.compile(r"[();|&]+")
_REDIRECTS = re.compile(r"[();|&<>]*[<>][();|&<>]*")
_INSTALLER = re.compile(r"(?<!\w)(?:pip[\d.]*|uv|conda|mamba|micromamba|poetry|pdm|pipenv)(?![\w/])", re.IGNORECASE)
_INSTALLING = re.compile(r"(?<![\w/.-])(?:install|add|sync)(?![\w/.-])")
_CONDA_NO_INSTALL = frozenset({"config", "list", "search", "clean", "init", "activate", "deactivate", "info", "remove", "uninstall"})
"""Commands of conda that install nothing."""


def run_line(text: str, installs: SimulatedInstalls, line: int | None, depth: int = 0) -> None:
    """Run the installers on one shell line; what could install and is not understood is a gap."""
    context = installs.context
    if len(text) > LONGEST_LINE:
        context.gap(f"not followed: a line of {len(text)} characters")
        return
    note_settings(text, context)
    if not (_RELEVANT.search(text) or _ABOUT.search(text)):  # splitting takes a while
        return
    try:
        words = shell_words(text)
    except ValueError:
        if _ABOUT.search(text) or could_install(text):
            context.gap(f"not understood: {text.strip()[:60]}")
        return
    command: list[str] = []
    unknown: list[str] = []
    for word in (*words, ";"):
        if _ENDS.fullmatch(word):
            if not _run(command, installs, line, depth):
                unknown += command
            command = []
        else:
            command.append(word)
    if could_install(" ".join(unknown)):  # `$(which pip) install numpy`: neither command alone shows it
        context.gap(f"not followed: {text.strip()[:80]}")


def note_settings(text: str, context: ReadContext) -> None:
    """Report variables that choose the build of a framework: they apply to all later commands, and are not evaluated."""
    for name, value in _SETTING.findall(text) if not text.lstrip().startswith("#") else ():
        if name == "UV_TORCH_BACKEND" or _VARIANT.search(value):
            context.gap(f"not followed: {name} chooses the build of torch ({without_logins(value)[-60:]})")


def could_install(text: str) -> bool:
    """True if a text names an installer, and after it a command that installs."""
    found = _INSTALLER.search(text)
    return found is not None and _INSTALLING.search(text, found.end()) is not None


def _run(words: list[str], installs: SimulatedInstalls, line: int | None, depth: int) -> bool:
    """Run one command; False if it is unknown."""
    words = _without_redirects(words)
    program, rest = _program(words)
    if _run_program(program, rest, installs, line, depth):
        return True
    text = " ".join(words)
    if could_install(text) or (program in _FETCHING and _ABOUT.search(" ".join(rest))):
        installs.context.gap(f"not followed: {text[:80]}")
        return True
    return False


def _run_program(program: str, rest: list[str], installs: SimulatedInstalls, line: int | None, depth: int) -> bool:
    if program == "pip" or (program == "uv" and rest[:1] == ["add"]):
        return _pip(rest, installs, line)
    if program in ("conda", "mamba", "micromamba"):
        return _conda(rest, installs, line, depth)
    if program in ("apt", "apt-get"):
        _apt(rest, installs.context)
        return True
    if program in _LOCKS and rest[:1] in (["sync"], ["install"]):
        lock = _LOCKS[program]
        installs.context.gap(f"not followed: `{program} {rest[0]}` installs {lock} (`cudnn-resolve check {lock}` judges it)")
        return True
    if program == "uv" and rest[:1] == ["run"]:
        _uv_run(rest[1:], installs.context)
        return True
    if program in _LOCKS and rest[:1] in (["python"], ["tool"], ["self"]):  # nothing in the environment of the project
        return True
    at = next((at for at, word in enumerate(rest) if re.fullmatch(r"-[a-z]*c", word)), len(rest))
    if program in _SHELLS and at + 1 < len(rest) and depth < _DEEPEST:
        run_line(rest[at + 1], installs, line, depth + 1)
        return True
    return False


_WITHOUT_SYNC = frozenset({"--no-sync", "--no-project", "--isolated", "--script", "-s", "--help"})
"""Options of `uv run` that leave the environment of the project as it is."""


def _uv_run(words: Sequence[str], context: ReadContext) -> None:
    """Report that `uv run` installs the project first, and that `--with` uses an environment for that run only."""
    options = [*takewhile(lambda word: word.startswith("-"), words)]
    if not _WITHOUT_SYNC.intersection(options):
        context.gap("not followed: `uv run` installs uv.lock (`cudnn-resolve check uv.lock` judges it)")
    if any(word.startswith("--with") for word in words):
        context.gap(f"not followed: `uv run` with packages for that run only: {without_logins(' '.join(words))[:60]}")


def _without_redirects(words: list[str]) -> list[str]:
    """Drop redirections: `torch>=2` without quotes writes the file `=2`, and `2>&1` names no package."""
    kept: list[str] = []
    left = iter(words)
    for word in left:
        if not _REDIRECTS.fullmatch(word):
            kept.append(word)
            continue
        if kept and re.fullmatch(r"\d", kept[-1]):
            kept.pop()
        if "(" in word or "(" in next(left, ""):  # the output of another command
            break
    return kept


def _program(words: list[str]) -> tuple[str, list[str]]:
    """The program of a command and its arguments; all ways to call pip are `pip`."""
    words = _unwrapped(words)
    if not words:
        return "", []
    first = words[0]
    found = _PROGRAM.fullmatch(first)
    program, rest = (found[1] if found else first.rpartition("/")[2]), words[1:]
    if program in ("python", "{sys.executable}"):
        at = next((at for at, word in enumerate(rest) if not re.fullmatch(r"-[BEIOSsuv]+", word)), 0)
        if rest[at : at + 1] == ["-m"] and len(rest) > at + 1:
            program, rest = rest[at + 1], rest[at + 2 :]
    if program == "uv" and rest[:1] == ["pip"]:
        program, rest = "pip", rest[1:]
    return program, rest


def _unwrapped(words: list[str]) -> list[str]:
    """Drop what precedes the program: shell keywords, variables, and programs that run it."""
    at = 0
    while at < len(words):
        options = _WRAPPERS.get(words[at])
        if options is not None:
            at = _after_options(words, at + 1, options)
        elif words[at] in _KEYWORDS or _PREFIX.fullmatch(words[at]):
            at += 1
        else:
            break
    return words[at:]


def _after_options(words: Sequence[str], at: int, with_value: Collection[str]) -> int:
    """The position of the first word from `at` on that is no option."""
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in with_value else 1
    return at


def _pip(words: Sequence[str], installs: SimulatedInstalls, line: int | None) -> bool:
    unknown = next((word for word in words if re.search(r"\$\w|\$\{|\{\w+\}", word)), None)
    if unknown is not None:
        installs.context.gap(f"not understood: {unknown[:60]}")
    return installs.pip([word for word in words if word != unknown], line)


def _conda(words: list[str], installs: SimulatedInstalls, line: int | None, depth: int) -> bool:
    command, rest = next(((word, words[at + 1 :]) for at, word in enumerate(words) if not word.startswith("-")), ("", []))
    if command == "run" and depth < _DEEPEST:
        at = _after_options(rest, 0, ("-n", "--name", "-p", "--prefix", "--cwd"))
        return _run(rest[at:], installs, line, depth + 1)
    if command == "env" or (command in ("create", "install", "update") and {"-f", "--file"} & set(rest)):
        installs.context.gap(f"not followed: conda {' '.join(words)[:60]}: check that file, too")
        return True
    if command not in ("install", "create", "update"):
        return command in _CONDA_NO_INSTALL
    specs, channels, left = [], [], iter(rest)
    for word in left:
        if word in ("-c", "--channel", "-n", "--name", "-p", "--prefix"):
            value = next(left, "")
            if word in ("-c", "--channel"):
                channels.append(value)
        elif not word.startswith("-"):
            specs.append(word)
    read_specs(specs, installs, dict.fromkeys(specs, line) if line is not None else {}, channels)
    return True


_APT_CUDA = re.compile(r"cuda-(?:toolkit|runtime|libraries|libraries-dev|cudart|minimal-build)-(\d{1,2})-(\d)(?:=.*)?")
_APT_CUDNN = re.compile(r"(?:lib)?cudnn(\d)(?:-cuda-\d+)?(?:=(\d+(?:\.\d+){1,3}).*)?")
_APT_PYTHON = re.compile(r"python(3\.\d{1,2})(?:=.*)?")


def _apt(words: Sequence[str], context: ReadContext) -> None:
    if "install" not in words:
        return
    for word in words[words.index("install") + 1 :]:
        if found := _APT_CUDA.fullmatch(word):
            context.update_base("apt", cuda=f"{found[1]}.{found[2]}")
        elif found := _APT_CUDNN.fullmatch(word):
            context.update_base("apt", cudnn=found[2] or found[1])
        elif found := _APT_PYTHON.fullmatch(word):
            context.update_base("apt", python=found[1])
        elif word.partition("=")[0] in ("cuda", "nvidia-cuda-toolkit", "nvidia-cudnn", "cudnn"):
            context.gap(f"the version of the apt package {word.partition('=')[0]} is unknown")
