"""Three web servers and two job workers over one database, one bucket and one Redis: what one
does, all know.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import requests

from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD
from tests.files.bucket import bucket_server
from tests.files.images import picture
from tests.machines.installation import (
    METRICS_TOKEN,
    Client,
    Installation,
    installation,
    new_address,
)
from tests.metrics_text import samples_of, value
from tests.rate_limits.redis_server import redis_server
from tests.smoke.running import TIMEOUT_SECONDS, new_folder
from tests.waiting import eventually

pytestmark = [pytest.mark.release, pytest.mark.slow]

ROUNDS = 5
PER_MINUTE = 60
LOGIN = {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}
BUCKET = {
    "STORAGE_LOCATIONS": "s3",
    "STORAGE_S3_DRIVER": "s3",
    "STORAGE_S3_BUCKET": "files",
    "STORAGE_S3_KEY": "k",
    "STORAGE_S3_SECRET": "s",
}
LIMITS = {
    "RATE_LIMITER_ENABLED": "true",
    "RATE_LIMITER_PER_SECOND": "1000",
    "RATE_LIMITER_PER_MINUTE": str(PER_MINUTE),
    "RATE_LIMITER_LOGINS_PER_ACCOUNT": "1000",
}


@pytest.fixture(scope="module")
def three_servers(module_dsn: str) -> Iterator[Installation]:
    with new_folder() as folder, redis_server() as redis, bucket_server() as bucket:
        settings = BUCKET | LIMITS | {"STORAGE_S3_ENDPOINT": bucket, "REDIS": redis.address}
        with installation(folder, module_dsn, settings, web=3, workers=2) as three_servers:
            yield three_servers


@pytest.fixture(scope="module")
def admins(three_servers: Installation) -> list[Client]:
    """The administrator's client of each web server."""
    admin = three_servers.first.login()
    return [admin.at(machine) for machine in three_servers.web]


def test_a_change_of_structure_is_seen_by_the_next_request_to_every_server(
    admins: list[Client],
) -> None:
    admins[0].data("POST", "/collections", {"collection": "things", "schema": {}})
    admins[0].data("POST", "/items/things", {})
    for number in range(ROUNDS):
        changer = admins[number % len(admins)]
        name = f"field{number}"
        changer.data("POST", "/fields/things", {"field": name, "type": "integer"})
        for admin in admins:
            # First what has an answer under the old structure as well.
            assert admin.data("GET", "/items/things") == [{"id": 1, name: None}]
            assert admin.data("GET", f"/items/things?fields={name}") == [{name: None}]
        changer.data("DELETE", f"/fields/things/{name}")
        for admin in admins:
            assert admin.data("GET", "/items/things") == [{"id": 1}]
            assert admin.send("GET", f"/items/things?fields={name}").status_code == 400


def test_a_change_of_rights_is_seen_by_the_next_request_to_every_server(
    admins: list[Client], three_servers: Installation
) -> None:
    admins[0].data("POST", "/collections", {"collection": "shown", "schema": {}})
    permission = {"role": None, "collection": "shown", "action": "read", "fields": ["*"]}
    for number in range(ROUNDS):
        changer = admins[number % len(admins)]
        key = changer.data("POST", "/permissions", permission)["id"]
        assert statuses(three_servers, "/items/shown") == [200, 200, 200]
        changer.data("DELETE", f"/permissions/{key}")
        assert statuses(three_servers, "/items/shown") == [403, 403, 403]


def statuses(three_servers: Installation, path: str, **options: object) -> list[int]:
    """Ask every server without credentials, and return the statuses."""
    return [
        Client(machine.url).send("GET", path, **options).status_code
        for machine in three_servers.web
    ]


