"""The machine shown by a log and the facts: GPUs, frameworks, copies of cuDNN, and features that symptoms and remedies depend on."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from cudnn_resolve.diagnosis.library_path import faults_of, is_outer_alone, is_searched, missing
from cudnn_resolve.diagnosis.model import Case, Context, Evidence, Match, Present, of_symptom, values_of
from cudnn_resolve.diagnosis.specifier import is_version, within
from cudnn_resolve.facts.model import Facts, Unknown, or_none
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.library_name import Library
from cudnn_resolve.matrix.row import Build
from cudnn_resolve.matrix.symptom import PLACE, place_feature
from cudnn_resolve.version import Capability, CodeTarget, CudnnVersion, DriverVersion, parsed

_NEWEST = Capability(10, 0)
"""Capability from which most builds have no code for a GPU."""
_OLDEST = Capability(7, 5)
"""Capability below which the newest builds have no code for a GPU."""
_AMPERE = Capability(8, 0)
_FIRST_NUMBER, _LAST_NUMBER = 20, 199
"""Capabilities that programs print as one number: 86 for 8.6."""
_KEPLER, _MAXWELL, _PASCAL = Capability(3, 0), Capability(5, 0), Capability(6, 0)
_WANTS = ("cudnn_missing", "cudnn_too_old_for_framework", "lib_not_on_path", "pip_pin_unavailable", "pip_wheel_unavailable_for_python")
"""Causes whose lines name a required cuDNN, not an installed one."""
_ASKS = ("noise-pip-notice", "pip-cudnn-other-major")
"""Symptoms whose lines name a required and an installed cuDNN."""
_SHOWS = (("context-cudnn-package", "context-cudnn-shown", "context-upgraded"), ("pip-cudnn-other-major",))
"""Symptoms that name an installed cuDNN; and those that name it in the field `found`."""
FILES_LISTED = "files-listed"
_FILE = re.compile(r"[\w+.-]{1,80}\.(?:so|a|la|dll|lib|h|pc)[\d.]{0,20}[*@]?")
_LONG_LISTING = (
    r"\s{0,8}(?:[-l][rwxsStT-]{9}[.+@]? +\d{1,6} \S{1,60} "
    r"|(?:-[a-z-]{4,5} {1,20})?\d{1,4}[/.-]\d\d?[/.-]\d{2,4} {1,9}\d\d?:\d\d(?: [AP]M)? {1,20}[\d,.]{1,20} )"
)
"""Start of a line of `ls -l`, or of `dir` of Windows, for a file or link."""
_ADVICE = r"(?i)\bfor example\b|\be\.g\.|\bmake sure\b"
"""Wording for a file that the user should provide."""
_BUILT_IMAGE = r"#\d{1,4} \d{1,6}\.\d{1,4} "
"""Prefix of BuildKit before what a step of a Dockerfile prints."""
_COMPOSED = (
    r"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (?=[\w.-]{1,60} {2}))?"  # of Docker Desktop
    r"(?!nvidia-docker|(?:debug|info|notice|warn|error|critical|fatal|trace)\w*\s)[a-z][\w.-]{0,60}(?:[-_]\d{1,3})? {1,40}\| "
)
"""Prefix of `docker compose`: the container's name."""
_GPU_CAUSES = ("gpu_arch_too_new_for_build", "gpu_arch_too_old_for_build")
_CUDART_ALONE = ("loader-cuda-not-found", "last-cuda", "tf-cuda-drivers-not-found", "devices-without-gpu")
"""Symptoms of TensorFlow's notice that it finds no CUDA runtime."""
_TEGRA = r"(?i)orin|xavier|tegra|jetson|nvgpu|\bnano\b"
"""Names of the GPU in a Jetson."""
NO_CARD = "this machine has no NVIDIA GPU"
GPU_THERE = frozenset({"gpu-named", "gpu-seen", "gpu-works", "smi-table", "driver-seen", "docker-gpus"})
"""With any of these features a GPU is present, or should be."""


