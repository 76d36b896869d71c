"""The embedded server dies under `cms serve`: it is started again, and
nothing that was acknowledged is lost.
"""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest
import requests

from cms.auth import accounts
from cms.embedded.lifetime import running_dsn
from tests.smoke.faults import WRITERS, Writer, await_answers, busy, check
from tests.smoke.running import TIMEOUT_SECONDS, Service, command, processes_of, serving
from tests.smoke.test_faults import SECRET, SETTINGS, make_site
from tests.store.embedded.servers import kill, postmaster
from tests.waiting import eventually

pytestmark = pytest.mark.slow

TIMES = 3


def test_a_killed_database_server_is_started_again_and_no_write_is_lost(folder: Path) -> None:
    data = folder / "data"
    with serving(folder, **SETTINGS) as service:
        dsn = running_dsn(data)
        assert dsn
        token = accounts.admin_token(dsn, secret=SECRET, life=timedelta(hours=1))
        shared = make_site(dsn, folder, token)
        url = f"http://127.0.0.1:{service.port}"
        writers = [Writer(url, token, shared, seed=number) for number in range(WRITERS)]
        with busy(writers):
            for number in range(TIMES):
                await_answers(writers, 20)
                kill(postmaster(data))
                await_times(service, "The database server answers again.", number + 1)
            await_answers(writers, 20)
        check(dsn, writers)
        service.process.terminate()
        assert service.wait_for_exit() == 0
    assert processes_of(folder) == []


def await_times(service: Service, words: str, times: int) -> None:
    eventually(lambda: service.log_text().count(words) >= times, otherwise=service.log_text)


def test_a_request_meanwhile_waits_or_gets_the_time_to_try_again(folder: Path) -> None:
    with serving(folder) as service:
        number = postmaster(folder / "data")
        os.kill(number, signal.SIGSTOP)  # it can neither answer nor be missed
        try:
            answer = requests.get(
                f"http://127.0.0.1:{service.port}/server/health", timeout=TIMEOUT_SECONDS
            )
        finally:
            kill(number)
        assert answer.status_code == 503
        assert int(answer.headers["Retry-After"]) > 0
        service.await_words("The database server answers again.")
        assert requests.get(
            f"http://127.0.0.1:{service.port}/server/health", timeout=TIMEOUT_SECONDS
        ).ok


def test_a_database_server_that_cannot_start_again_ends_the_service_with_the_reason(
    folder: Path,
) -> None:
    with serving(folder) as service:
        number = postmaster(folder / "data")
        data = (folder / "data" / "postgres").rename(folder / "data" / "elsewhere")
        kill(number)
        assert service.wait_for_exit() == 1
        last = service.log_text().splitlines()[-1]
        assert last.startswith(
            "Error: The database server ended by itself and cannot be started again. "
        )
        assert "holds no database any more" in last
        assert "Traceback" not in service.log_text()
    assert processes_of(folder) == []
    assert not (folder / "data" / "postgres").exists()
    data.rename(folder / "data" / "postgres")


def test_the_doctor_looks_at_the_database_of_the_service_and_starts_none(folder: Path) -> None:
    with serving(folder):
        looked = command(folder, "doctor")
        assert looked.returncode == 0
        assert "ok       migrations: all applied" in looked.stdout
        assert running_dsn(folder / "data")
    stopped = command(folder, "doctor")
    assert stopped.returncode == 0
    assert "warning  database: The server of the database in " in stopped.stdout
    assert "is not running" in stopped.stdout
    assert "migrations" not in stopped.stdout
    assert not (folder / "data" / "postgres" / "postmaster.pid").exists()
