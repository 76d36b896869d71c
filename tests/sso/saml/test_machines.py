"""Several machines with one database: an answer may come to any, and counts at one of them once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from cms.app import create_app
from cms.config import Config
from tests.client import Client
from tests.people import outcome
from tests.sso.saml.identity_provider import IdentityProvider
from tests.sso.saml.logins import BASE, REFUSED, Browser, Login, user, users_named
from tests.things import Stage

pytestmark = [pytest.mark.release, pytest.mark.slow]

MakeMachine = Callable[..., Stage]


@pytest.fixture
def make_machine(stage: Stage, stage_settings: Config) -> Iterator[MakeMachine]:
    """Make another application over the same database, with other settings."""
    clients = []

    def make(**changes: object) -> Stage:
        config = replace(stage_settings, database_url=stage.dsn, database_pool_size=3)
        clients.append(Client(create_app(replace(config, **changes))))  # type: ignore[arg-type]
        return replace(stage, anonymous=clients[-1])

    yield make
    for client in clients:
        client.close()


def test_an_answer_that_counted_on_one_machine_counts_on_no_other(
    stage: Stage, login: Login, make_machine: MakeMachine
) -> None:
    browser = Browser(stage)
    form = login.form(browser, user("hedy"))
    thief = Browser(make_machine())
    thief.cookies = browser.cookies.copy()
    assert browser.send_form(form).status == 200
    assert outcome(thief.post_form(form)) == REFUSED


def test_a_login_may_begin_and_end_on_different_machines(
    stage: Stage, login: Login, make_machine: MakeMachine
) -> None:
    first = Browser(stage)
    form = login.form(first, user("linda"))
    second = Browser(make_machine())
    location = second.post_form(form).headers["location"]
    third = Browser(make_machine())
    third.cookies = first.cookies
    callback = location.removeprefix(BASE.removesuffix("/auth/login/campus"))
    assert third.get(callback).status == 200
    # What the answer said is used up, wherever it is asked for again.
    first.cookies = third.cookies
    assert outcome(first.get(callback)) == REFUSED
    assert users_named(stage, "linda") == 1


def test_answers_count_as_attempts_to_log_in(
    stage: Stage, login: Login, make_machine: MakeMachine
) -> None:
    """That the provider sends them through the browser makes them no less those of a stranger."""
    limited = make_machine(
        rate_limiter_enabled=True, rate_limiter_logins_per_address=2, secret="limited" * 6
    )
    form = login.form(Browser(stage), user("limited"))
    browser = Browser(limited)
    assert [browser.post_form(form).status for _ in range(4)] == [303, 401, 429, 429]
    assert browser.post_form(form).codes == ["REQUESTS_EXCEEDED"]
    assert limited.anonymous.get("/auth/login/campus/metadata").status == 200


def test_the_name_of_the_service_is_that_of_its_own_metadata_where_they_are_set(
    provider: IdentityProvider, stage_settings: Config, make_machine: MakeMachine
) -> None:
    name = "urn:example:cms"
    metadata = (
        '<md:EntityDescriptor xmlns:md="urn:oasis:names:tc:SAML:2.0:metadata"'
        f' entityID="{name}"></md:EntityDescriptor>'
    )
    campus, *others = stage_settings.providers
    named = replace(campus, sp_metadata=metadata)
    machine = make_machine(providers=(named, *others))
    assert f'entityID="{name}"' in machine.anonymous.get("/auth/login/campus/metadata").text
    # The provider names the audience as the request names the service.
    login = Login(machine, provider)
    assert login(user("audrey")).status == 200
    assert outcome(login(user("audrey"), audience=f"{BASE}/metadata")) == REFUSED
