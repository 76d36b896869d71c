// Runs the function that a script exports. Names that scripts may replace are looked up before any
// script runs.
const isolate = (() => {
  "use strict";
  const { stringify, parse } = JSON;
  const lines = [];

  const written = (value) => {
    if (typeof value === "string") return value;
    try {
      if (value instanceof Error) return `${value.name}: ${value.message}`;
      return stringify(value) ?? String(value);
    } catch {
      return typeof value;
    }
  };
  const write = (...values) => {
    if (lines.length < MAX_LINES) {
      lines.push(values.map(written).join(" ").slice(0, MAX_LINE_LENGTH));
    }
  };
  // The engine's own takes no delay of zero.
  const { setTimeout: wait } = globalThis;
  globalThis.setTimeout = (call, delay, ...values) => wait(call, +delay >= 1 ? +delay : 1, ...values);
  globalThis.console = { log: write, info: write, warn: write, error: write, debug: write };

  const failure = (thrown) => {
    try {
      if (!(thrown instanceof Error)) {
        const text = stringify(thrown) ?? "null";
        if (text.length <= MAX_RESULT_LENGTH) return text;
        return stringify({ name: "RangeError", message: "what was thrown is too large" });
      }
      const name = String(thrown.name).slice(0, MAX_LINE_LENGTH);
      return stringify({ name, message: String(thrown.message).slice(0, MAX_LINE_LENGTH) });
    } catch {
      return stringify({ name: "Error", message: "what was thrown cannot be written as JSON" });
    }
  };
  const runExported = async (code, data) => {
    const module = { exports: {} };
    new Function("module", "exports", code)(module, module.exports);
    const exported = module.exports?.default ?? module.exports;
    if (typeof exported !== "function") {
      throw new TypeError("module.exports must be a function");
    }
    const text = stringify(await exported(parse(data))) ?? "null";
    if (text.length > MAX_RESULT_LENGTH) throw new RangeError("the result is too large");
    return text;
  };

  // The only way in; both answer with JSON.
  return Object.freeze({
    run: async (code, data) => {
      try {
        return `{"result":${await runExported(code, data)}}`;
      } catch (thrown) {
        return `{"error":${failure(thrown)}}`;
      }
    },
    lines: () => stringify(lines),
  });
})();
