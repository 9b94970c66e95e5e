"""Remove secrets, user names and machine-specific paths from text that is posted in public."""

from __future__ import annotations

import re

from cudnn_resolve.masking import without_logins

_RULES = (
    (r"(?i)\b(authorization:? *(?:bearer|basic|token)|bearer) +[\w.+/=~-]{6,400}", r"\1 <secret>"),
    (
        (
            r"\b(?:hf_[A-Za-z0-9]{10,80}|gh[pousr]_[A-Za-z0-9]{10,80}|github_pat_\w{10,100}|sk-[\w-]{10,120}|xox[abprs]-[\w-]{8,100}"
            r"|AKIA[0-9A-Z]{12,20}|AIza[\w-]{20,60}|glpat-[\w-]{10,60}|pypi-[\w-]{16,300}|wandb_v\w{10,80}|eyJ[\w-]{10,400}\.[\w-]{5,800}\.[\w-]{5,400})"
        ),
        "<secret>",
    ),
    (
        (
            r"(?i)\b([\w-]{0,40}(?:password|passwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key)(?:[_-][\w-]{0,20}|s)?[\"']?\s{0,3}[=:]\s{0,3}[\"']?)"
            r"[^\s\"',;&]{3,200}"
        ),
        r"\1<secret>",
    ),
    (r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}\b", "<address>"),
    (r"(/(?:home|Users|users|export/home)/)[^/\s:\"']{1,64}", "~"),
    (r"(?i)\b([a-z]:[\\/]{1,2}users[\\/]{1,2})[^\\/\s:\"']{1,64}", r"\1<user>"),
    (
        r"(?<![\w.=-])(?:10|127|172|192|169)\.\d{1,3}\.\d{1,3}\.\d{1,3}(?![\w.])|(?<=[/@\s])\d{1,3}(?:\.\d{1,3}){3}(?=:\d)",
        "<host>",
    ),
    (r"^[\w.-]{1,32}@[\w.-]{1,64}(?=[:\s])", "<user>@<host>"),
    (r"(?i)\bhostname=[\w.-]{1,80}", "hostname=<host>"),
    (r"(?i)(UUID: )?GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "GPU-<uuid>"),
)
"""Patterns and their replacements, applied in order."""


def redact(text: str) -> str:
    """Replace secrets, addresses, user names and home directories with placeholders."""
    text = without_logins(text, "<secret>@")
    for pattern, replacement in _RULES:
        text = re.sub(pattern, replacement, text)
    return text
