"""All kinds of requests at once, more than the machine can do: no error, and memory stays flat.

CMS_SATURATION_SECONDS is how long that lasts: a minute, unless set. 503 with Retry-After is what
a server at its limits may answer (docs/deployment.md#limits-of-event); of a hundred requests none
should be.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
import psycopg
import pytest

from tests.faults.mixed_load import CLIENTS, MixedClient, Site, Tally, make_site, mixed_load, wait
from tests.machines.installation import Installation, installation
from tests.smoke.running import new_folder
from tests.waiting import eventually

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("CMS_SATURATION_SECONDS", "60"))
KINDS = 14
MAX_SHARE_UNAVAILABLE = 0.01
MORE = 25_000_000
"""Bytes that a process may hold more in the last fifth of the time than in the second one."""


@dataclass(frozen=True)
class Memory:
    """The memory of processes, once a second."""

    processes: list[psutil.Process]
    samples: dict[int, list[int]]

    def sample(self) -> None:
        for process in self.processes:
            self.samples[process.pid].append(process.memory_info().rss)

    def fifths(self) -> dict[int, list[int]]:
        """Return the least memory that each process had in each fifth of the time.

        What single requests need comes and goes; what is never given back stays.
        """
        smallest = {}
        for pid, sizes in self.samples.items():
            length = len(sizes) // 5
            smallest[pid] = [min(sizes[n * length : (n + 1) * length]) for n in range(5)]
        return smallest


def processes_of(machines: Installation) -> list[psutil.Process]:
    """Return the workers of the web servers, and the job workers."""
    workers = []
    for machine in machines.web:
        assert machine.process
        workers += psutil.Process(machine.process.pid).children()
    for machine in machines.jobs:
        assert machine.process
        workers.append(psutil.Process(machine.process.pid))
    return workers


@pytest.fixture(scope="module")
def machines(module_dsn: str) -> Iterator[Installation]:
    with new_folder() as folder:
        settings = {
            "WEB_CONCURRENCY": "1",
            # One folder, as several machines have it.
            "STORAGE_LOCATIONS": "local",
            "STORAGE_LOCAL_DRIVER": "local",
            "STORAGE_LOCAL_ROOT": str(folder / "files"),
        }
        with installation(folder, module_dsn, settings, web=2, workers=1) as machines:
            yield machines


def test_mixed_load_at_saturation_meets_no_error_and_memory_stays_flat(
    machines: Installation, module_dsn: str
) -> None:
    admin = machines.first.login()
    site: Site = make_site(admin)
    tally = Tally()
    admins = [admin.at(machine) for machine in machines.web]
    clients = [MixedClient(admins[n % 2], site, tally, n) for n in range(CLIENTS)]
    memory = Memory(processes_of(machines), defaultdict(list))
    with mixed_load(clients):
        wait(SECONDS, each=memory.sample)
    fifths = memory.fifths()
    report(tally, memory)
    assert tally.wrong == []
    assert len(tally.kinds) == KINDS
    assert tally.unavailable_count <= tally.total * MAX_SHARE_UNAVAILABLE
    assert [process.pid for process in processes_of(machines)] == list(fifths)
    assert {pid: sizes for pid, sizes in fifths.items() if sizes[-1] - sizes[1] > MORE} == {}
    assert "Traceback" not in machines.log_text()
    eventually(lambda: runs_left(module_dsn) == 0)


def runs_left(dsn: str) -> int:
    """Return how many runs of flows are not done, which were queued or have failed."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT count(*) FROM system_flow_runs WHERE state <> 'done'")
        return int(row.fetchall()[0][0])


def report(tally: Tally, memory: Memory) -> None:
    """Print what the load came to."""
    print(f"{tally.total} requests in {SECONDS:g} s, {tally.unavailable_count} were told to wait")
    for (kind, status), count in sorted(tally.answers.items()):
        print(f"  {kind}: {status} {count} times")
    for process, fifths in zip(memory.processes, memory.fifths().values(), strict=True):
        minima = ", ".join(f"{size / 1e6:.0f}" for size in fifths)
        maximum = max(memory.samples[process.pid])
        words = " ".join(process.cmdline()[1:4])
        print(f"  {words}: at least {minima} MB in each fifth, at most {maximum / 1e6:.0f} MB")
