"""Requests: the options of each command as frozen values, one base for each group that several commands share.

A field is the only declaration of its option: name, type and description define the option of the command line, the keyword of the
function, the setting in pyproject.toml and the environment variable. An empty field was not given, and the project's settings may fill it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, TypeVar, get_args, get_origin

from msgspec import Meta, Struct
from msgspec.structs import fields, replace

from cudnn_resolve.errors import ContradictionError, UsageError
from cudnn_resolve.facts.assume import Assumptions
from cudnn_resolve.facts.model import Facts

LOCK = "pylock.toml"
"""Default path of the lock."""
LOCK_NAMES = re.compile(r"pylock(\.[^./]+)?\.toml")
"""File names that pip and uv accept as locks."""
FACTS = ("machine", "driver", "gpu", "python_version", "platform", "glibc", "os")
"""Options that state facts of a machine."""
INDEXES = ("index_url", "extra_index_url", "find_links", "index_strategy", "exclude_newer", "no_binary", "only_binary", "offline")
"""Options on where packages come from."""
_Texts = tuple[str, ...]


def _option(about: str, metavar: str | None = None, *short: str) -> Meta:
    """Help of an option: its description, placeholder, and short or alternative names."""
    return Meta(description=about, extra={"metavar": metavar, "short": short})


class Declared(NamedTuple):
    """An option, as declared by a field of a request."""

    name: str
    flags: tuple[str, ...]
    """On the command line: `-r`, `--requirement`."""
    help: str
    metavar: str | None
    choices: tuple[str, ...]
    """The allowed values; empty if any value is allowed."""
    is_flag: bool
    """True if it takes no value."""
    is_list: bool
    """True if it may be repeated."""
    is_number: bool
    default: Any

    @property
    def is_option(self) -> bool:
        """False for a field that no command line, setting or variable sets by its name."""
        return bool(self.help)

    @property
    def key(self) -> str:
        """Name in pyproject.toml."""
        return self.name.replace("_", "-")


@cache
def declared(kind: type[Struct]) -> Mapping[str, Declared]:
    """The options of a kind of request, by field name."""
    options = {}
    for field in fields(kind):
        is_annotated = get_origin(field.type) is Annotated
        plain, *annotations = get_args(field.type) if is_annotated else (field.type,)
        meta = next((annotation for annotation in annotations if isinstance(annotation, Meta)), Meta())
        extra = meta.extra or {}
        types = [plain, *get_args(plain)]
        options[field.name] = Declared(
            name=field.name,
            flags=(*extra.get("short", ()), f"--{field.name.replace('_', '-')}"),
            help=meta.description or "",
            metavar=extra.get("metavar"),
            choices=next((get_args(type_) for type_ in types if get_origin(type_) is Literal), ()),
            is_flag=bool in types,
            is_list=get_origin(plain) is tuple,
            is_number=int in types,
            default=field.default,
        )
    return options


class MachineOptions(Struct, frozen=True, kw_only=True):
    """The machine and environment."""

    python: Annotated[str | None, _option("the interpreter of the environment (default: the active one, ./.venv, or this one)", "PATH")] = (
        None
    )
    facts: Annotated[
        str | None,
        _option(
            "another machine: its `detect --format json`, or the output of its `nvidia-smi`, `collect_env` or similar; "
            "- reads standard input",
            "FILE",
        ),
    ] = None
    given: Facts | None = None
    """The facts as a value, instead of a file."""
    ranges: bool = False
    """Also compute the versions that each party allows, for a picture."""


class StatedOptions(MachineOptions, frozen=True, kw_only=True):
    """Single facts stated by hand, and the tables."""

    driver: Annotated[str | None, _option("NVIDIA driver, `550.54.15`", "V")] = None
    gpu: Annotated[_Texts, _option("`T4`, `RTX 4090`, `sm_90` or `9.0`; once for each GPU", "NAME-OR-SM")] = ()
    python_version: Annotated[str | None, _option("`3.11` or `3.11.9`", "X.Y")] = None
    platform: Annotated[str | None, _option("`linux_x86_64`, `linux_aarch64`, `manylinux_2_28_x86_64`", "PLATFORM")] = None
    glibc: Annotated[str | None, _option("GNU C library, `2.35`", "V")] = None
    os: Annotated[str | None, _option("distribution with its release, `ubuntu22.04`, `debian12`, `rocky9`", "NAME")] = None
    machine: Annotated[
        str | None, _option("a well-known machine: colab-t4, g5.xlarge, a2-highgpu-1g, ... (`matrix show machine` lists them)", "NAME")
    ] = None
    matrix: Annotated[_Texts, _option("additional or changed rows for the compatibility tables; repeatable", "DIR")] = ()
    project_matrix: tuple[str, ...] = ()
    """Folders named in the project's settings, with lower precedence: not an option, and nothing in them is run as root."""

    @property
    def assumptions(self) -> Assumptions:
        """The stated facts, for `assume`."""
        return Assumptions(
            driver=self.driver,
            gpus=self.gpu,
            python_version=self.python_version,
            platform=self.platform,
            glibc=self.glibc,
            os=self.os,
            machine=self.machine,
        )

    @property
    def states_facts(self) -> bool:
        """True if any fact comes from the request instead of this machine."""
        return self.given is not None or self.facts is not None or self.assumptions != Assumptions()


