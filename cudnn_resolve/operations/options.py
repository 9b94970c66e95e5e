"""Requests: the options of each command as frozen values, one base for each group that several commands share.

A field is the one declaration of its option: the name, the type and the words after it make the option of the command line, the keyword
of the function, the setting of pyproject.toml and the variable of the environment. What is empty was not said, and the project's
settings may say it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin

from msgspec import Meta, Struct
from msgspec.structs import fields, replace

from cudnn_resolve.errors import UsageError
from cudnn_resolve.facts.assume import Assumptions
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.operations.results import recast

LOCK = "pylock.toml"
"""Where a lock is, unless it is said otherwise."""
LOCK_NAMES = re.compile(r"pylock(\.[^./]+)?\.toml")
"""Files that pip and uv take for locks."""
_Texts = tuple[str, ...]


def _option(about: str, metavar: str | None = None, *short: str) -> Meta:
    """How an option is shown: what it means, what stands for its value, and its short or other names."""
    return Meta(description=about, extra={"metavar": metavar, "short": short})


class Declared(NamedTuple):
    """An option as a field of a request declares it."""

    name: str
    flags: tuple[str, ...]
    """As the command line has it: `-r`, `--requirement`."""
    help: str
    metavar: str | None
    choices: tuple[str, ...]
    """The words that it may be; empty where it may be any."""
    is_flag: bool
    """True where it has no value."""
    is_list: bool
    """True where it may be said several times."""
    is_number: bool
    default: Any
    """What holds where nobody says anything."""

    @property
    def key(self) -> str:
        """Its name in pyproject.toml."""
        return self.name.replace("_", "-")


@cache
def declared(kind: type[Struct]) -> Mapping[str, Declared]:
    """The options that a kind of request has, by the names of its fields."""
    found = {}
    for one in fields(kind):
        metas = [meta for meta in get_args(one.type)[1:] if isinstance(meta, Meta)] if get_origin(one.type) is Annotated else []
        plain = get_args(one.type)[0] if get_origin(one.type) is Annotated else one.type
        kinds = [plain, *get_args(plain)]
        shown = (metas[0].extra or {}) if metas else {}
        found[one.name] = Declared(
            name=one.name,
            flags=(*shown.get("short", ()), f"--{one.name.replace('_', '-')}"),
            help=(metas[0].description or "") if metas else "",
            metavar=shown.get("metavar"),
            choices=next((get_args(each) for each in kinds if get_origin(each) is Literal), ()),
            is_flag=bool in kinds,
            is_list=get_origin(plain) is tuple,
            is_number=int in kinds,
            default=one.default,
        )
    return found


class MachineOptions(Struct, frozen=True, kw_only=True):
    """Which machine and environment."""

    python: Annotated[
        str | None, _option("the interpreter whose environment is meant (default: the active one, ./.venv, or this one)", "PATH")
    ] = None
    facts: Annotated[
        str | None,
        _option(
            "another machine: what `detect --format json` wrote there, or its `nvidia-smi`, `collect_env` and the like; "
            "- reads standard input",
            "FILE",
        ),
    ] = None
    given: Facts | None = None
    """The same as a value."""
    ranges: bool = False
    """The versions that each party allows are wanted, too, for a picture."""


class StatedOptions(MachineOptions, frozen=True, kw_only=True):
    """Single facts stated by hand, and the tables that they are held against."""

    driver: Annotated[str | None, _option("NVIDIA driver, `550.54.15`", "V")] = None
    gpu: Annotated[_Texts, _option("`T4`, `RTX 4090`, `sm_90` or `9.0`; once for each GPU", "NAME-OR-SM")] = ()
    python_version: Annotated[str | None, _option("`3.11` or `3.11.9`", "X.Y")] = None
    platform: Annotated[str | None, _option("`linux_x86_64`, `linux_aarch64`, `manylinux_2_28_x86_64`", "PLATFORM")] = None
    glibc: Annotated[str | None, _option("GNU C library, `2.35`", "V")] = None
    os: Annotated[str | None, _option("distribution with its release, `ubuntu22.04`, `debian12`, `rocky9`", "NAME")] = None
    machine: Annotated[
        str | None, _option("a well-known place: colab-t4, g5.xlarge, a2-highgpu-1g, ... (`matrix show machine` lists them)", "NAME")
    ] = None
    matrix: Annotated[_Texts, _option("further or changed rows for the compatibility tables; repeatable", "DIR")] = ()
    project_matrix: tuple[str, ...] = ()
    """Such folders below those, which the project's settings name: no option, and no part of it leads to root."""

    @property
    def assumptions(self) -> Assumptions:
        """The stated facts, as `assume` takes them."""
        return Assumptions(
            driver=self.driver,
            gpus=self.gpu,
            python_version=self.python_version,
            platform=self.platform,
            glibc=self.glibc,
            os=self.os,
            machine=self.machine,
        )


