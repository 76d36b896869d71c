"""The plain text of an HTML mail."""

from __future__ import annotations

from time import process_time

import pytest

from cms.mail.render import plain


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


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<a b='<a b='One", "<a b='<a b='One\n"),
        ("<![One", "<![One\n"),
        ("1 < 2", "1 < 2\n"),
        ("One<!-- <b>Two", "One\n"),
        ("<A HREF = x&amp;y >One</A>", "One (x&y)\n"),
        ("&#" + "9" * 5_000 + ";", "\ufffd" + "9" * 4_992 + ";\n"),
    ],
)
def test_what_is_no_markup_is_text(html: str, text: str) -> None:
    assert plain(html) == text


@pytest.mark.parametrize("piece", ["<a b='", "<!--", "<", "<![", "&#", "<a ", "</", "<?"])
def test_any_text_takes_linear_time(piece: str) -> None:
    started = process_time()
    plain(piece * 20_000)
    assert process_time() - started < 2
