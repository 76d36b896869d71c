"""Variables that no setting has and whose names resemble one: most likely they are misspelt."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path

from cms.config import Config, variables_of
from cms.config.settings import SETTINGS

_SIMILARITY = 0.9
"""Of 1: one wrong letter of twelve, or two that changed places."""


def misspelt_settings(config: Config, environ: Mapping[str, str], *, folder: Path) -> Iterator[str]:
    """Yield a sentence for each variable of the environment and of `folder/.env`."""
    names = [setting.name for setting in SETTINGS]
    known = {*names, *(f"{name}_FILE" for name in names), *config.flows_env}
    # Those of locations and providers have checks of their own.
    prefixes = [f"STORAGE_{location.name.upper()}_" for location in config.locations]
    prefixes += [f"AUTH_{provider.name.upper()}_" for provider in config.providers]
    for variable in sorted(variables_of(environ, folder=folder)):
        if variable in known or variable.startswith(tuple(prefixes)):
            continue
        bare_name = variable.removesuffix("_FILE")
        similar = difflib.get_close_matches(bare_name, names, n=1, cutoff=_SIMILARITY)
        if similar:
            yield f"{variable} is no setting and has no effect: {similar[0]}?"
