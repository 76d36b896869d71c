"""`python -m bench`: starts what is needed, measures, prints the table and keeps the results."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import orjson

from bench import (
    assets,
    bulk,
    crowds,
    data,
    depth,
    endurance,
    first,
    flows,
    growth,
    importing,
    limiting,
    logins,
    relevance,
    searching,
    structures,
    uploading,
)
from bench.assets import AssetResult
from bench.bulk import Bulk
from bench.cases import PING, READS, RULED_READS, WRITES, Case
from bench.chart import chart
from bench.flows import FlowResult
from bench.growth import Growth
from bench.growth_chart import charts
from bench.growth_report import growth_data, growth_table
from bench.logins import LoginRound, login_table
from bench.ratio_check import compare_ratios, lines, recorded_ratios
from bench.report import Report, as_data, flow_table, table
from bench.rounds import Length, Result, Tokens, compare
from bench.searching import Search
from bench.stage import (
    BenchEnvironment,
    Servers,
    environment,
    login,
    prepared,
    sender,
    service_and_floor,
    temporary_folder,
)
from bench.tables import promise_table

RESULTS = Path(__file__).with_name("results")
QUICK = Length(3, 0.5)
FULL = Length(19, 0.5)
CHECK = Length(7, 0.5)
QUICK_SIZES = (10_000, 100_000)
_CASES = (PING, *READS, *RULED_READS, *WRITES)


class Measured(NamedTuple):
    """The report of a run, and a token by which its service is asked again after a new start."""

    report: Report
    token: str


@dataclass(frozen=True, slots=True)
class BenchRun:
    """One run: its servers, the callers, and how long and how much is measured."""

    stage: BenchEnvironment
    servers: Servers
    tokens: Tokens
    length: Length
    quick: bool

    def cases(self) -> list[Result]:
        results = []
        for case in _CASES:
            _announce(case.name)
            results.append(compare(case, *self.servers, tokens=self.tokens, length=self.length))
        return results

    def created(self) -> Bulk:
        _announce(f"create {bulk.ROWS:,} in one POST")
        load = bulk.post_load(
            self.stage.folder, token=self.tokens.admin, times=3 if self.quick else 7
        )
        return bulk.measure(self.servers.service, self.stage.dsn, self.stage.folder, load)

    def imported(self) -> Bulk:
        rows = importing.QUICK_ROWS if self.quick else importing.ROWS
        _announce(f"Import of {rows:,} rows")
        load = importing.imported(self.stage.folder, token=self.tokens.admin, rows=rows)
        return bulk.measure(self.servers.service, self.stage.dsn, self.stage.folder, load)

    def search(self) -> Search:
        _announce("Search")
        rows = 100_000 if self.quick else searching.ROWS
        return searching.measure(
            self.servers.service, self.stage.dsn, token=self.tokens.admin, rows=rows
        )

    def growth(self, sizes: Sequence[int]) -> Growth:
        _announce("Growth by size")
        return growth.by_size(
            self.servers.service,
            self.stage.dsn,
            tokens=self.tokens,
            sizes=sizes,
            length=self.length,
        )

    def ratio(self, name: str) -> float:
        _announce(name)
        case = next(case for case in _CASES if case.name == name)
        return compare(case, *self.servers, tokens=self.tokens, length=self.length).ratio

    def flows(self) -> FlowResult:
        _announce("Flows")
        return flows.measure(
            self.stage, self.servers.service, tokens=self.tokens, length=self.length
        )

    def assets(self) -> AssetResult:
        return assets.measure(self.stage, *self.servers, tokens=self.tokens, length=self.length)


def main() -> None:
    arguments = _parse_arguments()
    length = QUICK if arguments.quick else FULL
    sizes: tuple[int, ...] = growth.SIZES
    if arguments.large:
        sizes = growth.LARGE
    elif arguments.quick:
        sizes = QUICK_SIZES
    with temporary_folder() as folder:
        if arguments.check:
            sys.exit(_check(folder))
        if arguments.flows or arguments.growth:
            _measure_part(folder, length, sizes, only_flows=arguments.flows)
            return
        if arguments.logins:
            with prepared(folder) as stage:
                print(login_table(_measure_logins(stage, length)))
            return
        if arguments.memory:
            with prepared(folder) as stage, _running(stage, length, quick=arguments.quick) as bench:
                lasting = endurance.measure(stage, tokens=bench.tokens, quick=arguments.quick)
            print(lasting, *promise_table(endurance.endurance_promises(lasting)), sep="\n")
            return
        if arguments.relevance:
            rows = relevance.QUICK_ROWS if arguments.quick else relevance.ROWS
            with prepared(folder) as stage:
                print(relevance.relevance_table(relevance.measure(stage, rows=rows)))
            return
        if arguments.structures:
            with prepared(folder) as stage:
                print(structures.structure_table(structures.measure(stage, quick=arguments.quick)))
            return
        with prepared(folder) as stage:
            report, token = _measure(stage, length, sizes, quick=arguments.quick)
        # The database has stopped: this start is that of a service with data.
        first_seconds = first.measure(folder, environment(folder), token=token)
    report = replace(report, first_seconds=first_seconds)
    _save_report(report)
    print(table(report))


def _measure_part(folder: Path, length: Length, sizes: Sequence[int], *, only_flows: bool) -> None:
    with prepared(folder) as stage, _running(stage, length, quick=False) as run:
        if only_flows:
            print(flow_table(run.flows()))
            return
        grown = run.growth(sizes)
    _save_growth(grown)
    print(growth_table(grown))


def _check(folder: Path) -> int:
    """Compare the ratios of a quick run with those that are recorded; return the exit code."""
    recorded = recorded_ratios(orjson.loads((RESULTS / "latest.json").read_bytes()))
    with prepared(folder) as stage, _running(stage, CHECK, quick=True) as run:
        compared = compare_ratios(recorded, [case.name for case in _CASES], run.ratio)
    print("\n".join(lines(compared)))
    return 0 if all(one.is_kept for one in compared) else 1


def _measure(
    stage: BenchEnvironment, length: Length, sizes: tuple[int, ...], *, quick: bool
) -> Measured:
    with _running(stage, length, quick=quick) as run:
        service = run.servers.service
        tokens = run.tokens
        token = tokens.admin
        results = run.cases()
        # Now: the calls with many rows make workers grow.
        memory = bulk.memory(service.workers())
        created = run.created()
        _announce("Growth by depth")
        depths = depth.by_depth(service, token=token, length=length)
        grown = run.growth(sizes)
        search = run.search()
        imported = run.imported()
        flow_result = run.flows()
        _announce("Assets and uploads")
        asset_result = run.assets()
        uploaded = uploading.measure(service, stage.folder, token=token, times=3 if quick else 5)
        _announce("Rate limits")
        limited = limiting.measure(
            stage, run.servers.floor, _limit_cases(), tokens=tokens, length=length
        )
        _announce("Slow clients and overload")
        slow = crowds.slow(service, tokens)
        overloaded = crowds.overloaded(service, tokens)
        _announce("Memory over many requests")
        lasting = endurance.measure(stage, tokens=tokens, quick=quick)
        # Late: it leaves 100,000 users behind.
        _announce("Logins")
        login_rounds = logins.measure(stage, token)
    _announce("Structures of many collections")
    structure_result = structures.measure(stage, quick=quick)
    report = Report(
        results=[*results, asset_result.stored],
        bulk=created,
        imported=imported,
        memory=memory,
        growth=grown,
        depths=depths,
        search=search,
        transforms=asset_result.first,
        uploading=uploaded,
        limits=limited,
        flows=flow_result,
        crowds=slow,
        overloads=overloaded,
        endurance=lasting,
        logins=login_rounds,
        structures=structure_result,
        quick=quick,
    )
    return Measured(report, token)


def _measure_logins(stage: BenchEnvironment, length: Length) -> list[LoginRound]:
    with _running(stage, length, quick=False) as run:
        token = run.tokens.admin
    # Both servers have stopped: another one is started.
    return logins.measure(stage, token)


@contextmanager
def _running(stage: BenchEnvironment, length: Length, *, quick: bool) -> Iterator[BenchRun]:
    """Start both servers and make the data."""
    with service_and_floor(stage) as servers:
        token = login(servers.service)
        _announce("Making the data")
        data.make(sender(servers.service, token), stage.dsn)
        tokens = Tokens(token, data.make_member(stage.dsn))
        yield BenchRun(stage, servers, tokens, length, quick)


def _limit_cases() -> list[Case]:
    """Return the shortest read and the shortest write, of which counting is the largest part."""
    return [case for case in (*READS, *WRITES) if case.name in ("one item by key", "update one")]


def _parse_arguments() -> Namespace:
    parser = ArgumentParser(
        prog="python -m bench", description="Measure the service beside its floor."
    )
    parser.add_argument("--quick", action="store_true", help="a part of the time, with more noise")
    parser.add_argument(
        "--large", action="store_true", help="also 10,000,000 rows, which take minutes to make"
    )
    parser.add_argument(
        "--flows", action="store_true", help="measure only flows, and keep no results"
    )
    parser.add_argument(
        "--logins",
        action="store_true",
        help="measure only reads beside 1,000 logins a minute, and keep no results",
    )
    parser.add_argument("--growth", action="store_true", help="measure only growth by size")
    parser.add_argument(
        "--check",
        action="store_true",
        help="only compare the ratios with the recorded ones: fails where one is below 0.85 of its",
    )
    parser.add_argument(
        "--structures", action="store_true", help="measure only structures, and keep no results"
    )
    parser.add_argument(
        "--relevance", action="store_true", help="measure only pages by relevance, keep no results"
    )
    parser.add_argument(
        "--memory", action="store_true", help="measure only memory, and keep no results"
    )
    return parser.parse_args()


def _save_report(report: Report) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "latest.json").write_bytes(
        orjson.dumps(as_data(report), option=orjson.OPT_INDENT_2) + b"\n"
    )
    (RESULTS / "latest.svg").write_text(chart(report.results), encoding="utf-8")
    _save_growth(report.growth)


def _save_growth(grown: Growth) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "growth.json").write_bytes(
        orjson.dumps(growth_data(grown), option=orjson.OPT_INDENT_2) + b"\n"
    )
    for name, picture in charts(grown).items():
        (RESULTS / f"{name}.svg").write_text(picture, encoding="utf-8")


def _announce(text: str) -> None:
    print(f"{text} …", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
