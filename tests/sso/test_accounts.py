"""The users of providers: who gets an account, with which name and role."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from cms.database.statements import statement
from tests.active_flows import make_flow, step
from tests.client import ADMIN_EMAIL
from tests.sso.oidc import (
    BASIC_CLIENT,
    ES256_CLIENT,
    POST_CLIENT,
    PS256_CLIENT,
    RunningProvider,
)
from tests.sso.site import Browser, Site, codes_of
from tests.sso.steps import MAKES_USERS, the_user, with_accounts, with_openid
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.release]


# New users


def test_the_first_login_makes_a_user_and_the_next_one_finds_it(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    with_openid(site, provider)
    answer = site.log_in(browser, "openid", "alice")
    assert answer.status_code == 200, answer.text
    user = the_user(site)
    assert (user["provider"], user["external_identifier"]) == ("openid", "alice")
    assert (user["email"], user["first_name"], user["last_name"]) == (
        "alice@example.com",
        "Alice",
        "Liddell",
    )
    assert (user["role"], user["password"], user["status"]) == (None, None, "active")
    assert site.log_in(Browser(), "openid", "alice").status_code == 200
    assert the_user(site)["id"] == user["id"]


@pytest.mark.parametrize("client", [POST_CLIENT, BASIC_CLIENT, ES256_CLIENT, PS256_CLIENT])
def test_clients_of_every_kind_log_in(
    site: Site, provider: RunningProvider, browser: Browser, client: str
) -> None:
    with_openid(site, provider, client=client)
    answer = site.log_in(browser, "openid", "alice")
    assert answer.status_code == 200, answer.text


def test_without_registration_nobody_gets_an_account(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    with_openid(site, provider, allow_public_registration="false")
    answer = site.log_in(browser, "openid", "alice")
    assert (answer.status_code, codes_of(answer)) == (401, ["INVALID_CREDENTIALS"])
    assert site.users() == []


def test_without_registration_a_user_made_by_an_administrator_logs_in(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    with_openid(site, provider, allow_public_registration="false")
    user = {"email": "a@example.com", "provider": "openid", "external_identifier": "alice"}
    made = site.admin.post("/users", user).data
    assert site.log_in(browser, "openid", "alice").status_code == 200
    assert the_user(site)["id"] == made["id"]


def test_only_verified_addresses_make_users_where_the_settings_require_it(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    with_openid(site, provider, require_verified_email="true")
    assert codes_of(site.log_in(browser, "openid", "bob")) == ["INVALID_CREDENTIALS"]
    assert site.users() == []
    assert site.log_in(Browser(), "openid", "alice").status_code == 200


def test_parallel_first_logins_make_one_user(site: Site, provider: RunningProvider) -> None:
    with_openid(site, provider)
    browsers = [Browser() for _ in range(4)]
    urls = [site.answer_url(browser, "openid", "alice") for browser in browsers]
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda browser, url: browser.get(url), browsers, urls))
    assert [answer.status_code for answer in answers] == [200] * 4, [a.text for a in answers]
    assert the_user(site)["external_identifier"] == "alice"


def test_a_user_without_an_address_gets_an_account(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    with_openid(site, provider)
    with_accounts(provider, carol={"given_name": "Carol"}, dave={"email": "no address"})
    for name in ("carol", "dave"):
        assert site.log_in(Browser(), "openid", name).status_code == 200
    assert [user["email"] for user in site.users()] == [None, None]


@pytest.mark.parametrize(
    ("account", "code"), [("alice", "INVALID_PROVIDER"), ("bob", "INVALID_CREDENTIALS")]
)
def test_an_account_with_the_same_address_is_never_taken_over(
    site: Site, provider: RunningProvider, browser: Browser, account: str, code: str
) -> None:
    """Only who has proven to own the address learns that there is an account."""
    with_openid(site, provider)
    local = site.admin.post("/users", {"email": f"{account}@example.com", "password": "x" * 20})
    before = site.admin.get(f"/users/{local.data['id']}").data
    answer = site.log_in(browser, "openid", account)
    assert codes_of(answer) == [code]
    assert site.users() == []
    assert site.admin.get(f"/users/{local.data['id']}").data == before
    assert browser.cookie("cms_session_token") is None


def test_an_account_of_another_provider_is_never_taken_over(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    both = {name: provider.settings(name, **MAKES_USERS) for name in ("openid", "other")}
    site.configure(both)
    assert site.log_in(browser, "openid", "alice").status_code == 200
    before = the_user(site)
    assert codes_of(site.log_in(Browser(), "other", "alice")) == ["INVALID_PROVIDER"]
    assert the_user(site) == before


def test_a_filter_flow_refuses_a_new_user(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    with_openid(site, provider)
    stop = step("stop", "throw-error", {"code": "NOT_HERE", "status": 403})
    options = {"type": "filter", "scope": ["users.create"]}
    make_flow(site.admin, "event", options, [stop])
    answer = site.log_in(browser, "openid", "alice")
    assert (answer.status_code, codes_of(answer)) == (403, ["NOT_HERE"])
    assert site.users() == []


# Roles and names


def test_new_users_get_the_default_role(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    role = _with_role(site, provider)
    assert site.log_in(browser, "openid", "alice").status_code == 200
    assert the_user(site)["role"] == role
    other = site.role("Other")
    site.rows("UPDATE system_users SET role = %s WHERE provider = 'openid'", other)
    assert site.log_in(Browser(), "openid", "alice").status_code == 200
    assert the_user(site)["role"] == other, "without a mapping the role is that of this service"


def _with_role(site: Site, provider: RunningProvider) -> str:
    site.restart(site.config)
    role = site.role("Readers")
    with_openid(site, provider, default_role_id=role)
    return role


def test_groups_give_roles_anew_at_each_login(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    site.restart(site.config)
    readers, editors, staff = (site.role(name) for name in ("Readers", "Editors", "Staff"))
    mapping = f'json:{{"editors": "{editors}", "staff": "{staff}"}}'
    with_openid(site, provider, default_role_id=readers, role_mapping=mapping)
    for groups, role in [
        (["staff", "editors"], editors),
        (["staff"], staff),
        ("staff", staff),
        (["Editors"], readers),
        ([], readers),
        (["editors"], editors),
    ]:
        with_accounts(provider, alice={"groups": groups})
        assert site.log_in(Browser(), "openid", "alice").status_code == 200
        assert the_user(site)["role"] == role, groups


def test_the_last_administrator_keeps_the_role(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    site.restart(site.config)
    admins = site.role("Admins", admin_access=True)
    readers = site.role("Readers")
    mapping = f'{{"admins": "{admins}"}}'
    with_openid(site, provider, default_role_id=readers, role_mapping=mapping)
    with_accounts(provider, alice={"groups": ["admins"]})
    assert site.log_in(browser, "openid", "alice").status_code == 200
    site.rows("UPDATE system_users SET status = 'suspended' WHERE provider = 'default'")
    with_accounts(provider, alice={"groups": []})
    assert site.log_in(Browser(), "openid", "alice").status_code == 200
    assert the_user(site)["role"] == admins
    site.rows("UPDATE system_users SET status = 'active' WHERE provider = 'default'")
    assert site.log_in(Browser(), "openid", "alice").status_code == 200
    assert the_user(site)["role"] == readers


def test_a_role_that_does_not_exist_is_a_fault_of_the_settings(
    site: Site, provider: RunningProvider, browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    role = "8f2f1a0e-6a5f-4a57-b6a4-6d8c2e4a0a01"
    with_openid(site, provider, default_role_id=role)
    answer = site.log_in(browser, "openid", "alice")
    assert (answer.status_code, codes_of(answer)) == (503, ["SERVICE_UNAVAILABLE"])
    assert role in caplog.text
    assert site.users() == []


def test_claims_are_those_that_the_settings_name(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    site.restart(site.config)
    role = site.role("Editors")
    with_openid(
        site,
        provider,
        identifier_key="groups.number",
        email_key="groups.contact.mail",
        first_name_key="family_name",
        last_name_key="groups.family",
        group_claim_name="groups.all",
        role_mapping=f'{{"editors": "{role}"}}',
    )
    contact = {"mail": "alice@work.test"}
    groups = {"number": 4711, "contact": contact, "family": "Smith", "all": ["editors"]}
    with_accounts(provider, alice={"groups": groups})
    assert site.log_in(browser, "openid", "alice").status_code == 200
    user = the_user(site)
    assert (user["external_identifier"], user["email"]) == ("4711", "alice@work.test")
    assert (user["first_name"], user["last_name"]) == ("Liddell", "Smith")
    assert user["role"] == role


@pytest.mark.parametrize("sync", ["true", "false"])
def test_names_and_address_are_taken_over_where_the_settings_allow_it(
    site: Site, provider: RunningProvider, browser: Browser, sync: str
) -> None:
    with_openid(site, provider, sync_user_info=sync)
    assert site.log_in(browser, "openid", "alice").status_code == 200
    new = {"email": "queen@example.com", "given_name": "Regina"}
    with_accounts(provider, alice=new)
    assert site.log_in(Browser(), "openid", "alice").status_code == 200
    user = the_user(site)
    names = (user["email"], user["first_name"], user["last_name"])
    if sync == "true":
        assert names == ("queen@example.com", "Regina", "Liddell")
    else:
        assert names == ("alice@example.com", "Alice", "Liddell")


def test_an_address_that_another_user_has_is_not_taken_over(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    with_openid(site, provider, sync_user_info="true")
    assert site.log_in(browser, "openid", "alice").status_code == 200
    with_accounts(provider, alice={"email": ADMIN_EMAIL.upper(), "given_name": "Regina"})
    assert site.log_in(Browser(), "openid", "alice").status_code == 200
    user = the_user(site)
    assert (user["email"], user["first_name"]) == ("alice@example.com", "Regina")


def test_what_an_administrator_changes_during_a_login_stays(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    with_openid(site, provider, sync_user_info="true")
    assert site.log_in(browser, "openid", "alice").status_code == 200
    user = the_user(site)["id"]
    with_accounts(provider, alice={"given_name": "Regina"})
    again = Browser()
    answer = site.answer_url(again, "openid", "alice")
    role = site.role("Guests")
    with (
        psycopg.connect(site.config.database_url or "") as connection,
        ThreadPoolExecutor(1) as thread,
    ):
        # The login has read the user, and waits here for its turn to write.
        connection.execute(statement("lock_accounts").encode())
        login = thread.submit(again.get, answer)
        await_waiting_lock(connection)
        site.rows("UPDATE system_users SET role = %s::uuid WHERE id = %s::uuid", role, user)
        connection.commit()
        assert login.result().status_code == 200
    assert (the_user(site)["first_name"], the_user(site)["role"]) == ("Regina", role)


def await_waiting_lock(connection: psycopg.Connection) -> None:
    """Wait until somebody waits for a lock that only a transaction gives back."""
    waiting = b"SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    eventually(lambda: connection.execute(waiting).fetchone() is not None)


def test_a_flow_changes_the_capitals_of_an_address_at_each_login(
    site: Site, provider: RunningProvider, browser: Browser
) -> None:
    with_openid(site, provider, sync_user_info="true")
    code = """module.exports = async (data) => {
        const payload = {...data.$trigger.payload};
        if (payload.email) payload.email = payload.email.toLowerCase();
        return payload;
    }"""
    options = {"type": "filter", "scope": ["users.create", "users.update"], "return": "$last"}
    make_flow(site.admin, "event", options, [step("lower", "exec", {"code": code})])
    with_accounts(provider, alice={"email": "Alice@Example.com"})
    for visitor in (browser, Browser()):
        assert site.log_in(visitor, "openid", "alice").status_code == 200
        assert the_user(site)["email"] == "alice@example.com"
