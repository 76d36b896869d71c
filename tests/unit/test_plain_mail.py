"""The plain text of an HTML mail."""

from __future__ import annotations

import pytest

from cms.mail.plain import plain


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>One</p><p>Two</p>", "One\n\nTwo\n"),
        ("One<br>Two", "One\nTwo\n"),
        ("<p>a\n  b</p>", "a b\n"),
        ("<p>Fish &amp; chips &lt;3</p>", "Fish & chips <3\n"),
        (
            '<a href="https://example.com/a?b=c">Reset</a> it',
            "Reset (https://example.com/a?b=c) it\n",
        ),
        ("<a>No address</a>", "No address\n"),
        ("</a>Left over", "Left over\n"),
        ("<title>T</title><style>p {}</style><script>x()</script>Seen", "Seen\n"),
        ("</script>Seen<style>p {}</style>", "Seen\n"),
        ("<div><div><div>Deep</div></div></div>Below", "Deep\n\nBelow\n"),
    ],
)
def test_the_plain_text_is_what_a_reader_would_see(html: str, text: str) -> None:
    assert plain(html) == text
