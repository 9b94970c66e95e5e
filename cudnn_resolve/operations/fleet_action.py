"""Implementation of the collection's Ansible modules: runs on the controller, and sends programs of this package to the host.

Nothing of Ansible is imported: the action plugins pass themselves, and only `Carrier` uses them.
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
from cudnn_resolve.host.child import MARK, answer_of, payload_text
from cudnn_resolve.host.relay import Ask, ask_in_rounds
from cudnn_resolve.host.tables import open_book
from cudnn_resolve.masking import without_logins
from cudnn_resolve.operations.options import LockRequest
from cudnn_resolve.probe.probe import detect

_BOOT = (
    "import json,os,sys\n"
    "job=json.loads(sys.stdin.buffer.read().decode())\n"
    "os.environ.update(job.pop('environ'))\n"
    "scope={'__name__':'payload'}\n"
    "exec(compile(job.pop('program'),'payload','exec'),scope)\n"
    f"print('{MARK}'+json.dumps(scope['main'](job)))"
)
_PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(14, 5, -1)), "/usr/libexec/platform-python", "python")
_VERSION_TEST = "import sys; sys.exit(sys.version_info < (3, 6))"


def command(interpreter: str | None) -> str:
    """Shell command that runs a job with the configured interpreter, else with the first Python 3.6 or newer."""
    pythons = (interpreter,) if interpreter else _PYTHONS
    test = f'if "$p" -c {shlex.quote(_VERSION_TEST)} </dev/null >/dev/null 2>&1'
    loop = f'for p in {" ".join(map(shlex.quote, pythons))}; do {test}; then exec "$p" -I -c {shlex.quote(_BOOT)}; fi; done; '
    return loop + 'echo "no Python 3.6 or newer was found" >&2; exit 127'


class Carrier:
    """A host, as an Ansible action plugin reaches it."""

    def __init__(self, plugin: Any, variables: Mapping[str, Any]) -> None:
        self.plugin = plugin
        self.check = bool(plugin._task.check_mode)  # noqa: SLF001 - there is no public way
        interpreter = variables.get("ansible_python_interpreter")
        self._command = command(str(interpreter) if interpreter and not str(interpreter).startswith("auto") else None)
        self._environ: dict[str, Any] = {}
        plugin._compute_environment_string(self._environ)  # noqa: SLF001
        self.answer: Ask = self._answer

    def _answer(self, name: str, job: dict[str, Any]) -> dict[str, Any]:
        """Run a program on the host. Everything goes through standard input, since other users can see command lines."""
        environ = {name: str(value) for name, value in self._environ.items()}
        question = json.dumps({**job, "environ": environ, "program": payload_text(name)}).encode()
        result = self._run(question)
        answer = answer_of(result["stdout"])
        if answer is None:
            last = without_logins((result["stderr"] or result["stdout"]).strip()[-2000:]).splitlines()[-1:]
            raise WorldError(f"the host did not answer: {last[0][:300] if last else 'no output'}", code="host-answer")
        if "error" in answer:
            raise WorldError(without_logins(str(answer["error"]))[:1000], code="host-refused")
        return answer

    def _run(self, question: bytes) -> Mapping[str, Any]:
        """Run the job; over a connection without standard input, such as podman's, it reads a file in the task's folder."""
        plugin = self.plugin
        if plugin._connection.has_pipelining:  # noqa: SLF001
            result: Mapping[str, Any] = plugin._low_level_execute_command(self._command, in_data=question)  # noqa: SLF001
            return result
        folder = plugin._make_tmp_path()  # noqa: SLF001
        try:
            path = plugin._transfer_data(f"{folder}/question", question)  # noqa: SLF001
            plugin._fixup_perms2((folder, path), execute=False)  # noqa: SLF001
            result = plugin._low_level_execute_command(f"( {self._command} ) < {shlex.quote(path)}")  # noqa: SLF001
        finally:
            plugin._remove_tmp_path(folder, force=True)  # noqa: SLF001
        return result

    def send(self, bundle: str) -> str:
        """Copy a bundle to the host; returns its folder there."""
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
    """Result of a task; an error becomes a failure of the host."""
    try:
        return work(Carrier(plugin, variables), plugin._task.args)  # noqa: SLF001
    except CudnnResolveError as error:
        return {"failed": True, "msg": without_logins(error.message), "code": error.code, **({"hint": error.hint} if error.hint else {})}


def facts(carrier: Carrier, words: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of the host and of one environment on it."""
    detected = ask_in_rounds(carrier.answer, lambda host: detect(host, words.get("python")))
    return {"changed": False, "facts": encode(detected)}


