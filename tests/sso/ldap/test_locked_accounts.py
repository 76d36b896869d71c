"""Accounts that a directory calls disabled, though it takes their password (docs/sso.md)."""

from __future__ import annotations

import pytest

from cms.config import Config
from tests.people import outcome
from tests.sso.ldap.directory import LOCKED, NOT_LOCKED
from tests.sso.ldap.logins import REFUSED, authenticate, log_in, provider_of
from tests.things import Stage

pytestmark = [pytest.mark.release, pytest.mark.slow]


@pytest.mark.parametrize("name", LOCKED)
def test_a_disabled_account_is_refused_like_a_wrong_password(stage: Stage, name: str) -> None:
    disabled = log_in(stage, name)
    wrong = log_in(stage, name, "wrong")
    assert outcome(disabled) == REFUSED
    assert disabled.text == wrong.text


@pytest.mark.parametrize("name", NOT_LOCKED)
def test_an_account_that_the_same_attributes_call_enabled_logs_in(stage: Stage, name: str) -> None:
    assert log_in(stage, name).status == 200


def test_of_a_disabled_account_the_service_learns_the_name_and_nothing_else(
    stage_settings: Config,
) -> None:
    """The name is what a failure is counted for."""
    answer = authenticate(provider_of(stage_settings), "locked")
    assert answer.dn
    assert answer.profile is None
