"""Names of files: whatever a client sends becomes one that any system can show and store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cms.files.file_names import (
    MAX_EXTENSION_LENGTH,
    MAX_NAME_LENGTH,
    clean_name,
    extension_on_disk,
    split_extension,
    title_of,
)


@pytest.mark.parametrize(
    ("sent", "cleaned"),
    [
        ("photo.jpg", "photo.jpg"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\ann\\photo.jpg", "photo.jpg"),
        ("a\r\nX-Header: b.txt", "aX-Header_ b.txt"),
        ("annex\u202egpj.exe", "annexgpj.exe"),
        ('what? "this" <here>|there*.md', "what_ _this_ _here__there_.md"),
        (".htaccess", "htaccess"),
        ("name. . ", "name"),
        ("gru\u0308n.png", "gr\u00fcn.png"),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645.txt",) * 2,
        ("\u0d9a\u0dca\u200d\u0dc2.txt",) * 2,
        ("\U0001f469\u200d\U0001f680 \U0001f3f3\ufe0f\u200d\U0001f308.png",) * 2,
        ("\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",) * 2,
        ("of later emoji \U0001fadf \U0001fae9.png",) * 2,
        ("\u2067a\u2069\u202ab\u202c\x85\u2028.txt", "ab.txt"),
        ("a\0\u0308.txt", "\u00e4.txt"),
        ("folder/", "file"),
        ("..", "file"),
        ("", "file"),
    ],
)
def test_a_name_is_its_last_part_with_the_letters_of_all_scripts(sent: str, cleaned: str) -> None:
    assert clean_name(sent) == cleaned


def test_a_long_name_keeps_its_extension() -> None:
    name = clean_name("n" * 300 + ".jpeg")
    assert name == "n" * (MAX_NAME_LENGTH - len(".jpeg")) + ".jpeg"


@given(st.text(max_size=400))
def test_no_name_leads_elsewhere_or_is_too_long(sent: str) -> None:
    name = clean_name(sent)
    assert 1 <= len(name) <= MAX_NAME_LENGTH
    assert not set(name) & set('/\\<>:"|?*\0\r\n')
    assert not name.startswith(".")


@pytest.mark.parametrize(
    ("name", "stem", "extension"),
    [
        ("a.tar.gz", "a.tar", ".gz"),
        ("none", "none", ""),
        (".hidden", ".hidden", ""),
        ("ends.", "ends.", ""),
        ("a." + "x" * MAX_EXTENSION_LENGTH, "a", "." + "x" * MAX_EXTENSION_LENGTH),
        ("a." + "x" * (MAX_EXTENSION_LENGTH + 1), "a." + "x" * (MAX_EXTENSION_LENGTH + 1), ""),
    ],
)
def test_an_extension_follows_the_last_dot(name: str, stem: str, extension: str) -> None:
    assert split_extension(name) == (stem, extension)


@pytest.mark.parametrize(
    ("name", "extension"),
    [("a.JPG", ".jpg"), ("a.b7", ".b7"), ("a", ".bin"), ("a.\u00e9", ".bin"), ("a.b c", ".bin")],
)
def test_content_is_stored_under_an_extension_of_ascii(name: str, extension: str) -> None:
    assert extension_on_disk(name) == extension


@pytest.mark.parametrize(
    ("name", "title"),
    [("my-photo_1.jpg", "My photo 1"), ("\u00e9t\u00e9.png", "\u00c9t\u00e9"), ("--", "--")],
)
def test_a_title_is_the_words_of_the_name(name: str, title: str) -> None:
    assert title_of(name) == title
