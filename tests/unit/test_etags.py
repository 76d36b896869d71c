"""Entity tags compared with the headers of clients, without a request."""

from __future__ import annotations

import pytest

from cms.etags import etag_of, matches_etag, matches_version

BODY = b'{"data":{"id":1}}'
TAG = etag_of(BODY, "7")
WITHOUT_VERSION = etag_of(BODY)


def test_a_tag_changes_with_the_answer_and_with_the_version() -> None:
    others = etag_of(BODY, "8"), etag_of(b"{}", "7"), WITHOUT_VERSION
    assert len({TAG, *others}) == 4
    assert etag_of(BODY, "7") == TAG


@pytest.mark.parametrize("header", [TAG, f"W/{TAG}", f'"x", {TAG}', "*", " * "])
def test_a_header_that_names_the_tag_matches(header: str) -> None:
    assert matches_etag(header, TAG)


@pytest.mark.parametrize("header", ["", '"x"', TAG.strip('"'), etag_of(BODY, "8"), '"*"'])
def test_any_other_header_does_not(header: str) -> None:
    assert not matches_etag(header, TAG)


def test_a_version_matches_whichever_fields_were_read() -> None:
    other_fields = etag_of(b"{}", "7")
    assert matches_version(other_fields, "7")
    assert matches_version(f'"x", W/{other_fields}', "7")
    assert matches_version("*", "7")
    assert matches_version("*", None)


@pytest.mark.parametrize("header", ["", WITHOUT_VERSION, etag_of(BODY, "8"), '"-"', '"x"'])
def test_what_names_no_version_matches_none(header: str) -> None:
    assert not matches_version(header, "7")
    assert not matches_version(header, None)
