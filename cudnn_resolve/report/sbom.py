"""The packages of a lock as a CycloneDX document, made by its library (the extra `sbom`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudnn_resolve.errors import WorldError
from cudnn_resolve.locking.model import files_of, version_of

if TYPE_CHECKING:
    from cudnn_resolve.locking.model import Lock


def render(lock: Lock) -> str:
    """The document as JSON; WorldError where the library is not installed."""
    try:
        from cyclonedx.model import HashAlgorithm, HashType
        from cyclonedx.model.bom import Bom
        from cyclonedx.model.component import Component
        from cyclonedx.output.json import JsonV1Dot5
        from packageurl import PackageURL
    except ImportError:
        hint = "`pip install cudnn-resolve[sbom]`"
        raise WorldError("--sbom needs cyclonedx-python-lib, which is not installed", code="no-cyclonedx", hint=hint) from None
    components = []
    for package in lock.packages:
        digests = sorted({one.hashes["sha256"] for one in files_of(package) if "sha256" in one.hashes})
        purl = PackageURL(type="pypi", name=package.name, version=version_of(package))
        hashes = [HashType(alg=HashAlgorithm.SHA_256, content=one) for one in digests]
        components.append(Component(name=package.name, version=version_of(package), purl=purl, bom_ref=str(purl), hashes=hashes))
    return str(JsonV1Dot5(Bom(components=components)).output_as_string(indent=1)) + "\n"
