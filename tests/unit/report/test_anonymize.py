"""What is left out before a log is shown to strangers."""

from __future__ import annotations

import pytest

from cudnn_resolve.report.doctor import redact


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/marie/env/lib/x.so", "~/env/lib/x.so"),
        ("/Users/marie/env", "~/env"),
        (r"C:\Users\Marie\env\x.dll", r"C:\Users\<user>\env\x.dll"),
        ("HF_TOKEN=hf_abcdefghijklmnop", "HF_TOKEN=<secret>"),
        ("ghp_0123456789abcdefghij", "<secret>"),
        ("Authorization: Bearer abc.def.ghi", "Authorization: Bearer <secret>"),
        ("https://marie:pass@example.org/simple", "https://<secret>@example.org/simple"),
        ("https://marie:p@ss@example.org/simple", "https://<secret>@example.org/simple"),
        ("//marie:pass@example.org/simple", "//<secret>@example.org/simple"),
        ("mail marie@example.org", "mail <address>"),
        ("api_key: 'abcdef'", "api_key: '<secret>'"),
        ("marie@lab7: nvidia-smi", "<user>@<host>: nvidia-smi"),
        ("GPU-f15ae561-21b1-6003-c768-861fc285203b", "GPU-<uuid>"),
    ],
)
def test_secrets_and_names_are_left_out(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "libcudnn.so.9: cannot open shared object file",
        "nvidia-cudnn-cu12==9.1.0.70",
        "driver 535.104.05",
        "Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.3.0",
        "tokenizer: fast",
    ],
)
def test_what_tells_of_the_fault_stays(text: str) -> None:
    assert redact(text) == text