def context_of(matches: Sequence[Match], book: Book, facts: Facts) -> Context:
    """Context of a log, completed by the facts."""
    pip = or_none(facts.packages.pip) or {}
    installed = ((name, version) for name, version in pip.items() if book.framework_of(name) is not None)
    frameworks = tuple(dict.fromkeys((*_frameworks(matches), *installed)))
    cards = tuple(dict.fromkeys(values_of(matches, "card")))
    wanted = {match.line for match in matches if match.symptom.cause in _WANTS or match.symptom.id in _ASKS}
    shown = [match for match in matches if match.line not in wanted or match.symptom.id in _ASKS]
    return Context(
        capabilities=(*_capabilities(matches, cards, book), *_gpus(facts)),
        frameworks=frameworks,
        builds=tuple(build for name, version in frameworks if (build := build_of(name, version, book)) is not None),
        cudnn=(*_present(shown), *_copies(facts, book)),
        cards=cards,
    )


def speaking(matches: Sequence[Match], context: Context, book: Book) -> tuple[Match, ...]:
    """Matches that apply to the known releases, as a row for other versions of a framework does not, and to no line of our own plans."""
    own = {match.line for match in of_symptom(matches, "noise-own-plan")}
    known: dict[str, list[str]] = {}
    for name, version in context.frameworks:
        for framework in {name, book.framework_of(name) or name}:
            known.setdefault(framework, []).append(version)
    return tuple(match for match in matches if _is_meant(match, known) and (match.line not in own or match.symptom.role == "harmless"))


def _is_meant(match: Match, known: dict[str, list[str]]) -> bool:
    """True if a row applies, also if no release is known: then the message itself is the better evidence."""
    symptom = match.symptom
    if symptom.versions is None or symptom.framework is None:
        return True
    versions = [version for version in known.get(symptom.framework, ()) if is_version(version)]
    return not versions or any(within(symptom.versions, version) for version in versions)


def _frameworks(matches: Iterable[Match]) -> Iterable[tuple[str, str]]:
    for match in matches:
        if match.symptom.id.startswith("context-framework"):
            name = match.fields["package"].lower().replace("_", "-")
            yield ("torch" if name == "pytorch" else name), match.fields["version"].rstrip(".-+")


def build_of(name: str, version: str, book: Book) -> Build | None:
    """CUDA build of a framework release: the one named by its local version, else that of the default index."""
    framework = book.framework_of(name)
    public, _, local = version.partition("+")
    builds = book.framework(framework).builds if framework is not None else ()
    found = [build for build in builds if build.version == public and build.cuda is not None]
    found = [build for build in found if build.package == name] or found
    exact = sorted((build for build in found if local and build.variant == local), key=lambda build: not build.targets)
    return next(iter(exact or [build for build in found if build.index == "default"] or found), None)


def _capabilities(matches: Iterable[Match], cards: Iterable[str], book: Book) -> Iterable[Capability]:
    for match in matches:
        value = match.fields.get("capability")
        if isinstance(value, CodeTarget):
            yield value.capability
        elif isinstance(value, int) and _FIRST_NUMBER <= value <= _LAST_NUMBER:
            yield Capability(*divmod(value, 10))
    yield from (found.capability for card in cards if (found := book.card(card)) is not None)


def _present(matches: Iterable[Match]) -> Iterable[Present]:
    matches = [match for match in matches if not re.search(_ADVICE, match.text)]
    is_asked = any(match.symptom.feature == FILES_LISTED for match in matches)
    for match in matches:
        library = match.fields.get("present")
        listed = match.symptom.id != "context-cudnn-listed" or (
            isinstance(library, Library) and is_listing(match.text, library, is_asked=is_asked)
        )
        if isinstance(library, Library) and library.family == "cudnn" and library.major is not None and listed:
            yield Present(major=library.major, version=_full(library.version), match=match)
        for name in ("wheel", "apt", "version", "found"):
            value = match.fields.get(name)
            if isinstance(value, CudnnVersion) and match.symptom.id in _SHOWS[name == "found"]:
                yield Present(major=value.major, version=value, match=match)
        if match.symptom.id == "context-cudnn-header":
            release = CudnnVersion(f"{match.fields['major']}.{match.fields['minor']}")
            yield Present(major=release.major, version=release, match=match)
        if match.symptom.id == "context-cudnn-package" and isinstance(match.fields.get("major"), int) and match.fields["major"] < 20:
            yield Present(major=match.fields["major"], version=None, match=match)


