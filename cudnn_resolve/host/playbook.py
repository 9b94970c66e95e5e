"""Hosts of an Ansible inventory: one task for each of them, run by ansible-runner (the extra `fleet`).

Connections, logins, vaults and jump hosts are as Ansible is configured: nothing of that passes through here.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from getpass import getpass
from typing import Any, Literal

from msgspec import Struct

from cudnn_resolve.errors import InputError, UsageError
from cudnn_resolve.host.interrupt import handlers_kept
from cudnn_resolve.masking import without_logins

COLLECTIONS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "fleet")
"""The folder in which Ansible finds our collection."""
_LEVEL = re.compile(r"^\[[A-Z ]+\]:\s*")
_STATES: Mapping[str, Literal["ok", "failed", "unreachable"]] = {
    "runner_on_ok": "ok",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
}
_LONGEST_FOLDER = 70
"""Of temporary files, in letters: ansible-core puts a socket below it, whose path may have 107."""
_ASKED = (("DEFAULT_ASK_PASS", "SSH"), ("DEFAULT_BECOME_ASK_PASS", "BECOME"), ("DEFAULT_ASK_VAULT_PASS", "Vault"))
"""Settings of Ansible, and what its question begins with."""


class HostAnswer(Struct, frozen=True, kw_only=True):
    """What became of a task on one host."""

    host: str
    state: Literal["ok", "failed", "unreachable"]
    result: Mapping[str, Any]

    @property
    def message(self) -> str:
        """Why it failed."""
        return without_logins(str(self.result.get("msg") or "")).strip()[:1000]


Listener = Callable[[HostAnswer], None]


class Play(Struct, frozen=True, kw_only=True):
    """One module for hosts."""

    module: str
    """`cudnn_facts`."""
    words: Mapping[str, Any]
    variables: Mapping[str, Any] = {}
    """That templates in the words may use."""
    hosts: Sequence[str] = ()
    """Names; empty = every host of the inventory."""
    serial: str | None = None
    """Hosts at a time, `10` or `25%`; None = all."""
    max_fail: int | None = None
    """Percent of a batch that may fail before the next one is left out."""


def run_play(play: Play, inventory: Sequence[str], limit: str | None, on_answer: Listener) -> None:
    """Run a module on hosts and tell each answer as it comes; a host that does not answer stops nobody.

    UsageError without the extra, InputError where Ansible cannot read the inventory or no host is meant.
    """
    runner, settings = _ansible()
    passwords = {rf"{what} password.*:\s*?$": _password(what) for name, what in _ASKED if getattr(settings, name, False)}
    last: list[str] = []
    count = 0

    def on_event(event: dict[str, Any]) -> bool:
        nonlocal count
        told = event.get("event_data") or {}
        if event.get("event") in _STATES and isinstance(told.get("res"), dict):
            count += 1
            on_answer(HostAnswer(host=str(told["host"]), state=_STATES[event["event"]], result=told["res"]))
        elif event.get("stdout"):
            last[:] = [*last[-20:], str(event["stdout"])]
        return False  # what a host says is not written to the disk

    with tempfile.TemporaryDirectory(prefix="cudnn-resolve-fleet-") as folder, handlers_kept():  # it replaces them to end its children
        path = os.path.join(folder, "play.json")
        with open(path, "w", encoding="utf-8") as stream:
            json.dump([_written(play)], stream)
        done = runner.run(
            private_data_dir=folder,
            project_dir=os.getcwd(),  # so that its ansible.cfg is the one of the user
            playbook=path,
            inventory=[_placed(one) for one in inventory],
            limit=limit,
            envvars=_variables(settings),
            event_handler=on_event,
            quiet=True,
            suppress_env_files=True,
            passwords=passwords,
        )
    if done.status == "canceled":
        raise KeyboardInterrupt
    if not count:
        said = (one.strip() for text in last for one in text.splitlines())
        lines = [_LEVEL.sub("", one) for one in said if one and not one.startswith(("PLAY", "TASK"))]
        why = without_logins("; ".join(lines[-3:]))[:600] or "no host is meant"
        raise InputError(
            f"no host was asked{'' if limit is None else f' of --limit {limit}'}: {why}",
            code="inventory",
            context=", ".join(inventory),
            hint="`ansible-inventory --graph -i INVENTORY` shows its hosts",
        )


def _written(play: Play) -> dict[str, Any]:
    """The play as Ansible reads it."""
    more: dict[str, Any] = {"vars": dict(play.variables)}
    if play.serial is not None:
        more["serial"] = play.serial
    if play.max_fail is not None:
        more["max_fail_percentage"] = play.max_fail
    task = {"name": play.module, f"cudnn_resolve.fleet.{play.module}": dict(play.words)}
    return {"name": play.module, "hosts": list(play.hosts) or "all", "gather_facts": False, "tasks": [task], **more}


def _placed(inventory: str) -> str:
    """An inventory as it is found from elsewhere; a list of hosts, `a,b`, is none that lies anywhere."""
    if "," in inventory:
        return inventory
    if not os.path.exists(inventory):
        raise InputError(f"there is no inventory {inventory}", code="inventory", hint="-i takes a file, a folder, or names: a,b,")
    return os.path.abspath(inventory)


def _ansible() -> tuple[Any, Any]:
    """ansible-runner, and the settings of Ansible."""
    try:
        import ansible_runner
        from ansible import constants
    except ImportError:
        hint = "pip install 'cudnn-resolve[fleet]'"
        raise UsageError("hosts are asked by Ansible, which is not installed here", code="extra-missing", hint=hint) from None
    return ansible_runner, constants


def _variables(settings: Any) -> dict[str, str]:
    """The environment of Ansible: our collection in front, and what ansible-runner would decide otherwise than the user has."""
    folders: Iterable[str] = (COLLECTIONS, *(settings.COLLECTIONS_PATHS or ()))
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", "")))
    return {
        "PATH": path,
        "ANSIBLE_COLLECTIONS_PATH": os.pathsep.join(folders),
        "ANSIBLE_HOST_KEY_CHECKING": str(settings.HOST_KEY_CHECKING),
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_NOCOLOR": "True",
        **({"TMPDIR": "/tmp"} if len(os.environ.get("TMPDIR", "")) > _LONGEST_FOLDER else {}),  # noqa: S108 - folders of its own in it
    }


@cache
def _password(what: str) -> str:
    """The password that Ansible is configured to ask for, asked once however many plays there are."""
    try:
        return getpass(f"{what} password: ") if sys.stdin.isatty() else _unasked(what)
    except EOFError:
        return _unasked(what)


def _unasked(what: str) -> str:
    hint = "a variable in a vault holds it where nobody is there to type it: ansible_become_password, ansible_password"
    raise UsageError(f"Ansible is configured to ask for the {what} password, and there is no terminal", code="usage-terminal", hint=hint)
