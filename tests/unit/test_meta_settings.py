"""Keys of the bodies of structure: what only answers have is not the name of a setting."""

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
    MetaSetting,
)


@pytest.mark.parametrize(
    "settings",
    [
        COLLECTION_META,
        COLLECTION_SCHEMA,
        FIELD_META,
        COLUMN_SCHEMA,
        RELATION_META,
        RELATION_SCHEMA,
    ],
)
def test_no_setting_has_the_name_of_a_key_that_has_no_effect(
    settings: Mapping[str, MetaSetting],
) -> None:
    assert not READ_ONLY_KEYS & settings.keys()
