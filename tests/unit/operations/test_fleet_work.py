"""What is said while work on the hosts of an inventory goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from cudnn_resolve.facts.codec import from_mapping
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.fleet.model import FleetClass
from cudnn_resolve.host import playbook
from cudnn_resolve.host.playbook import HostAnswer, Play
from cudnn_resolve.operations import fleet_work
from cudnn_resolve.operations.options import FleetRequest
from tests.fleet_maker import told
from tests.listening import Heard
from tests.program import shipped


@pytest.mark.parametrize("work", [fleet_work.undo, fleet_work.validate])
def test_every_host_is_known_to_wait_before_the_first_answers(
    work: Callable[[Sequence[FleetClass], FleetRequest, Heard], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_play(_play: Play, _inventory: object, _limit: object, hear: Callable[[HostAnswer], None]) -> None:
        hear(HostAnswer(host="n2", state="ok", result={"changed": True}))

    monkeypatch.setattr(fleet_work, "run_play", run_play)
    heard = Heard()
    classes = [FleetClass(name="t4", hosts=("n1", "n2"), about={}, facts=Facts())]

    work(classes, FleetRequest(verb="undo", env="/opt/dl", inventory=("hosts",)), heard)

    assert heard.states == [("n1", "waiting", "t4"), ("n2", "waiting", "t4"), ("n2", "changed", "t4")]


def test_what_is_asked_of_the_targets_counts_for_every_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(fleet_work, "run_play", lambda *_: pytest.fail("no host is asked"))
    group = FleetClass(name="t4", hosts=("n1",), about={}, facts=from_mapping(told("n1", "T4")))
    request = FleetRequest(verb="apply", env="/opt/dl", inventory=("hosts",), framework=("torch==2.7.0",), cuda="<11", offline=True)

    (one,) = fleet_work.apply([group], request, shipped())

    assert (one.status, one.message) == ("no", "torch==2.7.0: torch==2.7.0 cannot be satisfied with CUDA <11")


def test_ctrl_c_while_hosts_are_asked_is_no_mistake_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = SimpleNamespace(run=lambda **_: SimpleNamespace(status="canceled"))
    monkeypatch.setattr(playbook, "_ansible", lambda: (runner, SimpleNamespace(COLLECTIONS_PATHS=(), HOST_KEY_CHECKING=True)))
    with pytest.raises(KeyboardInterrupt):
        playbook.run_play(Play(module="cudnn_facts", words={}), ("a,b",), None, lambda _: None)
