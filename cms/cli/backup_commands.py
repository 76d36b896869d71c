"""The commands for backups, as `cms` shows them; each imports its code when it runs."""

from __future__ import annotations

import click

from cms.cli.session import current_config, interruptible


@click.command()
@click.argument("archive")
def backup(archive: str) -> None:
    """Write the database and all files into one archive: a file, or s3://BUCKET/KEY.

    The service may run meanwhile. Files whose content is lost are named; the exit status is 3 then.
    """
    from cms.cli.backup import back_up

    with interruptible():
        status = back_up(current_config(), archive)
    raise SystemExit(status)


@click.command()
@click.argument("archive")
@click.option("--force", is_flag=True, help="Replace all that an installation holds.")
@click.option("--collection", metavar="NAME", help="The rows of this collection alone.")
def restore(archive: str, force: bool, collection: str | None) -> None:  # noqa: FBT001
    """Put an archive back into an empty installation, all of it or nothing.

    A damaged archive changes nothing. Files that it has no content of are named; the exit status is
    3 then. With --collection its rows come back into an installation that goes on: rows with the
    same key are replaced, all others stay.
    """
    from cms.cli.backup import restore, restore_collection

    if force and collection is not None:
        raise click.UsageError("--force is for whole archives, not for one collection.")
    status = 0
    with interruptible():
        if collection is None:
            status = restore(current_config(), archive, replaces=force)
        else:
            restore_collection(current_config(), archive, collection=collection)
    raise SystemExit(status)
