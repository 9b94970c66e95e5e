"""What `matrix show` prints of drivers, CUDA, cuDNN and GPUs. Every function returns text."""

from __future__ import annotations

from collections.abc import Iterable

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.named_machine import Place
from cudnn_resolve.matrix.row import Architecture, Branch, Card, CudaRelease, CudnnBuild
from cudnn_resolve.report.text import Page, Style
from cudnn_resolve.version import Capability, CudaVersion, DriverVersion


def render_cudnn(builds: Iterable[CudnnBuild], *, style: Style | None = None, width: int = 100) -> str:
    """The builds of cuDNN, newest first."""
    page = Page(style, width)
    page.title("cuDNN")
    rows = [
        (
            str(one.version),
            _runtimes(one),
            str(one.cuda_built or ""),
            f"libcudnn.so.{one.soname}",
            str(one.driver or ""),
            capability_span(one.capability),
            one.wheel or "",
            f"{one.apt.package}={one.apt.version}" if one.apt.package else "",
        )
        for one in reversed(list(builds))
    ]
    page.table(
        ("version", "CUDA", "built with", "soname", "driver", "GPUs", "pip", "apt"),
        rows,
        least=("soname", "built with", "driver", "apt", "pip"),
    )
    page.say(
        "A framework takes any cuDNN of the major that it was built with, from its minor on. CUDA: runtimes beside which it loads.", ""
    )
    return page.text()


def _runtimes(build: CudnnBuild) -> str:
    """`12.0+`, `11.0-11.8` or `10.2`."""
    first = build.cuda_first or build.cuda_major
    if build.cuda_last is None:
        return f"{first}+"
    return f"{first}" if build.cuda_last == build.cuda_first else f"{first}-{build.cuda_last}"


def capability_span(capabilities: Iterable[Capability]) -> str:
    """`5.0-9.0`; empty where nothing is known."""
    known = sorted(capabilities)
    return "" if not known else str(known[0]) if len(known) == 1 else f"{known[0]}-{known[-1]}"


def render_cuda(book: Book, releases: Iterable[CudaRelease], *, style: Style | None = None, width: int = 100) -> str:
    """CUDA toolkits, newest first, with the drivers that they need."""
    page = Page(style, width)
    page.title("CUDA toolkits")
    chosen = list(releases)
    rows = []
    for one in reversed(chosen):
        strict, floor = book.toolkit_driver(one.cuda), book.floor(one.cuda.major)
        minor = min((driver for driver in (strict, floor) if driver), default=None)
        line = CudaVersion(one.line)
        known = (each for each in book.architectures() if each.cuda_first <= line and (each.cuda_last is None or line <= each.cuda_last))
        gpus = [each.capability for each in known]
        rows.append((str(one.cuda), str(minor or ""), str(strict or ""), capability_span(gpus), one.date or "", " ".join(one.repositories)))
    page.table(("version", "driver", "strict", "GPUs", "released", "apt repositories"), rows, least=("apt repositories", "released"))
    page.say("driver: oldest driver by NVIDIA's minor-version compatibility (none before CUDA 11); strict: the toolkit's own driver.", "")
    if len({one.line for one in chosen}) == 1:
        _components(page, book, chosen[-1])
    return page.text()


def _components(page: Page, book: Book, release: CudaRelease) -> None:
    """The libraries of one CUDA line: soname and pip package."""
    page.title(f"Libraries of CUDA {release.line}")
    rows = []
    for component in book.components(release.cuda.major):
        soname = book.soname(component.library, release.cuda)
        if soname:
            rows.append((component.library, soname, component.package, component.lib_dir))
    page.table(("library", "soname", "pip package", "below site-packages"), rows, least=("below site-packages",))


def render_drivers(branches: Iterable[Branch], *, style: Style | None = None, width: int = 100) -> str:
    """Driver branches, newest first."""
    page = Page(style, width)
    page.title("Driver branches")
    rows = [(one.name, str(one.cuda), one.status or "", one.eol or "", one.type or "") for one in reversed(list(branches))]
    page.table(("branch", "newest CUDA", "status", "end of life", "type"), rows, least=("type",))
    page.say("newest CUDA: what the branch runs natively; by minor-version compatibility it runs every CUDA of that major.", "")
    return page.text()


