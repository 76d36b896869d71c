"""Containers, by whichever program builds and runs them: podman, docker or buildah."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.smoke.running import TIMEOUT_SECONDS

QUERY_SECONDS = 60
PULL_SECONDS = 300
BUILD_SECONDS = 1800

# Without namespaces of the kernel, so that it works inside another container, too.
_CHROOT = ("--isolation", "chroot")


@dataclass
class Container:
    """Commands with the files and settings of an image; one of them is started and stopped."""

    words: list[str]
    """What runs a command that follows."""
    is_buildah: bool
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def output_of(self, *command: str) -> str:
        return subprocess.run(
            [*self.words, *command],
            capture_output=True,
            text=True,
            timeout=QUERY_SECONDS,
            check=True,
        ).stdout

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        self.process = subprocess.Popen([*self.words, *command])
        return self.process

    def stop(self) -> int:
        """Send SIGTERM to the command and return its exit code."""
        assert self.process, "it was not started"
        if self.is_buildah:
            # It would kill the command itself.
            self._command_process().terminate()
        else:
            self.process.terminate()
        return self.process.wait(TIMEOUT_SECONDS)

    def _command_process(self) -> psutil.Process:
        assert self.process
        inside = psutil.Process(self.process.pid).children(recursive=True)
        # The oldest of those that are no part of buildah.
        commands = [one for one in inside if not one.cmdline()[0].startswith("buildah")]
        return min(commands, key=lambda one: one.create_time())


@dataclass(frozen=True)
class Builder:
    """A program that builds images and runs commands in them."""

    program: str

    @property
    def is_buildah(self) -> bool:
        return Path(self.program).name == "buildah"

    def has_image(self, name: str) -> bool:
        """Tell whether an image is here, or comes from its registry."""
        return self._succeeds("inspect", "--type", "image", name) or self._succeeds("pull", name)

    def can_run(self, image: str) -> bool:
        """Tell whether a command starts in an image: some machines have a program that cannot."""
        try:
            with self.container(image, {}) as container:
                container.output_of("true")
        except subprocess.CalledProcessError:
            return False
        return True

    def build(self, folder: Path, image: str) -> None:
        options = _CHROOT if self.is_buildah else ()
        words = [
            self.program,
            "build",
            *options,
            "--pull=false",
            "-f",
            "Containerfile",
            "-t",
            image,
            ".",
        ]
        subprocess.run(words, cwd=folder, timeout=BUILD_SECONDS, check=True)

    @contextmanager
    def container(self, image: str, settings: Mapping[str, str]) -> Iterator[Container]:
        """Yield a container of an image, in the network of this machine."""
        variables = [f"--env={name}={value}" for name, value in settings.items()]
        if not self.is_buildah:
            options = ["--rm", "--network", "host", *variables]
            yield Container([self.program, "run", *options, image], is_buildah=False)
            return
        made = [self.program, "from", "--pull=never", image]
        name = subprocess.run(made, capture_output=True, text=True, check=True).stdout.strip()
        try:
            words = [self.program, "run", *_CHROOT, *variables, name, "--"]
            yield Container(words, is_buildah=True)
        finally:
            subprocess.run([self.program, "rm", name], capture_output=True, check=True)

    def _succeeds(self, *words: str) -> bool:
        done = subprocess.run(
            [self.program, *words], capture_output=True, timeout=PULL_SECONDS, check=False
        )
        return done.returncode == 0


def working_builder(base: str) -> Builder | None:
    """Return a program that has an image to build on, and can run commands in it."""
    for name in ("podman", "docker", "buildah"):
        program = shutil.which(name)
        if program is None:
            continue
        asked = subprocess.run(
            [program, "info"], capture_output=True, timeout=QUERY_SECONDS, check=False
        )
        builder = Builder(program)
        if asked.returncode == 0 and builder.has_image(base) and builder.can_run(base):
            return builder
    return None
