"""`cms doctor --providers` reads the metadata of each provider of SAML."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cms.cli.provider_findings import provider_findings
from cms.cli.structure_findings import OK, WRONG
from cms.config import Config

pytestmark = [pytest.mark.release, pytest.mark.slow]


def test_a_provider_that_works_is_shown_with_the_address_of_the_services_metadata(
    stage_settings: Config,
) -> None:
    findings = list(provider_findings(stage_settings))
    assert [finding.level for finding in findings] == [OK, OK]
    assert findings[0].text.endswith(f"{stage_settings.public_url}/auth/login/campus/metadata")


def test_metadata_that_cannot_be_read_are_named_and_others_are_looked_at_all_the_same(
    stage_settings: Config,
) -> None:
    campus, plain = stage_settings.providers
    broken = replace(stage_settings, providers=(replace(campus, idp_metadata="<x/>"), plain))
    findings = list(provider_findings(broken))
    assert [finding.level for finding in findings] == [WRONG, OK]
    assert "AUTH_CAMPUS_IDP_METADATA" in findings[0].text
