"""Tables on disk: found, read, refused with every fault, kept compiled, and never trusted where something changed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cudnn_resolve.errors import ExitCode, MatrixError
from cudnn_resolve.host.tablecache import Copies, user_copies
from cudnn_resolve.host.tables import DirectoryTables, check_tables, open_book, printable, shipped_directory
from cudnn_resolve.host.user_folders import cache_folder
from cudnn_resolve.matrix import parse
from cudnn_resolve.matrix.parse import compile_table
from cudnn_resolve.matrix.row import Repository
from cudnn_resolve.matrix.table import Top
from cudnn_resolve.operations.settings import project_settings
from tests.unit.matrix.toy import HEAD, WORLD

INDEX = 'index = [{id = "mine", url = "https://mine.example/simple", kind = "simple"}]'


def write(directory: Path, **tables: str) -> Path:
    for name, text in tables.items():
        path = directory / f"{name.replace('__', '/')}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


@pytest.fixture
def world(tmp_path: Path) -> Path:
    for name, text in WORLD.items():
        write(tmp_path / "world", **{name.replace("/", "__"): text})
    return tmp_path / "world"


@pytest.fixture
def cache(tmp_path: Path) -> Copies:
    return Copies(str(tmp_path / "cache"))


def tables_of(directory: Path, cache: Copies) -> DirectoryTables:
    return DirectoryTables(directory, label="w", copies=cache)


def test_names_paths_and_content(world: Path) -> None:
    (world / "README.md").write_text("# not a table")
    tables = DirectoryTables(world, label="w")
    assert sorted(tables.names()) == sorted(WORLD)
    assert tables.path("cuda/release") == "w/cuda/release.toml"
    assert tables.faults() == []
    framework = tables.load("framework/alpha").framework
    assert framework
    assert framework.title == "Alpha"
    assert tables.load("index") is tables.load("index")


def test_version_changes_with_any_byte(world: Path) -> None:
    before = DirectoryTables(world, label="w").version()
    assert before.startswith("2026-01-31.")
    assert DirectoryTables(world, label="w").version() == before
    write(world, index=WORLD["index"] + " ")
    assert DirectoryTables(world, label="w").version() != before


def test_faults_of_all_files_at_once(tmp_path: Path) -> None:
    write(tmp_path, index="index = 3", gpu__card=HEAD + 'card = [{name = "x"}]', gpu__cards="", other="", driver__branch="branch = [")
    (tmp_path / "cudnn").mkdir()
    (tmp_path / "cudnn" / "release.toml").mkdir()
    (tmp_path / "trap.toml").write_bytes(b"\xff")
    (tmp_path / "advisory.toml").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "apt.toml")
    (tmp_path / "cuda").mkdir()
    os.mkfifo(tmp_path / "cuda" / "release.toml")
    lines = [str(fault).partition(";")[0] for fault in DirectoryTables(tmp_path, label="m", overlay=True).faults()]
    broken = [line for line in lines if line.startswith("m/driver/branch.toml: is not TOML: ")]
    assert len(broken) == 1
    assert sorted(lines) == sorted(
        [
            "m/apt.toml: is not a table",
            "m/other.toml: is not a table",
            "m/gpu/cards.toml: is not a table",
            "m/advisory.toml: cannot be read (No such file or directory)",
            "m/index.toml: index: is not an array of tables [[index]] of at most 50000 rows",
            "m/trap.toml: is not UTF-8 (byte 0)",
            "m/cuda/release.toml: cannot be read (not a regular file)",
            "m/cudnn/release.toml: cannot be read (Is a directory)",
            "m/gpu/card.toml: card[0].capability: is missing",
            "m/gpu/card.toml: card[0].class: is missing",
            *broken,
        ]
    )


def test_a_socket_and_a_huge_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("index.toml")
        assert len(DirectoryTables(tmp_path, label="m").faults()) == 1
    with (tmp_path / "trap.toml").open("wb") as stream:
        stream.truncate(40 * 1024 * 1024)
    assert "larger than 32 MiB" in str(DirectoryTables(tmp_path, label="m").faults()[-1])


def test_an_unreadable_table_is_one_refusal_with_its_faults(tmp_path: Path) -> None:
    write(tmp_path, index="index = 3\nanswer = 42")
    with pytest.raises(MatrixError) as caught:
        DirectoryTables(tmp_path, label="m").load("index")
    assert len(caught.value.faults) == 3
    assert caught.value.exit_code == ExitCode.USAGE
    assert "3 faults in the tables of m" in str(caught.value)


def test_names_that_a_terminal_could_not_show(tmp_path: Path) -> None:
    assert printable("a\x1b[31m\udcff/b") == r"a\x1b[31m\udcff/b"
    (tmp_path / os.fsdecode(b"\xff\x1b.toml")).write_text("")
    assert all(str(fault).isprintable() for fault in DirectoryTables(tmp_path, label="m").faults())


def test_no_directory(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", write(tmp_path, index="") / "index.toml"):
        with pytest.raises(MatrixError) as caught:
            open_book([path])
        assert "is not a readable directory" in str(caught.value)
        assert str(path) in str(caught.value)


# -- the shipped tables under overlays ---------------------------------------------------------------------------------------------


def test_overlays_lie_over_the_shipped_tables(tmp_path: Path) -> None:
    assert os.path.isdir(shipped_directory())
    one, two = write(tmp_path / "one", index=INDEX), write(tmp_path / "two", index=INDEX.replace("mine.example", "two.example"))
    book = open_book([one, two])
    assert book.index("mine").url == "https://two.example/simple"
    assert len(book.frameworks()) == len(open_book().frameworks())
    assert book.version != open_book().version


def test_the_project_brings_overlays_below_those_of_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "tables", index=INDEX)
    (tmp_path / "pyproject.toml").write_text('[tool.cudnn-resolve]\nmatrix = ["tables"]\n')
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path / "src")
    named = project_settings()["project-matrix"]
    assert open_book((), named).index("mine").url == "https://mine.example/simple"
    over = write(tmp_path / "over", index=INDEX.replace("mine.example", "over.example"))
    assert open_book([over], named).index("mine").url == "https://over.example/simple"
    monkeypatch.chdir(tmp_path.parent)
    assert not project_settings()


def test_the_overlay_of_a_project_does_not_lead_to_root(tmp_path: Path) -> None:
    repositories = open_book().rows(Repository)
    build = open_book().cudnn_builds()[-1]
    write(
        tmp_path,
        apt__repository='[source.x]\nwhere = "here"\nread = "2026-01-01"\n[[repository]]\nos = "ubuntu22.04"\nname = "ubuntu2204"\n'
        'arch = "x86_64"\nurl = "https://mirror.example/"\nsource = ["x"]\n',
        cudnn__release=f'[source.x]\nwhere = "here"\nread = "2026-01-01"\n[[build]]\nversion = "{build.version}"\n'
        f'cuda_major = {build.cuda_major}\nsoname = {build.soname}\nsource = ["x"]\napt = {{package = "house", version = "1"}}\n',
    )
    named = open_book([tmp_path])
    assert {one.url for one in named.rows(Repository)} - {one.url for one in repositories} == {"https://mirror.example/"}
    assert {one.apt.package for one in named.cudnn_builds()} >= {"house"}
    assert named.remarks == (f"rows of {tmp_path} override the shipped tables (--matrix)",)
    of_project = open_book((), [str(tmp_path)])
    assert of_project.rows(Repository) == repositories
    assert "house" not in {one.apt.package for one in of_project.cudnn_builds()}
    assert of_project.remarks[0].startswith(f"rows of {tmp_path} override the shipped tables for plans made in this folder")
    assert "rows that are acted on as root are ignored (apt/repository.toml, apt packages of cudnn/release.toml)" in of_project.remarks[0]


def test_a_broken_overlay_is_refused_whole(tmp_path: Path) -> None:
    write(tmp_path / "a", index="index = [{id = 3}]")
    write(tmp_path / "b", gpu__card='card = [{name = "x", capability = "big", class = "y"}]')
    with pytest.raises(MatrixError) as caught:
        open_book([tmp_path / "a", tmp_path / "b"])
    assert len(caught.value.faults) == 5
    assert caught.value.faults[0] == f"{tmp_path}/a/index.toml: index[0].id: 3 is not an id made of letters, digits and . _ + : / -"
    assert "5 faults" in str(caught.value)


@pytest.mark.slow
def test_an_overlay_that_names_an_index_nobody_knows_is_refused(tmp_path: Path) -> None:
    write(tmp_path, framework__torch='[[build]]\nversion = "99"\nvariant = "cu999"\nindex = "nowhere"\n')
    with pytest.raises(MatrixError, match=r"'nowhere' is neither `default` nor an id of index\.toml"):
        open_book([tmp_path])
    assert [fault.place for fault in check_tables([tmp_path])][:1] == ["build[0].index"]


def test_check_says_columns_before_laws(tmp_path: Path) -> None:
    write(tmp_path, index="index = [{id = 3}]", gpu__card='card = [{name = "Tesla T5", remove = true}]')
    assert {fault.place for fault in check_tables([tmp_path])} == {"index[0].id", "index[0].url", "index[0].kind"}


HOSTILE = st.binary(max_size=200) | st.lists(
    st.sampled_from(
        [
            "[[card]]",
            "[card]",
            "card = [",
            "]",
            "{",
            "}",
            'name = "T4"',
            'capability = "7.5"',
            'class = "geforce"',
            "remove = true",
            "source.a.b = 1",
            "[[card.alias]]",
            "alias = [[[[",
            "origin = 3",
            '"\\u0000" = 1',
            "name = 1979-05-27T07:32:00Z",
            "a.b.c.d.e.f = inf",
            "x = 0x" + "f" * 5000,
        ]
    ),
    max_size=12,
).map(lambda parts: "\n".join(parts).encode())


@given(content=HOSTILE)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_as_an_overlay_are_used_or_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "gpu").mkdir(exist_ok=True)
    (tmp_path / "gpu" / "card.toml").write_bytes(content)
    refusal = None
    try:
        cards = open_book([tmp_path]).cards()
    except MatrixError as error:
        refusal = error
    if refusal is None:
        assert all(one.capability.major > 0 for one in cards)
    else:
        assert refusal.faults
        assert all(line.isprintable() for line in str(refusal).splitlines())


# -- the cache ---------------------------------------------------------------------------------------------------------------------


def kept(cache: Copies) -> list[Path]:
    return sorted(Path(cache.directory).iterdir()) if Path(cache.directory).exists() else []


def test_ctrl_c_is_heard_although_what_it_raises_is_dropped(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a lookup in a dictionary drops it in C, where Python hashes the key."""

    def drops(*given: object, **named: object) -> object:
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        return compile_table(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(parse, "compile_table", drops)
    with pytest.raises(KeyboardInterrupt):
        DirectoryTables(world, label="w").load("cuda/release")


def test_a_table_is_kept_and_read_again(world: Path, cache: Copies) -> None:
    fresh = tables_of(world, cache).load("framework/alpha")
    [copy] = kept(cache)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert Path(cache.directory).stat().st_mode & 0o777 == 0o700
    again = tables_of(world, cache)
    assert again.load("framework/alpha") == fresh
    assert tables_of(world, cache).part("framework/alpha", Top) == Top(framework=fresh.framework)


def test_tables_with_copies_are_not_read_as_toml(world: Path, cache: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    DirectoryTables(world, label="w").compile(cache)
    monkeypatch.setattr("cudnn_resolve.host.tables.decode", lambda _: pytest.fail("a table was read"))
    assert tables_of(world, cache).faults() == []


def test_rows_from_the_cache_are_those_from_the_file(world: Path, cache: Copies) -> None:
    from cudnn_resolve.matrix.book import Book

    def everything() -> list[object]:
        book = Book(tables_of(world, cache))
        return [
            book.framework("alpha"),
            book.releases("alpha"),
            book.cudnn_builds(),
            book.cards(),
            book.soname("cublas", book.cuda_releases()[0].cuda),
        ]

    fresh, from_cache = everything(), everything()
    assert fresh == from_cache


def test_a_changed_file_is_read_again(world: Path, cache: Copies) -> None:
    tables = tables_of(world, cache)
    tables.load("index")
    write(world, index=WORLD["index"].replace("alpha-cu118", "alpha-cu121"))
    assert index_of(world, cache) == "alpha-cu121"
    source, before = world / "index.toml", (world / "index.toml").stat()
    write(world, index=WORLD["index"].replace("alpha-cu118", "alpha-cu122"))
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert source.stat().st_size == before.st_size
    assert index_of(world, cache) == "alpha-cu122"


def index_of(world: Path, cache: Copies) -> str:
    return tables_of(world, cache).load("index").index[0].id  # type: ignore[attr-defined, no-any-return]


def test_a_file_that_became_wrong_is_refused_in_spite_of_its_copy(world: Path, cache: Copies) -> None:
    tables_of(world, cache).load("index")
    write(world, index="index = 3")
    with pytest.raises(MatrixError):
        tables_of(world, cache).load("index")


def test_another_version_of_the_program_reads_again(world: Path, cache: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    tables_of(world, cache).load("index")
    monkeypatch.setattr("cudnn_resolve.host.tables.decode", lambda _: pytest.fail("a table was read"))
    tables_of(world, cache).load("index")
    with pytest.raises(pytest.fail.Exception):
        tables_of(world, Copies(cache.directory, "99")).load("index")


def damaged(name: str, content: bytes) -> bytes:
    return {
        "empty": b"",
        "truncated": content[: len(content) // 2],
        "one bit": content[:-20] + bytes([content[-20] ^ 1]) + content[-19:],
        "header only": content.split(b"\n")[0],
        "binary": bytes(range(256)) * 20,
        "deep": b"[" * 100000,
        "no newline": b"x" * 100000,
    }[name]


@pytest.mark.parametrize(
    "name",
    ["empty", "truncated", "one bit", "header only", "binary", "deep", "no newline"],
)
def test_a_damaged_copy_does_not_count_and_is_replaced(name: str, world: Path, cache: Copies) -> None:
    fresh = tables_of(world, cache).load("framework/alpha")
    [copy] = kept(cache)
    whole = copy.read_bytes()
    copy.write_bytes(damaged(name, whole))
    assert tables_of(world, cache).load("framework/alpha") == fresh
    assert copy.read_bytes() == whole


def test_a_copy_that_others_may_write_does_not_count(world: Path, cache: Copies) -> None:
    tables_of(world, cache).load("index")
    [copy] = kept(cache)
    copy.chmod(0o666)
    assert cache.load("index", (world / "index.toml").read_bytes()) is None


@pytest.mark.parametrize("what", ["directory", "fifo", "link"])
def test_something_else_in_the_place_of_a_copy(what: str, world: Path, cache: Copies) -> None:
    fresh = tables_of(world, cache).load("index")
    [copy] = kept(cache)
    copy.unlink()
    if what == "directory":
        copy.mkdir()
    elif what == "fifo":
        os.mkfifo(copy)
    else:
        copy.symlink_to("/dev/zero")
    assert tables_of(world, cache).load("index") == fresh


def test_without_a_usable_cache_directory_nothing_is_kept_and_nothing_fails(world: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "cache", Path("/proc/nowhere"), tmp_path / ("x" * 300)):
        assert index_of(world, Copies(str(path))) == "alpha-cu118"
        assert Copies(str(path)).load("index", (world / "index.toml").read_bytes()) is None


def test_a_read_only_cache_directory(world: Path, cache: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("cudnn_resolve.host.tablecache.os.makedirs", refuse)
    assert index_of(world, cache) == "alpha-cu118"
    assert kept(cache) == []


def test_nothing_half_written_stays(world: Path, cache: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cudnn_resolve.host.tablecache.os.replace", refuse)
    assert index_of(world, cache) == "alpha-cu118"
    assert kept(cache) == []


def test_a_cache_that_is_removed_while_a_copy_is_written(world: Path, cache: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    def removed(source: str, target: str) -> None:
        shutil.rmtree(cache.directory)
        raise FileNotFoundError(2, "gone", source, None, target)

    monkeypatch.setattr("os.replace", removed)
    assert index_of(world, cache) == "alpha-cu118"


def test_many_writers_at_once_leave_a_whole_copy(world: Path, cache: Copies) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def load(_: int) -> object:
        return tables_of(world, Copies(cache.directory)).load("framework/alpha")

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(load, range(40)))
    assert all(one == results[0] for one in results)
    assert len(kept(cache)) == 1


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home and a directory for temporary files."""
    for name, variable in (("home", "HOME"), ("tmp", "TMPDIR"), ("xdg", "XDG_CACHE_HOME")):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / name))
    return tmp_path


def test_where_the_cache_is(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == f"{places}/xdg/cudnn-resolve"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == f"{places}/home/.cache/cudnn-resolve"
    (places / "file").write_text("")
    monkeypatch.setenv("HOME", str(places / "file"))
    assert cache_folder() == f"{places}/tmp/cudnn-resolve-{os.geteuid()}"
    monkeypatch.setenv("TMPDIR", "relative")
    assert cache_folder() is None
    assert user_copies("/tables") is None


def test_a_home_that_cannot_be_written_is_passed_over(places: Path) -> None:
    (places / "xdg").rmdir()
    (places / "xdg").write_text("a file")
    assert cache_folder() == f"{places}/tmp/cudnn-resolve-{os.geteuid()}"


def test_a_directory_of_another_user_is_passed_over(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = os.geteuid()
    (places / "xdg" / "cudnn-resolve").mkdir()
    monkeypatch.setattr("cudnn_resolve.host.tablecache.os.geteuid", lambda: mine + 1)
    assert cache_folder() == f"{places}/tmp/cudnn-resolve-{mine + 1}"
    (places / "tmp" / f"cudnn-resolve-{mine + 1}").mkdir()
    assert cache_folder() is None


def test_the_same_name_in_two_directories_has_two_copies(places: Path, world: Path) -> None:
    write(places / "other", index=WORLD["index"].replace("alpha-cu118", "beta-cu118"))
    for directory in (world, places / "other"):
        DirectoryTables(directory, label="w", copies=user_copies(str(directory))).load("index")
    assert len(list((places / "xdg").rglob("index.msgpack"))) == 2


@pytest.mark.parametrize("name", ["\ud800", "a\0b"])
def test_a_name_that_no_folder_has_is_refused(name: str) -> None:
    with pytest.raises(MatrixError, match="is not a readable directory"):
        open_book([name])
