"""Random changes for the fuzzer: domain words, odd characters, and a generator that is reproducible from its seed."""

from __future__ import annotations

import random
import string
from typing import Any

from cudnn_resolve.host.tables import open_book

BOOK = open_book()
SAMPLES: list[str] = [str(sample) for symptom in BOOK.symptoms() for sample in symptom.sample]
INJECTED = "fuzz-injected"
"""A word that no command may execute, write to or take for an option."""
ODD: tuple[str, ...] = (
    "\0",
    "\x1b[31m",
    "\x1b]0;x\x07",
    "\r\n",
    "\u2028",
    "\ud800",
    "\udc80",
    "é",
    "中",
    "🙂",
    "{{",
    "%s",
    "$(id)",
    *(f"{mark}{INJECTED}" for mark in (";", "&&", "|", ">", " -", "$(", "`")),
    *"{}%$`'\"\\|;#[]<>=!~@,/ \n\t\r",
)
WORDS: tuple[str, ...] = (
    *ODD,
    *(
        "libcudnn.so.8",
        "8904",
        "(9, 1, 0)",
        "sm_120",
        "9" * 20,
        "9" * 400,
        "-1",
        "0x",
        "1e999",
        "..",
        "nan",
        "a" * 5000,
        "../" * 40 + "etc/passwd",
    ),
    *(
        "1.0",
        "2.6.0+cu124",
        "2.0.dev0",
        "1!2.0",
        ">=1,<2",
        "==1.*",
        "===x",
        "~=2.2",
        "cp311",
        "py3-none-any",
        "linux_x86_64",
        "manylinux_2_99_x86_64",
    ),
    *(
        "torch",
        "jax[cuda12]",
        "nvidia-cudnn-cu12",
        "https://user:secret@host.example/x-1.0-py3-none-any.whl",
        "file:///dev/zero",
        "git+https://x",
    ),
    *("python_version < '3.9'", "extra == 'x'", "platform_machine == 'x86_64' and " * 60 + "'1' == '1'", "2024-01-01", "0" * 64),
)


class Chance(random.Random):
    """Random source of changes, reproducible from its seed."""

    def text(self) -> str:
        """Return a domain word, an odd character, a sample message, or random characters."""
        kind = self.random()
        if kind < 0.6:
            return self.choice(WORDS)
        return self.choice(SAMPLES) if kind < 0.75 else "".join(self.choices(string.printable, k=self.randrange(60)))

    def mangled(self, text: str) -> str:
        """Return the text with a part cut, repeated, replaced or inflated."""
        at, end = sorted((self.randrange(len(text) + 1), self.randrange(len(text) + 1)))
        how = self.randrange(6)
        if how == 0:
            text = text[:at] + text[end:]
        elif how == 1:
            text = text[:at] + text[at:end] * self.choice((2, 3, 200)) + text[end:]
        elif how == 2:
            text = text[:at] + self.text() + text[end:]
        elif how == 3:
            text = "".join(self.choice("0123456789") if char.isdigit() else char for char in text)
        elif how == 4:
            text = text[:at] + self.choice(ODD) * self.choice((1, 50)) + text[at:]
        else:
            text = self.text()
        return text[:60_000]

    def changed(self, tree: Any) -> Any:
        """Remove, repeat, move or replace one to three values of the tree, at any depth."""
        for _ in range(self.choice((1, 1, 1, 1, 2, 3))):
            self._change(tree)
        return tree

    def _change(self, tree: Any) -> None:
        while True:
            keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
            if not keys:
                return
            key = self.choice(keys)
            if isinstance(tree[key], dict | list) and self.random() < 0.85:
                tree = tree[key]
                continue
            break
        how = self.random()
        if how < 0.12:
            del tree[key]
        elif how < 0.2 and isinstance(tree, list):
            tree.extend([tree[key]] * self.choice((1, 2, 300)))
        elif how < 0.28:
            tree[key] = tree[self.choice(keys)]
        elif how < 0.32 and isinstance(tree, dict):
            tree[self.text()] = tree.pop(key)
        elif how < 0.75 and isinstance(tree[key], str):
            tree[key] = self.mangled(tree[key])[:3000]
        elif how < 0.85 and isinstance(tree[key], int | float):
            tree[key] = self.choice((0, -1, 1, 10**6, 2**31, 2**63, 10**20, 0.5, not tree[key]))
        else:
            tree[key] = self.choice([None, True, -1, 10**20, 1.5, "", [], {}, [[]], {"a": []}, self.text()])
