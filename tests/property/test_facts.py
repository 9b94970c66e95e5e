"""Laws of facts files and of stated facts."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cudnn_resolve.errors import UsageError
from cudnn_resolve.facts.assume import Assumptions, assume
from cudnn_resolve.facts.codec import FactsError, decode, encode
from cudnn_resolve.facts.model import (
    UNKNOWN,
    CudnnCopy,
    Driver,
    Facts,
    Gpu,
    InstalledFramework,
    LoadedCudnn,
    Loader,
    Packages,
    Platform,
    Problem,
    Python,
    Toolkit,
    WouldLoad,
)
from cudnn_resolve.report.detect import show_facts
from tests.pages import text_of

DOTTED = st.lists(st.integers(0, 99_999), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
NAMES = st.text(st.characters(categories=["L", "N", "P", "S"], include_characters=" "), min_size=1, max_size=40)
DISTRIBUTIONS = st.from_regex(r"[a-z0-9](-?[a-z0-9]){0,12}", fullmatch=True)
TEXTS = st.text(max_size=60).filter(lambda text: "\0" not in text)
PATHS = TEXTS.map(lambda text: "/" + text)
SOURCES = st.sampled_from(["apt", "runfile", "conda", "pip", "other"])
FLAGS = st.none() | st.booleans()


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def rows(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.just(UNKNOWN) | st.lists(strategy, max_size=3).map(tuple)


def mapping(keys: st.SearchStrategy[str], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(keys, values, max_size=4).map(MappingProxyType)


LOADED = st.builds(LoadedCudnn, version=maybe(DOTTED), path=maybe(PATHS)).filter(lambda one: one != LoadedCudnn())
LOADS = st.builds(WouldLoad, cudnn=maybe(LOADED), because=TEXTS)
FACTS = st.builds(
    Facts,
    platform=st.builds(
        Platform,
        system=maybe(NAMES),
        arch=maybe(st.sampled_from(["x86_64", "aarch64", "riscv64"])),
        distribution=maybe(NAMES),
        release=maybe(NAMES),
        glibc=maybe(DOTTED),
    ),
    python=st.builds(
        Python,
        version=maybe(st.from_regex(r"3\.\d{1,2}(\.\d{1,2}([abc]\d)?)?", fullmatch=True).filter(str.isascii)),
        path=maybe(PATHS),
        implementation=maybe(NAMES),
        externally_managed=FLAGS,
        prefix=maybe(PATHS),
        free_threaded=FLAGS,
    ),
    driver=st.sampled_from([UNKNOWN, None]) | st.builds(Driver, version=maybe(DOTTED), cuda=maybe(DOTTED), kernel_module=maybe(DOTTED)),
    gpus=rows(
        st.builds(
            Gpu,
            name=maybe(NAMES),
            compute_capability=maybe(st.builds("{}.{}".format, st.integers(1, 99), st.integers(0, 9))),
            memory_mib=maybe(st.integers(0, 1 << 30)),
            uuid=maybe(NAMES),
            hidden=st.booleans(),
        )
    ),
    cuda_toolkits=rows(st.builds(Toolkit, version=maybe(DOTTED), path=maybe(PATHS), source=SOURCES)),
    cudnn=rows(
        st.builds(
            CudnnCopy,
            version=maybe(DOTTED),
            soname=maybe(st.integers(0, 999)),
            cuda=maybe(DOTTED),
            path=maybe(PATHS),
            source=SOURCES,
            complete=FLAGS,
            owner=maybe(NAMES),
            problems=st.lists(TEXTS, max_size=2).map(tuple),
        )
    ),
    frameworks=rows(
        st.builds(
            InstalledFramework,
            name=DISTRIBUTIONS,
            version=NAMES,
            variant=maybe(NAMES),
            cuda_built=maybe(DOTTED),
            cudnn_built=maybe(DOTTED),
            would_load=maybe(LOADS),
        )
    ),
    loader=st.just(UNKNOWN)
    | st.builds(Loader, ld_library_path=st.lists(PATHS, max_size=3).map(tuple), ldconfig=st.lists(PATHS, max_size=3).map(tuple)),
    packages=st.builds(
        Packages,
        pip=st.just(UNKNOWN) | mapping(DISTRIBUTIONS, NAMES),
        apt=st.just(UNKNOWN) | mapping(NAMES, NAMES),
        requires=mapping(DISTRIBUTIONS, st.lists(TEXTS, max_size=2).map(tuple)),
    ),
    container=st.sampled_from([UNKNOWN, None, "docker", "colab"]),
    root=FLAGS,
    sources=mapping(NAMES, TEXTS),
    problems=st.lists(st.builds(Problem, what=TEXTS, why=TEXTS), max_size=3).map(tuple),
    note=maybe(TEXTS),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
WORDS = """
    schema platform python driver gpus cuda_toolkits cudnn frameworks loader packages container root sources problems note
    version name pip apt requires kind would_load path because
