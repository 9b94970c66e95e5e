"""Show the tables of drivers, CUDA, cuDNN, GPUs and machines on a page, for `matrix show`."""

from __future__ import annotations

from collections.abc import Iterable

from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.named_machine import Place
from cudnn_resolve.matrix.row import Architecture, Branch, Card, CudaRelease, CudnnBuild, Forward
from cudnn_resolve.report.text import Page
from cudnn_resolve.version import Capability, CudaVersion, DriverVersion


def show_cudnn(page: Page, builds: Iterable[CudnnBuild]) -> None:
    """List the builds of cuDNN, newest first."""
    page.title("cuDNN")
    rows = [
        (
            str(build.version),
            _cuda_runtimes(build),
            str(build.cuda_built or ""),
            f"libcudnn.so.{build.soname}",
            str(build.driver or ""),
            _capability_span(build.capability),
            build.wheel or "",
            f"{build.apt.package}={build.apt.version}" if build.apt.package else "",
        )
        for build in reversed(list(builds))
    ]
    page.table(
        ("version", "CUDA", "built with", "soname", "driver", "GPUs", "pip", "apt"),
        rows,
        droppable=("soname", "built with", "driver", "apt", "pip"),
    )
    page.paragraph(
        "A framework works with any cuDNN of the major that it was built with, from that minor on. CUDA: runtimes that the build supports.",
        "",
    )


def _cuda_runtimes(build: CudnnBuild) -> str:
    """`12.0+`, `11.0-11.8` or `10.2`."""
    first = build.cuda_first or build.cuda_major
    if build.cuda_last is None:
        return f"{first}+"
    return f"{first}" if build.cuda_last == build.cuda_first else f"{first}-{build.cuda_last}"


def _capability_span(capabilities: Iterable[Capability]) -> str:
    """`5.0-9.0`; empty if none is known."""
    known = sorted(capabilities)
    if not known:
        return ""
    return str(known[0]) if len(known) == 1 else f"{known[0]}-{known[-1]}"


def show_cuda(page: Page, book: Book, releases: Iterable[CudaRelease]) -> None:
    """List CUDA toolkits, newest first, with the drivers that they need."""
    page.title("CUDA toolkits")
    chosen = list(releases)
    page.table(
        ("version", "driver", "strict", "GPUs", "released", "apt repositories"),
        [_toolkit_row(book, release) for release in reversed(chosen)],
        droppable=("apt repositories", "released"),
    )
    page.paragraph(
        "driver: oldest driver under NVIDIA's minor-version compatibility (none before CUDA 11); strict: the toolkit's own driver.", ""
    )
    if len({release.line for release in chosen}) == 1:
        _libraries(page, book, chosen[-1])


def _toolkit_row(book: Book, release: CudaRelease) -> tuple[str, ...]:
    strict, oldest = book.toolkit_driver(release.cuda), book.oldest_driver(release.cuda)
    line = CudaVersion(release.line)
    capabilities = [row.capability for row in book.architectures() if row.cuda_first <= line <= (row.cuda_last or line)]
    repositories = " ".join(release.repositories)
    return str(release.cuda), str(oldest or ""), str(strict or ""), _capability_span(capabilities), release.date or "", repositories


def _libraries(page: Page, book: Book, release: CudaRelease) -> None:
    """Show soname and pip package of each library of a CUDA release."""
    page.title(f"Libraries of CUDA {release.line}")
    rows = []
    for component in book.components(release.cuda.major):
        soname = book.soname(component.library, release.cuda)
        if soname:
            rows.append((component.library, soname, component.package, component.lib_dir))
    page.table(("library", "soname", "pip package", "path in site-packages"), rows, droppable=("path in site-packages",))


def show_drivers(page: Page, branches: Iterable[Branch]) -> None:
    """List the driver branches, newest first."""
    page.title("Driver branches")
    rows = [
        (branch.name, str(branch.cuda), branch.status or "", branch.eol or "", branch.type or "") for branch in reversed(list(branches))
    ]
    page.table(("branch", "newest CUDA", "status", "end of life", "type"), rows, droppable=("type",))
    page.paragraph("newest CUDA: what the branch runs natively; minor-version compatibility adds every release of that CUDA major.", "")


