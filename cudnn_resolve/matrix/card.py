"""Which card a name means: `T4`, `Tesla T4`, `NVIDIA GeForce RTX 4090 Laptop GPU`, `NVIDIA A100-SXM4-40GB`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from cudnn_resolve.matrix.row import Card

_NOISE = re.compile(
    r"nvidia|corporation|gpu|graphics|generation|laptop|mobile|max|q|with|design|sxm\d?|pcie|hbm\d?e?|nvl|mig|gb"
    r"|\d+gb|\d+gib|\d+g|vgpu|grid|edition"
)
_SERIES = frozenset(("tesla", "geforce", "quadro", "gtx", "rtx", "jetson"))


def find(cards: Sequence[Card], name: str) -> Card | None:
    """The card that `name` means; None where the table knows none, or where it could mean cards of different capabilities.

    Tried in this order: the name or an alias, letter case apart; the same words without vendor words, memory sizes and form
    factors; the same without the series (`4090`); a card all of whose words are among those of the name, the one with most words.
    """
    folded = " ".join(name.casefold().split())
    if folded.endswith("..."):  # cut off by nvidia-smi: any card whose name begins so is meant
        beginning = folded.removesuffix("...")
        return _agreed(card for card in cards if any(one.casefold().startswith(beginning) for one in (card.name, *card.alias)))
    for card in cards:
        if any(folded == " ".join(known.casefold().split()) for known in (card.name, *card.alias)):
            return card
    words = _words(name)
    if not words:
        return None
    known = [(card, _words(each)) for card in cards for each in (card.name, *card.alias)]
    bare = words - _SERIES
    for wanted, trimmed in ((words, frozenset[str]()), (bare, _SERIES)):
        found = [card for card, have in known if wanted and have - trimmed == wanted and _compatible(have, words)]
        if found:
            return _agreed(found)
    parts = [(card, have - _SERIES) for card, have in known if have - _SERIES and have - _SERIES <= bare and _compatible(have, words)]
    most = max((len(have) for _, have in parts), default=0)
    return _agreed([card for card, have in parts if len(have) == most])


def nearest(cards: Sequence[Card], word: str) -> tuple[str, ...]:
    """Names of the cards that look most like `word`, at most five."""
    from difflib import get_close_matches

    names = {" ".join(sorted(_words(card.name) - _SERIES)): card.name for card in reversed(cards)}
    wanted = " ".join(sorted(_words(word[:80]) - _SERIES))
    return tuple(names[one] for one in get_close_matches(wanted, list(names), n=5, cutoff=0.5))


@lru_cache(4096)
def _words(name: str) -> frozenset[str]:
    apart = re.sub(r"(rtx|gtx|quadro|tesla|geforce|titan)(?=[a-z\d])", r"\1 ", name.casefold())
    return frozenset(word for word in re.findall(r"[a-z]+\d*[a-z]*|\d+[a-z]*", apart) if not _NOISE.fullmatch(word))


def _compatible(have: frozenset[str], words: frozenset[str]) -> bool:
    """False where the name says a series and the card is of another one: a Quadro P4000 is no GeForce."""
    ours, theirs = have & _SERIES, words & _SERIES
    return not ours or not theirs or bool(ours & theirs)


def _agreed(found: Iterable[Card]) -> Card | None:
    """The first card where all have one capability, else None."""
    cards = list(found)
    return cards[0] if cards and len({card.capability for card in cards}) == 1 else None
