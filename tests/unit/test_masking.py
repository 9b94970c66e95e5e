"""Nothing of a name or a password is left in an address that is shown."""

from __future__ import annotations

import pytest

from cudnn_resolve.masking import redacted, without_logins


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:p@w@h/x", "https://h/x"),
        ("git+https://me@h/x@v1", "git+https://h/x@v1"),
        ("//me:pw@h/x", "//h/x"),
        ("https://h/a@b", "https://h/a@b"),
        ("file:///data//me@work/x.whl", "file:///data//me@work/x.whl"),
        ("https://me:a b@h/x", "https://h/x"),
        ("https://me:pw@h/x#sha256=0", "https://h/x"),
    ],
)
def test_an_address_is_shown_without_a_login(text: str, shown: str) -> None:
    assert redacted(text) == shown


def test_every_address_in_a_text_is_shown_without_a_login() -> None:
    text = 'demo @ https://me:p@w@h/x, "https://h","a@b.c", path//me@x, -i https://t@h/simple'

    assert without_logins(text) == 'demo @ https://h/x, "https://h","a@b.c", path//me@x, -i https://h/simple'
    assert without_logins("to https://me@h/", "<secret>@") == "to https://<secret>@h/"
