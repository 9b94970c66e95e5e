"""Laws of locks: what is written is read back, in the same bytes; nothing that a text can hold breaks a line out of its place."""

from __future__ import annotations

import sys
from datetime import timezone
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.markers import Marker
from packaging.pylock import Package, PackageArchive, PackageDirectory, PackageSdist, PackageVcs, PackageWheel, Pylock
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from cudnn_resolve.errors import InputError
from cudnn_resolve.locking.change import changes
from cudnn_resolve.locking.merge import Answer, order
from cudnn_resolve.locking.model import Environment, FolderWheel, Framework, Lock, LockedRequest, Stack, Tool
from cudnn_resolve.locking.read_pylock import read
from cudnn_resolve.locking.up_to_date import resolution_differences
from cudnn_resolve.locking.write_pylock import write
from cudnn_resolve.requirement.source import File
from cudnn_resolve.resolution.model import AptPin, Override
from tests.examples import examples
from tests.fake_source import FakeSource, Published, index_of
from tests.lock_maker import BOOK, answer, entry, lock_of, lock_with, pinned, pins

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NASTY = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    [
        '"""',
        "'''",
        "\\",
        "\r\n[[packages]]\n",
        "# x",
        "]]",
        "\x1b[31m",
        "\u202egnp",
        "\x00",
        "\x7f",
        "name = 'x'",
        "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
    ]
)
NAMES = st.from_regex(r"[a-z][a-z0-9]{0,8}(-[a-z0-9]{1,5})?", fullmatch=True)
VERSIONS = st.lists(st.integers(0, 300), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)
URL_PARTS = st.from_regex(r"[A-Za-z0-9._~%+-]{1,12}", fullmatch=True)
HASHES = st.fixed_dictionaries({"sha256": DIGESTS}, optional={"sha512": DIGESTS}).map(lambda found: dict(sorted(found.items())))
MOMENTS = st.datetimes(timezones=st.just(timezone.utc)).map(lambda moment: moment.replace(microsecond=0))
MARKERS = st.sampled_from([None, "platform_machine == 'x86_64'", "platform_machine == 'aarch64'"])
PATHS = st.from_regex(r"[A-Za-z0-9 ._-]{1,10}(/[A-Za-z0-9 ._-]{1,10}){0,2}", fullmatch=True)


@st.composite
def file_of(draw: st.DrawFn, name: str) -> dict[str, Any]:
    near = draw(st.booleans())
    return {
        "hashes": draw(HASHES),
        "url": None if near else f"https://{draw(NAMES)}.example/{draw(URL_PARTS)}/{name}",
        "path": f"{draw(PATHS)}/{name}" if near else None,
        "size": draw(st.none() | st.integers(0, 2**40)),
        "upload_time": draw(st.none() | MOMENTS),
    }


@st.composite
def packages(draw: st.DrawFn) -> Package:
    name, version = draw(NAMES), draw(VERSIONS)
    stem = f"{name.replace('-', '_')}-{version}"
    tags = draw(st.sets(st.sampled_from(["py3-none-any", "cp311-cp311-manylinux_2_17_x86_64", "cp311-cp311-manylinux_2_28_aarch64"])))
    kind = draw(st.sampled_from(["files", "archive", "directory", "vcs"]))
    names = sorted(f"{stem}-{tag}.whl" for tag in tags) if kind == "files" else []
    wheels = [PackageWheel(name=one, **draw(file_of(one))) for one in names]
    needs = st.fixed_dictionaries({"name": NAMES}, optional={"version": VERSIONS}).map(lambda found: dict(sorted(found.items())))
    dependencies = sorted(draw(st.lists(needs, max_size=3)), key=lambda one: (one["name"], one.get("version", "")))
    asked = {"requested_revision": draw(st.none() | NASTY.filter(bool))}
    because = draw(st.lists(NASTY, max_size=2))
    return entry(
        name,
        None if kind in ("directory", "vcs") else version,
        marker=draw(MARKERS),
        requires_python=draw(st.sampled_from([None, SpecifierSet(">=3.9"), SpecifierSet("!=3.9.1,>=3.8")])),
        dependencies=dependencies or None,
        index=draw(st.none() | st.just("https://index.example/simple")) if kind == "files" else None,
        wheels=wheels or None,
        sdist=PackageSdist(name=f"{stem}.tar.gz", **draw(file_of(f"{stem}.tar.gz")))
        if kind == "files" and (not wheels or draw(st.booleans()))
        else None,
        archive=PackageArchive(**draw(file_of(f"{stem}.zip"))) if kind == "archive" else None,
        directory=PackageDirectory(path=draw(PATHS), editable=draw(st.sampled_from([None, True]))) if kind == "directory" else None,
        vcs=PackageVcs(type="git", commit_id="0" * 40, url=f"https://{draw(NAMES)}.example/x.git", **asked) if kind == "vcs" else None,
        because=tuple(because),
    )


