"""Lookup of a card by name: `T4`, `Tesla T4`, `NVIDIA GeForce RTX 4090 Laptop GPU`, `NVIDIA A100-SXM4-40GB`."""

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
    """Return the card that a name means; None if it is unknown, or could mean cards of different capabilities.

    Tried in this order: the name or an alias, ignoring case; the same words without vendor words, memory sizes and form factors;
    the same without the series (`4090`); the card with the most words, all of which are in the name.
    """
    folded = " ".join(name.casefold().split())
    if folded.endswith("..."):  # truncated by nvidia-smi: matches any card whose name starts like this
        start = folded.removesuffix("...").removeprefix("nvidia ")
        known = ((card, name.casefold().removeprefix("nvidia ")) for card in cards for name in _names(card))
        return _unambiguous(card for card, name in known if name.startswith(start))
    for card in cards:
        if any(folded == " ".join(known.casefold().split()) for known in _names(card)):
            return card
    words = _words(name)
    if not words:
        return None
    bare = words - _SERIES
    known_words = [(card, _words(known)) for card in cards for known in _names(card)]
    compatible = [(card, card_words) for card, card_words in known_words if _same_series(card_words, words)]
    for wanted, ignored in ((words, frozenset[str]()), (bare, _SERIES)):
        found = [card for card, card_words in compatible if wanted and card_words - ignored == wanted]
        if found:
            return _unambiguous(found)
    contained = [(card, card_words - _SERIES) for card, card_words in compatible if card_words - _SERIES and card_words - _SERIES <= bare]
    most = max((len(card_words) for _, card_words in contained), default=0)
    return _unambiguous(card for card, card_words in contained if len(card_words) == most)


def nearest(cards: Sequence[Card], word: str) -> tuple[str, ...]:
    """Return the names of the cards most similar to `word`, at most five."""
    from difflib import get_close_matches

    names = {" ".join(sorted(_words(card.name) - _SERIES)): card.name for card in reversed(cards)}
    wanted = " ".join(sorted(_words(word[:80]) - _SERIES))
    return tuple(names[close] for close in get_close_matches(wanted, list(names), n=5, cutoff=0.5))


def _names(card: Card) -> tuple[str, ...]:
    return (card.name, *card.alias)


@lru_cache(4096)
def _words(name: str) -> frozenset[str]:
    spaced = re.sub(r"(rtx|gtx|quadro|tesla|geforce|titan)(?=[a-z\d])", r"\1 ", name.casefold())
    return frozenset(word for word in re.findall(r"[a-z]+\d*[a-z]*|\d+[a-z]*", spaced) if not _NOISE.fullmatch(word))


def _same_series(ours: frozenset[str], theirs: frozenset[str]) -> bool:
    """False if both name a series and share none: a Quadro P4000 is not a GeForce."""
    return not ours & _SERIES or not theirs & _SERIES or bool(ours & theirs & _SERIES)


def _unambiguous(found: Iterable[Card]) -> Card | None:
    """Return the first card if all have the same capability."""
    cards = list(found)
    return cards[0] if cards and len({card.capability for card in cards}) == 1 else None