def validate(carrier: Carrier, words: Mapping[str, Any]) -> dict[str, Any]:
    """Validation of an environment on the host."""
    from cudnn_resolve.operations.validate import explained
    from cudnn_resolve.report.document import encode_validation
    from cudnn_resolve.validation.run import ValidationOptions, validate, with_causes

    book = open_book()
    detected = ask_in_rounds(carrier.answer, lambda host: detect(host, words.get("python")))
    options = ValidationOptions(frameworks=tuple(words.get("frameworks") or ()), require_gpu=bool(words.get("require_gpu")))
    validation = ask_in_rounds(carrier.answer, lambda host: validate(host, detected, options, book), guess=False)
    validation = with_causes(validation, lambda text: explained(text, detected, book))
    result = {"changed": False, "validation": encode_validation(validation), "status": validation.status}
    if validation.status != "failed":
        return result
    failed = [check for check in validation.checks if check.status == "failed"]
    message = "; ".join(f"{check.id}: {check.observed or check.detail or 'failed'}" for check in failed[:3])
    return {**result, "failed": True, "msg": message}


def environment(carrier: Carrier, words: Mapping[str, Any]) -> dict[str, Any]:
    """Bring an environment to the state of a lock or of targets, or back to its previous state."""
    path = words.get("path")
    state = words.get("state", "present")
    if not path or not isinstance(path, str) or not path.startswith(("/", "~/")):
        raise InputError("path: name the environment by its full path", code="usage-path")
    if state == "previous":
        job = {"do": "undo", "path": path, "check": carrier.check, "replace": bool(words.get("replace"))}
        return _result(path, carrier.answer("execution/payload_exchange.py", job))
    from cudnn_resolve.operations.fleet_bundles import in_use

    with in_use():
        return _exchange(carrier, words, path)


def _exchange(carrier: Carrier, words: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Replace the environment by a new one, and put the old one back if the new one fails its validation."""
    program = "execution/payload_exchange.py"
    bundle = _bundle(carrier, words)
    job = {"path": path, "plan": _start_plan(bundle), "replace": bool(words.get("replace"))}
    current = carrier.answer(program, {**job, "do": "look"})
    if carrier.check or not current["changed"]:
        return _result(path, current)
    folder = None
    try:
        folder = carrier.send(bundle)
        put = {"do": "put", "bundle": folder, "python": words.get("python"), "fetch": words.get("fetch") == "host"}
        done = carrier.answer(program, {**job, **put})
        if not done["changed"]:  # another run has done it meanwhile
            return _result(path, done)
        failure = _validation_failure(carrier, path) if words.get("validate", True) else None
        carrier.answer(program, {"do": "settle", "path": path, "keep": failure is None, "run": done["run"]})
    finally:
        if folder is not None:
            carrier.plugin._remove_tmp_path(folder, force=True)  # noqa: SLF001
    if failure is not None:
        return {"failed": True, "changed": False, "reverted": True, "msg": f"put back, since validation failed: {failure}"}
    return _result(path, done)


def _validation_failure(carrier: Carrier, path: str) -> str | None:
    """Why the validation of a new environment failed; None if it passed."""
    try:
        result = validate(carrier, {"python": path})
    except CudnnResolveError as error:
        return error.message
    return str(result["msg"]) if result.get("failed") else None


def _result(path: str, done: Mapping[str, Any]) -> dict[str, Any]:
    """Result of a task on an environment, with its packages before and after for Ansible's diff mode."""
    changed = bool(done["changed"])
    lists = (sorted(done[name].items()) if changed else () for name in ("before", "after"))
    before, after = ("".join(f"{name}=={version}\n" for name, version in packages) for packages in lists)
    diff = {"before": before, "after": after, "before_header": path, "after_header": path}
    return {"changed": changed, "diff": diff, "path": path, "said": list(done.get("said", ()))}


def _start_plan(bundle: str) -> dict[str, Any]:
    """The plan for the start script of a bundle with one lock."""
    names = [name for name in disk.names_in(bundle) if name.startswith("pylock") and name.endswith(".json")]
    if len(names) != 1:
        raise InputError(f"{bundle} holds {len(names)} locks, expected one", code="bundle-lock")
    plan: dict[str, Any] = json.loads(disk.content(f"{bundle}/{names[0]}", 64 << 20) or b"{}")
    return plan


def _bundle(carrier: Carrier, words: Mapping[str, Any]) -> str:
    """The bundle on the controller: the named one, or one for the lock, or for the targets on this host."""
    from cudnn_resolve.operations.fleet_bundles import bundle_of, lock_for

    if words.get("bundle"):
        return str(words["bundle"])
    lock, targets = words.get("lock"), words.get("targets")
    if not lock and not targets:
        raise InputError("one of lock, targets and bundle is needed", code="usage-lock")
    detected = from_mapping(facts(carrier, {"python": words.get("python")})["facts"])
    if not lock:
        framework = tuple(map(str, targets if isinstance(targets, list) else [targets]))
        lock = lock_for(LockRequest(framework=framework, given=detected, output="-"))
    return bundle_of(str(lock), detected, whole=words.get("fetch") != "host")
