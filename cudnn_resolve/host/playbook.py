"""Run one task on the hosts of an Ansible inventory, by ansible-runner (the extra `fleet`).

Connections, logins, vaults and jump hosts are as Ansible is configured; none of them passes through here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from getpass import getpass
from typing import Any, Literal

from msgspec import Struct

from cudnn_resolve.errors import InputError, UsageError
from cudnn_resolve.host.interrupt import restored_handlers
from cudnn_resolve.masking import without_logins

COLLECTIONS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "fleet")
"""Directory in which Ansible finds our collection."""
_LOG_LEVEL = re.compile(r"^\[[A-Z ]+\]:\s*")
_STATES: Mapping[str, Literal["ok", "failed", "unreachable"]] = {
    "runner_on_ok": "ok",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
}
_LONGEST_TEMP_FOLDER = 70
"""Characters: ansible-core creates a socket below the temporary directory, and the path of a socket may have 107."""
_PASSWORD_SETTINGS = (("DEFAULT_ASK_PASS", "SSH"), ("DEFAULT_BECOME_ASK_PASS", "BECOME"), ("DEFAULT_ASK_VAULT_PASS", "Vault"))
"""Settings of Ansible that make it ask for a password, and the first word of its prompt."""
_LAST_MESSAGES = 21


class HostAnswer(Struct, frozen=True, kw_only=True):
    """Outcome of the task on one host."""

    host: str
    state: Literal["ok", "failed", "unreachable"]
    result: Mapping[str, Any]

    @property
    def message(self) -> str:
        """Reason of a failure."""
        return without_logins(str(self.result.get("msg") or "")).strip()[:1000]


Listener = Callable[[HostAnswer], None]


class Play(Struct, frozen=True, kw_only=True):
    """One module to run on hosts."""

    module: str
    """Name, `cudnn_facts`."""
    words: Mapping[str, Any]
    variables: Mapping[str, Any] = {}
    """Variables that templates in `words` may use."""
    hosts: Sequence[str] = ()
    """Names; empty = all hosts of the inventory."""
    serial: str | None = None
    """Batch size, `10` or `25%`; None = all at once."""
    max_fail: int | None = None
    """Percentage of a batch that may fail before the remaining batches are skipped."""


def run_play(play: Play, inventory: Sequence[str], limit: str | None, on_answer: Listener) -> None:
    """Run a module on hosts and report each answer as it comes; a host that does not answer stops no other.

    Raise UsageError without the extra, InputError if Ansible cannot read the inventory or no host matches.
    """
    runner, settings = _ansible()
    passwords = {rf"{prompt} password.*:\s*?$": _password(prompt) for name, prompt in _PASSWORD_SETTINGS if getattr(settings, name, False)}
    messages: deque[str] = deque(maxlen=_LAST_MESSAGES)
    count = 0

    def on_event(event: dict[str, Any]) -> bool:
        nonlocal count
        data = event.get("event_data") or {}
        if event.get("event") in _STATES and isinstance(data.get("res"), dict):
            count += 1
            on_answer(HostAnswer(host=str(data["host"]), state=_STATES[event["event"]], result=data["res"]))
        elif event.get("stdout"):
            messages.append(str(event["stdout"]))
        return False  # answers of hosts are not written to the disk

    with tempfile.TemporaryDirectory(prefix="cudnn-resolve-fleet-") as folder, restored_handlers():  # ansible-runner replaces them
        path = os.path.join(folder, "play.json")
        with open(path, "w", encoding="utf-8") as stream:
            json.dump([_playbook(play)], stream)
        done = runner.run(
            private_data_dir=folder,
            project_dir=os.getcwd(),  # where the user's ansible.cfg is
            playbook=path,
            inventory=[_absolute(path) for path in inventory],
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
        raise InputError(
            f"no host was asked{'' if limit is None else f' of --limit {limit}'}: {_reason(messages)}",
            code="inventory",
            context=", ".join(inventory),
            hint="`ansible-inventory --graph -i INVENTORY` shows its hosts",
        )


def _reason(messages: Iterable[str]) -> str:
    """What Ansible wrote last, without its headings, levels and logins."""
    lines = (line.strip() for message in messages for line in message.splitlines())
    texts = [_LOG_LEVEL.sub("", line) for line in lines if line and not line.startswith(("PLAY", "TASK"))]
    return without_logins("; ".join(texts[-3:]))[:600] or "no host matches"


def _playbook(play: Play) -> dict[str, Any]:
    """The play as Ansible reads it."""
    written: dict[str, Any] = {
        "name": play.module,
        "hosts": list(play.hosts) or "all",
        "gather_facts": False,
        "tasks": [{"name": play.module, f"cudnn_resolve.fleet.{play.module}": dict(play.words)}],
        "vars": dict(play.variables),
    }
    if play.serial is not None:
        written["serial"] = play.serial
    if play.max_fail is not None:
        written["max_fail_percentage"] = play.max_fail
    return written


def _absolute(inventory: str) -> str:
    """Absolute path of an inventory; a list of hosts, `a,b`, is returned as it is."""
    if "," in inventory:
        return inventory
    if not os.path.exists(inventory):
        raise InputError(f"there is no inventory {inventory}", code="inventory", hint="-i takes a file, a folder, or names: a,b,")
    return os.path.abspath(inventory)


def _ansible() -> tuple[Any, Any]:
    """The ansible-runner module, and the settings of Ansible."""
    try:
        import ansible_runner
        from ansible import constants
    except ImportError:
        hint = "pip install 'cudnn-resolve[fleet]'"
        raise UsageError("fleet commands need Ansible, which is not installed", code="extra-missing", hint=hint) from None
    return ansible_runner, constants


def _variables(settings: Any) -> dict[str, str]:
    """Environment of Ansible: our collection first, and the user's settings where ansible-runner has defaults of its own."""
    folders: Iterable[str] = (COLLECTIONS, *(settings.COLLECTIONS_PATHS or ()))
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", "")))
    return {
        "PATH": path,
        "ANSIBLE_COLLECTIONS_PATH": os.pathsep.join(folders),
        "ANSIBLE_HOST_KEY_CHECKING": str(settings.HOST_KEY_CHECKING),
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_NOCOLOR": "True",
        **({"TMPDIR": "/tmp"} if len(os.environ.get("TMPDIR", "")) > _LONGEST_TEMP_FOLDER else {}),  # noqa: S108 - it makes its own below
    }


@cache
def _password(what: str) -> str:
    """Password for which Ansible is configured to ask, asked for once however many plays there are."""
    with contextlib.suppress(EOFError):
        if sys.stdin.isatty():
            return getpass(f"{what} password: ")
    hint = "put it into a vault variable instead: ansible_become_password, ansible_password"
    raise UsageError(f"Ansible is configured to ask for the {what} password, but there is no terminal", code="usage-terminal", hint=hint)
