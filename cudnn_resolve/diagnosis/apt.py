"""Commands for errors of apt and dpkg: packages in one version, the key of a repository, the conflicting package."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from cudnn_resolve.diagnosis.library_path import missing
from cudnn_resolve.diagnosis.model import Match, of_symptom, values_of
from cudnn_resolve.matrix.row import AptPattern, Repository
from cudnn_resolve.version import CudaVersion

if TYPE_CHECKING:
    from cudnn_resolve.facts.model import Facts
    from cudnn_resolve.matrix.book import Book

_EQUAL = r"= ?([0-9][\w.+~:-]{0,60})"
_VERSION = r"(\d{1,9})[\w.~:*-]{0,60}?(\+cuda\d{1,2}\.)?[\d.*]{0,8}"
_OURS = (
    r"(?:lib)?(?:nvidia|cuda|cudnn)(?:[\w.+-]{0,80})|(?:python3?-lib(?:nvinfer|nccl)|uff-converter-tf|graphsurgeon-tf|onnx-graphsurgeon|tensorrt|nsight|gds|libnccl|libcu(?:blas|dart|fft|file|pti|rand|solver|sparse|tensor)"
    r"|libnpp|libnv(?:infer|onnxparsers?|jpeg|jitlink|fatbin|vm|ptxcompiler|toolsext|parsers?|rtc|blas)|libxnvctrl"
    r"|xserver-xorg-video-nvidia|linux-(?:modules|objects|signatures)-nvidia)(?:[\d.+-][\w.+-]{0,80}|-?dev)?"
)
"""Packages of NVIDIA's driver, CUDA and cuDNN; our commands remove, pin or downgrade no others."""
_OF_NVIDIA = r"/compute/(?:cuda|machine-learning)/repos/|/libnvidia-container/|//(?:[\w-]{1,40}\.){0,4}nvidia\.(?:com|github\.io)(?:/|$)"
_DRIVER = r"\b(?:nvidia-(?:driver|dkms|kernel-(?:common|source))|cuda-drivers)(?:-[a-z0-9]{1,20}){0,4}\b(?!\.\w)"
_OLD_NAME, _FIRST_RENAMED = r"libcuda1-(\d{3})|nvidia-(\d{3})(?:-dev|-uvm)?", 390
"""Packages of the driver as Ubuntu named them before 18.04, and the first branch with new names."""
_NEEDS_DRIVER = re.compile(r"cuda(?:-runtime|-demo-suite)?-(\d{1,2}-\d{1,2})")
"""Packages of CUDA that also require a driver."""
_TENSORRT = re.compile(r"(?:tensorrt|(?:python3?-)?lib(?:nvinfer|nvonnxparsers?|nvparsers))[\w.+-]*")
_BRANCH = re.compile(r"= (\d{3})\.\d")
"""Release of a part of the driver that another package needs."""
_URL = r"(?:https?|file|copy|mirror\+\w{1,10}):/[\w./:+~-]{1,200}"
_OF_ONE_CUDA = re.compile(
    r"\b(lib(?:cudnn|nvinfer(?!-headers)|nccl|nvonnxparsers?|nvparsers)[\w-]{0,30}-dev)=(\d{1,3}[\w.~-]{1,40}\+cuda[\d.]{1,6})"
)
"""A package with headers that a command asks for in the version of one CUDA."""
_GITHUB = r"https://nvidia\.github\.io/([\w-]{1,60})(?=/)"
"""NVIDIA's repositories for containers, each with its key next to its distributions."""
_TOOLKIT_REPO = "https://nvidia.github.io/libnvidia-container/stable/rpm/nvidia-container-toolkit.repo"
"""The repository file for yum and dnf that replaces theirs."""
_CUDA_PATH = "/compute/cuda/repos"
_CUDA_REPOSITORIES = r"https?://(?:[\w-]{1,40}\.){1,4}nvidia\.(?:com|cn)" + _CUDA_PATH + "/"
_WITHOUT_HTTPS = r"/ubuntu1[46]04/"
"""Folders of systems whose apt-key fetches no key by https: GnuPG 1 without gnupg-curl."""
_KEY_FILE = "3bf863cc.pub"
"""File of NVIDIA's current key in each repository."""
_RPM_KEY_FILE = "D42D0685.pub"
"""The same in repositories for dnf and zypper."""
_CUDA_KEY = "3BF863CC"
"""End of the number of that key."""
_OLD_KEY = "7FA2AF80"
"""End of the number of the key before 2022, with which the repositories for machine learning are signed still."""
_REPO = r"/compute/cuda/repos/([a-z]{2,12}(?:\d{2,4}|-[a-z]{2,12}))/(x86_64|sbsa|aarch64|cross-linux-sbsa)"


