"""What the modules of the collection do: on the controller, with programs of this package that are carried to the host.

Nothing of Ansible is imported: its action plugins hand themselves over, and `Carrier` is all that is asked of them.
"""

from __future__ import annotations

import json
import os.path
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from cudnn_resolve.errors import CudnnResolveError, InputError, WorldError
from cudnn_resolve.facts.codec import encode, from_mapping
from cudnn_resolve.host import disk
from cudnn_resolve.host.relay import Ask, ask_in_rounds, program_text
from cudnn_resolve.host.tables import open_book
from cudnn_resolve.masking import without_logins
from cudnn_resolve.operations.options import LockRequest
from cudnn_resolve.probe.probe import detect

MARK = "cudnn-resolve-answer "
_BOOT = (
    "import json,os,sys\n"
    "job=json.loads(sys.stdin.buffer.read().decode())\n"
    "os.environ.update(job.pop('environ'))\n"
    "scope={'__name__':'payload'}\n"
    "exec(compile(job.pop('program'),'payload','exec'),scope)\n"
    f"print('{MARK}'+json.dumps(scope['main'](job)))"
)
_PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(14, 5, -1)), "/usr/libexec/platform-python", "python")
_OLD = "import sys; sys.exit(sys.version_info < (3, 6))"
"""Asked of each Python."""


def command(interpreter: str | None) -> str:
    """The line of a shell that runs a job with the first Python from 3.6 on: `interpreter` where one is configured."""
    pythons = (interpreter,) if interpreter else _PYTHONS
    tries = f'for p in {" ".join(map(shlex.quote, pythons))}; do if "$p" -c {shlex.quote(_OLD)} </dev/null >/dev/null 2>&1; '
    tries += f'then exec "$p" -I -c {shlex.quote(_BOOT)}; fi; done; '
    return tries + 'echo "no Python from 3.6 on was found" >&2; exit 127'


class Carrier:
    """A host, as an action plugin of Ansible reaches it."""

    def __init__(self, plugin: Any, variables: Mapping[str, Any]) -> None:
        self.plugin = plugin
        self.check = bool(plugin._task.check_mode)  # noqa: SLF001 - there is no other way to ask a task
        told = variables.get("ansible_python_interpreter")
        self._command = command(str(told) if told and not str(told).startswith("auto") else None)
        self._environ: dict[str, Any] = {}
        plugin._compute_environment_string(self._environ)  # noqa: SLF001
        self.answer: Ask = self._answer

    def _answer(self, name: str, job: dict[str, Any]) -> dict[str, Any]:
        """Run a program there. Everything goes through its standard input: other users see command lines."""
        environ = {name: str(value) for name, value in self._environ.items()}
        question = json.dumps({**job, "environ": environ, "program": program_text(name)}).encode()
        done = self._run(question)
        line = next((one for one in reversed(done["stdout"].splitlines()) if one.startswith(MARK)), None)
        if line is None:
            last = without_logins((done["stderr"] or done["stdout"]).strip()[-2000:]).splitlines()[-1:]
            raise WorldError(f"the host did not answer: {last[0][:300] if last else 'nothing was said'}", code="host-answer")
        try:
            found = json.loads(line[len(MARK) :])
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise WorldError("the host's answer makes no sense", code="host-answer")
        if "error" in found:
            raise WorldError(without_logins(str(found["error"]))[:1000], code="host-refused")
        return found

    def _run(self, question: bytes) -> Mapping[str, Any]:
        """What the job said; where the connection passes no standard input on, as podman's, it reads a file of the task's folder."""
        plugin = self.plugin
        if plugin._connection.has_pipelining:  # noqa: SLF001
            done: Mapping[str, Any] = plugin._low_level_execute_command(self._command, in_data=question)  # noqa: SLF001
            return done
        folder = plugin._make_tmp_path()  # noqa: SLF001
        try:
            path = plugin._transfer_data(f"{folder}/question", question)  # noqa: SLF001
            plugin._fixup_perms2((folder, path), execute=False)  # noqa: SLF001
            done = plugin._low_level_execute_command(f"( {self._command} ) < {shlex.quote(path)}")  # noqa: SLF001
        finally:
            plugin._remove_tmp_path(folder, force=True)  # noqa: SLF001
        return done

    def send(self, bundle: str) -> str:
        """Carry the files of a bundle there; the folder that holds them."""
        folder: str = self.plugin._make_tmp_path()  # noqa: SLF001
        self.answer("execution/payload_exchange.py", {"do": "room", "path": folder, "needed": disk.own_bytes(bundle)})
        paths = []
        self.plugin._low_level_execute_command(f"mkdir -p {shlex.quote(folder)}/wheels", sudoable=False)  # noqa: SLF001
        for path in disk.files_below(bundle):
            name = os.path.relpath(path, bundle)
            paths.append(self.plugin._transfer_file(path, f"{folder}/{name}"))  # noqa: SLF001
        self.plugin._fixup_perms2((folder, f"{folder}/wheels", *paths))  # noqa: SLF001
        return folder


