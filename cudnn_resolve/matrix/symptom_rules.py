"""Rules about the symptom tables, for `table_rules.check`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from string import Formatter

from cudnn_resolve.matrix.anchor import key_of, may_match
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.matrix.message import expand, fields_of
from cudnn_resolve.matrix.row_fault import Fault, Placed
from cudnn_resolve.matrix.symptom import PLACE, Cause, Clue, RemedyRow, Symptom, place_feature

DERIVED = frozenset(
    """
    cpu-machine tf-cpu-on-windows other-framework-works gpu-newer gpu-ampere gpu-named docker-or-wsl no-driver no-card driver-idle
    other-system no-cudnn-wheel driver-told driver-branch driver-of-windows capability-told unnamed gpu-served gpu-untold growth-in-code
    module-branch arm-cpu guest memory-beyond memory-own memory-fragments own-limit ptx-before-12 cuda-library not-in-wheels one-nccl
    python-found conda-cuda uv-project uv-pip poetry pdm torch-pair extension-release torch-pair-done torch-told extension-named mmcv
    conda-named conda-torch extension-told other-index only-index file-of-extension versions-listed old-cuda cuda-12 log-alone bare-name
    library-older unix old-toolkit part-of-system python-failure build-failure crash gpu-told plain-failure apt-failure passed-on
    module-missing module-unknown package-raised import-unlocated importer calls-untold python-2 build-of-cuda build-unnamed build-untold
    bits-open extension-other-cuda extension-cuda-open flash-attn pin-of-linux no-conda toolkit-found arch-asked index-known jetson-open
    jetson-torch own-module system-known name-removed caller-known program-named torch-asked pin-asked wheel-file glibc-extension arm-lacks
    machine-open driver-beyond conda-python build-missing build-unknown module-framework torch-elsewhere toolkit-other source-checkout
    pip-old no-build gpgkey gpgkey-legacy driver-in-container library-other import-raised gpu-turing devices-denied extension-cuda-asked
    driver-legacy old-part-branch kmod-stream fabric-branch bindings importer-conda extra-package unpack rpm-key holder other-listed
    module-told no-install gpu-virtual toolkit-outdated libcuda-dir nixos-module module-wanted mismatch-told settled libstdcxx-conda
    """.split()  # noqa: SIM905 - a name a line would fill pages
)
"""Features that the program derives from fields and facts; others come from rows."""
FIELDS = frozenset(
    """
    cudnn_wheel declared next away on_path wheels_on_path nccl nccl_other own_on_path own_library jit_wheel jit_conda cudnn_likely
    cudnn_either for_found apt_toolkit preload nearest nearest_here outside renamed same line index from_index packages_there other_index
    for_glibc install torch_pair extension_release grep rpm repoquery only_index jit_for_ptx python_64 python_range in_file repeated_hosts
    extension_module arch_asked on_nvidia arch_first removed_name removed_pin pin_pythons older_python instead torch_asked by_name
    by_name_untold file_python glibc_needs packager venv_python or_windows raised for_macos nvcc_wheel cudnn_wheels wheels_by_cuda together
    newest newest_of_any in_the_way keyring switched_off old_line driver_packages the_cudnn the_cuda the_libraries to_driver tf_keras
    for_gpu repository_key repositories newest_keyring apt_cudnn cuda_named cuda_served arm name_old successor conda_cuda extension_told pip
    importer program raiser own_file own_at built_package image start container gpu_capability gpu_arch driver_branch driver_install
    on_system key_place conda_python headers_pin module_branch old_branch kept_branch driver_there driver_wanted pyg pyg_open
    torchtext_pairs toolkit_label build_asked cuda_there gpu_last cupy_last checkout conda_pin nearest_major apt_library old_key gpu_cuda
    gpu_gencode gpu_toolkit no_build compile_it compiler of_suite in_build gpgkey_legacy toolkit_home tensorflow_text part_branch
    old_part_branch bindings importer_conda owner_conda mok mok_else unpack rpm_key toolkit_repo mm_install gpu_service tensorrt_pin
    later_branch importer_with conda_served last_branch with_old
    """.split()  # noqa: SIM905 - a name a line would fill pages
)
"""Fields of remedies that only the program fills in: see `diagnosis/remedy`, `library_path`, `pip_release` and `apt`."""
_NO_REMEDY = frozenset({"harmless"})


def samples_found(book: Book) -> Iterator[Fault]:
    """Every sample of a symptom matches one of its patterns, and has the literals without which that one is not tried."""
    for placed in book.placed(Symptom):
        row = placed.row
        for number, sample in enumerate(row.sample):
            text = " ".join(part.strip() for part in sample.splitlines())
            found = [place for place, pattern in enumerate(row.pattern) for one in (text, sample) if re.search(expand(pattern), one)]
            if not found:
                yield placed.fault(f"sample[{number}]", "matches none of the patterns")
            elif not any(may_match(row.literals[place], sample.lower()) or may_match(row.literals[place], text.lower()) for place in found):
                yield placed.fault(
                    f"sample[{number}]", "lacks a text that its pattern seems to need; write the pattern with plain characters"
                )


def anchors_hold(book: Book) -> Iterator[Fault]:
    """Every sample contains an anchor of its symptom, and anchors are in lower case."""
    for placed in book.placed(Symptom):
        row = placed.row
        for number, sample in enumerate(row.sample):
            if not any(anchor in sample.lower() for anchor in row.anchor):
                yield placed.fault("anchor", f"none is in sample[{number}], whose line would be skipped")
        for anchor in row.anchor:
            if anchor != anchor.lower():
                yield placed.fault("anchor", f"{anchor!r} is not in lower case")


def lines_chosen(book: Book) -> Iterator[Fault]:
    """Every anchor has a word, except in context rows, which may be found together with another symptom."""
    for placed in book.placed(Symptom):
        row = placed.row
        wordless = [anchor for anchor in row.anchor if key_of(anchor) is None]
        if wordless and row.role != "context":
            yield placed.fault("anchor", f"{wordless[0]!r} has no word of three letters")


def causes_known(book: Book) -> Iterator[Fault]:
    """Every cause that a row names is a [[cause]], and every cause has a remedy."""
    known = book.causes()
    helped = {remedy.cause for remedy in book.rows(RemedyRow)}
    for placed in book.placed(Symptom):
        symptom = placed.row
        if symptom.cause is not None and symptom.cause not in known:
            yield placed.fault("cause", f"{symptom.cause} is not a [[cause]]")
        if symptom.cause is None and symptom.role not in ("context", "harmless"):
            yield placed.fault("cause", f"is missing: role {symptom.role} needs one")
    for placed_remedy in book.placed(RemedyRow):
        remedy = placed_remedy.row
        for name in {remedy.cause, *remedy.also} - known.keys():
            yield placed_remedy.fault("cause", f"{name} is not a [[cause]]")
    for placed_cause in book.placed(Cause):
        cause = placed_cause.row
        for other in (*cause.explains, *cause.confused):
            if other not in known:
                yield placed_cause.fault("explains", f"{other} is not a [[cause]]")
        if cause.id not in helped and cause.id not in _NO_REMEDY:
            yield placed_cause.fault("id", f"{cause.id} has no [[remedy]]")


def sentences_filled(book: Book) -> Iterator[Fault]:
    """The fields in a summary and in comparisons are fields of the patterns."""
    for placed in book.placed(Symptom):
        row = placed.row
        fields = {*_fields(row), *(name for pattern in row.pattern for name in fields_of(pattern))}
        for _, name, _, _ in Formatter().parse(row.summary or ""):
            if name is not None and name not in fields:
                yield placed.fault("summary", f"{{{name}}} is not a field of the patterns")
        for comparison in row.when:
            words = [word for word in comparison.split() if word != "major"]
            if words[0] not in fields:
                yield placed.fault("when", f"{words[0]} is not a field of the patterns")


def _fields(row: Symptom) -> Iterator[str]:
    """Fields that the patterns of a row give."""
    return (name for pattern in row.pattern for name in re.compile(expand(pattern)).groupindex)


def features_known(book: Book) -> Iterator[Fault]:
    """Features in `needs` and `unless` come from another row or from the program."""
    clues = {value for row in book.rows(Clue) if row.tells in ("feature", "error_kind") for value in row.values.values()}
    places = {place_feature(name) for row in book.symptoms() if row.id.startswith(PLACE) for name in _fields(row)}
    known = {row.feature for row in book.symptoms() if row.feature} | clues | places | DERIVED
    rows: Iterator[Placed[Symptom] | Placed[RemedyRow]] = chain(book.placed(Symptom), book.placed(RemedyRow))
    for placed in rows:
        row = placed.row
        for feature in (*row.needs, *row.unless):
            if feature not in known:
                yield placed.fault("needs" if feature in row.needs else "unless", f"{feature} is not a feature of any row")


def remedies_filled(book: Book) -> Iterator[Fault]:
    """The fields in a remedy come from the program or a pattern; a remedy with another field would never be shown."""
    known = FIELDS | {row.tells for row in book.rows(Clue)}
    known |= {name for row in book.symptoms() for name in _fields(row)}
    for placed in book.placed(RemedyRow):
        row = placed.row
        for column in ("text", "command"):
            try:
                names = [name for _, name, _, _ in Formatter().parse(getattr(row, column) or "") if name is not None]
            except ValueError:
                continue  # braces of a shell
            for name in names:
                if name not in known:
                    yield placed.fault(column, f"{{{name}}} is not a field of any pattern or clue")


def versions_of_something(book: Book) -> Iterator[Fault]:
    """A row with `versions` names a framework."""
    for placed in book.placed(Symptom):
        row = placed.row
        if row.versions is not None and row.framework is None:
            yield placed.fault("versions", "need a framework, which the row does not name")


def ids_unique(book: Book) -> Iterator[Fault]:
    """No two files have a symptom or a cause of the same id."""
    seen: dict[tuple[type, str], str] = {}
    rows: Iterator[Placed[Symptom] | Placed[Cause]] = chain(book.placed(Symptom), book.placed(Cause))
    for placed in rows:
        file = seen.setdefault((type(placed.row), placed.row.id), placed.file)
        if file != placed.file:
            yield placed.fault("id", f"{placed.row.id} is already in {file}")


RULES: tuple[Callable[[Book], Iterable[Fault]], ...] = (
    samples_found,
    anchors_hold,
    lines_chosen,
    causes_known,
    sentences_filled,
    features_known,
    remedies_filled,
    versions_of_something,
    ids_unique,
)