def test_a_client_has_one_limit_for_all_servers_together(three_servers: Installation) -> None:
    client = {"X-Forwarded-For": new_address()}
    counts = Counter[int]()
    began = time.monotonic()
    for _ in range(PER_MINUTE // 2):
        counts.update(statuses(three_servers, "/auth", headers=client))
    assert time.monotonic() - began < 60, "this machine is too slow for a minute's requests"
    assert counts == {200: PER_MINUTE, 429: PER_MINUTE // 2}


def test_a_session_goes_from_server_to_server_and_ends_for_all(three_servers: Installation) -> None:
    first, second, third = (Client(machine.url) for machine in three_servers.web)
    login = first.data("POST", "/auth/login", LOGIN)
    renewed = second.data("POST", "/auth/refresh", {"refresh_token": login["refresh_token"]})
    for machine in three_servers.web:
        holder = Client(machine.url, renewed["access_token"])
        assert holder.data("GET", "/users/me?fields=email") == {"email": ADMIN_EMAIL}
    body = {"refresh_token": renewed["refresh_token"]}
    third.data("POST", "/auth/logout", body)
    for machine in three_servers.web:
        answer = Client(machine.url).send("POST", "/auth/refresh", json=body)
        assert answer.status_code == 401


def test_a_session_cookie_is_good_at_every_server_until_the_logout_at_one(
    three_servers: Installation,
) -> None:
    login = three_servers.first.send("POST", "/auth/login", json={**LOGIN, "mode": "session"})
    cookie = f"cms_session_token={login.cookies['cms_session_token']}"
    headers = {"Cookie": cookie, "Origin": three_servers.web[1].url}
    assert statuses(three_servers, "/users/me", headers=headers) == [200, 200, 200]
    logout = Client(three_servers.web[1].url).send(
        "POST", "/auth/logout", json={"mode": "session"}, headers=headers
    )
    assert logout.status_code == 204, logout.text
    assert statuses(three_servers, "/users/me", headers=headers) == [401, 401, 401]


def test_an_image_that_all_servers_are_asked_for_at_once_is_made_once(
    three_servers: Installation, admins: list[Client]
) -> None:
    content = picture("JPEG", (1200, 900))
    form = {"file": ("a.jpg", content, "image/jpeg")}
    key = admins[0].send("POST", "/files", files=form).json()["data"]["id"]
    before = transforms(three_servers)

    def read_image(number: int) -> tuple[int, bytes]:
        answer = admins[number % 3].send("GET", f"/assets/{key}?width=300&format=png")
        return answer.status_code, answer.content

    with ThreadPoolExecutor(12) as threads:
        answers = set(threads.map(read_image, range(12)))
    assert len(answers) == 1
    assert answers.pop()[0] == 200
    assert transforms(three_servers) - before == 1


def transforms(three_servers: Installation) -> float:
    """Return how many images the servers have transformed."""
    headers = {"Authorization": f"Bearer {METRICS_TOKEN}", "X-Forwarded-For": new_address()}
    texts = [
        requests.get(f"{machine.url}/metrics", headers=headers, timeout=TIMEOUT_SECONDS).text
        for machine in three_servers.web
    ]
    return sum(value(samples_of(text), "cms_transforms_total") for text in texts)


def test_each_moment_of_a_schedule_is_one_run_of_one_of_the_workers(
    admins: list[Client], module_dsn: str
) -> None:
    flow = {"name": "Ticking", "trigger": "schedule", "options": {"cron": "* * * * * *"}}
    key = admins[1].data("POST", "/flows", flow)["id"]
    # A run that is done has its input in its data.
    moment = "coalesce(data, input) ->> 'date_scheduled'"
    moments = f"SELECT {moment} FROM system_flow_runs WHERE flow = '{key}'"
    done = f"{moments} AND state = 'done'"
    with psycopg.connect(module_dsn, autocommit=True) as connection:
        eventually(lambda: len(connection.execute(done.encode()).fetchall()) >= 5)
        rows = [str(moment) for (moment,) in connection.execute(moments.encode())]
    assert len(rows) == len(set(rows))
    admins[2].data("PATCH", f"/flows/{key}", {"status": "inactive"})
