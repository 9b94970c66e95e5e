"""The words by which an `apply` can be done again stand in journals: no login may stand there with them."""

from cudnn_resolve.operations.options import ApplyRequest


def test_the_words_of_a_journal_hold_no_login() -> None:
    request = ApplyRequest(index_url="https://bob:s3cret@index.example/simple", extra_index_url=("https://token@other.example/simple",))

    assert request.command_words()[:2] == ("--index-url=https://index.example/simple", "--extra-index-url=https://other.example/simple")