def apt_values(matches: Iterable[Match], facts: Facts | None, book: Book, every: Sequence[Match]) -> dict[str, str]:
    """Fields of commands that the messages provide, or, for a repository that they do not name, `every` line of the log.

    `together`: packages with their common version; `newest`: any release of the required major (of cuDNN for the same CUDA major;
    `newest_of_any` for any); `in_the_way`: the package that owns a file, and `unpack` what goes on with the one that could not overwrite
    it; `driver_packages`: named packages of the driver; `keyring`: URL of NVIDIA's package with the key; `repository_key`, `old_key` and
    `gpgkey`: URL of the key alone; `toolkit_repo`: that of the repository file for yum and dnf; `repeated_hosts`: of repositories that
    two files list; `repositories` and `newest_keyring`: for another release; `switched_off`: the command that disables a repository;
    `conda_pin`: what conda was asked for of a package that another one limits; `apt_library`: the package of a missing library;
    `apt_other_release`: a library of another release of the distribution; `tensorrt_pin`: the version of all its packages;
    `later_branch`: that of a driver part which another branch than the one asked for brings; `suite`: the one that is asked for packages
    (`bookworm-backports`), and `of_suite` these with what they lack.
    """
    values: dict[str, str] = {}
    matches = list(matches)
    each = [{name: str(value) for name, value in match.fields.items()} for match in matches]
    for found in each:
        if (old := re.fullmatch(_OLD_NAME, found.get("dependent", ""))) and int(old[1] or old[2]) >= _FIRST_RENAMED:
            successor = f"libnvidia-compute-{old[1]}" if old[1] else f"nvidia-driver-{old[2]}"
            values |= {"name_old": old[0], "successor": successor}
        values.update({name: value for name, value in _of(found).items() if name not in values})
    lacking = dict.fromkeys(found[name] for found in each for name in ("dependent", "needs") if name in found)
    if lacking and (suite := next(map(str, values_of(every, "suite")), None)):
        values |= {"suite": suite, "of_suite": shlex.join(lacking)}
    exact = set(values_of(every, "asked_exact"))
    together = _together(each, exact) or _with_library(match.text for match in matches if match.symptom.cause == "apt_conflict")
    values |= _pinned_family(each, together) | _branches_apart(each, every)
    if together and values.keys().isdisjoint({"suite", "tensorrt_pin", "later_branch"}):
        values["together"] = shlex.join(together)
    values.update([("apt_toolkit", f"cuda-toolkit-{hit[1]}") for hit in map(_NEEDS_DRIVER.fullmatch, lacking) if hit][:1])
    hosts = dict.fromkeys(hit[1] for found in each if (hit := re.match(r"\w{2,8}://([\w.-]{1,80})", found.get("repeated", ""))))
    if hosts:
        values["repeated_hosts"] = shlex.quote("|".join(hosts))
    drivers = dict.fromkeys(name for match in matches for name in re.findall(_DRIVER, match.text))
    if drivers:
        values["driver_packages"] = shlex.join(drivers)
    asked = tuple(found["part_asked"] for found in each if "part_asked" in found)
    pins = map(str, values_of(every, "pinned"))
    values.update([("conda_pin", pin) for pin in pins if pin.startswith(asked)][:1])
    repos = map(str, values_of(every, "rpm_repo"))
    folder = _cuda_repositories(book)["repositories"]
    values.update([("rpm_key", f"{folder}/{repo}/{_RPM_KEY_FILE}") for repo in repos][:1])
    is_of_key = any(_CUDA_KEY in found.get("key", "").upper() for found in each)
    for match in (*matches, *(of_symptom(every, "context-nvidia-repository") if is_of_key else ())):
        values = _repository_values(match.text, facts, book) | values
    if "keyring" not in values and any(_OLD_KEY in found.get("key", "").upper() for found in each):
        folder = _cuda_repositories(book)["repositories"].replace("/cuda/", "/machine-learning/")
        file = f"$ID$(echo $VERSION_ID | tr -d .)/x86_64/{_OLD_KEY.lower()}.pub"
        values["old_key"] = f'"$(. /etc/os-release; echo {folder}/{file})"'
    if is_of_key and "repository_key" not in values:
        folder = "{repositories}/$ID$(echo $VERSION_ID | tr -d .)/x86_64".format_map(values := _cuda_repositories(book) | values)
        values["repository_key"] = f'"$(. /etc/os-release; echo {folder}/{_KEY_FILE})"'
    return values | _library_values(matches, book)


