"""Roles that may be used from some addresses only, and how the service knows an address."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from falcon import testing

from cms.app import create_app
from cms.config import Config
from cms.http.requests.request import address_of
from tests.client import Answer, Client
from tests.members import may, member_of, new_role
from tests.people import PASSWORD, outcome, person
from tests.things import Stage

REFUSED = (401, ["INVALID_IP"])


@pytest.fixture(scope="module")
def proxied(stage: Stage, settings: Config) -> Iterator[Client]:
    """The same database, behind one proxy."""
    client = Client(
        create_app(
            replace(settings, database_url=stage.dsn, database_pool_size=3, ip_trust_proxy=1)
        )
    )
    yield client
    client.close()


def bound_role(stage: Stage, *networks: object, **columns: object) -> str:
    return new_role(stage, may("system_users"), ip_access=json.dumps(networks), **columns)


def token_of(client: Client) -> str:
    assert client._token
    return client._token


def calling(client: Client, token: str, ip: str) -> Answer:
    return client.bearing(token).send("GET", "/users", **{"X-Forwarded-For": ip})


@pytest.mark.parametrize(
    ("networks", "inside", "outside"),
    [
        (["192.0.2.7"], "192.0.2.7", "192.0.2.8"),
        (["192.0.2.0/24"], "192.0.2.255", "192.0.3.0"),
        (["192.0.2.7/24"], "192.0.2.1", "192.0.3.1"),
        (["10.0.0.1", "2001:db8::/32"], "2001:db8:1::5", "2001:db9::1"),
        (["2001:db8::/32"], "[2001:db8::1]:443", "192.0.2.7"),
        (["192.0.2.0/24"], "::ffff:192.0.2.9", "::ffff:192.0.3.9"),
        (["192.0.2.7"], "192.0.2.7:50123", "192.0.2.70:7"),
    ],
)
def test_a_role_is_used_from_its_addresses_only(
    stage: Stage, proxied: Client, networks: list[str], inside: str, outside: str
) -> None:
    token = token_of(member_of(stage, bound_role(stage, *networks)))
    for _ in range(2):
        assert calling(proxied, token, inside).status == 200
        assert outcome(calling(proxied, token, outside)) == REFUSED


def test_an_empty_list_binds_nobody_and_a_slip_in_it_admits_nobody(
    stage: Stage, proxied: Client
) -> None:
    assert (
        calling(proxied, token_of(member_of(stage, bound_role(stage))), "192.0.2.1").status == 200
    )
    for slip in ("everywhere", "192.0.2.0/33", 7, None):
        token = token_of(member_of(stage, bound_role(stage, slip)))
        assert outcome(calling(proxied, token, "192.0.2.1")) == REFUSED


def test_every_role_of_the_chain_has_to_admit(stage: Stage, proxied: Client) -> None:
    parent = bound_role(stage, "192.0.2.0/24")
    token = token_of(
        member_of(stage, bound_role(stage, "192.0.2.1", "198.51.100.1", parent=parent))
    )
    assert calling(proxied, token, "192.0.2.1").status == 200
    for ip in ("198.51.100.1", "192.0.2.2"):
        assert outcome(calling(proxied, token, ip)) == REFUSED


def test_an_administrator_is_bound_as_well_also_for_the_structure(
    stage: Stage, proxied: Client
) -> None:
    token = token_of(member_of(stage, bound_role(stage, "192.0.2.1", admin_access=True)))
    body = {"collection": "from_elsewhere", "schema": {}}
    answer = proxied.bearing(token).send(
        "POST", "/collections", body, **{"X-Forwarded-For": "192.0.2.2"}
    )
    assert outcome(answer) == REFUSED


def test_a_login_from_elsewhere_is_refused_once_the_password_was_right(
    stage: Stage, proxied: Client
) -> None:
    email = person(stage, role=bound_role(stage, "192.0.2.1"))

    def login(password: str, ip: str) -> Answer:
        credentials = {"email": email, "password": password}
        return proxied.send("POST", "/auth/login", credentials, **{"X-Forwarded-For": ip})

    assert outcome(login(PASSWORD, "192.0.2.2")) == REFUSED
    assert outcome(login("wrong", "192.0.2.2")) == (401, ["INVALID_CREDENTIALS"])
    tokens = login(PASSWORD, "192.0.2.1").data
    body = {"refresh_token": tokens["refresh_token"]}
    assert (
        outcome(proxied.send("POST", "/auth/refresh", body, **{"X-Forwarded-For": "192.0.2.2"}))
        == REFUSED
    )
    assert (
        proxied.send("POST", "/auth/refresh", body, **{"X-Forwarded-For": "192.0.2.1"}).status
        == 200
    )


def test_a_change_of_the_list_is_in_force_at_the_next_request(
    stage: Stage, proxied: Client
) -> None:
    role = bound_role(stage, "192.0.2.1")
    token = token_of(member_of(stage, role))
    assert calling(proxied, token, "192.0.2.1").status == 200
    stage.execute(f"UPDATE system_roles SET ip_access = '[\"192.0.2.2\"]' WHERE id = '{role}'")
    assert outcome(calling(proxied, token, "192.0.2.1")) == REFUSED


def test_without_a_proxy_no_header_sets_the_address_of_a_client(stage: Stage) -> None:
    token = token_of(member_of(stage, bound_role(stage, "192.0.2.1")))
    assert outcome(calling(stage.anonymous, token, "192.0.2.1")) == REFUSED
    token = token_of(member_of(stage, bound_role(stage, "127.0.0.0/8")))
    assert calling(stage.anonymous, token, "192.0.2.1").status == 200


@pytest.mark.parametrize(
    ("hops", "forwarded", "ip"),
    [
        (1, "192.0.2.1, 198.51.100.1", "198.51.100.1"),
        (2, "203.0.113.1, 192.0.2.1, 198.51.100.1", "192.0.2.1"),
        (3, "192.0.2.1", "192.0.2.1"),
        (1, "192.0.2.1, unknown", "127.0.0.1"),
        (1, "", "127.0.0.1"),
        (0, "192.0.2.1", "127.0.0.1"),
    ],
)
def test_an_address_is_what_the_outermost_of_our_proxies_saw(
    hops: int, forwarded: str, ip: str
) -> None:
    environ = testing.create_environ(headers={"X-Forwarded-For": forwarded})
    assert address_of(environ, trusted_proxies=hops) == ip


ELSEWHERE = {"ip_access": ["192.0.2.1"]}


def test_the_last_administrators_stay_admitted_from_the_address_of_who_changes_them(
    api: Client,
) -> None:
    """The tests call from 127.0.0.1."""
    role = api.get("/users/me?fields=role").data["role"]
    parent = api.post("/roles", {"name": "Parent", **ELSEWHERE}).data["id"]
    far = api.post("/roles", {"name": "Far", "admin_access": True, **ELSEWHERE}).data["id"]
    far_admin = {"email": "far@example.com", "password": PASSWORD, "role": far}
    assert api.post("/users", far_admin).status == 200
    lockouts: list[tuple[str, str, object]] = [
        ("PATCH", f"/roles/{role}", ELSEWHERE),
        ("PATCH", "/roles", [{"id": role, **ELSEWHERE}]),
        ("PATCH", f"/roles/{role}", {"parent": parent}),
        ("PATCH", f"/roles/{role}", {"admin_access": False}),
        ("PATCH", "/users/me", {"role": far}),
        ("PATCH", "/users/me", {"status": "suspended"}),
        ("DELETE", f"/users/{api.get('/users/me').data['id']}", None),
    ]
    for method, path, body in lockouts:
        refused = api.send(method, path, body)
        assert outcome(refused) == (422, ["UNPROCESSABLE_CONTENT"]), refused
        assert "127.0.0.1" in refused.errors[0]["reason"]
    near = {"ip_access": ["192.0.2.1", "127.0.0.0/8"]}
    assert api.patch(f"/roles/{role}", near).status == 200
    assert api.patch(f"/roles/{far}", {"ip_access": None}).status == 200
    # Another administrator is admitted from here now.
    assert api.patch(f"/roles/{role}", ELSEWHERE).status == 200
    assert outcome(api.get("/users/me")) == REFUSED