def render_driver(book: Book, driver: DriverVersion, *, style: Style | None = None, width: int = 100) -> str:
    """What one driver version runs."""
    page = Page(style, width)
    page.title(f"Driver {driver}")
    native = book.native_cuda(driver)
    known = sorted({one.cuda.major for one in book.cuda_releases()})
    floors = {major: floor for major in known if native and major >= native.major and (floor := book.floor(major)) is not None}
    majors = [major for major, floor in floors.items() if driver >= floor]
    rows = [("runs natively", f"CUDA {native} and older" if native else "no CUDA that the tables know")]
    if majors:
        rows.append(("by minor-version compatibility", ", ".join(f"CUDA {major}.x" for major in majors)))
    forward = [one for one in book.forward() if one.base == driver.major and one.status == "compatible"]
    for classes in dict.fromkeys(one.classes for one in forward):
        packages = ", ".join(one.package for one in forward if one.classes == classes)
        rows.append((f"by a package, on {' and '.join(classes)}", packages))
    widest = max(len(label) for label, _ in rows)
    for label, text in rows:
        page.say(text, f"  {label:<{widest}}  ")
    page.say("Code for a GPU newer than the wheel (PTX) needs a driver whose native CUDA is as new as the wheel's.", "")
    return page.text()


def render_gpus(architectures: Iterable[Architecture], *, style: Style | None = None, width: int = 100) -> str:
    """Compute capabilities, newest first."""
    page = Page(style, width)
    page.title("GPU architectures")
    rows = [
        (
            str(one.capability),
            one.name,
            _range(one.cuda_first, one.cuda_last),
            _range(f"R{one.driver_first}" if one.driver_first else "", f"R{one.driver_last}" if one.driver_last else None),
            _range(one.cudnn_first or "", one.cudnn_last),
        )
        for one in reversed(list(architectures))
    ]
    page.table(("capability", "architecture", "CUDA", "driver", "cuDNN"), rows, least=("architecture",))
    return page.text()


def render_places(places: Iterable[Place], *, style: Style | None = None, width: int = 100) -> str:
    """Places that people name, for `--machine`."""
    page = Page(style, width)
    page.title("Machines by name")
    rows = [(", ".join(one.match), one.gpu, one.arch, one.driver or "", one.os or "", one.python or "") for one in places]
    page.table(("name", "GPU", "processor", "driver", "OS", "Python"), [tuple(map(str, row)) for row in rows], least=("name",))
    return page.text()


def _range(first: object, last: object | None) -> str:
    if not first and not last:
        return ""
    return f"{first} on" if last is None else f"{first} - {last}" if first else f"to {last}"


def render_gpu(book: Book, capability: Capability, card: Card | None, *, style: Style | None = None, width: int = 100) -> str:
    """One card or capability: what knows it, and the cards like it."""
    page = Page(style, width)
    architecture = book.architecture(capability)
    page.title(f"{card.name}: compute capability {capability}" if card else f"Compute capability {capability}")
    rows = []
    if card:
        memory = f", {card.memory_gib:g} GiB" if card.memory_gib else ""
        rows.append(("card", f"{card.kind}{memory}"))
        for one in book.peaks_of(card):
            doubt = ", from memory" if book.from_memory("gpu/peak", one.source) else ""
            rates = ((name, getattr(one, name)) for name in ("fp32", "tf32", "fp16", "bf16"))
            most = ", ".join(f"{name} {rate:g}" for name, rate in rates if rate is not None)
            rows.append(("peak", f"{most} TFLOP/s ({one.name}{doubt})"))
    if architecture:
        rows += [
            ("architecture", architecture.name),
            ("CUDA", _range(architecture.cuda_first, architecture.cuda_last)),
            (
                "driver",
                _range(f"R{architecture.driver_first or '?'}", f"R{architecture.driver_last}" if architecture.driver_last else None),
            ),
            ("note", architecture.note or ""),
        ]
    builds = [one for one in book.cudnn_builds() if any(one_.major == capability.major and one_ <= capability for one_ in one.capability)]
    for major in sorted({one.cuda_major for one in builds}):
        newest = max((one for one in builds if one.cuda_major == major), key=lambda one: one.version)
        rows.append((f"cuDNN, CUDA {major}", f"newest with code for it: {newest.version}"))
    if card is None:
        rows.append(("cards", ", ".join(one.name for one in book.cards() if one.capability == capability)))
    for label, text in rows:
        if text:
            page.say(text, f"  {label:<16}")
    return page.text()
