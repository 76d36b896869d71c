"""`cms upgrade`: the embedded server's data in a newer major version of PostgreSQL."""

from __future__ import annotations

import click

from cms.cli.session import announce, require_database, say
from cms.config import Config


def upgrade_embedded(config: Config) -> None:
    """Upgrade the data in DATA_DIR, and say where the old data is."""
    if config.database_url:
        raise click.ClickException(
            "DATABASE_URL names a server of your own, which is upgraded by its own means. "
            "Or restore a backup into a newer one: docs/backup.md tells how."
        )
    from cms.embedded import upgrade

    require_database(config)
    done = upgrade(config.data_dir, binaries=config.postgres_bin, announce=announce)
    if done is None:
        say("The data has the installed version of PostgreSQL already.")
        return
    say(f"Upgraded PostgreSQL {done.before} to {done.after}.")
    say(f"The old data is in {done.former_data}. Remove it when the service has run for a while.")
