"""The page docs/example.md, pasted into a shell beside a real service."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.smoke.running import Service, environment, new_folder, serving

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parent.parent.parent / "docs" / "example.md"
BLOCK = re.compile(r"```sh\n(?P<commands>.*?)```\n(?:```json\n(?P<answer>.*?)```\n)?", re.DOTALL)
END_OF_BLOCK = "---- end of block ----"


@dataclass(frozen=True, slots=True)
class Block:
    """Commands of the page, and the answers that it shows under them."""

    commands: str
    answers: list[object] | None


def blocks() -> Iterator[Block]:
    for match in BLOCK.finditer(PAGE.read_text()):
        answer = match["answer"]
        yield Block(match["commands"], None if answer is None else parsed(answer))


def parsed(text: str) -> list[object]:
    return [json.loads(line) for line in text.splitlines() if line.strip()]


@pytest.fixture
def service() -> Iterator[Service]:
    with new_folder() as folder, serving(folder) as service:
        yield service


def pasted(service: Service, commands: str) -> list[str]:
    """Run the page's commands in one shell, and return what each block printed."""
    for_this_service = commands.replace("127.0.0.1:8055", f"127.0.0.1:{service.port}")
    script = for_this_service.replace(".venv/bin/cms", f'"{sys.executable}" -m cms')
    shell = subprocess.run(
        ["bash", "-c", script],
        cwd=service.folder,
        env=environment(service.folder, service.port),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert shell.returncode == 0, shell.stderr
    return shell.stdout.split(f"{END_OF_BLOCK}\n")[:-1]


def test_the_example_of_the_documentation_works_as_it_stands(service: Service) -> None:
    page = list(blocks())
    printed = pasted(
        service, "".join(f"{block.commands}\necho '{END_OF_BLOCK}'\n" for block in page)
    )
    assert len(printed) == len(page) > 10
    for block, output in zip(page, printed, strict=True):
        if block.answers is None:
            assert '"errors"' not in output, block.commands
        else:
            assert parsed(output) == block.answers, block.commands