"""
KEYS = st.sampled_from(WORDS.split())
NEARLY_FACTS = st.dictionaries(
    KEYS, JSON | st.dictionaries(KEYS, JSON, max_size=4) | st.lists(st.dictionaries(KEYS, JSON, max_size=4), max_size=3)
)


@given(FACTS)
def test_what_is_written_is_read_as_it_was(facts: Facts) -> None:
    text = json.dumps(encode(facts), ensure_ascii=True, allow_nan=False)

    assert decode(text) == facts
    assert encode(decode(text)) == encode(facts)


@given(FACTS, st.data())
def test_a_key_left_out_is_unknown_and_changes_nothing_else(facts: Facts, data: st.DataObject) -> None:
    written = encode(facts)
    key = data.draw(st.sampled_from(sorted(set(written) - {"schema"})))
    del written[key]

    read = encode(decode(json.dumps(written)))

    empty = encode(Facts())
    assert read == {**written, **({key: empty[key]} if key in empty else {})}


@given(FACTS, st.sampled_from([60, 100, 200]), st.booleans())
def test_the_text_form_shows_no_control_character_and_keeps_its_width(facts: Facts, width: int, verbose: bool) -> None:  # noqa: FBT001
    text = text_of(show_facts, facts, width=width, verbose=verbose)

    assert text.endswith("\n")
    wide = [line for line in text.splitlines() if len(line) > width]
    assert all(len(max(line.split(), key=len)) > width - 40 for line in wide), "only a word that no line of its own could hold is wider"
    assert not [char for char in text if char != "\n" and (ord(char) < 32 or 127 <= ord(char) < 160 or char in "\u2028\u2029\u202e\u2066")]


def refusal(text: str) -> FactsError | None:
    """Why the text is not taken for facts, None where it is."""
    try:
        decode(text)
    except FactsError as error:
        return error
    return None


@given(NEARLY_FACTS | JSON)
def test_any_json_is_facts_or_an_explained_error(found: Any) -> None:
    text = json.dumps(found)

    error = refusal(text)

    if error is None:
        assert decode(json.dumps(encode(decode(text)))) == decode(text)
    else:
        assert error.hint
        assert "\x1b" not in str(error)
        assert error.faults or not isinstance(found, dict) or "NaN" in text or "Infinity" in text


@given(FACTS, st.integers(0, 2000))
def test_a_truncated_file_is_never_taken_for_a_whole_one(facts: Facts, cut: int) -> None:
    text = json.dumps(encode(facts))

    assert refusal(text[: max(0, len(text) - 1 - cut)]) is not None


def _no_card(name: str) -> Gpu:
    return Gpu(name=name)


@given(
    FACTS,
    st.builds(
        Assumptions,
        driver=maybe(DOTTED | TEXTS),
        gpus=st.lists(TEXTS | DOTTED, max_size=2).map(tuple),
        python_version=maybe(st.from_regex(r"3\.\d{1,2}", fullmatch=True) | TEXTS),
        platform=maybe(st.sampled_from(["linux_x86_64", "manylinux_2_28_aarch64"]) | TEXTS),
        glibc=maybe(st.just("2.31") | TEXTS),
        os=maybe(st.sampled_from(["ubuntu22.04", "rocky9"]) | TEXTS),
    ),
)
def test_stated_facts_are_in_place_and_can_be_written(facts: Facts, stated: Assumptions) -> None:
    try:
        found = assume(facts, stated, _no_card)
    except UsageError:
        return

    assert isinstance(found.driver, Driver) == (stated.driver is not None or isinstance(facts.driver, Driver))
    if stated.python_version is not None:
        assert found.python.version is not None
        assert stated.python_version.strip().startswith(found.python.version)
    if stated.elsewhere:
        assert found.packages.pip == {}
        assert found.frameworks == ()
    else:
        assert found.packages == facts.packages
    if not stated.gpus:
        assert found.gpus == facts.gpus
        assert decode(json.dumps(encode(found))) == found
    assert assume(found, stated, _no_card) == found