def is_listing(text: str, library: Library, *, is_asked: bool) -> bool:
    """True for a line of `ls`, or of R's list.files, that shows a file, if the user listed files.

    Otherwise a bare `libcudnn.so.8` may be the missing file, while `libcudnn.so.8.9.7` exists.
    """
    if re.match(_LONG_LISTING, text):
        return True
    names = re.sub(r"^\s{0,8}\[\d{1,4}\]|\"", "", text).split()
    return all(map(_FILE.fullmatch, names)) and (is_asked or len(names) > 1 or _full(library.version) is not None)


def _copies(facts: Facts, book: Book) -> Iterable[Present]:
    for copy in or_none(facts.cudnn) or ():
        version = _full(copy.version)
        major = copy.soname if copy.soname is not None else version.major if version else None
        if major is not None and not is_outer_alone(copy):
            broken = "; ".join(faults_of(copy, book)) or None
            yield Present(major=major, version=version, match=None, path=copy.path, broken=broken)


def _gpus(facts: Facts) -> Iterable[Capability]:
    found = (parsed(Capability.parse, gpu.compute_capability) for gpu in or_none(facts.gpus) or ())
    return (capability for capability in found if capability is not None)


def _full(text: str | None) -> CudnnVersion | None:
    return CudnnVersion(text) if text and text.count(".") >= 1 else None


def contradictions(case: Case) -> list[tuple[str, Evidence]]:
    """Statements of the log that the facts contradict: it is of another machine, or of another time."""
    facts = case.facts
    if facts is None:
        return []
    return [found for look in (_other_gpu, _other_driver, _absent_cudnn) if (found := look(case, facts)) is not None]


def _other_gpu(case: Case, facts: Facts) -> tuple[str, Evidence] | None:
    """GPUs in the log, none of which is in this machine."""
    gpus = [(gpu, parsed(Capability.parse, gpu.compute_capability)) for gpu in or_none(facts.gpus) or ()]
    # A compiler names the GPUs it compiles for, which need not be in the machine.
    speaking = [match for match in case.matches if match.symptom.cause in _GPU_CAUSES and not match.symptom.id.startswith("nvcc")]
    logged = set(_capabilities(speaking, case.context.cards, case.book))
    if not logged or not gpus or any(capability is None or capability in logged for _, capability in gpus):
        return None
    there = " and ".join(dict.fromkeys(f"{gpu.name or 'a GPU'} ({capability})" for gpu, capability in gpus))
    named = " and ".join(map(str, sorted(logged)))
    text = f"it mentions a GPU of compute capability {named}, but this machine has {there}"
    return text, Evidence(source="gpus", line=None, text=there)


def _other_driver(case: Case, facts: Facts) -> tuple[str, Evidence] | None:
    """Driver in the log that differs from this machine's."""
    if isinstance(facts.driver, Unknown):
        return None
    fields = [match.fields for match in case.matches if match.symptom.role == "context"]
    logged = list(dict.fromkeys(shown[name] for shown in fields for name in ("driver", "driver2", "driver3") if name in shown))
    here = (facts.driver.version, facts.driver.kernel_module) if facts.driver is not None else ()
    same = {parsed(DriverVersion, version) for version in here}
    if not logged or same & set(logged) or (facts.driver is not None and not facts.driver.version):
        return None
    now = f"driver {here[0]}" if here else "no driver"
    return f"it shows driver {logged[0]}, but this machine has {now}", Evidence(source="driver", line=None, text=now)


