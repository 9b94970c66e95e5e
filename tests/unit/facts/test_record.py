"""RECORD, as installers write it and as strangers do."""

from __future__ import annotations

from cudnn_resolve.facts.record import record_rows


def test_rows() -> None:
    text = 'nvidia/cudnn/lib/libcudnn.so.9,sha256=PmNd,104664\n"a,b",sha256=x,3\nx-1.dist-info/RECORD,,\nodd\n\nn,sha256=x,-4\n'

    assert list(record_rows(text)) == [
        ("nvidia/cudnn/lib/libcudnn.so.9", "sha256=PmNd", 104664),
        ("a,b", "sha256=x", 3),
        ("x-1.dist-info/RECORD", "", None),
        ("odd", "", None),
        ("n", "sha256=x", None),
    ]


def test_what_cannot_be_read_ends_the_list() -> None:
    assert [path for path, _, _ in record_rows(f"a,,1\nb,,{'9' * 400}\n{'c' * 200_000},,\nd,,\n")] == ["a", "b"]