def folder_wheels() -> st.SearchStrategy[FolderWheel]:
    file = st.builds(File, NASTY, NASTY, HASHES | st.just({}), size=st.none() | st.integers(0, 2**40), origin=st.none() | NASTY)
    return st.builds(FolderWheel, name=NASTY, version=NASTY, index=st.none() | NASTY, file=st.none() | file)


@st.composite
def stacks(draw: st.DrawFn, platform: str) -> Stack:
    def rows(kind: Any) -> Any:
        texts: dict[str, Any] = {name: NASTY for name in kind.__struct_fields__ if name != "because"}
        if kind is Environment:
            texts["wheel"] = st.none() | folder_wheels()
        return tuple(draw(st.lists(st.builds(kind, **texts), max_size=2)))

    return Stack(
        platform=platform,
        driver_min=draw(st.sampled_from([None, "525.60.13", "580.65.06"])),
        cuda=draw(st.none() | NASTY),
        cudnn=draw(st.none() | VERSIONS),
        cudnn_soname=draw(st.none() | st.integers(7, 12)),
        compute_capabilities=draw(st.sampled_from([(), ("7.5", "9.0")])),
        ptx_capabilities=draw(st.sampled_from([(), ("12.0",)])),
        ptx_driver_min=draw(st.sampled_from([None, "570.26"])),
        frameworks=rows(Framework),
        apt=rows(AptPin),
        overrides=rows(Override),
        environment=rows(Environment),
    )


@st.composite
def tools(draw: st.DrawFn) -> Tool:
    platforms = draw(st.sampled_from([("linux_x86_64",), ("linux_aarch64", "linux_x86_64")]))
    lists = st.dictionaries(NASTY, st.lists(NASTY, max_size=2).map(tuple), max_size=2)
    records: st.SearchStrategy[Any] = st.dictionaries(
        NASTY, st.recursive(NASTY | st.integers(-(2**60), 2**60) | st.booleans(), lambda inner: st.lists(inner, max_size=2)), max_size=3
    )
    texts = st.lists(NASTY, max_size=3).map(tuple)
    return Tool(
        request=LockedRequest(
            targets=draw(texts),
            direct_targets=draw(texts),
            requirements=draw(texts),
            files=draw(lists),
            cuda=draw(st.none() | NASTY),
            cudnn=draw(st.none() | VERSIONS),
            driver_policy=draw(st.sampled_from(["minor", "strict"])),
            device=draw(st.sampled_from(["gpu", "cpu"])),
            channel=draw(st.sampled_from(["auto", "pip", "apt"])),
            strict_pins=draw(st.booleans()),
            options=draw(lists),
        ),
        python="3.11",
        matrix=draw(st.none() | NASTY),
        stacks=tuple(draw(stacks(one)) for one in platforms),
        validation=tuple(draw(st.lists(records, max_size=2))),
    )


LOCKS = st.builds(
    lambda found, tool: lock_with(
        *sorted(found, key=order),
        requires_python=SpecifierSet("==3.11.*"),
        environments=[Marker("sys_platform == 'linux' and platform_machine == 'x86_64'")],
        tool=tool,
    ),
    st.lists(packages(), max_size=4, unique_by=lambda one: one.name),
    st.none() | tools(),
)


@settings(max_examples=examples(60))
@given(LOCKS)
def test_a_lock_is_read_back_as_it_was_written(lock: Lock) -> None:
    text = write(lock)

    assert read(text) == lock
    assert write(read(text)) == text
    assert changes(lock, read(text)) == ()
    Pylock.from_dict(tomllib.loads(text)).validate()


