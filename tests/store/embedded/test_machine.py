"""The embedded server starts with settings for the machine, and with
those that somebody has set instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from cms.embedded.cluster import machine_settings
from cms.embedded.lifetime import start
from cms.processes.machine import GIBIBYTE, MEBIBYTE, Machine, present_machine
from tests.store.embedded.servers import FAST, moved

slow = pytest.mark.slow

NO_CGROUPS = Path("/nonexistent")


def size(text: str) -> int:
    assert text.endswith("MB")
    return int(text.removesuffix("MB")) * MEBIBYTE


def settings_of(dsn: str) -> dict[str, str]:
    with psycopg.connect(dsn) as session:
        rows = session.execute("SELECT name, current_setting(name) FROM pg_settings").fetchall()
    return dict(rows)


def write(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"{text}\n")


def test_more_memory_and_more_cores_are_used_and_never_too_much() -> None:
    small = machine_settings(Machine(GIBIBYTE // 2, 1))
    large = machine_settings(Machine(64 * GIBIBYTE, 32))
    for name in ("shared_buffers", "effective_cache_size", "work_mem", "maintenance_work_mem"):
        assert size(small[name]) < size(large[name])
    for name in ("max_connections", "max_parallel_workers", "max_parallel_workers_per_gather"):
        assert int(small[name]) < int(large[name])
    for memory in (GIBIBYTE // 2, GIBIBYTE, 4 * GIBIBYTE, 64 * GIBIBYTE, 512 * GIBIBYTE):
        settings = machine_settings(Machine(memory, 2))
        assert size(settings["shared_buffers"]) <= memory / 4
        # As many sorts at once as there are connections take no more than there is.
        if memory >= GIBIBYTE:
            total = size(settings["work_mem"]) * int(settings["max_connections"])
            assert total <= memory


def test_the_limit_of_a_container_counts_and_that_of_any_group_above_it(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/system.slice/cms.service\n")
    everything = present_machine(tmp_path / "none", NO_CGROUPS)
    write(tmp_path / "cgroup/system.slice/cms.service", "memory.max", "max")
    assert present_machine(tmp_path / "cgroup", own) == everything
    write(tmp_path / "cgroup/system.slice", "memory.max", str(300 * MEBIBYTE))
    assert present_machine(tmp_path / "cgroup", own).memory == 300 * MEBIBYTE
    write(tmp_path / "cgroup/system.slice/cms.service", "memory.max", str(200 * MEBIBYTE))
    write(tmp_path / "cgroup/system.slice/cms.service", "cpu.max", "50000 100000")
    assert present_machine(tmp_path / "cgroup", own) == Machine(200 * MEBIBYTE, 1)


def test_a_container_whose_group_is_the_root_has_its_limits_there(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/docker/4f5e\n")
    write(tmp_path / "cgroup", "memory.max", str(200 * MEBIBYTE))
    write(tmp_path / "cgroup", "cpu.max", "max 100000")
    assert present_machine(tmp_path / "cgroup", own).memory == 200 * MEBIBYTE


def test_the_first_version_of_cgroups_has_a_folder_for_each_controller(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("5:memory:/docker/4f5e\n3:cpu,cpuacct:/docker/4f5e\n1:name=systemd:/x\n")
    write(tmp_path / "cgroup/memory/docker", "memory.limit_in_bytes", str(2**63 - 4096))
    write(tmp_path / "cgroup/memory/docker/4f5e", "memory.limit_in_bytes", str(200 * MEBIBYTE))
    write(tmp_path / "cgroup/cpu,cpuacct/docker/4f5e", "cpu.cfs_quota_us", "100000")
    write(tmp_path / "cgroup/cpu,cpuacct/docker/4f5e", "cpu.cfs_period_us", "100000")
    assert present_machine(tmp_path / "cgroup", own) == Machine(200 * MEBIBYTE, 1)


@pytest.fixture
def conf(data: Path) -> Iterator[Path]:
    """The cluster's postgresql.conf, which is as it was for the next test."""
    files = [data / "postgres" / name for name in ("postgresql.conf", "postgresql.auto.conf")]
    texts = [file.read_text() for file in files]
    yield files[0]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)


@slow
def test_a_new_server_has_the_settings_of_the_machine(data: Path) -> None:
    expected = machine_settings(present_machine())
    with start(data, settings=FAST) as server:
        present = settings_of(server.dsn)
    # PostgreSQL shows 1024MB as 1GB.
    normalised = {name: present[name].replace("GB", "*1024MB") for name in expected}
    for name, value in expected.items():
        assert _number(normalised[name]) == _number(value), name


def _number(value: str) -> int:
    factor, _, unit = value.removesuffix("MB").partition("*")
    return int(factor) * int(unit or 1)


@slow
def test_what_somebody_has_set_stays(data: Path, conf: Path) -> None:
    with conf.open("a") as file:
        file.write("shared_buffers = 40MB\nwork_mem = 5MB\n")
    with (
        start(data, settings=FAST) as server,
        psycopg.connect(server.dsn, autocommit=True) as session,
    ):
        session.execute("ALTER SYSTEM SET maintenance_work_mem = '33MB'")
        session.execute("ALTER SYSTEM SET work_mem = '6MB'")
    with start(data, settings={**FAST, "max_connections": "77"}) as server:
        present = settings_of(server.dsn)
    names = ("shared_buffers", "work_mem", "maintenance_work_mem", "max_connections")
    assert [present[name] for name in names] == ["40MB", "6MB", "33MB", "77"]


@slow
def test_data_of_an_earlier_version_keeps_what_it_was_made_with(data: Path, conf: Path) -> None:
    conf.write_text(f"{conf.read_text()}max_connections = '200'\nshared_buffers = '128MB'\n")
    with start(data, settings=FAST) as server:
        present = settings_of(server.dsn)
    assert (present["max_connections"], present["shared_buffers"]) == ("200", "128MB")


@slow
def test_the_file_is_found_wherever_the_data_has_been_moved(data: Path, folder: Path) -> None:
    start(data, settings=FAST).stop()
    with (
        moved(data / "postgres", folder / "it's\\here") as new_home,
        start(new_home, settings=FAST) as server,
    ):
        present = settings_of(server.dsn)
    assert present["config_file"] == str(new_home / "postgres.conf")


@slow
def test_the_file_is_written_only_where_it_is_another(data: Path) -> None:
    """So that a server starts again though its disk is full."""
    path = data / "postgres.conf"
    start(data, settings=FAST).stop()
    first = path.stat()
    start(data, settings=FAST).stop()
    assert path.stat().st_ino == first.st_ino
    path.write_text("work_mem = 1MB")
    with start(data, settings=FAST) as server:
        assert settings_of(server.dsn)["work_mem"] != "1MB"
