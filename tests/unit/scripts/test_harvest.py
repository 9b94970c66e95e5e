"""The harvest of wheel tables, against an index on this machine."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from harvest import main
from harvest_index import configured_index
from harvest_marker import on_linux
from harvest_text import expanded

from tests.unit.scripts.loopback_index import LoopbackIndex, serving

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[3]
LIST = 'drop_extras = ["test"]\n[[group]]\npackages = ["toy"]\n'


@pytest.fixture
def index() -> Iterator[LoopbackIndex]:
    with serving(LoopbackIndex()) as running:
        yield running


class Harvest:
    """The program with a list, a cache and an output of its own."""

    def __init__(self, folder: Path, index: LoopbackIndex) -> None:
        self.out, self._list, self._cache, self._index = folder / "wheel", folder / "list.toml", folder / "cache", index
        self.choose(LIST)

    def choose(self, text: str) -> None:
        self._list.write_text(text)

    def argv(self, *options: str) -> list[str]:
        return ["--list", str(self._list), "--out", str(self.out), "--cache", str(self._cache), *options]

    def run(self, *options: str, code: int = 0) -> str:
        """Its output and what it complains about."""
        told = io.StringIO()
        with redirect_stdout(told), redirect_stderr(told):
            try:
                ended: object = main(self.argv("--index-url", self._index.url, *options))
            except SystemExit as stop:
                ended = 1
                told.write(str(stop))
        assert ended == code, told.getvalue()
        return told.getvalue()

    def table(self, name: str = "toy") -> dict[str, Any]:
        return expanded(tomllib.loads((self.out / f"{name}.toml").read_text()))

    def rows(self, name: str = "toy") -> dict[str, dict[str, Any]]:
        return {row["version"]: row for row in self.table(name)["release"]}

    def requires(self, version: str, name: str = "toy") -> list[str]:
        entry = self.table(name)["metadata"][self.rows(name)[version]["metadata"] - 1]
        return list(entry.get("requires", []))


@pytest.fixture
def harvest(tmp_path: Path, index: LoopbackIndex) -> Harvest:
    return Harvest(tmp_path, index)


def archive(*members: tuple[str, str]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for path, text in members:
            entry = tarfile.TarInfo(path)
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
    return content.getvalue()


PAGE = """origin = "harvested"
script = "scripts/harvest.py"
read = DAY
package = "toy"

lines = [
  "numpy<2,>=1.17",
]

release = [
  {version = "1.9", date = 2020-01-02, requires_python = ">=3.6,!=3.8.*", tags = ["py2.py3-none-any"], metadata = 1},
  {version = "1.10.post1", date = 2021-03-04, yanked = true, tags = [TAGS], metadata = {x86_64 = 2, aarch64 = 1}},
]