class Options(StatedOptions, frozen=True, kw_only=True):
    """Everything that commands which resolve have in common."""

    packages: Annotated[
        _Texts, _option("requirements as pip and uv take them: frameworks, `tensorflow==2.15`, and other packages", "REQ")
    ] = ()
    framework: Annotated[_Texts, _option("a framework, or what goes with one, as `torchvision`; repeatable", "REQ", "-f")] = ()
    requirement: Annotated[
        _Texts,
        _option(
            "further pip requirements of the project, resolved together: a requirements file, or `pyproject.toml[extra]`; repeatable",
            *("FILE", "-r"),
        ),
    ] = ()
    constraint: Annotated[_Texts, _option("limits on packages that are needed anyway, as pip's; repeatable", "FILE", "-c")] = ()
    group: Annotated[
        _Texts, _option("a dependency group of ./pyproject.toml, or of the file or folder PATH; repeatable", "[PATH:]NAME")
    ] = ()
    cuda: Annotated[str | None, _option("limit CUDA: `12.4` (any 12.4.x), `>=12,<13`", "SPEC")] = None
    cudnn: Annotated[str | None, _option("limit cuDNN: `9.3` (any 9.3.x), `>=9.1`", "SPEC")] = None
    prefer: Annotated[
        Literal["installed", "newest"] | None,
        _option("among consistent answers: what is `installed` and fits (default), or the `newest`"),
    ] = None
    driver_policy: Annotated[
        Literal["minor", "strict"] | None,
        _option(
            "drivers that a CUDA runtime may have: `minor` (default), NVIDIA's minor-version rule; `strict`, the toolkit's own or newer"
        ),
    ] = None
    device: Annotated[Literal["gpu", "cpu"] | None, _option("`cpu` asks for builds without CUDA; never chosen silently")] = None
    pre: Annotated[bool, _option("pre-releases count like other releases, as pip's")] = False
    strict_pins: Annotated[bool, _option("wheels' own pins hold: no overrides")] = False
    channel: Annotated[
        Literal["auto", "pip", "apt"] | None,
        _option("where CUDA and cuDNN come from: `pip`, `apt`, or `auto` (default): pip where that serves"),
    ] = None
    allow_break: Annotated[
        _Texts, _option("an installed framework that may stop working where nothing else leads to an answer; repeatable", "NAME")
    ] = ()
    """`lock` does not take it."""
    reinstall_package: Annotated[
        _Texts,
        _option(
            "lay the files of an installed package anew, where others overwrote them or took them along; repeatable, enough by itself",
            "NAME",
        ),
    ] = ()
    """`plan` and `apply` alone take it."""
    env: Annotated[
        str | None,
        _option("a new environment in this folder, with a Python that has an answer; one that was made so is brought up to date", "DIR"),
    ] = None
    """`plan` and `apply` alone take it, and `kernel`."""
    kernel: Annotated[str | None, _option("with --env: a kernel of Jupyter for it, of this name", "NAME")] = None
    index_url: Annotated[str | None, _option("package index, as pip's", "URL")] = None
    """None = whatever the target's pip or uv configuration says."""
    extra_index_url: Annotated[_Texts, _option("a further index, as pip's; repeatable", "URL")] = ()
    find_links: Annotated[_Texts, _option("a folder or page of wheels, as pip's; repeatable", "PATH")] = ()
    index_strategy: Annotated[
        Literal["first-index", "best-match"] | None,
        _option(
            "of several indexes: `first-index`, the first that has the name (uv's rule), or `best-match`, the best version of all (pip's)"
        ),
    ] = None
    """None = that of the configuration that names the indexes."""
    exclude_newer: Annotated[str | None, _option("nothing that was uploaded after this day, as 2025-06-30 or an ISO 8601 time", "DATE")] = (
        None
    )
    no_binary: Annotated[_Texts, _option("no wheels of these packages, as pip's; `:all:` for every one", "NAMES")] = ()
    only_binary: Annotated[_Texts, _option("only wheels of these packages, as pip's", "NAMES")] = ()
    no_variant_indexes: Annotated[
        bool, _option("only the configured indexes, and none that the tables name for a variant such as torch+cu126")
    ] = False
    offline: Annotated[bool, _option("matrix and cache only; what stays open is listed as unpinned")] = False

    @property
    def is_elsewhere(self) -> bool:
        """True where it is about another machine: with `env`, `python_version` says which Python of this one is meant."""
        stated = self.assumptions if self.env is None else replace(self.assumptions, python_version=None)
        return self.facts is not None or stated.elsewhere

    @property
    def names_targets(self) -> bool:
        """True where it says what is wanted itself."""
        return bool(self.framework or self.packages or self.requirement or self.group or self.reinstall_package)

    @property
    def repeated(self) -> tuple[tuple[str, str], ...]:
        """Options of one command alone, which the same command repeats when it is proposed."""
        return ()


