"""`why`: the chain of reasons behind one pin of a plan or a lock, or behind its absence."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from cudnn_resolve.errors import UsageError, did_you_mean
from cudnn_resolve.listener import Listener
from cudnn_resolve.operations.options import WhyRequest
from cudnn_resolve.operations.plan import PlanResult, plan_targets, ranges_of
from cudnn_resolve.operations.question import Question
from cudnn_resolve.operations.results import Result, recast
from cudnn_resolve.resolution.chain import Chain, chain
from cudnn_resolve.resolution.model import Conflict, Range, Resolution


class WhyResult(Struct, Result, frozen=True, kw_only=True):
    """Result of `why`: the chain behind a pin, and the plan that contains it."""

    plan: PlanResult
    chain: Chain | None = None
    """None without a plan."""
    ranges: tuple[Range, ...] = ()
    """Versions that each party allows, if requested: for a package those of driver, Python, CUDA and cuDNN, for one of these its own."""

    def to_json(self) -> dict[str, Any]:
        """JSON object printed by `why --format json`."""
        from cudnn_resolve.report.document import WhyDocument, document

        if self.chain is None:
            return self.plan.to_json()
        return document(WhyDocument, self.chain, overlays=self.overlays, ranges=self.ranges)

    @property
    def overlays(self) -> tuple[str, ...]:
        """Remarks on tables that override the shipped ones."""
        return tuple(warning.message for warning in self.plan.warnings if warning.code == "overlay")


def why(request: WhyRequest, listener: Listener) -> WhyResult:
    """Chain of reasons behind a package, and the plan; without a chain if there is a conflict.

    UsageError for a package that the plan, the tables and the indexes do not know.
    """
    if request.lock is None:
        answer = plan_targets(request, listener)
    else:
        from cudnn_resolve.operations.lock import plan_behind_lock

        answer = plan_behind_lock(request.lock, request, listener)
    plan, question, outcome = recast(PlanResult, answer.plan), answer.question, answer.outcome
    all_ranges = ranges_of(question, outcome)
    ranges = tuple(row for row in all_ranges if row.name.casefold() == request.package.casefold()) or all_ranges
    if isinstance(outcome, Conflict):
        return WhyResult(plan=replace(plan, ranges=all_ranges), ranges=ranges)
    reasons = chain(outcome, request.package, question.book)
    if reasons.chosen is None and not _is_known(request.package, outcome, question):
        raise _unknown(request.package, outcome, question)
    return WhyResult(plan=plan, chain=reasons, ranges=ranges)


_PARTS = ("cuda", "cudnn", "driver", "python")
"""Parts of the stack with a version that are not packages."""


def _is_known(word: str, resolution: Resolution, question: Question) -> bool:
    """True if the tables, the environment or an index know the package."""
    name, book = canonicalize_name(word), question.book
    if name in _PARTS or name in resolution.machine.pip:
        return True
    if book.is_harvested(name) or any(known(name) is not None for known in (book.framework_named, book.component, book.slot)):
        return True
    listing = question.source.listing(name)
    return listing is not None and any(True for _ in listing.offers)


def _unknown(word: str, resolution: Resolution, question: Question) -> UsageError:
    from difflib import get_close_matches

    known = [*(pin.name for pin in resolution.pip), *question.book.frameworks(), *_PARTS]
    near = get_close_matches(word.lower(), known, n=2, cutoff=0.7)
    where = "the plan, the tables and the cache" if question.source.offline else "the plan, the tables and the indexes"
    hint = did_you_mean(near) or "`cudnn-resolve plan -v` lists the packages of the plan"
    return UsageError(f"{where} know no package {word!r}", code="unknown-package", hint=hint)