def _library_values(matches: Iterable[Match], book: Book) -> dict[str, str]:
    """Field for the package of a missing library whose name has the whole version of CUDA: `cuda-nvrtc-10-1` for libnvrtc.so.10.1."""
    for library in missing(matches):
        if library.family == "cuda" and not library.windows and re.fullmatch(r"\d{1,2}\.\d", library.version or ""):
            cuda = CudaVersion(library.version or "")
            rows = (row for row in book.rows(AptPattern) if row.library == library.component)
            names = [row.name for row in rows if row.first <= cuda <= (row.last or cuda)]
            return {"apt_library": names[0].format(major=cuda.major, minor=cuda.minor)} if names else {}
    return {}


def _repository_values(text: str, facts: Facts | None, book: Book) -> dict[str, str]:
    """Fields for the repository that a message names."""
    address = re.search(_URL, text)
    if address is None:
        return {}
    values: dict[str, str] = {}
    keyring = _keyring(text, facts, book)
    if keyring is not None:
        folder = keyring.rpartition("/")[0]
        if re.search(_WITHOUT_HTTPS, folder):
            folder = folder.replace("https:", "http:", 1)
        values |= {"keyring": shlex.quote(keyring), "repository_key": shlex.quote(f"{folder}/{_KEY_FILE}")}
    if re.match(_CUDA_REPOSITORIES, address[0]):
        values |= _cuda_repositories(book)
    if (own := re.match(_GITHUB, address[0])) is not None:
        values |= {"gpgkey": f"{own[0]}/gpgkey", "toolkit_repo": _TOOLKIT_REPO}
    if re.search(_OF_NVIDIA, address[0]):
        values["switched_off"] = _switched_off(address[0])
    return values


def _cuda_repositories(book: Book) -> dict[str, str]:
    """Fields from the tables, not from an address in a log: what is downloaded there is installed."""
    known = [row for row in book.rows(Repository) if row.keyring and _CUDA_PATH in row.url]
    newest = max(known, key=lambda row: row.keyring or "")
    return {"repositories": newest.url.partition(_CUDA_PATH)[0] + _CUDA_PATH, "newest_keyring": newest.keyring or ""}


def is_of_legacy_list(text: str) -> bool:
    """True for a repository whose list is older than `signed-by`: its address ends with a distribution release."""
    host, release = r"https?://(?:nvidia\.github\.io|developer\.download\.nvidia\.com)/", r"\d/(?:amd64|arm64|ppc64el) {1,3}(?:In)?Release"
    return re.search(rf"{host}[^\s?#]{{1,200}}{release}", text) is not None and "/stable/" not in text


def is_of_nvidia(package: str) -> bool:
    """True for an apt package of NVIDIA's driver, CUDA or cuDNN, with or without its architecture."""
    return re.fullmatch(_OURS, package.partition(":")[0]) is not None


def _together(each: list[dict[str, str]], exact: Collection[str]) -> list[str]:
    """Unmet dependencies on exact releases, as arguments for apt; none if one is not NVIDIA's or two disagree.

    `exact`: a package with its release as the command asks for it, whatever CUDA apt would otherwise take.
    """
    pinned: dict[str, str] = {}
    beside: dict[str, str] = {}
    owner = None
    for found in each:
        needs, dependent = found.get("needs"), found.get("dependent")
        owner = dependent or owner  # apt names it in the first of its lines
        equal = re.fullmatch(_EQUAL, found.get("relation", "").strip())
        if not needs or equal is None:
            continue
        names = [feature for feature in (needs, dependent) if feature]
        version, there = equal[1], found.get("found", "")
        if _cuda_of(there) != _cuda_of(version) and _cuda_of(there) and f"{owner}={version}" not in exact:
            # The installed package is for the installed CUDA; request the other package of its set in that version.
            if dependent and _set_of(dependent) == _set_of(needs):
                version = there
                beside[dependent] = there
            elif _release_of(there) != _release_of(version):
                return []
        if not all(map(is_of_nvidia, names)) or pinned.setdefault(needs, version) != version:
            return []
        if dependent:
            # The package `tensorrt` before 8 has a number more than its libraries.
            is_of_set = _set_of(needs) in dependent or (_cuda_of(version) and (dependent != "tensorrt" or version.count(".") > 3))
            beside.setdefault(dependent, version if is_of_set else "")
    words = {name: f"{name}={version}" for name, version in pinned.items()}
    words |= {name: f"{name}={version}" if version else name for name, version in beside.items() if name not in words}
    return list(words.values())


def _pinned_family(each: Iterable[Mapping[str, str]], together: Iterable[str]) -> dict[str, str]:
    """Field for the version of TensorRT's packages, which are there in one release for several CUDAs, as a pattern for apt."""
    pairs = [(found["found"], found["relation"]) for found in each if {"found", "relation"} <= found.keys()]
    has_twins = any(_release_of(there) in wanted and there not in wanted for there, wanted in pairs)
    versions = {version for word in together if _TENSORRT.fullmatch(word.partition("=")[0]) and (version := word.partition("=")[2])}
    if not has_twins or len(versions) != 1 or "tensorrt" not in {word.partition("=")[0] for word in together}:
        return {}
    return {"tensorrt_pin": versions.pop()}


