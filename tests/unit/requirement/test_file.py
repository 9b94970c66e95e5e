"""Requirements files as pip writes them, and files that want to do harm."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Mapping

import pytest

from cudnn_resolve.errors import InputError
from cudnn_resolve.requirement.file import Line, Reference, Setting, read_requirements
from cudnn_resolve.requirement.model import RequirementLine


class Files:
    """Files that are a dictionary; counts how often one is read."""

    def __init__(self, files: Mapping[str, str], most: int = 2000) -> None:
        self._files = files
        self._left = most

    def __call__(self, path: str, base: str | None) -> tuple[str, str]:
        self._left -= 1
        assert self._left >= 0, "it reads on and on"
        where = posixpath.normpath(posixpath.join(posixpath.dirname(base or ""), path))
        return where, self._files[where]


def lines(text: str, more: Mapping[str, str] | None = None, *, constraint: bool = False) -> list[Line]:
    files = Files({"r.txt": text, **{name.replace("__", "/") + ".txt": one for name, one in (more or {}).items()}})
    return list(read_requirements("r.txt", files, constraint=constraint))


def read(text: str, **more: str) -> list[tuple[str, str]]:
    return [(one.text, one.origin) for one in lines(text, more) if isinstance(one, RequirementLine)]


def texts(text: str, **more: str) -> list[str]:
    return [one for one, _ in read(text, **more)]


def test_lines_with_their_numbers() -> None:
    assert read("numpy<2\n\n# a comment\npandas >= 2  # why\n") == [("numpy<2", "r.txt:1"), ("pandas >= 2", "r.txt:4")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("numpy \\\n  <2\nscipy", ["numpy   <2", "scipy"]),
        ("numpy==1.26.4 \\\n    --hash=sha256:abc \\\n    --hash=sha256:def\nscipy", ["numpy==1.26.4", "scipy"]),
        ("numpy<2\r\nscipy\r\n", ["numpy<2", "scipy"]),
        ("numpy<2 \\", ["numpy<2"]),
        ("", []),
        ("\n \n\t\n#\n", []),
        ("a#b", None),
        ("numpy; python_version >= '3.8'", ["numpy; python_version >= '3.8'"]),
        ("numpy[all]>=1", ["numpy[all]>=1"]),
    ],
)
def test_what_a_line_may_be(text: str, expected: list[str] | None) -> None:
    if expected is None:
        with pytest.raises(InputError):
            texts(text)
        return
    assert [" ".join(one.split()) for one in texts(text)] == [" ".join(one.split()) for one in expected]


def test_files_name_further_files_relative_to_themselves() -> None:
    found = read("-r sub/more.txt\nlast", sub__more="first\n--requirement=../other.txt\n", other="second")

    assert found == [("first", "sub/more.txt:1"), ("second", "other.txt:1"), ("last", "r.txt:2")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("--prefer-newest", ["--prefer-newest"]),
        ("numpy\n--global-option x", ["--global-option", "r.txt:2"]),
        ("not a requirement", ["not a requirement", "r.txt:1"]),
        ("numpy==", ["numpy==", "PEP 508"]),
        ("--index-url", ["--index-url", "r.txt:1"]),
        ("\x00", ["r.txt:1"]),
        ("<<<<<<< HEAD", ["r.txt:1"]),
    ],
)
def test_what_is_no_requirement_is_said_with_its_line(text: str, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        texts(text)

    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert caught.value.exit_code == 2


def test_options_of_pip_that_say_where_packages_come_from_are_settings() -> None:
    found = [one for one in lines("--pre\n--no-index\n--trusted-host mirror.example:8080\n-f wheels\nnumpy\n") if isinstance(one, Setting)]

    assert [(one.option, one.value, one.origin) for one in found] == [
        ("--pre", "", "r.txt:1"),
        ("--no-index", "", "r.txt:2"),
        ("--trusted-host", "mirror.example:8080", "r.txt:3"),
        ("--find-links", "wheels", "r.txt:4"),
    ]


def test_hashes_are_kept_with_their_requirement() -> None:
    (found,) = lines("numpy==1.26.4 \\\n    --hash=sha256:AB \\\n    --hash=sha256:cd\n")

    assert isinstance(found, RequirementLine)
    assert (found.text.strip(), found.hashes) == ("numpy==1.26.4", ("sha256:ab", "sha256:cd"))


def test_a_message_does_not_repeat_a_login() -> None:
    with pytest.raises(InputError) as caught:
        lines("what is https://user:secret@host.example/x")
    assert "secret" not in str(caught.value)


def test_constraints_limit_without_asking() -> None:
    found = lines("numpy\n-c limits.txt\n", {"limits": "numpy<2\n-r more.txt\n", "more": "scipy<2"})

    assert [(one.text, one.constraint) for one in found if isinstance(one, RequirementLine)] == [
        ("numpy", False),
        ("numpy<2", True),
        ("scipy<2", True),
    ]
    assert [one.constraint for one in lines("a<1", constraint=True) if isinstance(one, RequirementLine)] == [True]
    with pytest.raises(InputError, match="constraint"):
        lines("x @ https://files.example/x-1-py3-none-any.whl", constraint=True)


def test_options_that_say_where_packages_come_from() -> None:
    found = lines("-i https://one.example/simple\n--extra-index-url=https://two.example\n-f ./wheels\n--no-binary :all:\n--prefer-binary\n")

    assert [(one.option, one.value) for one in found if isinstance(one, Setting)] == [
        ("--index-url", "https://one.example/simple"),
        ("--extra-index-url", "https://two.example"),
        ("--find-links", "./wheels"),
        ("--no-binary", ":all:"),
    ]
    assert len(found) == 4


@pytest.mark.parametrize(
    ("line", "place", "name", "extras", "editable"),
    [
        ("-e .", ".", None, (), True),
        ("--editable=./sub[test,docs]", "./sub", None, ("docs", "test"), True),
        ("./wheels/x-1-py3-none-any.whl", "./wheels/x-1-py3-none-any.whl", None, (), False),
        ("x-1-py3-none-any.whl", "x-1-py3-none-any.whl", None, (), False),
        ("../other", "../other", None, (), False),
        ("file:///srv/x-1.tar.gz", "file:///srv/x-1.tar.gz", None, (), False),
        ("x[a] @ https://files.example/x.whl#sha256=00", "https://files.example/x.whl#sha256=00", "x", ("a",), False),
        ("x @ https://files.example/x-1-py3-none-any.whl", "https://files.example/x-1-py3-none-any.whl", "x", (), False),
        ("x[a]@file:///wheels/x-1.zip", "file:///wheels/x-1.zip", "x", ("a",), False),
        ("x @ https://files.example/x.whl ; python_version > '3'", "https://files.example/x.whl", "x", (), False),
    ],
)
def test_archives_and_projects(line: str, place: str, name: str | None, extras: tuple[str, ...], *, editable: bool) -> None:
    (found,) = lines(line)

    assert isinstance(found, Reference)
    assert (found.place, found.name, found.extras, found.editable, found.origin) == (place, name, extras, editable, "r.txt:1")


def test_files_that_name_one_another_end() -> None:
    with pytest.raises(InputError, match="include one another"):
        texts("-r a.txt", a="-r b.txt", b="-r a.txt")
    with pytest.raises(InputError, match="include one another"):
        texts("-r r.txt\n-r r.txt\n")


def test_files_that_multiply_end() -> None:
    chain = {f"f{number}": f"-r f{number + 1}.txt\n" * 8 for number in range(18)}

    with pytest.raises(InputError):
        texts("-r f0.txt", **chain, f18="numpy")


@pytest.mark.parametrize(
    "text",
    [
        "numpy" + " " * 60_000 + "<2",
        "numpy" + " " * 60_000 + "x",
        "numpy" + "\t" * 500_000 + "# comment",
        "a" * 1_000_000,
        "a==" + "1." * 500_000 + "0",
        "a[" + "b," * 300_000 + "b]",
        "a;" + "(" * 100_000,
        "a --hash" + " --hash" * 100_000,
        "\\\n" * 200_000 + "numpy",
        "#" * 1_000_000,
    ],
    ids=["blanks", "blanks-x", "tabs", "name", "version", "extras", "marker", "hashes", "continuations", "comment"],
)
def test_a_monstrous_line_takes_no_time(text: str) -> None:
    message = ""
    start = time.monotonic()
    try:
        texts(text)
    except InputError as error:
        message = str(error)
    assert time.monotonic() - start < 5
    assert len(message) < 5000, "the message is as monstrous as the line"
