"""The wheel: complete, tidy, and enough to run the service."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.smoke.running import TIMEOUT_SECONDS, await_gone, new_folder, serving

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).parents[2]
SOURCES = (
    "cms",
    "sql",
    "Makefile",
    "setup.cfg",
    "pyproject.toml",
    "MANIFEST.in",
    "README.md",
    "CHANGELOG.md",
    "requirements.lock",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built of a copy of the sources, so that nothing of an older build gets into it."""
    copy = tmp_path_factory.mktemp("sources")
    target = tmp_path_factory.mktemp("wheel")
    copy_sources(copy)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", target, copy)
    (built,) = target.glob("*.whl")
    return built


def copy_sources(target: Path) -> None:
    """Copy to a folder what builds need of the checkout."""
    for name in SOURCES:
        if (CHECKOUT / name).is_dir():
            shutil.copytree(
                CHECKOUT / name, target / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(CHECKOUT / name, target / name)


@pytest.fixture(scope="module")
def programs(wheel: Path) -> Iterator[Path]:
    """The programs of a new environment with the wheel in it; its
    dependencies are those of this one.
    """
    with new_folder() as folder:
        run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
        python = folder / "venv" / "bin" / "python"
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
        run(*pip, "install", "--no-deps", "--no-index", wheel)
        site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        here = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        Path(site, "dependencies.pth").write_text("\n".join(sorted(here)))
        yield python.parent


def run(*words: str | Path, seconds: float = TIMEOUT_SECONDS, **more: str) -> str:
    """Run a program outside the checkout to its end and return what it printed."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more
    result = subprocess.run(
        words,
        cwd="/",
        env=environ,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_wheel_holds_every_module_and_every_statement(wheel: Path) -> None:
    expected = {str(path.relative_to(CHECKOUT)) for path in (CHECKOUT / "cms").rglob("*.py")}
    expected |= {"cms/py.typed"}
    expected |= {f"cms/{path.relative_to(CHECKOUT)}" for path in (CHECKOUT / "sql").rglob("*.sql")}
    expected |= {
        str(path.relative_to(CHECKOUT)) for path in (CHECKOUT / "cms/mail/templates").iterdir()
    }
    names = set(zipfile.ZipFile(wheel).namelist())
    assert expected - names == set()
    assert "cms/sql/migrations/0001_system_tables.sql" in names


def test_the_wheel_takes_no_other_name_on_the_module_path(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"cms"}


def test_the_installed_command_prints_its_usage_and_what_is_set(programs: Path) -> None:
    assert "serve" in run(programs / "cms", "--help")
    assert "PORT=8055\n" in run(programs / "cms", "config")


def test_the_installed_package_finds_its_statements(programs: Path) -> None:
    source = (
        "import cms, cms.database.statements as s; print(cms.__file__, "
        "s.statement('list_migrations'))"
    )
    result = run(programs / "python", "-c", source)
    assert result.startswith(str(programs.parent))
    assert "FROM system_migrations" in result


def test_the_installed_command_serves(programs: Path) -> None:
    with new_folder() as folder:
        with serving(folder, python=str(programs / "python")) as service:
            address = f"http://127.0.0.1:{service.port}/server/ping"
            assert requests.get(address, timeout=TIMEOUT_SECONDS).text == "pong"
        assert service.wait_for_exit() == 0
        await_gone(folder)
