from __future__ import annotations

import pytest

from cudnn_resolve.facts.system import parse_os_release

UBUNTU = """PRETTY_NAME="Ubuntu 22.04.3 LTS"
NAME="Ubuntu"
VERSION_ID="22.04"
ID=ubuntu
# a remark
HOME_URL="https://www.ubuntu.com/"
"""


def test_an_ubuntu_is_read() -> None:
    found = parse_os_release(UBUNTU)

    assert (found["ID"], found["VERSION_ID"], found["PRETTY_NAME"]) == ("ubuntu", "22.04", "Ubuntu 22.04.3 LTS")
    assert len(found) == 5


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("ID='rocky'", "rocky"),
        ('ID="a \\"b\\" \\$c"', 'a "b" $c'),
        ("ID='a \\x'", "a \\x"),
        ("ID=", ""),
        ('ID="', '"'),
        ("  ID=x  ", "x"),
    ],
)
def test_quotes_are_those_of_a_shell(line: str, value: str) -> None:
    assert parse_os_release(line)["ID"] == value


def test_lines_that_assign_nothing_are_passed_over() -> None:
    assert parse_os_release("hello\n=x\n#ID=no\nA-B=1\n") == {}
