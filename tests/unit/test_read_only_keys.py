"""Members that only answers have, and settings that clients send."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cms.schema.meta_settings import (
    COLLECTION_META,
    COLLECTION_SCHEMA,
    COLUMN_SCHEMA,
    FIELD_META,
    READ_ONLY_KEYS,
    RELATION_META,
    RELATION_SCHEMA,
)

SETTINGS = (
    COLLECTION_META,
    COLLECTION_SCHEMA,
    FIELD_META,
    COLUMN_SCHEMA,
    RELATION_META,
    RELATION_SCHEMA,
)


@pytest.mark.parametrize("settings", SETTINGS)
def test_no_setting_has_the_name_of_a_member_that_only_answers_have(
    settings: Mapping[str, object],
) -> None:
    # Snapshots leave such members out of all records, whatever they are members of.
    assert not READ_ONLY_KEYS & settings.keys()
