"""Scripts of flows: what they may do, what stops them, and that nothing else waits for them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import psutil
import pytest

from cms.config import load
from cms.flows.scripts import script_pool
from cms.flows.scripts.script_pool import ScriptPool
from tests.waiting import eventually

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptPool]:
    pool = make(tmp_path_factory.mktemp("scripts"))
    yield pool
    pool.close()


def make(folder: Path, seconds: float = 2.0) -> ScriptPool:
    environ = {"DATA_DIR": str(folder), "FLOWS_RUN_SCRIPT_TIMEOUT": f"{round(seconds * 1000)}ms"}
    return ScriptPool(load(environ, folder=folder))


def body(statements: str) -> str:
    """Return a script whose function has these statements."""
    return f"module.exports = async function (data) {{ {statements} }}"


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if is_script_worker(child)]


def is_script_worker(process: psutil.Process) -> bool:
    try:
        return "cms.flows.scripts.script_worker" in process.cmdline()
    except psutil.NoSuchProcess:  # a zombie, too
        return False


@pytest.mark.parametrize(
    ("statements", "result"),
    [
        ("return data.$trigger.body.title.toLowerCase().replaceAll(' ', '-')", "a-title"),
        ("return { n: data.n + 1, list: [null, true, 'ü'] }", {"n": 3, "list": [None, True, "ü"]}),
        ("", None),
        ("return await Promise.all([1, Promise.resolve(2)])", [1, 2]),
        ("return await new Promise((resolve) => setTimeout(() => resolve('late'), 20))", "late"),
        ("return await new Promise((resolve) => setTimeout(resolve))", None),
        ("return new Date(0)", "1970-01-01T00:00:00.000Z"),
        ("return 'a\\nb\\u2028c'", "a\nb\u2028c"),
    ],
)
def test_a_script_gets_the_values_and_returns_json(
    pool: ScriptPool, statements: str, result: object
) -> None:
    data = {"$trigger": {"body": {"title": "A title"}}, "n": 2}
    outcome = pool.run(body(statements), data)
    assert (outcome.result, outcome.has_failed) == (result, False)


@pytest.mark.parametrize(
    "code",
    [
        "module.exports = (data) => data.n",
        "exports.default = async (data) => data.n",
        "'use strict'\nmodule.exports = function (data) { return data.n } // the end",
    ],
)
def test_a_function_may_be_exported_in_several_ways(pool: ScriptPool, code: str) -> None:
    assert pool.run(code, {"n": 7}).result == 7


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (body("throw new TypeError('no title')"), {"name": "TypeError", "message": "no title"}),
        (body("throw { code: 'OWN', n: 1 }"), {"code": "OWN", "n": 1}),
        (body("throw 5"), 5),
        (
            "module.exports = 5",
            {"name": "TypeError", "message": "module.exports must be a function"},
        ),
        ("module.exports = (", {"name": "SyntaxError", "message": "Unexpected token '}'"}),
    ],
)
def test_what_a_script_throws_is_reported(pool: ScriptPool, code: str, error: object) -> None:
    outcome = pool.run(code, {})
    assert outcome.has_failed
    assert outcome.error == error


@pytest.mark.parametrize("value", ["10n", "'\\u0000'", "'\\ud800'", "'x'.repeat(5e6)", "Symbol()"])
def test_what_cannot_be_stored_is_an_error_or_null(pool: ScriptPool, value: str) -> None:
    outcome = pool.run(body(f"return {value}"), {})
    assert outcome.has_failed or outcome.result is None


BOUNDED = {
    "a text": "throw 'x'.repeat(9e6)",
    "an object": "throw { a: 'x'.repeat(9e6) }",
    "an error": "throw new Error('x'.repeat(9e6))",
    "the name of an error": "throw Object.assign(new Error(), { name: 'x'.repeat(9e6) })",
}


@pytest.mark.parametrize("statements", BOUNDED.values(), ids=BOUNDED.keys())
def test_what_is_thrown_has_a_bound(pool: ScriptPool, statements: str) -> None:
    outcome = pool.run(body(statements), {})
    assert outcome.has_failed
    assert 10 < len(repr(outcome.error)) < 10_000


HOSTILE = {
    "a cycle": "const a = {}; a.a = a; return a",
    "a thrown cycle": "const a = {}; a.a = a; throw a",
    "a thrown number": "throw 10n",
    "a thrown symbol": "throw Symbol()",
    "a thrown nothing": "throw undefined",
    "a proxy": "return new Proxy({}, { ownKeys() { throw 2 } })",
    "a getter": "return { get a() { throw 1 } }",
    "toJSON": "return { toJSON() { throw 1 } }",
    "a thenable": "return { then(resolve, reject) { reject(7) } }",
    "an error without a message": "throw { __proto__: Error.prototype, get message() { throw 1 } }",
    "a deep value": "let a = []; for (let i = 0; i < 100000; i++) a = [a]; return a",
    "a forged result": "Promise.prototype.then = (resolve) => resolve('1'); return 5",
    "a forged object": "Promise.prototype.then = (resolve) => resolve('{}'); return 5",
    "a forged line": "Promise.prototype.then = (resolve) => resolve('1}\\n{'); return 5",
    "a forged value": "Promise.prototype.then = (resolve) => resolve(isolate); return 5",
}
LOOPING = {
    "a proxy": "return new Proxy({}, { ownKeys() { while (true) {} } })",
    "a getter": "return { get a() { while (true) {} } }",
    "toJSON": "return { toJSON() { while (true) {} } }",
    "a thenable": "return { then() { while (true) {} } }",
    "a message": "throw { __proto__: Error.prototype, get message() { while (true) {} } }",
    "a console line": "console.log({ get a() { while (true) {} } })",
}


@pytest.mark.parametrize("statements", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_cannot_be_written_fails_and_the_pool_goes_on(
    pool: ScriptPool, statements: str
) -> None:
    assert pool.run(body(statements), {}).has_failed
    assert pool.run(body("return 1"), {}).result == 1


@pytest.mark.release
@pytest.mark.parametrize("statements", LOOPING.values(), ids=LOOPING.keys())
def test_a_value_that_takes_for_ever_to_write_is_stopped(tmp_path: Path, statements: str) -> None:
    pool = make(tmp_path, 0.3)
    try:
        error = pool.run(body(statements), {}).error
        assert isinstance(error, dict)
        assert error["name"] == "LimitExceeded"
        assert pool.run(body("return 1"), {}).result == 1
    finally:
        pool.close()


@pytest.mark.parametrize(
    "statement",
    [
        "isolate.lines = () => { while (true) {} }",
        "isolate.lines = () => JSON.stringify(Array(1e4).fill('x'.repeat(1e4)))",
        "isolate.run = null",
        "JSON.stringify = JSON.parse = null",
        "Object.prototype.default = 5",
        "console.log('a\\u0000b\\ud800')",
    ],
)
def test_a_script_spoils_nothing_but_its_own_values(pool: ScriptPool, statement: str) -> None:
    outcome = pool.run(body(f"{statement}; return data.n"), {"n": 5})
    assert outcome.result == 5
    assert sum(map(len, outcome.lines)) < 10
    assert not outcome.has_failed  # as it would at the time limit


@pytest.mark.parametrize("delay", ["0", "5", "-1", "'x'", "null"])
def test_any_delay_passes(pool: ScriptPool, delay: str) -> None:
    statements = f"return await new Promise((resolve) => setTimeout(resolve, {delay}, 'late'))"
    assert pool.run(body(statements), {}).result == "late"


def test_the_console_is_kept_in_lines(pool: ScriptPool) -> None:
    statements = "console.log('one', 1, {a: [2]}); console.error(new Error('two')); return 0"
    assert pool.run(body(statements), {}).lines == ('one 1 {"a":[2]}', "Error: two")
    many = pool.run(body("for (let i = 0; i < 1000; i++) console.log('x'.repeat(1e5))"), {})
    assert len(many.lines) == 200
    assert {len(line) for line in many.lines} == {4000}


@pytest.mark.parametrize(
    "name", ["require", "process", "fetch", "XMLHttpRequest", "Deno", "import.meta", "os", "load"]
)
def test_a_script_reaches_nothing_outside(pool: ScriptPool, name: str) -> None:
    outcome = pool.run(body(f"return typeof {name}"), {})
    assert outcome.has_failed or outcome.result == "undefined"
    assert pool.run(body("return await import('fs')"), {}).has_failed


def test_no_script_sees_what_another_one_has_left(pool: ScriptPool) -> None:
    pool.run(body("globalThis.left = 1; Array.prototype.map = () => 'mine'; return 0"), {})
    outcome = pool.run(body("return [typeof left, [1].map((n) => n + 1)]"), {})
    assert outcome.result == ["undefined", [2]]


LOOPS = {
    "a loop": "while (true) {}",
    "a loop that catches": "while (true) { try { while (true) {} } catch {} finally {} }",
    "a loop of promises": "while (true) await null",
    "a promise that never comes": "await new Promise(() => {})",
    "a slow expression": "/(a+)+$/.test('a'.repeat(60) + 'b')",
    "a wait": "Atomics.wait(new Int32Array(new SharedArrayBuffer(8)), 0, 0, 1e9)",
    "a large number": "let n = 3n; while (true) n = n * n",
}
HOGS = {
    "arrays": "const a = []; while (true) a.push(new Array(1000).fill(1.5))",
    "one array": "return new Array(1e8).fill(1.5).length",
    "texts": "let s = 'x'; while (true) s = JSON.parse(JSON.stringify(s + s))",
    "split": "return 'x'.repeat(5e8).split('').length",
    "a map": "const m = new Map(); for (let i = 0; ; i++) m.set(i, { i })",
    "buffers": "const a = []; while (true) a.push(new Uint8Array(1e7).fill(1))",
    "WebAssembly": "return new WebAssembly.Memory({ initial: 9000 }).buffer.byteLength",
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("statements", LOOPS.values(), ids=LOOPS.keys())
def test_a_script_without_an_end_is_stopped(
    tmp_path: Path, statements: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_pool, "START_SECONDS", 120.0)
    pool = make(tmp_path, 0.5)
    try:
        assert pool.run(body("return 1"), {}).result == 1
        with ThreadPoolExecutor(1) as threads:
            running = threads.submit(pool.run, body(f"console.log('here'); {statements}"), {})
            eventually(running.done)
        assert running.result().has_failed
        assert pool.run(body("return 1"), {}).result == 1
    finally:
        pool.close()


@pytest.mark.release
@pytest.mark.parametrize("statements", HOGS.values(), ids=HOGS.keys())
def test_a_script_without_a_bound_on_its_memory_is_stopped(
    pool: ScriptPool, statements: str
) -> None:
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(pool.run, body(statements), {})
        largest = 0
        while not running.done():
            for child in children():
                try:
                    largest = max(largest, child.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue
            wait([running], 0.002)
    assert running.result().has_failed
    assert largest < 300 * 2**20
    assert pool.run(body("return 1"), {}).result == 1


@pytest.mark.release
def test_the_lines_before_the_limit_are_kept(tmp_path: Path) -> None:
    pool = make(tmp_path, 0.3)
    try:
        outcome = pool.run(body("console.log('here'); while (true) {}"), {})
    finally:
        pool.close()
    assert outcome.lines == ("here",)
    message = "The script takes more than 0.3 seconds"
    assert outcome.error == {"name": "LimitExceeded", "message": message}


@pytest.mark.release
def test_other_scripts_run_beside_one_without_an_end(tmp_path: Path) -> None:
    pool = make(tmp_path, 3)
    try:
        pool.run(body("return 1"), {})
        with ThreadPoolExecutor(1) as threads:
            endless = threads.submit(pool.run, body("while (true) {}"), {})
            for number in range(5):
                assert pool.run(body("return data.n"), {"n": number}).result == number
            assert not endless.done()
            assert endless.result().has_failed
    finally:
        pool.close()


def test_a_child_has_no_secret_of_the_service(
    pool: ScriptPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    assert pool.run(body("return 1"), {}).result == 1
    assert all("hunter2" not in str(child.environ()) for child in children())


@pytest.mark.release
def test_a_crowd_is_asked_to_try_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cms.flows.scripts.script_pool.MAX_CONCURRENT", 1)
    pool = make(tmp_path, 0.2)
    try:
        with ThreadPoolExecutor(4) as threads:
            runs = [threads.submit(pool.run, body("while (true) {}"), {}) for _ in range(4)]
            errors = [str(run.exception()) for run in runs if run.exception()]
    finally:
        pool.close()
    assert errors
    assert all("Too many scripts" in error for error in errors)


PARENT = """
import sys, threading
from pathlib import Path
from tests.flows.test_script_pool import body, make
pool = make(Path(sys.argv[1]), 1.5)
pool.run(body("return 1"), {})
threading.Thread(target=pool.run, args=(body("while (true) {}"), {}), daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.release
def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert parent.stdin
    assert parent.stdout
    assert parent.stdout.readline() == b"ready\n"
    running = [child for child in psutil.Process(parent.pid).children() if is_script_worker(child)]
    assert running
    parent.kill()
    parent.wait()
    parent.stdin.close()
    parent.stdout.close()
    _, alive = psutil.wait_procs(running, timeout=60)
    assert alive == []
