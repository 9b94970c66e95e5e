"""Hosts in classes: what matters splits them, what does not is told."""

from __future__ import annotations

from typing import Any

import pytest

from cudnn_resolve.fleet.host_names import ranges
from tests.fleet_maker import classes, told
from tests.program import shipped


def hosts_of(**hosts: dict[str, Any]) -> list[tuple[str, ...]]:
    return [one.hosts for one in classes(shipped(), hosts)]


@pytest.mark.parametrize(
    "other",
    [
        told("b", "T4"),
        told("b", driver="470.82.01"),
        told("b", driver=None),
        told("b", python="3.12.1"),
        told("b", glibc="2.28"),
        told("b", arch="aarch64"),
        told("b", driver="550.40.07"),  # of one branch, but older than what CUDA 12.4 was made for
    ],
    ids=["gpu", "branch", "no-driver", "python", "glibc", "arch", "step"],
)
def test_what_decides_splits(other: dict[str, Any]) -> None:
    assert hosts_of(a=told("a"), b=other) == [("a",), ("b",)]


@pytest.mark.parametrize(
    "other", [told("b", driver="550.90.07"), told("b", count=8), told("b", python="3.11.2"), told("b", pip={"torch": "2.6.0"})]
)
def test_what_does_not_is_told(other: dict[str, Any]) -> None:
    (found,) = classes(shipped(), {"a": told("a"), "b": other, "c": told("c")})

    assert found.hosts == ("a", "b", "c")
    assert found.spreads
    assert all(hosts in (("a", "c"), ("b",)) for spread in found.spreads for hosts in spread.values.values())


def test_installed_packages_count_for_a_plan_only() -> None:
    hosts = {"a": told("a", pip={"numpy": "1.26.4"}), "b": told("b", pip={"numpy": "2.0.0"})}
    assert [one.hosts for one in classes(shipped(), hosts, whole=True)] == [("a",), ("b",)]
    assert (
        len(
            classes(shipped(), {name: told(name, pip={"six": version}) for name, version in (("a", "1.16.0"), ("b", "1.17.0"))}, whole=True)
        )
        == 1
    )
    (found,) = classes(shipped(), hosts)
    assert [(spread.fact, dict(spread.values)) for spread in found.spreads] == [
        ("packages.pip.numpy", {"1.26.4": ("a",), "2.0.0": ("b",)}),
    ]


def test_the_oldest_driver_stands_for_a_class() -> None:
    drivers = {"a": "550.90.07", "b": "550.54.15", "c": "550.127.05"}
    (found,) = classes(shipped(), {name: told(name, driver=driver) for name, driver in drivers.items()})
    assert found.about["driver"] == "550.54.15, or newer of branch 550"
    assert found.facts.driver is not None
    assert dict(found.spreads[0].values) == {"550.127.05": ("c",), "550.54.15": ("b",), "550.90.07": ("a",)}


def test_the_strict_policy_asks_for_versions() -> None:
    hosts = {"a": told("a", driver="550.90.07"), "b": told("b", driver="550.90.12")}
    assert len(classes(shipped(), hosts)) == 1
    assert len(classes(shipped(), hosts, policy="strict")) == 2


def test_a_list_that_nobody_knows_is_no_difference_of_every_package() -> None:
    (found,) = classes(shipped(), {"a": told("a", pip={"numpy": "1.26.4", "six": "1.16"}), "b": told("b")})
    assert [spread.fact for spread in found.spreads] == ["packages.pip"]


def test_a_name_stays_and_says_what_the_hosts_are() -> None:
    hosts = {"a": told("a"), "b": told("b", glibc="2.28"), "c": told("c", "T4", "535.104.05", python="3.12.0")}
    names = {one.hosts: one.name for one in classes(shipped(), hosts)}
    assert names["c",] == "t4-r535-py312"
    assert names["a",].startswith("a100sxm4-r550-py311-")
    assert names["a",] != names["b",]
    assert names == {one.hosts: one.name for one in classes(shipped(), dict(reversed(hosts.items())))}


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        (["node001", "node002", "node003", "node010"], "node[001-003,010]"),
        (["n9", "n10", "n11", "login"], "login, n[9-11]"),
        (["rack1-n1.example", "rack1-n2.example", "rack2-n1.example"], "rack1-n[1-2].example, rack2-n1.example"),
        (["7"], "7"),
        ([], ""),
    ],
)
def test_ranges_of_names(hosts: list[str], text: str) -> None:
    assert ranges(hosts) == text