class Options(StatedOptions, frozen=True, kw_only=True):
    """Options that all resolving commands share."""

    packages: Annotated[_Texts, _option("requirements as for pip and uv: frameworks, `tensorflow==2.15`, and other packages", "REQ")] = ()
    framework: Annotated[_Texts, _option("a framework, or a companion such as `torchvision`; repeatable", "REQ", "-f")] = ()
    requirement: Annotated[
        _Texts,
        _option(
            "further requirements of the project, resolved together: a requirements file, or `pyproject.toml[extra]`; repeatable",
            *("FILE", "-r"),
        ),
    ] = ()
    constraint: Annotated[_Texts, _option("limits on packages that are needed anyway, like pip's; repeatable", "FILE", "-c")] = ()
    group: Annotated[
        _Texts, _option("a dependency group of ./pyproject.toml, or of the file or folder PATH; repeatable", "[PATH:]NAME")
    ] = ()
    cuda: Annotated[str | None, _option("limit CUDA: `12.4` (any 12.4.x), `>=12,<13`", "SPEC")] = None
    cudnn: Annotated[str | None, _option("limit cuDNN: `9.3` (any 9.3.x), `>=9.1`", "SPEC")] = None
    prefer: Annotated[
        Literal["installed", "newest"] | None,
        _option("among consistent answers: keep what is `installed` and fits (default), or take the `newest`"),
    ] = None
    driver_policy: Annotated[
        Literal["minor", "strict"] | None,
        _option(
            "drivers accepted for a CUDA runtime: `minor` (default), NVIDIA's minor-version rule; `strict`, the toolkit's own or newer"
        ),
    ] = None
    device: Annotated[Literal["gpu", "cpu"] | None, _option("`cpu` selects builds without CUDA; never chosen silently")] = None
    pre: Annotated[bool, _option("consider pre-releases, like pip's")] = False
    strict_pins: Annotated[bool, _option("keep the wheels' own pins: no overrides")] = False
    channel: Annotated[
        Literal["auto", "pip", "apt"] | None,
        _option("where CUDA and cuDNN come from: `pip`, `apt`, or `auto` (default): pip if possible"),
    ] = None
    allow_break: Annotated[
        _Texts, _option("an installed framework that may stop working if nothing else is possible; repeatable", "NAME")
    ] = ()
    """Not an option of `lock`."""
    reinstall_package: Annotated[
        _Texts,
        _option(
            "reinstall a package whose files others overwrote or removed; repeatable, needs no target",
            "NAME",
        ),
    ] = ()
    """Only an option of `plan` and `apply`."""
    env: Annotated[
        str | None,
        _option("create an environment in this folder, with a Python for which there is an answer; or update one created this way", "DIR"),
    ] = None
    """Only an option of `plan` and `apply`, like `kernel`."""
    kernel: Annotated[str | None, _option("with --env: also register a Jupyter kernel of this name", "NAME")] = None
    index_url: Annotated[str | None, _option("package index, like pip's", "URL")] = None
    """None = as the target's pip or uv is configured."""
    extra_index_url: Annotated[_Texts, _option("additional index, like pip's; repeatable", "URL")] = ()
    find_links: Annotated[_Texts, _option("folder or page of wheels, like pip's; repeatable", "PATH")] = ()
    index_strategy: Annotated[
        Literal["first-index", "best-match"] | None,
        _option(
            "among several indexes: `first-index`, the first one with the package (uv's rule), or `best-match`, the best version (pip's)"
        ),
    ] = None
    """None = the rule of the tool whose configuration names the indexes."""
    exclude_newer: Annotated[str | None, _option("ignore files uploaded after this day or ISO 8601 time, such as 2025-06-30", "DATE")] = (
        None
    )
    no_binary: Annotated[_Texts, _option("no wheels of these packages, like pip's; `:all:` for every package", "NAMES")] = ()
    only_binary: Annotated[_Texts, _option("only wheels of these packages, like pip's", "NAMES")] = ()
    no_variant_indexes: Annotated[bool, _option("use only the configured indexes, not those of variants such as torch+cu126")] = False
    offline: Annotated[bool, _option("use the tables and the cache only; the rest is listed as unpinned")] = False

    @property
    def is_elsewhere(self) -> bool:
        """True if the request is about another machine; with `env`, `python_version` selects a Python of this one."""
        stated = self.assumptions if self.env is None else replace(self.assumptions, python_version=None)
        return self.facts is not None or stated.elsewhere

    @property
    def names_targets(self) -> bool:
        """True if the request itself names targets."""
        return bool(self.framework or self.packages or self.requirement or self.group or self.reinstall_package)