def show_driver(page: Page, book: Book, driver: DriverVersion) -> None:
    """Show what one driver version runs."""
    page.title(f"Driver {driver}")
    native = book.native_cuda(driver)
    rows = [("runs natively", f"CUDA {native} and older" if native else "no CUDA release in the tables")]
    majors = sorted({release.cuda.major for release in book.cuda_releases() if native and release.cuda.major >= native.major})
    compatible = [major for major in majors if (floor := book.floor(major)) is not None and driver >= floor]
    if compatible:
        rows.append(("with minor-version compatibility", ", ".join(f"CUDA {major}.x" for major in compatible)))
    forward = [row for row in book.rows(Forward) if row.base == driver.major and row.status == "compatible"]
    for classes in dict.fromkeys(row.classes for row in forward):
        packages = ", ".join(row.package for row in forward if row.classes == classes)
        rows.append((f"with a package, on {' and '.join(classes)}", packages))
    _labelled(page, rows, max(len(label) for label, _ in rows))
    page.paragraph("PTX, for GPUs newer than a wheel, needs a driver whose native CUDA is as new as that of the wheel.", "")


def show_gpus(page: Page, architectures: Iterable[Architecture]) -> None:
    """List the compute capabilities, newest first."""
    page.title("GPU architectures")
    rows = [
        (
            str(row.capability),
            row.name,
            _range(row.cuda_first, row.cuda_last),
            _range(f"R{row.driver_first}" if row.driver_first else "", f"R{row.driver_last}" if row.driver_last else None),
            _range(row.cudnn_first or "", row.cudnn_last),
        )
        for row in reversed(list(architectures))
    ]
    page.table(("capability", "architecture", "CUDA", "driver", "cuDNN"), rows, droppable=("architecture",))


def show_places(page: Page, places: Iterable[Place]) -> None:
    """List the names that `--machine` takes."""
    page.title("Machines by name")
    rows = [(", ".join(place.match), place.gpu, place.arch, place.driver or "", place.os or "", place.python or "") for place in places]
    page.table(("name", "GPU", "processor", "driver", "OS", "Python"), [tuple(map(str, row)) for row in rows], droppable=("name",))


def _range(first: object, last: object | None) -> str:
    """`10.0+`, `10.0 - 12.9`, or `up to 12.9`."""
    if not first:
        return f"up to {last}" if last else ""
    return f"{first}+" if last is None else f"{first} - {last}"


def show_gpu(page: Page, book: Book, capability: Capability, card: Card | None) -> None:
    """Show one card, or one capability with its cards."""
    page.title(f"{card.name}: compute capability {capability}" if card else f"Compute capability {capability}")
    rows = []
    if card:
        memory = f", {card.memory_gib:g} GiB" if card.memory_gib else ""
        rows.append(("card", f"{card.kind}{memory}"))
        for peak in book.peaks_of(card):
            doubt = ", from memory" if book.is_from_memory(peak) else ""
            rates = ((name, getattr(peak, name)) for name in ("fp32", "tf32", "fp16", "bf16"))
            rate_text = ", ".join(f"{name} {rate:g}" for name, rate in rates if rate is not None)
            rows.append(("peak", f"{rate_text} TFLOP/s ({peak.name}{doubt})"))
    row = book.architecture(capability)
    if row:
        driver = _range(f"R{row.driver_first or '?'}", f"R{row.driver_last}" if row.driver_last else None)
        rows += [("architecture", row.name), ("CUDA", _range(row.cuda_first, row.cuda_last)), ("driver", driver), ("note", row.note or "")]
    builds = [
        build for build in book.cudnn_builds() if any(own.major == capability.major and own <= capability for own in build.capability)
    ]
    for major in sorted({build.cuda_major for build in builds}):
        newest = max((build for build in builds if build.cuda_major == major), key=lambda build: build.version)
        rows.append((f"cuDNN, CUDA {major}", f"newest with code for it: {newest.version}"))
    if card is None:
        rows.append(("cards", ", ".join(card.name for card in book.cards() if card.capability == capability)))
    _labelled(page, rows, 14)


def _labelled(page: Page, rows: Iterable[tuple[str, str]], label_width: int) -> None:
    for label, text in rows:
        if text:
            page.paragraph(text, f"  {label:<{label_width}}  ")
