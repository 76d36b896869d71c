"""Functions and modules stay small (docs/code-map.md); what cannot be split without harm is named
with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from configparser import ConfigParser

import pytest

from tests.house.source_modules import FOLDERS, ROOT, Function, SourceModule, source_modules

pytestmark = pytest.mark.release  # reads every module, which takes seconds in each worker

MAX_LINES_OF_A_FUNCTION = 60
MAX_LINES_OF_A_MODULE = 600
MAX_LINES_OF_A_TEST_MODULE = 500
MAX_PARAMETERS = 6

LONG_FUNCTIONS: dict[str, str] = {}
LONG_MODULES: dict[str, str] = {"cms/config/settings.py": "one table, a setting in each entry"}

SIMULATED = {
    "tests/faults/mixed_load.py": "loads a service for so long",
    "tests/machines/test_nginx.py": "clients that read nothing for so long",
    "tests/machines/test_upgrades.py": "nginx asks a machine again after `fail_timeout`",
    "tests/mail/test_hanging_servers.py": "a server that drips",
    "tests/smoke/test_connections.py": "a client that takes its time",
    "tests/smoke/test_faults.py": "kills at any moment of a request",
    "tests/smoke/test_flow_runs.py": "an outage, and time for workers to do nothing wrong",
    "tests/smoke/test_worker.py": "time for a worker to end too early",
    "tests/sso/test_broken_providers.py": "a provider that drips",
    "tests/waiting.py": "looks again and again",
    "tests/web/echo.py": "an application that is slow",
    "tests/web/test_attacks.py": "clients that send and read slowly",
    "tests/web/test_clients.py": "clients that send slowly",
    "tests/web/test_pace.py": "clients that read at a pace",
    "tests/web/test_refusals.py": "clients that send at about a deadline",
}
"""The modules that sleep, and what that simulates; all others wait by `tests.waiting`."""


def modules() -> Iterator[SourceModule]:
    for folder in FOLDERS:
        yield from source_modules(folder)


def max_lines_of(module: SourceModule) -> int:
    if module.path.parts[0] == "tests":
        return MAX_LINES_OF_A_TEST_MODULE
    return MAX_LINES_OF_A_MODULE


def functions(*folders: str) -> Iterator[tuple[str, Function]]:
    for folder in folders:
        for module in source_modules(folder):
            for function in module.functions:
                yield f"{module.path}:{function.name}", function


def test_an_assignment_assigns_one_thing() -> None:
    lines = [f"{module.path}:{line}" for module in modules() for line in module.packed_assignments]
    assert lines == [], "give each of these assignments a line"


def test_a_conditional_expression_chooses_between_two() -> None:
    lines = [f"{module.path}:{line}" for module in modules() for line in module.nested_conditionals]
    assert lines == [], "write these choices as if statements"


def test_functions_are_short() -> None:
    too_long = [
        name
        for name, function in functions(*FOLDERS)
        if function.lines >= MAX_LINES_OF_A_FUNCTION and name not in LONG_FUNCTIONS
    ]
    assert too_long == []


def test_modules_are_short() -> None:
    too_long = [
        str(module.path)
        for module in modules()
        if module.line_count > max_lines_of(module) and str(module.path) not in LONG_MODULES
    ]
    assert too_long == []


def test_lines_are_short() -> None:
    lines = [
        f"{module.path}:{line}"
        for folder in FOLDERS
        for module in source_modules(folder)
        for line in module.long_lines
    ]
    assert lines == []


def test_most_functions_have_fewer_than_ten_lines() -> None:
    lengths = sorted(function.lines for _, function in functions("cms"))
    assert lengths[len(lengths) // 2] < 10


def test_functions_take_few_parameters_and_no_flag_by_position() -> None:
    too_many = [
        name for name, function in functions("cms") if function.parameters > MAX_PARAMETERS + 1
    ]
    assert too_many == []


def test_every_folder_of_the_service_is_in_the_wheel() -> None:
    configuration = ConfigParser()
    configuration.read(ROOT / "setup.cfg")
    packages = configuration["options"]["packages"].split()
    folders = {".".join(module.path.parent.parts) for module in source_modules("cms")}
    assert folders <= set(packages)


def test_only_what_simulates_something_slow_sleeps() -> None:
    sleeping = {str(module.path) for module in source_modules("tests") if module.sleeps}
    assert sleeping == SIMULATED.keys()