def perform(work: Callable[[Carrier, Mapping[str, Any]], dict[str, Any]], plugin: Any, variables: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a task; a failure is one of the host, in words."""
    try:
        return work(Carrier(plugin, variables), plugin._task.args)  # noqa: SLF001
    except CudnnResolveError as error:
        return {"failed": True, "msg": without_logins(error.message), "code": error.code, **({"hint": error.hint} if error.hint else {})}


def facts(carrier: Carrier, words: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of the host and of one environment on it."""
    found = ask_in_rounds(carrier.answer, lambda host: detect(host, words.get("python")))
    return {"changed": False, "facts": encode(found)}


def validate(carrier: Carrier, words: Mapping[str, Any]) -> dict[str, Any]:
    """What was computed there with the frameworks of an environment."""
    from cudnn_resolve.operations.validate import explained
    from cudnn_resolve.report.document import encode_validation
    from cudnn_resolve.validation.run import ValidationOptions, validate, with_causes

    book = open_book(())
    found = ask_in_rounds(carrier.answer, lambda host: detect(host, words.get("python")))
    wish = ValidationOptions(frameworks=tuple(words.get("frameworks") or ()), require_gpu=bool(words.get("require_gpu")))
    seen = ask_in_rounds(carrier.answer, lambda host: validate(host, found, wish, book), guess=False)
    seen = with_causes(seen, lambda text: explained(text, found, book))
    result = {"changed": False, "validation": encode_validation(seen), "status": seen.status}
    if seen.status != "failed":
        return result
    wrong = [one for one in seen.checks if one.status == "failed"]
    return {**result, "failed": True, "msg": "; ".join(f"{one.id}: {one.observed or one.detail or 'failed'}" for one in wrong[:3])}


def environment(carrier: Carrier, words: Mapping[str, Any]) -> dict[str, Any]:
    """An environment as a lock or targets want it, or as it was before."""
    path = words.get("path")
    state = words.get("state", "present")
    if not path or not isinstance(path, str) or not path.startswith(("/", "~/")):
        raise InputError("path: name the environment by its full path", code="usage-path")
    if state == "previous":
        done = carrier.answer(
            "execution/payload_exchange.py", {"do": "undo", "path": path, "check": carrier.check, "replace": bool(words.get("replace"))}
        )
        return _told(path, done)
    from cudnn_resolve.operations.fleet_bundles import in_use

    with in_use():
        return _exchanged(carrier, words, path)


def _exchanged(carrier: Carrier, words: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The new environment in the place of the one that is there, or what is there where it is put back."""
    exchange = "execution/payload_exchange.py"
    bundle = _bundle(carrier, words)
    plan = _plan(bundle)
    job = {"path": path, "plan": plan, "replace": bool(words.get("replace"))}
    seen = carrier.answer(exchange, {**job, "do": "look"})
    if carrier.check or not seen["changed"]:
        return _told(path, seen)
    folder = None
    try:
        folder = carrier.send(bundle)
        done = carrier.answer(
            exchange, {**job, "do": "put", "bundle": folder, "python": words.get("python"), "fetch": words.get("fetch") == "host"}
        )
        if not done["changed"]:  # another run was here meanwhile
            return _told(path, done)
        fault = _fault(carrier, path) if words.get("validate", True) else None
        carrier.answer(exchange, {"do": "settle", "path": path, "keep": fault is None, "run": done["run"]})
    finally:
        if folder is not None:
            carrier.plugin._remove_tmp_path(folder, force=True)  # noqa: SLF001
    if fault is not None:
        return {"failed": True, "changed": False, "reverted": True, "msg": f"put back, it failed its validation: {fault}"}
    return _told(path, done)


def _fault(carrier: Carrier, path: str) -> str | None:
    """What is wrong with a new environment; None where nothing is."""
    try:
        found = validate(carrier, {"python": path})
    except CudnnResolveError as error:
        return error.message
    return str(found["msg"]) if found.get("failed") else None


def _told(path: str, done: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a task on an environment, with its packages before and after as Ansible's diff mode shows them."""
    changed = bool(done["changed"])
    before, after = (_listed(done[name]) if changed else "" for name in ("before", "after"))
    diff = {"before": before, "after": after, "before_header": path, "after_header": path}
    return {"changed": changed, "diff": diff, "path": path, "said": list(done.get("said", ()))}


def _listed(packages: Mapping[str, str]) -> str:
    return "".join(f"{name}=={version}\n" for name, version in sorted(packages.items()))


def _plan(bundle: str) -> dict[str, Any]:
    """What the start script of a bundle of one lock is told."""
    names = [one for one in disk.names_in(bundle) if one.startswith("pylock") and one.endswith(".json")]
    if len(names) != 1:
        raise InputError(f"{bundle} holds {len(names)} locks, and one is wanted", code="bundle-lock")
    found: dict[str, Any] = json.loads(disk.content(f"{bundle}/{names[0]}", 64 << 20) or b"{}")
    return found


def _bundle(carrier: Carrier, words: Mapping[str, Any]) -> str:
    """The bundle on the controller: the one that is named, or one of the lock or of what is resolved for this host."""
    from cudnn_resolve.operations.fleet_bundles import bundle_of, lock_for

    if words.get("bundle"):
        return str(words["bundle"])
    targets = words.get("targets")
    if not words.get("lock") and not targets:
        raise InputError("one of lock, targets and bundle is needed", code="usage-lock")
    found = from_mapping(facts(carrier, {"python": words.get("python")})["facts"])
    lock = (
        str(words["lock"])
        if words.get("lock")
        else lock_for(LockRequest(framework=tuple(map(str, targets if isinstance(targets, list) else [targets])), given=found, output="-"))
    )
    return bundle_of(lock, found, whole=words.get("fetch") != "host")
