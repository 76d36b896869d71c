"""`cms doctor --providers` asks each provider and prints what is wrong with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from cms.cli import cms
from cms.cli.provider_findings import provider_findings, role_findings
from cms.cli.structure_findings import OK, WRONG
from cms.config import Config, load
from tests.sso.ldap.conftest import EDITORS
from tests.things import Stage

pytestmark = [pytest.mark.release, pytest.mark.slow]


def test_each_provider_is_asked(stage_settings: Config) -> None:
    findings = {
        finding.text.split()[1].rstrip(":"): finding
        for finding in provider_findings(stage_settings)
    }
    levels = {name: finding.level for name, finding in findings.items()}
    assert levels == {"ldap": OK, "tls": OK, "closed": OK, "strange": WRONG, "down": WRONG}
    assert "certificate" in findings["strange"].text
    assert "refused" in findings["down"].text


def test_a_provider_with_a_page_is_shown_with_the_address_it_needs(tmp_path: Path) -> None:
    variables = {"AUTH_PROVIDERS": "kc", "AUTH_KC_DRIVER": "openid", "AUTH_KC_CLIENT_ID": "cms"}
    variables |= {"AUTH_KC_CLIENT_SECRET": "secret", "SECRET": "only-for-tests-" * 3}
    variables["AUTH_KC_ISSUER_URL"] = "http://127.0.0.1:1/.well-known/openid-configuration"
    (finding,) = provider_findings(load(variables, folder=tmp_path))
    assert (finding.level, finding.text) == (WRONG, "provider kc: it cannot be reached")


def test_roles_that_do_not_exist_are_named(stage: Stage, stage_settings: Config) -> None:
    missing = "6f9619ff-8b86-4d01-b42d-00cf4fc96400"
    ldap = next(provider for provider in stage_settings.providers if provider.name == "ldap")
    config = replace(
        stage_settings,
        providers=(replace(ldap, default_role_id=EDITORS, role_mapping={"staff": missing}),),
    )
    (finding,) = role_findings(config, stage.dsn)
    assert finding.level == WRONG
    assert finding.text == f"AUTH_LDAP_ROLE_MAPPING: there is no role {missing}"


def test_the_command_asks_providers_only_with_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    assert "AUTH_PROVIDERS names none" in runner.invoke(cms, ["doctor", "--providers"]).output
    assert "providers" not in runner.invoke(cms, ["doctor"]).output
