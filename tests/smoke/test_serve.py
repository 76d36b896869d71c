"""`cms serve`: starts everything, prints its address, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
import requests

from tests.smoke import pinging
from tests.smoke.pinging import REFUSED
from tests.smoke.running import (
    ANSWERS,
    TIMEOUT_SECONDS,
    Service,
    await_gone,
    command,
    free_port,
    is_of,
    new_folder,
    processes_of,
    serving,
    starting,
)
from tests.waiting import eventually
from tests.web.wire import open_wire

pytestmark = pytest.mark.slow

PASSWORD = re.compile(r"The first admin is (\S+) with the password (\S+) ")


def worker_of(folder: Path) -> psutil.Process:
    """Return the worker, which begins after the web server has."""
    return eventually(
        lambda: [
            process
            for process in psutil.process_iter()
            if is_of(process, folder) and "worker" in process.cmdline()
        ]
    )[0]


def ping(service: Service) -> str:
    return requests.get(
        f"http://127.0.0.1:{service.port}/server/ping", timeout=TIMEOUT_SECONDS
    ).text


def test_the_first_start_prints_address_and_password_and_the_second_start_no_password() -> None:
    with new_folder() as folder:
        with serving(folder) as first:
            assert ping(first) == "pong"
            assert f"{ANSWERS}http://127.0.0.1:{first.port} " in first.log_text()
            assert [email for email, _ in PASSWORD.findall(first.log_text())] == [
                "admin@example.com"
            ]
        with serving(folder) as second:
            assert ping(second) == "pong"
            assert not PASSWORD.search(second.log_text())


def test_a_password_that_was_given_is_not_printed() -> None:
    with new_folder() as folder, serving(folder, ADMIN_PASSWORD="given by hand") as service:
        assert "given by hand" not in service.log_text()
        assert not PASSWORD.search(service.log_text())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_signal_stops_everything_cleanly(installed: Path, number: signal.Signals) -> None:
    with serving(installed, WEB_CONCURRENCY="2") as service:
        worker_of(installed)
        running = " ".join(processes_of(installed))
        assert "postgres" in running
        assert "cms.gunicorn_process" in running
        assert "cms worker" in running
        service.process.send_signal(number)
        assert service.wait_for_exit() == 0
        assert processes_of(installed) == []
        assert not (installed / "data" / "postgres" / "postmaster.pid").exists()


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_in_a_terminal_stops_everything_cleanly(installed: Path, times: int) -> None:
    with serving(installed, WEB_CONCURRENCY="2") as service:
        for _ in range(times):
            service.signal_group(signal.SIGINT)
        assert service.wait_for_exit() == 0
        assert processes_of(installed) == []
        assert "Traceback" not in service.log_text()


def test_a_stop_during_the_start_stops_everything() -> None:
    with new_folder() as folder:
        with starting(folder) as service:
            service.await_words("A new database is made")
            service.signal_group(signal.SIGINT)
            assert service.wait_for_exit() == 0
            await_gone(folder)
            assert ANSWERS not in service.log_text()
            assert "Traceback" not in service.log_text()
        with serving(folder) as next_one:
            assert ping(next_one) == "pong"


def test_a_request_that_has_begun_when_ctrl_c_comes_is_answered(installed: Path) -> None:
    with serving(installed) as service, open_wire(service.port) as client:
        client.begin(b"GET /server/ping HTTP/1.1\r\nHost: localhost\r\n")
        service.signal_group(signal.SIGINT)
        eventually(lambda: pinging.ping(service.port) == REFUSED)
        client.send(b"\r\n")
        assert [answer.body for answer in client.rest()] == [b"pong"]
        assert service.wait_for_exit() == 0


def test_a_client_that_never_ends_its_request_does_not_hold_up_the_end(installed: Path) -> None:
    with (
        serving(installed) as service,
        socket.create_connection(("127.0.0.1", service.port)) as client,
    ):
        client.sendall(b"GET /server/ping HTTP/1.1\r\nHost: localhost\r\n")
        service.process.terminate()
        assert service.wait_for_exit() == 0


def test_a_killed_service_leaves_nothing_that_keeps_the_next_from_starting(installed: Path) -> None:
    with serving(installed, WEB_CONCURRENCY="2") as killed:
        killed.process.kill()
        killed.wait_for_exit()
        with serving(installed, PORT=str(killed.port)) as service:
            assert ping(service) == "pong"
    await_gone(installed)


def test_a_worker_that_was_killed_is_replaced(installed: Path) -> None:
    with serving(installed) as service:
        first = worker_of(installed)
        first.kill()
        service.await_words("The worker ended by itself (status -9)")
        assert worker_of(installed).pid != first.pid
        assert ping(service) == "pong"
        service.process.terminate()
        assert service.wait_for_exit() == 0
        assert processes_of(installed) == []


def test_two_run_at_once_in_two_folders(installed: Path) -> None:
    with ExitStack() as both:
        one = both.enter_context(serving(installed))
        other = both.enter_context(serving(both.enter_context(new_folder())))
        assert (ping(one), ping(other)) == ("pong", "pong")
        one.process.terminate()
        assert one.wait_for_exit() == 0
        assert ping(other) == "pong"


def test_a_wrong_setting_stops_the_start_and_names_itself() -> None:
    with new_folder() as folder:
        result = command(folder, "serve", PORT="eighty")
        assert result.returncode == 1
        assert result.stdout == "Error: PORT takes a whole number from 1 to 65535, not 'eighty'.\n"
        assert list(folder.iterdir()) == []


def test_a_port_in_use_is_reported_in_a_sentence() -> None:
    with new_folder() as folder, socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = command(folder, "serve", PORT=str(port))
        assert result.returncode == 1
        message = (
            f"Error: HOST, PORT: cannot listen on http://127.0.0.1:{port}: Address already "
            f"in use.\n"
        )
        assert result.stdout == message
        assert list(folder.iterdir()) == []


def test_a_database_that_does_not_answer_is_reported_without_its_password() -> None:
    with new_folder() as folder:
        address = f"postgresql://cms:hunter2@127.0.0.1:{free_port()}/cms"
        result = command(folder, "serve", DATABASE_URL=address)
        assert result.returncode == 1
        assert result.stdout.startswith("Error: ")
        assert "hunter2" not in result.stdout
        assert "Traceback" not in result.stdout


def test_a_worker_that_cannot_begin_ends_the_start_with_its_reason(installed: Path) -> None:
    with new_folder() as breaking:
        # Python imports this module first of all, and then finds no application.
        (breaking / "sitecustomize.py").write_text("import sys; sys.modules['cms.app'] = None")
        path = os.pathsep.join([str(breaking), os.environ.get("PYTHONPATH", "")])
        with starting(installed, PYTHONPATH=path) as service:
            assert service.wait_for_exit() == 1
            assert service.log_text().splitlines()[-1].startswith("Error: import of cms.app halted")
    await_gone(installed)


def test_all_lines_of_the_log_are_json_if_that_is_its_style() -> None:
    with (
        new_folder() as folder,
        serving(folder, LOG_STYLE="json", ADMIN_PASSWORD="a password") as service,
    ):
        (worker,) = [
            child
            for child in psutil.Process(service.process.pid).children(recursive=True)
            if "gunicorn_process" in " ".join(child.cmdline())
            and child.ppid() != service.process.pid
        ]
        worker.kill()
        service.await_words("SIGKILL")
        lines = [json.loads(line) for line in service.log_text().splitlines()]
    assert {"error", "info"} <= {line["level"] for line in lines}
    assert any(ANSWERS in line["message"] for line in lines)