def _branches_apart(each: Iterable[Mapping[str, str]], every: Iterable[Match]) -> dict[str, str]:
    """Fields for the driver that a command asks for, if apt takes a part of another branch for it."""
    asked = next((match.fields for match in every if "asked_driver" in match.fields), None)
    parts = (hit[1] for found in each if "nvidia" in found.get("needs", "") and (hit := _BRANCH.match(found.get("relation", ""))))
    later = next((branch for branch in parts if asked is not None and branch != asked["asked_branch"]), None)
    if asked is None or later is None:
        return {}
    return {"asked_driver": asked["asked_driver"], "asked_branch": asked["asked_branch"], "later_branch": later}


def _with_library(texts: Iterable[str]) -> list[str]:
    """Packages with headers that a command asks for, each after its library, which must have the same version."""
    asked = dict.fromkeys(pair for text in texts for pair in _OF_ONE_CUDA.findall(text))
    bare = ((name.removesuffix("-dev"), version) for name, version in asked)
    named = ((name if name[-1].isdigit() else f"{name}{version.partition('.')[0]}", name, version) for name, version in bare)
    return [word for library, name, version in named for word in (f"{library}={version}", f"{name}-dev={version}")]


def _cuda_of(version: str) -> str:
    """CUDA major that a package is built for, `11` of 2.13.4-1+cuda11.7."""
    return version.partition("+cuda")[2].partition(".")[0]


def _release_of(version: str) -> str:
    """`10.9.0.34-1` of 10.9.0.34-1+cuda12.8."""
    return version.partition("+cuda")[0]


def _set_of(package: str) -> str:
    """`libnccl` of libnccl2 and of libnccl-dev."""
    return re.sub(r"\d{0,4}(?:-dev)?(?::\w{1,10})?$", "", package)


def _of(found: dict[str, str]) -> dict[str, str]:
    values: dict[str, str] = {}
    dependent, needs = found.get("dependent", ""), found.get("needs", "")
    if "absent" in found and is_of_nvidia(dependent) and re.fullmatch(r"lib[^\s:]{1,80}", needs) and not is_of_nvidia(needs):
        values["apt_other_release"] = needs
    package, version = found.get("package", found.get("owner")), found.get("version")
    if package is None or not is_of_nvidia(package):
        return values
    numbers = re.fullmatch(_VERSION, version or "")
    if numbers is not None:
        # Within a CUDA major, every cuDNN release works with every CUDA.
        values["newest"] = shlex.quote(f"{package}={numbers[1]}.*{numbers[2] or ''}{'*' if numbers[2] else ''}")
        if numbers[2]:
            values["newest_of_any"] = shlex.quote(f"{package}={numbers[1]}.*")
    if found.get("archive", "-")[:1] not in ("", "-"):  # dpkg runs the hooks that options name
        archive = found["archive"]  # apt deletes its own directory of links
        values["unpack"] = "apt-get" if "/apt-dpkg-install-" in archive else f"dpkg -i {shlex.quote(archive)}; sudo apt-get"
    values["in_the_way"] = shlex.quote(package)
    return values


def _keyring(text: str, facts: Facts | None, book: Book) -> str | None:
    """Keyring package of the repository in the message, else of the one for this distribution."""
    named = re.search(_REPO, text)
    arch = named[2] if named else None
    for repository in book.rows(Repository):
        if repository.keyring and (
            (named and f"/{named[1]}/{arch}/" in repository.url) or (not named and _is_here(repository.os, facts) and "nvidia" in text)
        ):
            return f"{repository.url}{repository.keyring}"
    address = re.search(_URL, text)
    if named and address is not None and "-" in named[1] and re.match(_CUDA_REPOSITORIES, address[0]):  # `wsl-ubuntu`
        known = _cuda_repositories(book)
        return f"{known['repositories']}/{named[1]}/{named[2]}/{known['newest_keyring']}"
    return None


def _is_here(name: str, facts: Facts | None) -> bool:
    return facts is not None and name == f"{facts.platform.distribution}{facts.platform.release}"


def _switched_off(url: str) -> str:
    """Command that comments out list lines with that URL, and renames `.sources` files with it so that apt ignores them."""
    plain = re.sub(r"([.*\[\]^$\\])", r"\\\1", url)
    edit = shlex.quote(rf"\|{plain}|s/^deb/# deb/")
    return (
        f"sudo find /etc/apt -name '*.list' -exec sed -i {edit} {{}} + && "
        f"sudo find /etc/apt -name '*.sources' -exec grep -qF {shlex.quote(url)} {{}} \\; -exec mv {{}} {{}}.disabled \\;"
    )
