"""The units of systemd in docs/deployment.md, and the container file: what they start serves."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import requests

from tests.machines.containers import working_builder
from tests.machines.installation import CHECKOUT, SETTINGS, Machine
from tests.smoke.running import TIMEOUT_SECONDS, free_port, new_folder
from tests.waiting import eventually

pytestmark = [pytest.mark.release, pytest.mark.slow]

PROGRAMS = Path(sys.executable).parent
UNITS = {"cms-web.service", "cms-worker.service"}
STOP_SECONDS = 15
IMAGE = "cms-test"


def units() -> Mapping[str, str]:
    """Return the documented units by their names."""
    text = (CHECKOUT / "docs" / "deployment.md").read_text()
    blocks = re.findall(r"```ini\n# /etc/systemd/system/(\S+)\n(.*?)```", text, re.DOTALL)
    return dict(blocks)


def value(unit: str, name: str) -> str:
    (text,) = re.findall(rf"^{name}=(.*)$", unit, re.MULTILINE)
    return str(text)


def words_of(unit: str) -> list[str]:
    """Return the command of a unit, with the programs and the checkout of this test."""
    # Only now, for their paths may have spaces.
    words = shlex.split(value(unit, "ExecStart"))
    here = [word.replace("/srv/cms/.venv/bin", str(PROGRAMS)) for word in words]
    return [word.replace("/srv/cms", str(CHECKOUT)) for word in here]


@contextmanager
def started(words: list[str], folder: Path, **settings: str) -> Iterator[Machine]:
    """Run a command whose program is a script of Python's."""
    machine = Machine(words, SETTINGS | settings, folder, free_port())
    machine.start()
    try:
        yield machine
    finally:
        machine.kill()


def test_systemd_understands_the_units(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is needed")
    assert units().keys() == UNITS
    # A path without spaces, which units have to quote.
    programs = tmp_path / "bin"
    programs.symlink_to(PROGRAMS)
    for name, unit in units().items():
        # It looks for the programs, and for the account.
        text = unit.replace("/srv/cms/.venv/bin", str(programs)).replace("User=cms", "User=root")
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [program, "verify", "--man=no", *(str(tmp_path / name) for name in UNITS)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    ours = [line for line in (done.stdout + done.stderr).splitlines() if "cms-" in line]
    assert (done.returncode, ours) == (0, [])


def test_what_the_unit_of_the_web_server_starts_answers_and_stops_in_time(dsn: str) -> None:
    unit = units()["cms-web.service"]
    assert int(value(unit, "TimeoutStopSec")) == STOP_SECONDS
    with (
        new_folder() as folder,
        started(words_of(unit), folder / "web", DATABASE_URL=dsn) as machine,
    ):
        machine.await_answer()
        assert machine.stop() == 0


def test_what_the_unit_of_the_worker_starts_stops_in_time(dsn: str) -> None:
    unit = units()["cms-worker.service"]
    assert int(value(unit, "TimeoutStopSec")) == STOP_SECONDS
    with (
        new_folder() as folder,
        started(words_of(unit), folder / "worker", DATABASE_URL=dsn) as machine,
    ):
        await_worker(dsn)
        assert machine.stop() == 0


def await_worker(dsn: str) -> None:
    """Wait until a worker looks for jobs."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        eventually(lambda: connection.execute("SELECT FROM procrastinate_workers").fetchall())


def container_file() -> str:
    return (CHECKOUT / "Containerfile").read_text()


def test_what_the_container_starts_answers(dsn: str) -> None:
    (command,) = re.findall(r"^CMD (.*)$", container_file(), re.MULTILINE)
    words = json.loads(command)
    words = [str(PROGRAMS / words[0]), *words[1:]]
    words = [word.replace("/opt/cms/gunicorn", str(CHECKOUT / "gunicorn")) for word in words]
    with new_folder() as folder, started(words, folder / "web", DATABASE_URL=dsn) as machine:
        machine.await_answer()
        assert machine.stop() == 0


def test_the_container_gets_extras_that_there_are_and_no_secrets() -> None:
    (extras,) = re.findall(r"^ARG EXTRAS=(.*)$", container_file(), re.MULTILINE)
    known = re.findall(r"^(\w+) =$", (CHECKOUT / "setup.cfg").read_text(), re.MULTILINE)
    assert set(extras.split(",")) <= set(known)
    ignored = (CHECKOUT / ".dockerignore").read_text().split()
    assert {".env", "data", ".git"} <= set(ignored)


def test_the_container_is_built_and_answers_where_there_is_a_builder(dsn: str) -> None:
    (base,) = re.findall(r"^ARG PYTHON=(.*)$", container_file(), re.MULTILINE)
    builder = working_builder(base)
    if builder is None:
        pytest.xfail(f"no program here builds containers from {base}")
    builder.build(CHECKOUT, IMAGE)
    port = free_port()
    settings = {"PORT": str(port), "DATABASE_URL": dsn, "HOST": "127.0.0.1"}
    with builder.container(IMAGE, {**settings, "SECRET": SETTINGS["SECRET"]}) as container:
        assert container.output_of("id", "--user") == "8055\n"
        (command,) = re.findall(r"^CMD (.*)$", container_file(), re.MULTILINE)
        machine = Machine([], {}, CHECKOUT, port, process=container.start(*json.loads(command)))
        try:
            machine.await_answer()
            ping = requests.get(f"{machine.url}/server/ping", timeout=TIMEOUT_SECONDS)
            assert ping.text == "pong"
            assert container.stop() == 0
        finally:
            machine.kill()