def _absent_cudnn(case: Case, facts: Facts) -> tuple[str, Evidence] | None:
    """A cuDNN that the log does not find, although a complete copy is in a default directory."""
    for library in missing(match for match in case.matches if match.symptom.cause == "cudnn_missing"):
        for copy in or_none(facts.cudnn) or ():
            is_same = copy.soname is not None and copy.soname == library.major
            if is_same and is_searched(copy.path, facts) and not faults_of(copy, case.book):
                text = f"it does not find {library.file}, but cuDNN {copy.version} is in {copy.path}, which the loader searches"
                return text, Evidence(source="cudnn", line=None, text=f"{copy.path}: {copy.version}")
    return None


# --- features ---


_IMPLIED = (
    (frozenset({"arm", "jetson"}), "arm-cpu"),
    (frozenset({"kubernetes", "singularity", "docker-build"}), "docker"),
    (frozenset({"ipython-cell", "hosted-notebook"}), "notebook"),
    (frozenset({"docker", "composed", "wsl"}), "docker-or-wsl"),
    (frozenset({"docker", "composed", "hosted-notebook", "wsl", "windows"}), "guest"),
    (frozenset({"cgroups-off", "lxc-devices", "nspawn"}), "devices-denied"),
    (GPU_THERE, "gpu-wanted"),
)
"""Features, of which each implies the one beside them, in this order."""


_STARTS, _REMOTE = "context-container-start", "context-remote-shell"
_OF_PROMPT = frozenset({"windows", "macos", "powershell"})
"""Features that, up to the command ssh, are of the user's computer and not of the machine that fails."""
_SHOWN = frozenset({"gpu-seen", "smi-table"})
_OF_NIXOS = r"[A-Z][a-z]{2} {1,2}\d{1,2} [\d:]{8} nixos [\w-]{1,30}(?:\[\d{1,9}\])?:"
"""Prefix of a journal whose machine has NixOS's own name."""


def features_of(matches: Sequence[Match], context: Context, book: Book, facts: Facts | None) -> frozenset[str]:
    """Features of the machine according to the log and the facts."""
    remote = max((match.line for match in of_symptom(matches, _REMOTE)), default=0)
    told = {(match.symptom.feature, match.line > remote) for match in matches if match.symptom.role in ("context", "harmless")}
    features = {name for name, is_there in told if name and (is_there or name not in _OF_PROMPT)}
    features |= {place_feature(name) for match in matches if match.symptom.id.startswith(PLACE) for name in match.fields}
    if facts is not None:
        features |= set(_of_facts(facts))
    features |= set(_gpu_age(context, features, matches, book))
    if {"ipython-cell", "dist-packages"} <= features:  # Jupyter elsewhere works in environments, which have site-packages
        features.add("hosted-notebook")
    # Neither runs in a container of compose: the prefix is that of another program.
    if not features & {"windows", "hosted-notebook"} and any(re.match(_COMPOSED, match.text) for match in matches):
        features.add("composed")
    features |= {"docker-build" for match in matches if re.match(_BUILT_IMAGE, match.text)}
    features |= {"nixos" for match in matches if re.match(_OF_NIXOS, match.text)}
    if facts is None and "docker-gpus" not in features and _is_of_host(matches):
        features -= _SHOWN
    if _is_test_apart(matches, features):
        features -= {"docker-gpus", "smi-table"} | ({"container-start"} if _is_tested(_STARTS, matches) else set())
    _add_implied(features)
    if _is_cpu_machine(matches, features):
        features.add("cpu-machine")
    if any(of_symptom(matches, "context-died")):
        features.discard("server-without-gpu")
    if "windows" in features and within(">=2.11", context.version("tensorflow")):
        features.add("tf-cpu-on-windows")
    if any(name in ("torch", "onnxruntime-gpu", "ctranslate2") for name, _ in context.frameworks):
        features.add("other-framework-works")
    return frozenset(features)