class PlanRequest(Options, frozen=True, kw_only=True):
    """Request for `plan`."""

    lock: str | None = None
    """A lock instead of targets."""


class WhyRequest(Options, frozen=True, kw_only=True):
    """Request for `why`."""

    package: str = ""
    lock: str | None = None
    """A lock instead of targets; None = an existing `./pylock.toml`, unless targets are named."""


class LockRequest(Options, frozen=True, kw_only=True):
    """Request for `lock`."""

    platforms: tuple[str, ...] = ()
    """Each `--platform` of the lock; empty = this machine's."""
    output: str | None = None
    """Path of the lock; None = `pylock.toml`, `-` = none is read or written."""
    check: Annotated[bool, _option("write nothing; check that the lock is up to date and fits this machine")] = False
    no_facts: Annotated[bool, _option("with --check: ignore this machine, as in a CI job")] = False
    upgrade: Annotated[bool, _option("upgrade every pin; without it, pins of the existing lock are kept where possible", None, "-U")] = (
        False
    )
    upgrade_package: Annotated[_Texts, _option("upgrade only this package; repeatable", "NAME", "-P")] = ()


class BundleRequest(Options, frozen=True, kw_only=True):
    """Request for `bundle`."""

    lock: str | None = None
    """A lock instead of targets; None = an existing `./pylock.toml`, unless targets are named."""
    platforms: tuple[str, ...] = ()
    """Each `--platform` of the bundle; empty = this machine's."""
    output: str | None = None
    """Path of the bundle: a folder, or a file that ends in `.tar`."""
    add: Annotated[bool, _option("extend an existing bundle")] = False
    check: Annotated[bool, _option("verify every file of an existing bundle, and write nothing")] = False
    sbom: Annotated[bool, _option("include a CycloneDX list of its packages (extra `sbom`)")] = False


class ApplyRequest(Options, frozen=True, kw_only=True):
    """Request for `apply`."""

    lock: str | None = None
    has_targets: bool = False
    """True if the caller named targets, and not only the project's settings."""
    dry_run: Annotated[bool, _option("show what would be done, without changing anything")] = False
    force: Annotated[
        bool,
        _option(
            "install even if libraries would not load or the lock breaks a framework; undo even if others changed the environment since"
        ),
    ] = False
    installer: Annotated[Literal["auto", "pip", "uv"], _option("default: uv if available, else pip")] = "auto"
    no_hashes: Annotated[bool, _option("also install files without a known hash")] = False
    break_system_packages: Annotated[bool, _option("also change an environment managed by the system, like pip's")] = False
    no_validate: Annotated[bool, _option("skip the GPU test afterwards")] = False
    restart: Annotated[bool, _option("restart the notebook's kernel afterwards if needed")] = False
    bundle_dir: Annotated[str | None, _option("a folder, possibly shared, that provides wheels and keeps downloaded ones", "DIR")] = None
    words: tuple[str, ...] = ()
    """Command line that repeats the request, for `--resume`."""

    def command_words(self) -> tuple[str, ...]:
        """Command line that repeats the request, without the options about output and confirmation.

        Logins are left out, since the journal stores it: they belong in netrc, a keyring or pip's configuration.
        """
        from cudnn_resolve.masking import without_logins

        options = (name for name in self.__struct_fields__ if name not in ("packages", "dry_run", "force", "restart"))
        words = [f"{option}={without_logins(value)}" if value else option for option, value in option_words(self, options)]
        return (*map(without_logins, self.packages), *words, *([self.lock] if self.lock else []))


