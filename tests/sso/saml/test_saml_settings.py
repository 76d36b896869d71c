"""Wrong settings of providers of SAML stop the start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from cms.app import create_app
from cms.config import Config, ConfigError, load

pytestmark = [pytest.mark.release, pytest.mark.slow]


def settings_problem(config: Config, **options: str) -> str:
    """Return the error of a start with a provider of these options."""
    campus = next(provider for provider in config.providers if provider.name == "campus")
    changed = replace(
        config,
        database_url="postgresql://nowhere",
        providers=(replace(campus, **cast(Any, options)),),
    )
    with pytest.raises(ConfigError) as raised:
        create_app(changed)
    return str(raised.value)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("idp_metadata", "<x/>"),
        ("idp_metadata", "no xml"),
        ("idp_metadata", '<!DOCTYPE r SYSTEM "http://127.0.0.1:1/x.dtd"><r/>'),
        ("sp_metadata", "<x"),
        ("sp_private_key", "no key"),
        ("sp_certificate", "no certificate"),
    ],
)
def test_a_wrong_setting_stops_the_start_by_its_name(
    stage_settings: Config, option: str, text: str
) -> None:
    assert f"AUTH_CAMPUS_{option.upper()} " in settings_problem(stage_settings, **{option: text})


def test_a_key_without_its_certificate_stops_the_start(tmp_path: Path) -> None:
    variables = {
        "AUTH_PROVIDERS": "campus",
        "AUTH_CAMPUS_DRIVER": "saml",
        "AUTH_CAMPUS_SP_PRIVATE_KEY": "-",
    }
    with pytest.raises(ConfigError) as raised:
        load(variables, folder=tmp_path)
    assert raised.value.problems == (
        "AUTH_CAMPUS_IDP_METADATA is needed by the driver saml.",
        "AUTH_CAMPUS_SP_PRIVATE_KEY and AUTH_CAMPUS_SP_CERTIFICATE go together: set both, or none.",
    )