def _add_implied(features: set[str]) -> None:
    if "devices-void" in features:  # asked for somewhere, but this container got none
        features.discard("docker-gpus")
    for some, implied in _IMPLIED:
        if features & some:
            features.add(implied)
    if features >= {"server-display", "all-listed"}:
        features.add("other-gpu")
    if "vga-alone" in features:  # in this list a second GPU, a 3D controller, would not appear
        features.discard("other-gpu")


def _is_tested(name: str, matches: Iterable[Match]) -> bool:
    """True if all matches of a symptom are commands that run nvidia-smi in a container."""
    found = [match for match in matches if match.symptom.id == name]
    return bool(found) and all({"tested", "tested2", "tested3"} & match.fields.keys() for match in found)


def _is_of_host(matches: Sequence[Match]) -> bool:
    """True if every list of GPUs is that of the host: before the command that starts the container, by ssh, or without compose's prefix."""
    start = min((match.line for match in of_symptom(matches, _STARTS)), default=0)
    shown = [match.line for match in matches if match.symptom.feature in _SHOWN]
    prefixed = {match.line for match in matches if re.match(_COMPOSED, match.text)}
    by_ssh = next((match.line for match in of_symptom(matches, _REMOTE) if " nvidia-smi" in match.text), None)
    if by_ssh is not None and any(of_symptom(matches, "context-kubernetes")):
        return min(shown, default=by_ssh) > by_ssh  # of a node
    return max(shown, default=start) < start or (bool(prefixed) and prefixed.isdisjoint(shown))


def _is_test_apart(matches: Sequence[Match], features: Collection[str]) -> bool:
    """True if the GPU was only given to a container that ran nvidia-smi, which worked, while the program's container is another."""
    is_only_test = _is_tested("context-docker-gpus", matches) and "smi-table" in features
    return is_only_test and not (_is_tested("context-docker", matches) and _is_tested(_STARTS, matches))


def _of_facts(facts: Facts) -> Iterable[str]:
    if isinstance(facts.container, str):
        yield "hosted-notebook" if facts.container in ("colab", "kaggle") else facts.container
    if facts.platform.system == "windows":
        yield "windows"
    if re.match(r"2\.|3\.[0-8](?!\d)", facts.python.version or ""):
        yield "python-before-39"
    gpus = or_none(facts.gpus) or ()
    if facts.platform.arch == "aarch64":
        # Before CUDA 11 no other Arm machine had CUDA.
        is_old = any((one.cuda_built or "").startswith("10.") for one in or_none(facts.frameworks) or ())
        yield "jetson" if is_old or any(re.search(_TEGRA, gpu.name or "") for gpu in gpus) else "arm"
    if or_none(facts.driver) is not None:
        yield "driver-idle" if is_idle(facts) else "driver-seen"
    elif facts.driver is None and not gpus:
        yield "no-driver"
    if has_no_card(facts):
        yield "no-card"
    if gpus:
        # The bus and the device tree show a card without its driver, too.
        yield from ("gpu-named",) if facts.driver is None or is_idle(facts) else ("gpu-named", "gpu-seen")
        if all(gpu.hidden for gpu in gpus):
            yield "visible-devices-set"


def has_no_card(facts: Facts) -> bool:
    """True if the machine certainly has no NVIDIA GPU; a hosted notebook could have one, and in WSL it is not on the PCI bus."""
    return facts.gpus == () and (facts.driver is None or is_idle(facts)) and facts.container not in ("colab", "kaggle", "wsl")


def is_idle(facts: Facts) -> bool:
    """True if the driver's kernel module is not loaded, according to its libraries or the probe."""
    driver = or_none(facts.driver)
    if facts.gpus == () and facts.container is None and driver is not None and driver.version and driver.kernel_module is None:
        return True
    return any(
        problem.what == "NVIDIA kernel module"
        or (problem.what == "NVML" and " (9)" in problem.why)
        or (problem.what == "driver" and "no NVIDIA kernel module is loaded" in problem.why)
        for problem in facts.problems
    )


