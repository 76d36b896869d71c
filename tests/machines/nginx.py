"""Debian's nginx with the configuration of docs/deployment.md, in front of machines of a test."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.machines.installation import CHECKOUT
from tests.smoke.pinging import ANSWERED, ping
from tests.smoke.running import TIMEOUT_SECONDS, free_port
from tests.waiting import eventually

MAIN = """
{user}
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
worker_processes 1;
events {{ worker_connections 2048; }}
http {{
    access_log off;
    client_body_temp_path {folder}/bodies;
    proxy_temp_path {folder}/answers;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {site}
}}
"""


def documented_site() -> str:
    """Return the configuration of docs/deployment.md."""
    text = (CHECKOUT / "docs" / "deployment.md").read_text()
    (site,) = re.findall(r"```nginx\n(.*?)```", text, re.DOTALL)
    return str(site)


def site_for(ports: Sequence[int], *, port: int, uploads: Path | None) -> str:
    """Return the documented configuration with the addresses of a test in it."""
    site = documented_site()
    servers = re.findall(r"server 10\.0\.0\.\d+:8055", site)
    for server, target in zip(servers, ports, strict=False):
        site = site.replace(server, f"server 127.0.0.1:{target}")
    site = re.sub(r".*server 10\.0\.0\.\d+:8055.*\n", "", site)  # there are fewer in this test
    assert "listen 80;" in site
    site = site.replace("listen 80;", f"listen 127.0.0.1:{port};")
    assert "/var/lib/cms/uploads/" in site
    return site.replace("/var/lib/cms/uploads/", f'"{uploads or "/none"}/"')


@contextmanager
def nginx(folder: Path, ports: Sequence[int], *, uploads: Path | None = None) -> Iterator[int]:
    """Run nginx in front of services at these ports, and yield its own port."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("nginx is needed")
    port = free_port()
    folder.mkdir()
    # As root its workers would be another account, which cannot enter the folders of a test.
    user = "user root;" if os.geteuid() == 0 else ""
    site = site_for(ports, port=port, uploads=uploads)
    file = folder / "nginx.conf"
    file.write_text(MAIN.format(user=user, folder=f'"{folder}"'.strip('"'), site=site))
    process = subprocess.Popen([program, "-c", str(file), "-e", str(folder / "error.log")])
    try:
        eventually(lambda: ping(port) == ANSWERED or process.poll() is not None)
        assert process.poll() is None
        yield port
    finally:
        process.terminate()
        process.wait(TIMEOUT_SECONDS)
