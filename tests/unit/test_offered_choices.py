"""What commands, settings and the description offer is what has code, no more and no less."""

from __future__ import annotations

from typing import Any

import click

from cms.cli import cms
from cms.client_types import LANGUAGES
from cms.config.settings import SETTINGS
from cms.import_formats import (
    IMPORT_FORMAT_BY_MEDIA_TYPE,
    IMPORT_FORMAT_BY_SUFFIX,
    IMPORT_FORMATS,
    media_type_of,
)
from cms.items.transfer.formats import FORMATS
from cms.items.transfer.sources import SOURCES
from cms.logs import LEVELS
from cms.openapi.query_parameters import PARAMETERS


def choices_of_command(name: str) -> list[str]:
    """Return what the option --format of a command takes."""
    (option,) = [each for each in cms.commands[name].params if each.name == "file_format"]
    assert isinstance(option.type, click.Choice)
    return list(option.type.choices)


def test_every_format_of_an_import_is_read() -> None:
    assert tuple(SOURCES) == IMPORT_FORMATS
    assert set(IMPORT_FORMAT_BY_SUFFIX.values()) == set(IMPORT_FORMATS)
    assert choices_of_command("import") == list(SOURCES)


def test_every_format_of_an_export_is_offered() -> None:
    assert choices_of_command("export") == list(FORMATS)


def test_every_language_of_types_is_offered() -> None:
    (option,) = [each for each in cms.commands["types"].params if each.name == "language"]
    assert isinstance(option.type, click.Choice)
    assert list(option.type.choices) == list(LANGUAGES)
    schema: Any = PARAMETERS["language"]["schema"]
    assert set(schema["enum"]) == set(LANGUAGES)


def test_the_media_type_of_a_format_names_the_format() -> None:
    for name in IMPORT_FORMATS:
        assert IMPORT_FORMAT_BY_MEDIA_TYPE[media_type_of(name)] == name


def test_every_level_of_the_log_is_offered() -> None:
    (setting,) = [each for each in SETTINGS if each.name == "LOG_LEVEL"]
    assert setting.kind.takes == f"one of {', '.join(LEVELS)}"
