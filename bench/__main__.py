"""`python -m bench`: starts what is needed, measures, prints the table and keeps the results."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

import orjson

from bench import (
    assets,
    bulk,
    crowds,
    data,
    first,
    growth,
    importing,
    searching,
    uploading,
    workers,
)
from bench.cases import READS, RULED_READS, WRITES
from bench.chart import chart
from bench.report import Report, as_data, table
from bench.rounds import Length, Tokens, compare
from bench.stage import (
    BenchEnvironment,
    environment,
    login,
    prepared,
    sender,
    service_and_floor,
    temporary_folder,
)

RESULTS = Path(__file__).with_name("results")
QUICK = Length(3, 0.5)
FULL = Length(19, 0.5)
QUICK_SIZES = (10_000, 100_000)


def main() -> None:
    arguments = _parse_arguments()
    length = QUICK if arguments.quick else FULL
    sizes: tuple[int, ...] = growth.SIZES
    if arguments.large:
        sizes = growth.LARGE
    elif arguments.quick:
        sizes = QUICK_SIZES
    with temporary_folder() as folder:
        with prepared(folder) as stage:
            report, token = _measure(stage, length, sizes, quick=arguments.quick)
        first_seconds = first.measure(folder, environment(folder), token=token)
    report = replace(report, first_seconds=first_seconds)
    _save_report(report)
    print(table(report))


def _measure(
    stage: BenchEnvironment, length: Length, sizes: tuple[int, ...], *, quick: bool
) -> tuple[Report, str]:
    with service_and_floor(stage) as (service, floor):
        token = login(service)
        _announce("Making the data")
        data.make(sender(service, token), stage.dsn)
        tokens = Tokens(token, data.make_member(stage.dsn))
        results = []
        for case in READS + RULED_READS + WRITES:
            _announce(case.name)
            results.append(compare(case, service, floor, tokens=tokens, length=length))
        memory = bulk.memory(service.workers())
        _announce(f"create {bulk.ROWS:,} in one POST")
        post_load = bulk.post_load(stage.folder, token=token, times=3 if quick else 7)
        created = bulk.measure(service, stage.dsn, stage.folder, post_load)
        _announce("Growth by depth and by size")
        growth_by_depth = growth.by_depth(service, token=token, length=length)
        growth_by_size = growth.by_size(
            service, stage.dsn, tokens=tokens, sizes=sizes, length=length
        )
        _announce("Search")
        search = searching.measure(
            service, stage.dsn, token=token, rows=100_000 if quick else searching.ROWS
        )
        rows = importing.QUICK_ROWS if quick else importing.ROWS
        _announce(f"Import of {rows:,} rows")
        import_load = importing.imported(stage.folder, token=token, rows=rows)
        imported = bulk.measure(service, stage.dsn, stage.folder, import_load)
        _announce("Assets and uploads")
        asset_result = assets.measure(stage, service, floor, tokens=tokens, length=length)
        uploaded = uploading.measure(service, stage.folder, token=token, times=3 if quick else 5)
        _announce("Slow clients and overload")
        crowd_results = crowds.slow(service, tokens), crowds.overloaded(service, tokens)
        _announce("Both worker classes")
        cases = [case for case in (*READS, *WRITES) if case.rows == 1 and case.name != "1,000 rows"]
        worker_comparisons = workers.measure(
            stage, [*cases, asset_result.case], tokens=tokens, length=length
        )
    results.append(asset_result.stored)
    report = Report(
        results,
        created,
        imported,
        memory,
        growth_by_size,
        growth_by_depth,
        search,
        asset_result.first,
        uploaded,
        worker_comparisons,
        *crowd_results,
        quick,
    )
    return report, token


def _parse_arguments() -> Namespace:
    parser = ArgumentParser(
        prog="python -m bench", description="Measure the service beside its floor."
    )
    parser.add_argument("--quick", action="store_true", help="about a minute, with more noise")
    parser.add_argument(
        "--large", action="store_true", help="also 10,000,000 rows, which take minutes to make"
    )
    return parser.parse_args()


def _save_report(report: Report) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "latest.json").write_bytes(
        orjson.dumps(as_data(report), option=orjson.OPT_INDENT_2) + b"\n"
    )
    (RESULTS / "latest.svg").write_text(chart(report.results), encoding="utf-8")


def _announce(text: str) -> None:
    print(f"{text} …", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