def _gpu_age(context: Context, features: set[str], matches: Sequence[Match], book: Book) -> Iterator[str]:
    """Whether the GPU is newer or older than the build, if both are known; a list printed by PyTorch takes precedence."""
    built = next((build.targets for build in context.builds if build.targets), ())
    made = [match for match in matches if "made" in match.fields and not match.text.lstrip().startswith(("#", "//"))]
    own = tuple(target for match in made for target in match.fields["made"])  # of the user's own build
    targets = next(values_of(matches, "targets", tuple), own or built)
    old = max(values_of(of_symptom(matches, "context-cuda-old"), "toolkit"), default=None)
    newest = max(map(int, values_of(of_symptom(matches, "context-cuda-major"), "of")), default=0)
    for capability in context.capabilities:
        row = book.architecture(capability)
        if targets:
            if not any(target.runs_on(capability) for target in targets):
                yield "gpu-newer" if capability > min(target.capability for target in targets) else "gpu-older"
        elif capability >= _newest(features) or (row is not None and old is not None and old.parts[:2] < row.cuda_first.parts[:2]):
            yield "gpu-newer"  # than the builds of its time, or than what the newest CUDA in the log compiles for
        elif capability < _oldest(features):
            yield "gpu-older"
        if row is not None and row.cuda_last is not None and row.cuda_last.parts[0] < newest:
            yield "arch-asked-old"
        yield from (name for name, first in (("gpu-turing", _OLDEST), ("gpu-ampere", _AMPERE)) if capability >= first)
    if context.capabilities or context.cards:
        yield "gpu-named"
    is_served = all(any(target.runs_on(capability) for target in built) for capability in context.capabilities)
    if context.capabilities and built and is_served and context.version("torch"):
        yield "gpu-served"
    if not context.capabilities and built:
        # The GPU is unknown: builds for CUDA 12.8 and newer have dropped old GPUs, older builds lack new ones.
        yield "build-drops-old" if min(target.capability for target in built) >= Capability(7, 0) else "build-lacks-new"


def _newest(features: set[str]) -> Capability:
    """Capability from which builds of the log's time have no code for a GPU."""
    return _PASCAL if "before-2018" in features else _AMPERE if "cuda-10" in features else _NEWEST


def _oldest(features: set[str]) -> Capability:
    """Capability below which builds of the log's time have dropped a GPU; those for a Jetson are made for its own."""
    if "jetson" in features:
        return Capability(0, 0)
    return _KEPLER if "before-2018" in features else _MAXWELL if "cuda-10" in features else _OLDEST


def _is_cpu_machine(matches: Iterable[Match], features: set[str]) -> bool:
    """True for a CPU image, or if TensorFlow finds neither CUDA runtime nor driver: no part of the GPU stack is installed."""
    if features & {"gpu-seen", "cuda-opened", "gpu-works", "smi-table", "docker-gpus"}:
        return False
    if "cpu-image" in features or ("other-gpu" in features and not features & {"gpu-listed", "gpu-named"}):
        return True
    names = {match.symptom.id for match in matches}
    absent = {library.stem for library in missing(matches)}
    no_runtime = "cudart" in absent or "tf-cuda-drivers-not-found" in names
    no_driver = bool({"cuda", "nvcuda"} & absent) or "cuinit-failed-303" in names
    # TensorFlow continues without a GPU: its notice suffices if the facts show none, or nothing else in the log needs one.
    is_noted = not names.isdisjoint({"noise-cudart-ignore", "tf-cuda-drivers-not-found"})
    told = [match.symptom for match in matches if match.symptom.role in ("proves", "suggests")]
    has_died = "context-died" in names
    if has_died:  # another error ended the run, so that what counts only elsewhere asks for nothing
        told = [symptom for symptom in told if features.issuperset(symptom.needs)]
    asks = {symptom.id for symptom in told} - set(_CUDART_ALONE)
    no_driver |= is_noted and ("no-driver" in features or (has_died and absent == {"cudart"} and not asks and not features & GPU_THERE))
    return no_runtime and no_driver and "tf-cannot-dlopen" not in names
