"""`why`: the chain of reasons behind one pin of a plan or of a lock, or behind its absence."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from cudnn_resolve.errors import UsageError
from cudnn_resolve.operations.gather import Question
from cudnn_resolve.operations.listener import SILENT, Listener
from cudnn_resolve.operations.options import WhyRequest
from cudnn_resolve.operations.plan import PlanResult, answered, ranges_of
from cudnn_resolve.operations.results import Result, recast
from cudnn_resolve.resolution.chain import Chain, chain
from cudnn_resolve.resolution.model import Conflict, Range, Resolution


class WhyResult(Struct, Result, frozen=True, kw_only=True):
    """What `why` returns: the chain behind a pin, and the plan that has it."""

    plan: PlanResult
    chain: Chain | None = None
    """None where there is no plan."""
    ranges: tuple[Range, ...] = ()
    """The versions that each party allows, where they were asked for: of the thing itself, or of all where it is a package."""

    def to_json(self) -> dict[str, Any]:
        """The object that `why --format json` prints."""
        from cudnn_resolve.report.document import WhyDocument, document

        if self.chain is None:
            return self.plan.to_json()
        return document(WhyDocument, self.chain, overlays=self.overlays, ranges=self.ranges)

    @property
    def overlays(self) -> tuple[str, ...]:
        """Tables that lie over the shipped ones, in words."""
        return tuple(one.message for one in self.plan.warnings if one.code == "overlay")


def why(request: WhyRequest, listener: Listener = SILENT) -> WhyResult:
    """The chain of reasons behind a package, and the plan; no chain where that is a conflict.

    UsageError for a package that neither the plan nor the tables nor an index know.
    """
    if request.lock is None:
        answer = answered(request, listener)
    else:
        from cudnn_resolve.operations.lock import plan_behind

        answer = plan_behind(request.lock, request, listener)
    found, question, outcome = recast(PlanResult, answer.plan), answer.question, answer.outcome
    every = ranges_of(question, outcome) if request.ranges else ()
    ranges = tuple(one for one in every if one.name.casefold() == request.package.casefold()) or every
    if isinstance(outcome, Conflict):
        return WhyResult(plan=replace(found, ranges=every), ranges=ranges)
    reasons = chain(outcome, request.package, question.book)
    if reasons.chosen is None and not _is_known(request.package, outcome, question):
        raise _unknown(request.package, outcome, question)
    return WhyResult(plan=found, chain=reasons, ranges=ranges)


_PARTS = ("cuda", "cudnn", "driver", "python")
"""What has a version and is no package."""


def _is_known(word: str, resolution: Resolution, question: Question) -> bool:
    """True for a package that something is known of: by the tables, the environment or an index."""
    name, book = canonicalize_name(word), question.book
    if book.is_framework(name) or book.component(name) is not None or book.package(name) is not None or book.slot(name) is not None:
        return True
    if name in _PARTS or name in resolution.machine.pip:
        return True
    listing = question.source.listing(name)
    return listing is not None and any(True for _ in listing.offers)


def _unknown(word: str, resolution: Resolution, question: Question) -> UsageError:
    from difflib import get_close_matches

    known = [*(pin.name for pin in resolution.pip), *question.book.frameworks(), *_PARTS]
    near = get_close_matches(word.lower(), known, n=2, cutoff=0.7)
    where = "the plan, the tables and the cache know" if question.source.offline else "the plan, the tables and the indexes know"
    hint = f"did you mean {' or '.join(near)}?" if near else "`cudnn-resolve plan -v` lists the packages of the plan"
    return UsageError(f"{where} no package {word!r}", code="unknown-package", hint=hint)