class DoctorRequest(Options, frozen=True, kw_only=True):
    """Request for `doctor`."""

    log: str | None = None
    """Path of a log, `-` for standard input; None = judge only the machine."""
    no_facts: Annotated[bool, _option("judge the log alone: it comes from another machine")] = False


class ValidateRequest(MachineOptions, frozen=True, kw_only=True):
    """Request for `validate`."""

    framework: Annotated[_Texts, _option("only this framework, such as `torch`; repeatable (default: all)", "NAME", "-f")] = ()
    gpu: Annotated[int | None, _option("only this GPU, as programs number them from 0 (default: all)", "N")] = None
    full: Annotated[bool, _option("test every type in both layouts, instead of each class and type once")] = False
    require_gpu: Annotated[bool, _option("fail if there is no GPU, instead of skipping")] = False
    lock: Annotated[str | None, _option("compare installed packages and loaded libraries with the pins of this lock", "FILE")] = None
    plan: Annotated[str | None, _option("likewise with a plan from `plan --format json`; - reads standard input", "FILE")] = None
    record: Annotated[str | None, _option("like --lock, and record in the lock what passes on a GPU", "FILE")] = None


class CheckRequest(StatedOptions, frozen=True, kw_only=True):
    """Request for `check`."""

    what: tuple[str, ...] = ()
    """Files that list packages, `-` for standard input; empty = the environment."""
    diff: Annotated[bool, _option("compare two files, OLD and NEW: what the change does to each machine")] = False
    extra: Annotated[_Texts, _option("an extra that is installed as well, from the lock of a project; repeatable", "NAME")] = ()
    group: Annotated[
        _Texts, _option("a group or category of a lock that is installed as well, or the environment of a pixi.lock; repeatable", "NAME")
    ] = ()
    no_default_groups: Annotated[bool, _option("leave out the development groups that the tool installs by default")] = False
    facts: Annotated[
        _Texts,
        _option(
            "another machine: its `detect --format json`, or the output of its `nvidia-smi`, `collect_env` or similar; a folder holds "
            "one file per machine; - reads standard input; repeatable",
            "FILE",
        ),
    ] = ()  # type: ignore[assignment]  # several machines, where other commands are for one
    strict: Annotated[bool, _option("exit code 1 also if something is unknown")] = False


class FleetRequest(Options, frozen=True, kw_only=True):
    """Request for `fleet VERB`."""

    verb: Literal["detect", "plan", "lock", "check", "apply", "validate", "doctor", "undo"] = "detect"
    inventory: Annotated[_Texts, _option("the hosts: an Ansible inventory; repeatable", "INVENTORY", "-i")] = ()
    from_folder: Annotated[
        _Texts,
        _option(
            "instead of hosts: a folder with a facts file for each, or one such file, as for `--facts`; repeatable", "FOLDER", "--from"
        ),
    ] = ()
    limit: Annotated[str | None, _option("only these hosts of the inventory, an Ansible pattern", "PATTERN")] = None
    serial: Annotated[
        str | None, _option("apply, undo, validate: hosts per batch, after the canaries (a number or a percentage, like Ansible's)", "N")
    ] = None
    max_fail: Annotated[int | None, _option("apply, undo: stop if more than this share of a batch failed", "PERCENT")] = None
    fetch: Annotated[
        Literal["controller", "host"],
        _option("apply: who downloads the files: this machine, once, or each host with its own pip and index"),
    ] = "controller"
    replace: Annotated[bool, _option("apply, undo: continue even if packages that are not in the lock are lost")] = False
    output: str | None = None
    """Path of the lock, or folder for the locks of all classes."""
    one_lock: Annotated[bool, _option("lock: a single one for all hosts, instead of one for each class")] = False
    since: Annotated[
        str | None, _option("check: an earlier output of `fleet detect --format json -o FILE`; report what has changed since", "FILE")
    ] = None
    strict: Annotated[bool, _option("check: exit code 1 also if something is unknown")] = False


class CleanRequest(Struct, frozen=True, kw_only=True):
    """Request for `clean`."""

    all: Annotated[bool, _option("also free the last undo of every environment, and the caches")] = False
    dry_run: Annotated[bool, _option("show the disk space in use, without freeing any")] = False


