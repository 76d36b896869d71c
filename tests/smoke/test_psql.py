"""`psql` on the embedded server, as docs/deployment.md shows it."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.smoke.pasting import ROOT
from tests.smoke.running import new_folder, serving

pytestmark = [pytest.mark.slow, pytest.mark.release]


@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is needed")
def test_psql_reads_the_tables_of_the_embedded_server() -> None:
    page = (ROOT / "docs" / "deployment.md").read_text()
    shown = re.search(r"### psql\n.*?```sh\n(psql .*?)\n```", page, re.DOTALL)
    assert shown
    command = f"{shown[1]} -Atc 'SELECT email FROM system_users'"
    with new_folder() as folder, serving(folder):
        read = subprocess.run(
            ["sh", "-c", command],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (read.stdout, read.stderr) == ("admin@example.com\n", "")