class PlanRequest(Options, frozen=True, kw_only=True):
    """What `plan` is asked."""

    lock: str | None = None
    """A lock instead of targets."""


class WhyRequest(Options, frozen=True, kw_only=True):
    """What `why` is asked."""

    package: str = ""
    lock: str | None = None
    """A lock instead of targets; None = `./pylock.toml` where nothing is asked for, if it is there."""


class LockRequest(Options, frozen=True, kw_only=True):
    """What `lock` is asked."""

    platforms: tuple[str, ...] = ()
    """Every `--platform` that the lock is for; empty = this machine's."""
    output: str | None = None
    """The lock; None = `pylock.toml`, `-` = none is read or written."""
    check: Annotated[bool, _option("write nothing; say whether the lock is still right, and fits this machine")] = False
    no_facts: Annotated[bool, _option("with --check: nothing of this machine counts, as in a CI job")] = False
    upgrade: Annotated[bool, _option("leave no pin of the lock as it is; without it, all that can stay do", None, "-U")] = False
    upgrade_package: Annotated[_Texts, _option("upgrade this package only; repeatable", "NAME", "-P")] = ()

    @property
    def repeated(self) -> tuple[tuple[str, str], ...]:
        """What is said of the old lock."""
        return (*((("--upgrade", ""),) if self.upgrade else ()), *(("--upgrade-package", name) for name in self.upgrade_package))


class BundleRequest(Options, frozen=True, kw_only=True):
    """What `bundle` is asked."""

    lock: str | None = None
    """A lock instead of targets; None = `./pylock.toml` where nothing is asked for, if it is there."""
    platforms: tuple[str, ...] = ()
    """Every `--platform` that it is for; empty = this machine's."""
    output: str | None = None
    """The bundle: a folder, or a file that ends in `.tar`."""
    add: Annotated[bool, _option("extend the bundle that is there")] = False
    check: Annotated[bool, _option("verify every file of the bundle that is there, and write nothing")] = False
    sbom: Annotated[bool, _option("with a list of its packages as CycloneDX has it (extra `sbom`)")] = False


_OF_ONE_RUN = frozenset({"packages", "ranges", "lock", "has_targets", "dry_run", "force", "restart", "words", "given", "project_matrix"})
"""Fields of `ApplyRequest` that a later run finds out or is told by itself, or that are no options."""


class ApplyRequest(Options, frozen=True, kw_only=True):
    """What `apply` is asked."""

    lock: str | None = None
    has_targets: bool = False
    """True where the caller himself names what he wants, and not only the project's settings."""
    dry_run: Annotated[bool, _option("show what would be done, and change nothing")] = False
    force: Annotated[
        bool,
        _option("install although libraries would not load, or a lock breaks; put back although others changed the environment meanwhile"),
    ] = False
    installer: Annotated[Literal["auto", "pip", "uv"], _option("default: uv where there is one, else pip")] = "auto"
    no_hashes: Annotated[bool, _option("also install files that nobody knows a hash of")] = False
    break_system_packages: Annotated[bool, _option("also change an environment that the system manages, as pip's")] = False
    no_validate: Annotated[bool, _option("do not test the stack on the GPU afterwards")] = False
    restart: Annotated[bool, _option("restart the notebook's kernel afterwards where that is needed")] = False
    bundle_dir: Annotated[
        str | None, _option("a folder, also a shared one, that has wheels already, and takes those that are fetched", "DIR")
    ] = None
    words: tuple[str, ...] = ()
    """The words of a command line that asks for the same, for `--resume`."""

    def again(self) -> tuple[str, ...]:
        """The words of a command line that asks for the same; how it is spoken and asked about is left to that.

        A journal holds them: logins belong in netrc, a keyring or pip's configuration, and are left out.
        """
        from cudnn_resolve.masking import without_logins

        options = (name for name in self.__struct_fields__ if name not in _OF_ONE_RUN)
        words = [f"{option}={without_logins(value)}" if value else option for option, value in said(self, options)]
        return (*map(without_logins, self.packages), *words, *([self.lock] if self.lock else []))