class MatrixRequest(Struct, frozen=True, kw_only=True):
    """Request for `matrix`."""

    action: Literal["list", "show", "check", "html"] = "list"
    name: str | None = None
    which: str | None = None
    matrix: Annotated[_Texts, _option("additional or changed rows for the tables; repeatable", "DIR")] = ()
    live: Annotated[bool, _option("check: also compare a sample of rows with the package index")] = False
    sample: Annotated[int, _option("check --live: number of rows", "N")] = 40
    index_url: Annotated[str | None, _option("check --live: package index, like pip's", "URL")] = None


def option_words(request: Struct, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Options of a request as for a command line, with their values ("" for a flag); unset ones, and what is no option, are left out."""
    options = declared(type(request))
    for name in names:
        value = getattr(request, name) if options[name].is_option else None
        option = f"--{options[name].key}"
        if value is True:
            yield option, ""
        elif value:
            values = value if isinstance(value, tuple) else (value,)
            yield from ((option, str(text)) for text in values if text)


O = TypeVar("O", bound=MachineOptions)  # noqa: E741 - the usual letter for options


def normalized(request: O) -> O:
    """Bring limits and times into one form; UsageError for an invalid value."""
    values = {name: getattr(request, name) for name in request.__struct_fields__}
    changed: dict[str, Any] = {}
    if values.get("cuda") is not None or values.get("cudnn") is not None:
        from cudnn_resolve.requirement.target import parse_limit

        limits = {name: parse_limit(values[name], f"--{name}") for name in ("cuda", "cudnn") if values[name] is not None}
        changed = {name: str(limit.specifier) if limit.text[:1].isdigit() else limit.text for name, limit in limits.items()}
    if values.get("exclude_newer") is not None:
        changed["exclude_newer"] = _utc_time(values["exclude_newer"])
    for name in ("python", "facts", "output", "env", "bundle_dir"):
        for path in values[name] if isinstance(values.get(name), tuple) else (values.get(name),):
            if path is not None and (not path or "\0" in path):
                option = "-o" if name == "output" else f"--{name.replace('_', '-')}"
                raise UsageError(f"{option} names no file", code="usage-path", hint=f"give a path after {option}")
    if values.get("kernel") is not None:
        _check_kernel(values["kernel"], values["env"])
    return replace(request, **changed)


def refuse_contradictions(request: MachineOptions, context: str | None = None) -> None:
    """Reject options that exclude each other; raises ContradictionError. `context` says that some come from the project's settings."""

    def refuse(option: str, other: str, why: str, hint: str = "leave one of them out") -> NoReturn:
        raise ContradictionError(f"{option} cannot be combined with {other}: {why}", context=context, hint=hint)

    if request.facts and request.python:
        hint = "leave one of them out, or say --python-version X.Y"
        refuse("--facts", "--python", "a facts file describes its own interpreter", hint)
    if getattr(request, "machine", None) and (request.facts or request.python):
        refuse("--machine", "--facts" if request.facts else "--python", "both select a machine")
    for name, option in (("python_version", "--python-version"), ("platform", "--platform"), ("platforms", "--platform")):
        if request.python and getattr(request, name, None):
            refuse("--python", option, f"{option} plans for a fresh environment on another machine")
    if isinstance(request, Options) and request.device == "cpu" and context is None:  # a project's limits are for its GPU machines
        for name in ("gpu", "cuda", "cudnn"):
            if getattr(request, name):
                refuse("--device cpu", f"--{name}", "CPU builds use no GPU, CUDA or cuDNN")


def _check_kernel(name: str, env: str | None) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}", name, re.ASCII):
        hint = "Jupyter allows letters, digits, `.`, `-` and `_`"
        raise UsageError(f"--kernel {name!r:.80} is not a valid kernel name", code="option-kernel", hint=hint)
    if env is None:
        raise ContradictionError("--kernel needs --env: it registers the environment that --env creates", hint="add --env DIR")


def _utc_time(text: str) -> str:
    """Convert a time to ISO 8601 in UTC, to the second; a day means its end."""
    from cudnn_resolve.index.read_settings import moment

    time = moment(text)
    if time is None:
        raise UsageError(f"--exclude-newer {text!r} is not a date", code="option-time", hint="such as --exclude-newer 2025-06-30")
    return f"{time[:19]}Z"
