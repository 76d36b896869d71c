"""Pages of the documentation, pasted into a shell beside a real service."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.smoke.running import Service, environment

ROOT = Path(__file__).parent.parent.parent
PASTE_SECONDS = 120
BLOCK = re.compile(r"```sh\n(?P<commands>.*?)```\n(?:```json\n(?P<answer>.*?)```\n)?", re.DOTALL)
END_OF_BLOCK = "---- end of block ----"


@dataclass(frozen=True, slots=True)
class Block:
    """Commands of a page, and the answers that it shows under them."""

    commands: str
    answers: list[object] | None


def blocks_of(text: str) -> list[Block]:
    """Return the commands for a shell that a page has."""
    blocks = []
    for match in BLOCK.finditer(text):
        answer = match["answer"]
        blocks.append(Block(match["commands"], None if answer is None else parsed(answer)))
    return blocks


def parsed(text: str) -> list[object]:
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def require_shown_answers(service: Service, page: Sequence[Block]) -> None:
    """Paste the blocks of a page, and compare what they print with the answers of the page."""
    printed = _pasted(
        service, "".join(f"{block.commands}\necho '{END_OF_BLOCK}'\n" for block in page)
    )
    assert len(printed) == len(page)
    for block, output in zip(page, printed, strict=True):
        if block.answers is None:
            assert '"errors"' not in output, block.commands
        else:
            assert parsed(output) == block.answers, block.commands


def _pasted(service: Service, commands: str) -> list[str]:
    """Run the page's commands in one shell, and return what each block printed."""
    for_this_service = commands.replace("127.0.0.1:8055", f"127.0.0.1:{service.port}")
    script = for_this_service.replace(".venv/bin/cms", f'"{sys.executable}" -m cms')
    shell = subprocess.run(
        # Aliases as in the shell of a reader.
        ["bash", "-O", "expand_aliases", "-c", script],
        cwd=service.folder,
        env=environment(service.folder, service.port),
        capture_output=True,
        text=True,
        timeout=PASTE_SECONDS,
        check=False,
    )
    assert shell.returncode == 0, shell.stderr
    return shell.stdout.split(f"{END_OF_BLOCK}\n")[:-1]