class DoctorRequest(Options, frozen=True, kw_only=True):
    """What `doctor` is asked."""

    log: str | None = None
    """A log file, `-` for standard input; None = the machine alone is judged."""
    no_facts: Annotated[bool, _option("judge the log alone: it came from another machine")] = False


class ValidateRequest(MachineOptions, frozen=True, kw_only=True):
    """What `validate` is asked."""

    framework: Annotated[_Texts, _option("only this framework, `torch`; repeatable (default: all)", "NAME", "-f")] = ()
    gpu: Annotated[int | None, _option("only this GPU, as programs count them from 0 (default: every one)", "N")] = None
    full: Annotated[bool, _option("every type in both layouts, instead of each class with each type once")] = False
    require_gpu: Annotated[bool, _option("fail where there is no GPU, instead of skipping")] = False
    lock: Annotated[str | None, _option("what is installed and what loads must be what this lock pins", "FILE")] = None
    plan: Annotated[str | None, _option("the same of a plan that `plan --format json` wrote; - reads standard input", "FILE")] = None
    record: Annotated[str | None, _option("as --lock, and what passes on a GPU is written into the lock", "FILE")] = None


class CheckRequest(StatedOptions, frozen=True, kw_only=True):
    """What `check` is asked."""

    what: tuple[str, ...] = ()
    """Files with packages, `-` for standard input; none: the environment."""
    diff: Annotated[bool, _option("of two files, OLD and NEW: what the change does to each machine")] = False
    extra: Annotated[_Texts, _option("an extra that is installed, too, from a lock of a project; repeatable", "NAME")] = ()
    group: Annotated[
        _Texts, _option("a group or category of a lock that is installed, too, or the environment of a pixi.lock; repeatable", "NAME")
    ] = ()
    no_default_groups: Annotated[bool, _option("without the groups for development that the tool installs by itself")] = False
    facts: Annotated[
        _Texts,
        _option(
            "another machine: what `detect --format json` wrote there, or its `nvidia-smi`, `collect_env` and the like; a folder has one "
            "in each file; - reads standard input; repeatable",
            "FILE",
        ),
    ] = ()  # type: ignore[assignment]  # several machines, where other commands are for one
    strict: Annotated[bool, _option("exit code 1 also where something is not known")] = False

    @property
    def machines(self) -> tuple[StatedOptions, ...]:
        """The options of each machine that is meant: one where no facts are named."""
        return tuple(recast(StatedOptions, self, facts=one) for one in self.facts or (None,))


class FleetRequest(Options, frozen=True, kw_only=True):
    """What `fleet VERB` is asked."""

    verb: Literal["detect", "plan", "lock", "check", "apply", "validate", "doctor", "undo"] = "detect"
    inventory: Annotated[_Texts, _option("the hosts: an inventory of Ansible; repeatable", "INVENTORY", "-i")] = ()
    from_folder: Annotated[
        _Texts,
        _option(
            "instead of hosts: a folder with a file of facts for each, or one such file, as `--facts` takes; repeatable", "FOLDER", "--from"
        ),
    ] = ()
    limit: Annotated[str | None, _option("of the inventory these hosts alone, a pattern as Ansible's", "PATTERN")] = None
    serial: Annotated[
        str | None, _option("apply, undo, validate: how many hosts at a time, after the canaries (a part of them as Ansible has it)", "N")
    ] = None
    max_fail: Annotated[int | None, _option("apply, undo: stop where more than this part of the hosts at a time failed", "PERCENT")] = None
    fetch: Annotated[
        Literal["controller", "host"], _option("apply: who fetches the files: this machine, once, or each host with its own pip and index")
    ] = "controller"
    replace: Annotated[bool, _option("apply, undo: go on even where packages that the lock does not have are lost")] = False
    output: str | None = None
    """The lock, or the folder for those of all classes."""
    one_lock: Annotated[bool, _option("lock: one that fits every host, instead of one for each class")] = False
    since: Annotated[
        str | None, _option("check: what `fleet detect --format json -o FILE` wrote then; what is no longer so is told", "FILE")
    ] = None
    strict: Annotated[bool, _option("check: exit code 1 also where something is not known")] = False