metadata = [
  {id = 1, requires = [0]},
  {id = 2, requires = [0, 'nvidia-cudnn-cu12==9.1.0.70; extra == "cuda"']},
]
"""
TAGS = '"cp39-cp39-manylinux_2_17_x86_64", "cp310-cp310-manylinux_2_17_aarch64.manylinux_2_28_x86_64"'


def fill(index: LoopbackIndex) -> None:
    cuda = ["NumPy (>=1.17,<2)", "nvidia_cudnn.cu12==9.1.0.70; extra == 'cuda'"]
    late = {"yanked": True, "uploaded": "2021-03-05T00:00:00Z"}
    index.add("toy-1.10.post1-cp310-cp310-manylinux_2_28_x86_64.whl", cuda, extras=["cuda"], **late)
    index.add("toy-1.10.post1-cp310-cp310-manylinux2014_aarch64.manylinux_2_17_aarch64.whl", ["numpy>=1.17,<2"], **late)
    index.add("toy-1.10.post1-cp39-cp39-manylinux_2_28_x86_64.manylinux2014_x86_64.whl", yanked=True, uploaded="2021-03-04T23:00:00.123Z")
    index.add("toy-1.10.post1-cp39-cp39-win_amd64.whl", uploaded="2021-01-01T00:00:00Z")
    index.add("toy-1.10.post1-cp39-cp39-musllinux_1_2_x86_64.whl")
    index.add("toy-1.10.post1-cp39-cp39-manylinux2014_ppc64le.whl")
    index.add("toy-1.9-py2.py3-none-any.whl", ["numpy<2, >=1.17"], requires_python=">=3.6, !=3.8.*", uploaded="2020-01-02T00:00:00Z")
    index.add("toy-1.9.tar.gz", data=archive())
    index.add("toy-2.0rc1-py3-none-any.whl")
    index.add("toy-3.0-py3-none-macosx_11_0_arm64.whl")


@pytest.mark.parametrize("json", [False, True], ids=["html", "json"])
def test_a_page_of_either_kind_becomes_the_table(harvest: Harvest, index: LoopbackIndex, json: bool) -> None:  # noqa: FBT001
    index.json = json
    fill(index)

    harvest.run()

    written = harvest.table()["read"].isoformat()
    assert (harvest.out / "toy.toml").read_text() == PAGE.replace("DAY", written).replace("TAGS", TAGS)


def test_a_wheel_is_read_in_parts(harvest: Harvest, index: LoopbackIndex) -> None:
    index.add("toy-1-py3-none-any.whl", ["numpy"], padding=300 * 1024)

    harvest.run()

    of_wheel = [(status, size) for path, status, size in index.asked if path.endswith(".whl")]
    assert harvest.requires("1") == ["numpy"]
    assert {status for status, _ in of_wheel} == {206}
    assert sum(size for _, size in of_wheel) < len(index.projects["toy"][0].data) / 3


def test_a_wheel_shorter_than_its_tail(harvest: Harvest, index: LoopbackIndex) -> None:
    index.add("toy-1-py3-none-any.whl", ["numpy"])

    harvest.run()

    assert [status for path, status, _ in index.asked if path.endswith(".whl")] == [416, 206]
    assert harvest.requires("1") == ["numpy"]


def test_the_file_beside_a_wheel_saves_the_wheel(harvest: Harvest, index: LoopbackIndex) -> None:
    index.add(
        "toy-1-py3-none-any.whl", data=b"no zip", beside="Metadata-Version: 2.1\nName: toy\nRequires-Dist: numpy\n\nRequires-Dist: no\n"
    )

    harvest.run()

    assert harvest.requires("1") == ["numpy"]
    assert not [path for path, _, _ in index.asked if path.endswith(".whl")]


def test_metadata_is_asked_for_once(harvest: Harvest, index: LoopbackIndex) -> None:
    index.add("toy-1-py3-none-any.whl", ["numpy"])
    harvest.run()
    index.add("toy-2-py3-none-any.whl", ["numpy>=2"])
    index.asked.clear()

    told = harvest.run()

    assert "toy: 1 new (2)" in told
    assert not [path for path, _, _ in index.asked if "toy-1" in path]
    assert harvest.requires("2") == ["numpy>=2"]


def test_a_table_that_says_the_same_keeps_its_day(harvest: Harvest, index: LoopbackIndex) -> None:
    index.add("toy-1-py3-none-any.whl", ["numpy"])
    harvest.run()
    path = harvest.out / "toy.toml"
    before = path.read_text().replace(f"read = {harvest.table()['read']}", "read = 2020-01-01")
    path.write_text(before)

    told = harvest.run()

    assert "0 tables written" in told
    assert path.read_text() == before


def test_check_says_what_would_change_and_writes_nothing(harvest: Harvest, index: LoopbackIndex) -> None:
    index.add("toy-1-py3-none-any.whl", ["numpy"])
    assert "toy: 1 new (1)" in harvest.run("--check", code=1)
    assert not harvest.out.exists()
    harvest.run()
    assert "0 tables to change" in harvest.run("--check")
    before = (harvest.out / "toy.toml").read_bytes()
    index.projects.clear()
    index.add("toy-1-py3-none-any.whl", ["numpy"], yanked=True)

    assert "toy: 1 changed (1)" in harvest.run("--check", code=1)

    assert (harvest.out / "toy.toml").read_bytes() == before


def test_releases_that_are_gone_are_named(harvest: Harvest, index: LoopbackIndex) -> None:
    index.add("toy-1-py3-none-any.whl")
    index.add("toy-2-py3-none-any.whl")
    harvest.run()
    del index.projects["toy"][0]

    assert "toy: 1 gone (1)" in harvest.run()
    assert list(harvest.rows()) == ["2"]


@pytest.mark.slow
def test_the_program_asks_the_index_of_pip(harvest: Harvest, index: LoopbackIndex) -> None:
    index.add("toy-1-py3-none-any.whl")
    argv = [sys.executable, str(ROOT / "scripts" / "harvest.py"), *harvest.argv()]

    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120, env={**os.environ, "PIP_INDEX_URL": index.url})

    assert (done.returncode, done.stderr) == (0, "")
    assert list(harvest.rows()) == ["1"]


@pytest.mark.slow
def test_pip_knows_an_index_where_none_is_configured() -> None:
    assert re.fullmatch(r"https?://\S+/simple/?", configured_index())


@pytest.mark.slow
def test_a_server_that_stumbles_is_asked_again(harvest: Harvest, index: LoopbackIndex) -> None:
    index.add("toy-1-py3-none-any.whl", ["numpy"])
    index.stumbles = 2

    harvest.run()

    assert harvest.requires("1") == ["numpy"]


def test_what_cannot_be_read_leaves_the_table_as_it_was(harvest: Harvest, index: LoopbackIndex) -> None:
    index.add("toy-1-py3-none-any.whl", ["numpy"])
    harvest.run()
    before = (harvest.out / "toy.toml").read_bytes()
    index.add("toy-2-py3-none-any.whl", data=b"no zip at all")

    assert "toy-2-py3-none-any.whl" in harvest.run(code=2)
    assert (harvest.out / "toy.toml").read_bytes() == before


def test_a_server_without_ranges_sends_no_wheel(harvest: Harvest, index: LoopbackIndex) -> None:
    index.ranges = False
    index.add("toy-1-py3-none-any.whl", padding=4 * 1024 * 1024)

    assert "to a range request" in harvest.run(code=2)
    assert not harvest.out.exists()


def test_a_package_without_a_page(harvest: Harvest, index: LoopbackIndex) -> None:
    harvest.choose('drop_extras = []\n[[group]]\npackages = ["gone", "toy"]\n')
    index.add("toy-1-py3-none-any.whl")

    assert "gone: the index returned 404" in harvest.run(code=2)
    assert list(harvest.rows()) == ["1"]


def test_one_package_of_the_list(harvest: Harvest, index: LoopbackIndex) -> None:
    harvest.choose('drop_extras = []\n[[group]]\npackages = ["other", "toy"]\n')
    index.add("toy-1-py3-none-any.whl")
    index.add("other-1-py3-none-any.whl")

    harvest.run("--package", "Toy")

    assert sorted(os.listdir(harvest.out)) == ["toy.toml"]
    assert "not in the list: elsewhere" in harvest.run("--package", "elsewhere", code=1)


def test_more_than_was_bargained_for(harvest: Harvest, index: LoopbackIndex) -> None:
    index.add("toy-1-py3-none-any.whl")
    index.add("toy-2-py3-none-any.whl")

    assert "more than --most 1" in harvest.run("--most", "1", code=2)
    assert not [path for path, _, _ in index.asked if "files" in path]


def test_a_key_that_no_group_has(harvest: Harvest) -> None:
    harvest.choose('drop_extras = []\n[[group]]\npackages = ["toy"]\nversion = "1"\n')

    assert "unknown keys of a group: version" in harvest.run(code=1)


def test_which_releases_count(harvest: Harvest, index: LoopbackIndex) -> None:
    harvest.choose("""
