"""nvidia-smi, asked last because it is slow and because everything it says comes from NVML."""

from __future__ import annotations

from msgspec import Struct

from cudnn_resolve.facts.model import Gpu
from cudnn_resolve.facts.nvidia_smi import OLD_QUERY_FIELDS, QUERY_FIELDS, Banner, SmiGpu, parse_banner, parse_query
from cudnn_resolve.host.port import CommandResult, Host, which

TIMEOUT_SECONDS = 15.0

SMI_PLACES = ("nvidia-smi", "/opt/bin/nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi", "/usr/local/nvidia/bin/nvidia-smi")
"""Where it is: on PATH, in Colab, in WSL, in Kubernetes."""


class Smi(Struct, frozen=True, kw_only=True):
    """What nvidia-smi said."""

    path: str | None
    """None = it is not there."""
    banner: Banner
    gpus: tuple[Gpu, ...] | None = None
    """None = it did not say."""
    driver: str | None = None
    failure: str = ""
    """Why it said nothing, in its own last words."""


def ask_smi(host: Host) -> Smi:
    """The answer of nvidia-smi, queried for the GPUs and asked for its banner."""
    path = next((found for place in SMI_PLACES if (found := which(host, place))), None)
    if path is None:
        return Smi(path=None, banner=parse_banner(""))
    plain = host.run([path], timeout_seconds=TIMEOUT_SECONDS)
    if not plain.ok:
        return Smi(path=path, banner=parse_banner(plain.stdout), failure=_last_words(plain))
    rows = _query(host, path, QUERY_FIELDS) or _query(host, path, OLD_QUERY_FIELDS)
    gpus = None if rows is None else tuple(_gpu(row) for row in rows)
    driver = next((row.driver for row in rows or () if row.driver), None)
    return Smi(path=path, banner=parse_banner(plain.stdout), gpus=gpus, driver=driver)


def _query(host: Host, path: str, fields: tuple[str, ...]) -> tuple[SmiGpu, ...] | None:
    argv = [path, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    result = host.run(argv, timeout_seconds=TIMEOUT_SECONDS)
    return parse_query(result.stdout, fields) if result.ok else None


def _gpu(row: SmiGpu) -> Gpu:
    return Gpu(name=row.name, compute_capability=row.capability, memory_mib=row.memory_mib, uuid=row.uuid)


def _last_words(result: CommandResult) -> str:
    """The end of what it printed, which is where it says why it failed; it uses standard output for that."""
    if result.returncode is None:
        return result.why()
    words = (result.stdout.strip() or result.stderr.strip()).splitlines()
    return words[0][:200] if words else result.why()