class CleanRequest(Struct, frozen=True, kw_only=True):
    """What `clean` is asked."""

    all: Annotated[bool, _option("also the last undo of every environment, and the caches")] = False
    dry_run: Annotated[bool, _option("show what is held, and free nothing")] = False


class MatrixRequest(Struct, frozen=True, kw_only=True):
    """What `matrix` is asked."""

    action: Literal["list", "show", "check", "html"] = "list"
    name: str | None = None
    which: str | None = None
    matrix: Annotated[_Texts, _option("further or changed rows for the tables; repeatable", "DIR")] = ()
    live: Annotated[bool, _option("check: hold a sample of rows against the package index, too")] = False
    sample: Annotated[int, _option("check --live: how many rows", "N")] = 40
    index_url: Annotated[str | None, _option("check --live: package index, as pip's", "URL")] = None


def said(request: Struct, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The options of those names that a request says, as a command line has them; one without a value has an empty text."""
    for name in names:
        value = getattr(request, name)
        option = f"--{name.replace('_', '-')}"
        if value is True:
            yield option, ""
        elif value:
            yield from ((option, str(one)) for one in (value if isinstance(value, tuple) else (value,)) if one)


O = TypeVar("O", bound=MachineOptions)  # noqa: E741 - the usual letter for options


def normalized(request: O) -> O:
    """The request with its limits and times in one form; UsageError for one that cannot be."""
    said = {name: getattr(request, name) for name in request.__struct_fields__}
    changed: dict[str, Any] = {}
    if said.get("cuda") is not None or said.get("cudnn") is not None:
        from cudnn_resolve.requirement.derive import parse_limit

        limits = {name: parse_limit(said[name], f"--{name}") for name in ("cuda", "cudnn") if said[name] is not None}
        changed = {name: str(one.specifier) if one.text[:1].isdigit() else one.text for name, one in limits.items()}
    if said.get("exclude_newer") is not None:
        changed["exclude_newer"] = _time("--exclude-newer", said["exclude_newer"])
    for name in ("python", "facts", "output", "env", "bundle_dir"):
        for text in said[name] if isinstance(said.get(name), tuple) else (said.get(name),):
            _path("-o" if name == "output" else f"--{name.replace('_', '-')}", text)
    if said.get("kernel") is not None:
        _kernel(said["kernel"], said["env"])
    return replace(request, **changed)


def contradictions(request: MachineOptions) -> Iterator[tuple[str, str, str, str]]:
    """Pairs of options that contradict each other, why, and what to do."""
    hint = "leave one of them out"
    if request.facts and request.python:
        yield "--facts", "--python", "a facts file describes its own interpreter", f"{hint}, or say --python-version X.Y"
    if getattr(request, "machine", None):
        for said, option in ((request.facts, "--facts"), (request.python, "--python")):
            if said:
                yield "--machine", option, "both say which machine is meant", hint
    for name, option in (("python_version", "--python-version"), ("platform", "--platform"), ("platforms", "--platform")):
        if request.python and getattr(request, name, None):
            yield "--python", option, f"{option} plans for a fresh environment on another machine", hint
    if isinstance(request, Options) and request.device == "cpu":
        for name in ("gpu", "cuda", "cudnn"):
            if getattr(request, name):
                yield "--device cpu", f"--{name}", "CPU builds use no GPU, CUDA or cuDNN", hint


def _path(option: str, text: str | None) -> None:
    if text is not None and (not text or "\0" in text):
        raise UsageError(f"{option} names no file", code="usage-path", hint=f"give a path after {option}")


def _kernel(name: str, env: str | None) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}", name, re.ASCII):
        hint = "letters, digits, `.`, `-` and `_`, as Jupyter has it"
        raise UsageError(f"--kernel {name!r:.80} is not a name of a kernel", code="option-kernel", hint=hint)
    if env is None:
        raise UsageError("--kernel is of an environment that --env makes", code="usage-contradiction", hint="add --env DIR")


def _time(option: str, text: str) -> str:
    """The time as ISO 8601 in UTC, to the second: a day means the end of that day."""
    from cudnn_resolve.index.config import moment

    found = moment(text)
    if found is None:
        raise UsageError(f"{option} {text!r} is no date", code="option-time", hint=f"such as {option} 2025-06-30")
    return f"{found[:19]}Z"