drop_extras = []
[[group]]
packages = ["toy"]
placeholders = ["0.0.1"]
since = "2015-01-01"
versions = ["<2", "==3.*"]
prereleases = true
newest = 1
dates = false
""")
    for version, year in (("0.0.1", 2020), ("0.5", 2014), ("1.0", 2016), ("1.1rc1", 2017), ("2.0", 2018), ("3.0", 2019)):
        index.add(f"toy-{version}-py3-none-any.whl", ["numpy"], uploaded=f"{year}-05-05T00:00:00Z")

    harvest.run()

    assert harvest.table()["release"] == [
        {"version": "1.0", "tags": ["py3-none-any"]},
        {"version": "1.1rc1", "tags": ["py3-none-any"]},
        {"version": "3.0", "tags": ["py3-none-any"], "metadata": 1},
    ]


def test_a_package_that_has_only_pre_releases(harvest: Harvest, index: LoopbackIndex) -> None:
    index.add("toy-1.0.dev3-py3-none-any.whl")

    harvest.run()

    assert list(harvest.rows()) == ["1.0.dev3"]


def test_extras_that_are_left_out(harvest: Harvest, index: LoopbackIndex) -> None:
    requires = ["a; extra == 'test'", "b; extra == 'http'", "c; extra == 'test' or extra == 'http'", "d", "e; sys_platform == 'win32'"]
    index.add("toy-1-py3-none-any.whl", requires, extras=["test", "http", "All_Of.Them"])

    harvest.run()

    assert harvest.requires("1") == ['b; extra == "http"', 'c; extra == "http"', "d"]
    assert harvest.table()["metadata"][0]["extras"] == ["all-of-them", "http"]


def test_the_only_extras_that_stay(harvest: Harvest, index: LoopbackIndex) -> None:
    harvest.choose('drop_extras = []\n[[group]]\npackages = ["toy"]\nkeep_extras = ["http"]\n')
    index.add("toy-1-py3-none-any.whl", ["a; extra == 'x'", "b; extra == 'http'"], extras=["x", "http"])

    harvest.run()

    assert harvest.requires("1") == ['b; extra == "http"']
    assert harvest.table()["metadata"][0]["extras"] == ["http"]


EACH_PYTHON = 'drop_extras = []\n[[group]]\npackages = ["toy"]\neach_python = true\n'


@pytest.mark.parametrize("each", [False, True])
def test_wheels_of_different_pythons(harvest: Harvest, index: LoopbackIndex, each: bool) -> None:  # noqa: FBT001
    harvest.choose(EACH_PYTHON if each else LIST)
    for python, requires in (
        ("310", "numpy>=1.21"),
        ("27", "mock"),
        ("39", "numpy>=1.21"),
        ("312", "numpy>=1.26"),
        ("311", "numpy>=1.24; extra == 'x'"),
    ):
        index.add(f"toy-1-cp{python}-cp{python}-manylinux2014_x86_64.whl", ["six", requires], extras=["x"])
    index.add("toy-1-cp312-cp312t-manylinux2014_x86_64.whl", ["other"])
    index.add("toy-1-py3-none-any.whl", ["other"])

    harvest.run()

    by_python = [
        'numpy>=1.26; python_version >= "3.12"',
        'numpy>=1.24; extra == "x" and python_version == "3.11"',
        'numpy>=1.21; python_version <= "3.10"',
    ]
    requires = harvest.table()["metadata"][harvest.rows()["1"]["metadata"]["x86_64"] - 1]["requires"]
    assert requires == ["six", *(by_python if each else ["numpy>=1.26"])]
    assert harvest.table()["metadata"][harvest.rows()["1"]["metadata"]["aarch64"] - 1]["requires"] == ["other"]


def test_one_wheel_for_all_pythons_stands_for_itself(harvest: Harvest, index: LoopbackIndex) -> None:
    harvest.choose(EACH_PYTHON)
    index.add("toy-1-cp38-abi3-manylinux2014_x86_64.whl", ["six"])
    index.add("toy-1-cp37-cp37m-manylinux2014_x86_64.whl", ["numpy"])

    harvest.run()

    assert harvest.requires("1") == ["six"]


def test_the_higher_build_speaks(harvest: Harvest, index: LoopbackIndex) -> None:
    index.add("toy-1-py3-none-manylinux1_x86_64.whl", ["wheel"])
    index.add("toy-1-10-py3-none-manylinux1_x86_64.whl", ["numpy"])
    index.add("toy-1-2-py3-none-manylinux1_x86_64.whl", ["six"])

    harvest.run()

    assert harvest.requires("1") == ["numpy"]


def test_a_requirement_that_is_none_is_passed_over(harvest: Harvest, index: LoopbackIndex) -> None:
    index.add("toy-1-py3-none-any.whl", ["pytz (>=2011k)", "numpy"], requires_python=">=3.5.*")

    harvest.run()

    assert harvest.requires("1") == ["numpy"]
    assert "requires_python" not in harvest.rows()["1"]


@pytest.mark.parametrize(
    ("members", "requires"),
    [
        ([("toy-1/PKG-INFO", "Metadata-Version: 2.2\nName: toy\nRequires-Dist: numpy\n")], ["numpy"]),
        ([("toy-1/PKG-INFO", "Metadata-Version: 2.4\nName: toy\n")], []),
        (
            [
                ("toy-1/PKG-INFO", "Metadata-Version: 1.1\nName: toy\n"),
                ("toy-1/toy.egg-info/SOURCES.txt", ""),
                ("toy-1/toy.egg-info/PKG-INFO", ""),
            ],
            [],
        ),
        (
            [
                ("toy-1/PKG-INFO", "Metadata-Version: 1.1\nName: toy\n"),
                (
                    "toy-1/src/toy.egg-info/requires.txt",
                    "numpy>=1\n\n[:python_version < '3.8']\nsix\n\n[cuda]\ncupy\n\n[cuda:python_version > '3']\nh5py",
                ),
            ],
            ["numpy>=1", 'six; python_version < "3.8"', 'cupy; extra == "cuda"', 'h5py; extra == "cuda"'],
        ),
    ],
    ids=["static", "static, nothing", "egg, nothing", "egg"],
)
def test_a_source_archive_that_says_what_it_requires(
    harvest: Harvest, index: LoopbackIndex, members: list[tuple[str, str]], requires: list[str]
) -> None:
    index.add("toy-1.tar.gz", data=archive(*members))

    harvest.run()

    assert harvest.rows()["1"]["tags"] == ["sdist"]
    assert harvest.requires("1") == requires


@pytest.mark.parametrize(
    "data",
    [archive(("toy-1/PKG-INFO", "Metadata-Version: 1.1\nName: toy\n"), ("toy-1/setup.py", "")), b"damaged", os.urandom(3 * 1024 * 1024)],
    ids=["silent", "damaged", "large"],
)
def test_a_source_archive_that_does_not(harvest: Harvest, index: LoopbackIndex, data: bytes) -> None:
    index.add("toy-1.tar.gz", data=data)

    harvest.run()

    assert harvest.table()["release"] == [{"version": "1", "tags": ["sdist"]}]
    assert sum(size for _, _, size in index.asked) < 2.5 * 1024 * 1024


def test_what_is_missing_is_named(harvest: Harvest, index: LoopbackIndex) -> None:
    index.add("toy-1-py3-none-any.whl", ["old"])
    for version in range(2, 7):
        index.add(f"toy-{version}-py3-none-any.whl", ["New_One>=2", "more; extra == 'x'"], extras=["x"])

    assert harvest.run("--missing").splitlines()[1] == "new-one"


@pytest.mark.parametrize(
    ("marker", "short"),
    [
        ('platform_system == "Linux"', ""),
        ('platform_system == "Linux" and platform_machine == "x86_64"', 'platform_machine == "x86_64"'),
        ('platform_machine != "x86_64" and sys_platform != "darwin"', 'platform_machine == "aarch64"'),
        ('(sys_platform == "linux" or sys_platform == "win32") and extra == "all"', 'extra == "all"'),
        ('platform_machine == "aarch64" and extra == "All_"', 'platform_machine == "aarch64" and extra == "all-"'),
        ('python_version >= "3"', ""),
        ('python_version < "3"', None),
        ('sys_platform == "win32"', None),
        ('platform_machine == "arm64"', None),
        ('extra == "test"', None),
        ('"test" == extra', None),
        ('python_version < "3.11"', 'python_version < "3.11"'),
        ('python_full_version < "3.11.2"', 'python_full_version < "3.11.2"'),
        ('python_version < "3.9" and platform_system == "Linux"', 'python_version < "3.9" and platform_system == "Linux"'),
    ],
)
def test_a_marker_is_said_for_linux(marker: str, short: str | None) -> None:
    assert on_linux(marker, frozenset({"test"})) == short


def test_every_shipped_table_is_of_a_package_in_the_list() -> None:
    listed = tomllib.loads((ROOT / "scripts" / "harvest_packages.toml").read_text())
    packages = [name for group in listed["group"] for name in group["packages"]]
    shipped = {path.stem: path.stat().st_size for path in (ROOT / "matrices" / "wheel").glob("*.toml")}

    assert len(packages) == len(set(packages))
    assert set(shipped) <= set(packages)
    assert max(shipped.values()) < 300_000  # read at every plan