@settings(max_examples=examples(40))
@given(LOCKS)
def test_no_text_breaks_out_of_its_line(lock: Lock) -> None:
    text = write(lock)

    assert all(char == "\n" or char.isprintable() for char in text)
    lines = text.split("\n")
    assert lines.count("[[packages]]") == (0 if "packages = [" in lines else len(lock.packages))


def cut(text: str, at: int, much: int) -> str:
    """The text without some characters."""
    return text[:at] + text[at + much :]


@settings(max_examples=examples(60))
@given(st.text(max_size=200) | st.builds(cut, LOCKS.map(write), st.integers(0, 4000), st.integers(1, 60)))
def test_a_damaged_lock_is_a_lock_or_an_input_error(text: str) -> None:
    try:
        found = read(text)
    except InputError as error:
        assert str(error).replace("\n", "").isprintable() or "\\" in str(error)  # noqa: PT017 - it may be a lock still
    else:
        assert read(write(found)) == found


@given(st.permutations(["a==1.0", "b==2.0 +a", "c==3.0 +a +b"]), st.booleans())
def test_order_makes_no_difference(names: list[str], turned: bool) -> None:  # noqa: FBT001 - hypothesis gives it by its place
    answers = [pinned(*names), pinned(*sorted(names), arch="aarch64")]
    text = write(lock_of(*(reversed(answers) if turned else answers)))

    assert text == write(lock_of(pinned("a==1.0", "b==2.0 +a", "c==3.0 +a +b"), answers[1]))


NODES = ("app", "lib", "web", "net", "core")
CLAUSES = st.sampled_from(["", ">=1", ">=2", "<3", "!=2.0", "<=2", ">=1,<3"])


def releases(versions: tuple[str, ...]) -> st.SearchStrategy[dict[str, dict[str, Published]]]:
    """Packages with these versions, each of which requires later ones of the row, so that there are no circles."""
    return st.fixed_dictionaries(
        {
            name: st.fixed_dictionaries(
                {
                    version: st.lists(
                        st.tuples(st.sampled_from(NODES[number + 1 :]), CLAUSES), max_size=2, unique_by=lambda one: one[0]
                    ).map(lambda found: Published(tuple(f"{name}{clause}" for name, clause in found)))
                    if NODES[number + 1 :]
                    else st.just(Published())
                    for version in versions
                }
            )
            for number, name in enumerate(NODES)
        }
    )


@settings(max_examples=examples(40))
@given(releases(("1.0", "2.0", "3.0")), releases(("1.5", "4.0")), st.sampled_from(["app", "app<3", "app\nweb", "web>=2"]))
def test_resolving_again_from_a_lock_changes_nothing_whatever_appears(
    now: dict[str, dict[str, Published]], later: dict[str, dict[str, Published]], wanted: str
) -> None:
    extras = tuple(wanted.split("\n"))
    first = attempted(extras, index_of(BOOK, now))
    if first is None:
        return
    lock = lock_of(first)
    grown = index_of(BOOK, {name: {**now[name], **later[name]} for name in NODES})
    again = attempted(extras, grown, preferences={name: version or "" for name, version in pins(lock).items()})

    assert again is not None
    assert resolution_differences(lock, [again]) == ()
    assert lock_of(again).packages == lock.packages
    assert satisfied(again, grown)


def attempted(extras: tuple[str, ...], source: FakeSource, **more: Any) -> Answer | None:
    try:
        return answer("north==2.0", extras=extras, source=source, **more)
    except AssertionError:  # a conflict
        return None


def satisfied(found: Answer, source: FakeSource) -> bool:
    """True where every pin meets every requirement of every other one, as their metadata have it; overrides aside."""
    here = {pin.name: pin for pin in found.resolution.pip}
    left = {(one.package, one.declared) for one in found.resolution.overrides}
    for pin in here.values():
        assert pin.file is not None
        said = source.metadata(pin.name, pin.file)
        for line in said.requires if said is not None else ():
            requirement = Requirement(line)
            other = here[requirement.name]
            if (requirement.name, str(requirement.specifier)) not in left and not requirement.specifier.contains(other.version or ""):
                return False
    return True
