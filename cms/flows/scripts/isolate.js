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
  globalThis.console = { log: write, info: write, warn: write, error: write, debug: write };

  const failure = (thrown) => {
    try {
      if (!(thrown instanceof Error)) return stringify(thrown) ?? "null";
      const { name, message } = thrown;
      return stringify({ name: String(name), message: String(message) });
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
  return {
    run: async (code, data) => {
      try {
        return `{"result":${await runExported(code, data)}}`;
      } catch (thrown) {
        return `{"error":${failure(thrown)}}`;
      }
    },
    lines: () => stringify(lines),
  };
})();
