"""Reads from a real streaming replica that stands still: who writes reads what it has written, and
nobody reads by rights that have been withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from cms.auth import accounts
from cms.database.migrate import migrate
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD
from tests.files.images import picture
from tests.machines.installation import Client, Installation, installation
from tests.machines.replica import Servers, replicated
from tests.rate_limits.redis_server import RedisServer, redis_server
from tests.smoke.running import new_folder

pytestmark = [pytest.mark.release, pytest.mark.slow]

LOGIN = {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}
ADDRESS = {"X-Forwarded-For": "192.0.2.1"}


@dataclass(frozen=True)
class Replicated:
    servers: Servers
    machines: Installation
    writer: Client
    reader: Client
    """Another administrator, who only reads."""
    redis: RedisServer

    def readers_rows(self) -> int:
        return len(self.reader.data("GET", "/items/notes"))


@pytest.fixture(scope="module")
def whole_site() -> Iterator[Replicated]:
    with replicated() as servers, new_folder() as folder, redis_server() as redis:
        migrate(servers.primary)
        accounts.first_admin(servers.primary, email=ADMIN_EMAIL, password=ADMIN_PASSWORD)
        settings = {
            "DATABASE_READ_URL": servers.replica,
            "DATABASE_READ_LAG": "60s",
            "REDIS": redis.address,
        }
        kinds = ("event", "gthread")
        with installation(folder, servers.primary, settings, kinds=kinds) as machines:
            first = machines.first.login()
            role = first.data("GET", "/users/me?fields=role")["role"]
            deputy = {"email": "deputy@example.com", "role": role, "token": "r" * 40}
            first.data("POST", "/users", deputy)
            fields = [{"field": "text", "type": "string"}]
            table = {"collection": "notes", "schema": {}, "fields": fields}
            first.data("POST", "/collections", table)
            servers.await_replica()
            yield Replicated(servers, machines, first, Client(first.url, "r" * 40), redis)


@pytest.fixture
def site(whole_site: Replicated) -> Iterator[Replicated]:
    """The installation with a replica that stands still during the test."""
    whole_site.servers.stand_still()
    yield whole_site
    whole_site.servers.go_on()


def test_a_writer_reads_what_it_has_written_at_every_machine(site: Replicated) -> None:
    before = site.readers_rows()
    key = site.writer.data("POST", "/items/notes", {"text": "mine"})["id"]
    for machine in site.machines.web:
        writer = site.writer.at(machine)
        assert writer.data("GET", f"/items/notes/{key}")["text"] == "mine"
        assert len(writer.data("GET", "/items/notes")) == before + 1
        assert "mine" in writer.send("GET", "/items/notes?export=csv").text
    # The others read from the replica, which does not have it.
    assert site.readers_rows() == before
    assert site.reader.send("GET", f"/items/notes/{key}").status_code == 404
    site.servers.go_on()
    assert site.readers_rows() == before + 1
    site.servers.stand_still()


def test_everybody_sees_changes_of_structure(site: Replicated) -> None:
    site.writer.data("POST", "/fields/notes", {"field": "more", "type": "integer"})
    for machine in site.machines.web:
        writer = site.writer.at(machine)
        assert writer.send("GET", "/items/notes?fields=more").status_code == 200
        assert writer.data("GET", "/fields/notes/more")["field"] == "more"
        assert site.reader.at(machine).send("GET", "/items/notes?fields=more").ok


def test_a_file_that_was_just_uploaded_is_delivered_to_its_owner(site: Replicated) -> None:
    form = {"file": ("a.png", picture("PNG"), "image/png")}
    key = site.writer.send("POST", "/files", files=form).json()["data"]["id"]
    assert site.writer.send("GET", f"/assets/{key}").content == picture("PNG")


def test_a_file_that_was_replaced_is_delivered_to_everybody(site: Replicated) -> None:
    def upload(method: str, path: str, format_name: str) -> str:
        form = {"file": ("a.png", picture(format_name), "image/png")}
        key: str = site.writer.send(method, path, files=form).json()["data"]["id"]
        return key

    key = upload("POST", "/files", "PNG")
    site.servers.go_on()
    site.servers.stand_still()
    assert site.reader.send("GET", f"/assets/{key}").content == picture("PNG")
    upload("PATCH", f"/files/{key}", "GIF")
    # The replica shows the row of the former content, which is no longer there.
    assert site.reader.send("GET", f"/assets/{key}").content == picture("GIF")
    assert site.reader.send("GET", f"/assets/{key}?width=2").status_code == 200
    site.writer.data("DELETE", f"/files/{key}")
    assert site.reader.send("GET", f"/assets/{key}").status_code == 404


def test_a_session_is_good_at_once_at_every_machine_and_ends_at_once(site: Replicated) -> None:
    machines = [Client(machine.url) for machine in site.machines.web]
    body = {**LOGIN, "mode": "session"}
    login = machines[0].send("POST", "/auth/login", json=body, headers=ADDRESS)
    cookie = {"Cookie": f"cms_session_token={login.cookies['cms_session_token']}", **ADDRESS}
    for machine in machines:
        assert machine.send("GET", "/users/me", headers=cookie).status_code == 200
    headers = {**cookie, "Origin": machines[1].url}
    logout = machines[1].send("POST", "/auth/logout", json={"mode": "session"}, headers=headers)
    assert logout.status_code == 204
    for machine in machines:
        assert machine.send("GET", "/users/me", headers=cookie).status_code == 401


def test_without_redis_a_writer_reads_its_own_at_the_machine_where_it_has_written(
    site: Replicated,
) -> None:
    site.redis.kill()
    try:
        key = site.writer.data("POST", "/items/notes", {"text": "alone"})["id"]
        assert site.writer.data("GET", f"/items/notes/{key}")["text"] == "alone"
        assert "Redis does not answer" in site.machines.web[0].log_text()
        assert "Traceback" not in site.machines.log_text()
    finally:
        site.redis.start()


def test_rights_that_are_withdrawn_end_at_once_whatever_the_replica_knows(
    site: Replicated,
) -> None:
    role, key = reader_role(site)
    token = "w" * 40
    person = {"email": f"{role}@example.com", "role": role, "token": token, "status": "active"}
    user = site.writer.data("POST", "/users", person)["id"]
    site.servers.go_on()
    site.servers.stand_still()
    holders = [Client(machine.url, token) for machine in site.machines.web]
    assert [one.send("GET", "/items/notes").status_code for one in holders] == [200, 200]
    site.writer.data("DELETE", f"/permissions/{key}")
    assert [one.send("GET", "/items/notes").status_code for one in holders] == [403, 403]
    assert [one.send("GET", "/server/specs/oas").ok for one in holders] == [True, True]
    site.writer.data("PATCH", f"/users/{user}", {"status": "suspended"})
    for path in ("/items/notes", "/users/me", "/items/notes?export=csv", "/permissions/me"):
        assert [one.send("GET", path).status_code for one in holders] == [401, 401], path


def reader_role(site: Replicated) -> tuple[str, int]:
    """Make a role that may read notes; return its id, and that of its permission."""
    role = site.writer.data("POST", "/roles", {"name": "Readers"})["id"]
    permission = {"role": role, "collection": "notes", "action": "read", "fields": ["*"]}
    return role, site.writer.data("POST", "/permissions", permission)["id"]


def test_a_session_that_has_ended_stays_so_long_after_its_logout(site: Replicated) -> None:
    """From elsewhere than the logout came, as when nobody is known as a writer any more."""
    first, second = (Client(machine.url) for machine in site.machines.web)
    login = first.send("POST", "/auth/login", json={**LOGIN, "mode": "session"}, headers=ADDRESS)
    cookie = {"Cookie": f"cms_session_token={login.cookies['cms_session_token']}"}
    # The replica does not know the session yet, and the holder has moved.
    assert second.send("GET", "/users/me", headers=cookie).status_code == 200
    site.servers.go_on()
    site.servers.stand_still()
    headers = {**cookie, **ADDRESS, "Origin": first.url}
    assert first.send("POST", "/auth/logout", json={"mode": "session"}, headers=headers).ok
    site.redis.kill()
    try:
        forget_writers(site)
        assert second.send("GET", "/users/me", headers=cookie).status_code == 401
    finally:
        site.redis.start()


def forget_writers(site: Replicated) -> None:
    """Start the second machine again: it has seen none of the writes, and asks no Redis."""
    machine = site.machines.web[1]
    assert machine.stop() == 0, machine.log_text()
    machine.start()
    machine.await_answer()


def test_the_token_of_a_new_login_is_good_from_everywhere(site: Replicated) -> None:
    person = {"email": "new@example.com", "password": ADMIN_PASSWORD, "status": "active"}
    site.writer.data("POST", "/users", person)
    site.servers.go_on()
    site.servers.stand_still()
    token = site.machines.first.login("new@example.com").token
    for machine in site.machines.web:
        assert Client(machine.url, token).data("GET", "/users/me")


def test_reads_that_change_nothing_are_those_of_the_replica(site: Replicated) -> None:
    before = site.readers_rows()
    site.writer.data("POST", "/items/notes", {"text": "newer"})
    assert site.readers_rows() == before
