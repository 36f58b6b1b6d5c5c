// One case: what was asked, answered and scored. Every text is a text node: nothing of it becomes markup.
const assayCase = (() => {
  "use strict";

  const {textOf} = assayRows;

  // Makes an element; attributes that are null are left out.
  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value !== null) made.setAttribute(key, value);
    }
    made.append(...children.filter((child) => child !== null && child !== ""));
    return made;
  }

  // Shows what a user or a model wrote, with marks in place of characters that hide or reorder text.
  class Writer {
    constructor(setup) {
      this.setup = setup;
      this.unsafe = new RegExp(setup.unsafe, "gu");
    }

    parts(text) {
      const found = [];
      let end = 0;
      for (const match of text.matchAll(this.unsafe)) {
        if (match[0] === "\n" || match[0] === "\t") continue;
        if (match[0] === "\r" && text[match.index + 1] === "\n") {
          found.push(text.slice(end, match.index));
        } else {
          const code = match[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
          found.push(text.slice(end, match.index), element("span", {class: "mark"}, `U+${code}`));
        }
        end = match.index + match[0].length;
      }
      found.push(text.slice(end));
      return found;
    }

    inline(text) {
      return element("bdi", {dir: "auto"}, ...this.parts(textOf(text)));
    }

    // A text in full, with the ranges that differ from another one.
    block(text, ranges = [], kind = null) {
      if (text === null || text === undefined) return element("p", {class: "soft"}, "none");
      const whole = textOf(text);
      if (whole === "") return element("p", {class: "soft"}, "empty");
      const shown = element("div", {class: "text", dir: "auto"});
      let end = 0;
      for (const [first, last] of ranges) {
        shown.append(...this.parts(whole.slice(end, first)), element(kind, {}, ...this.parts(whole.slice(first, last))));
        end = last;
      }
      shown.append(...this.parts(whole.slice(end)));
      if (!Array.isArray(text)) return shown;
      const note = `Cut: the text has ${number(text[1])} characters; ${this.setup.whole_texts ?? "results.json"} has all.`;
      return element("div", {}, shown, element("p", {class: "soft cut"}, note));
    }

    outcome(kind, said = this.setup.outcome_names[kind]) {
      return element("span", {class: `outcome ${kind}`}, said);
    }
  }

  const number = (value) => value.toLocaleString("en-US");
  const seconds = (value) => (value === null || value === undefined ? "-" : `${value.toFixed(2)} s`);

  // A metric's value in its unit, as everywhere in Assay's reports.
  function valueText(unit, value) {
    if (value === null || value === undefined) return "-";
    if (unit === "%") return `${(100 * value).toFixed(1)}%`;
    if (unit === "s") return seconds(value);
    if (unit === "tokens") return value.toLocaleString("en-US", {maximumFractionDigits: 0});
    if (unit === "USD") return String(Number(value.toPrecision(4)));
    return numberText(value);
  }

  function numberText(value) {
    const size = Math.abs(value);
    if (size < 1e9 && !(size > 1e-9 && size < 0.00005)) return value.toFixed(4);
    return Number(value.toPrecision(4)).toExponential().replace(/e([+-])(\d)$/, "e$10$2");
  }

  const rounded = (text) => (Number.isFinite(Number(text)) ? String(Number(Number(text).toPrecision(4))) : text);

  function section(title, ...children) {
    return element("section", {}, element("h3", {}, title), ...children);
  }

  function pairs(items) {
    const shown = items.filter(([, value]) => value !== null && value !== undefined && value !== "");
    if (!shown.length) return null;
    return element("dl", {class: "pairs"}, ...shown.map(([name, value]) =>
      element("div", {}, element("dt", {}, name), element("dd", {dir: "auto"}, value))));
  }

  function folded(title, ...children) {
    return element("details", {}, element("summary", {}, title), ...children);
  }

  // Heads that begin with # are those of numbers.
  function table(caption, heads, lines) {
    const head = element("tr", {}, ...heads.map((name) =>
      element("th", {scope: "col", class: name.startsWith("#") ? "number" : null}, name.replace("#", ""))));
    return element("div", {class: "scroll", role: "group", "aria-label": caption, tabindex: "0"},
      element("table", {}, element("caption", {class: "hidden-text"}, caption), element("thead", {}, head),
        element("tbody", {}, ...lines)));
  }

  // The parts of one row, and of one turn of a conversation.
  class CaseView {
    constructor(setup) {
      this.setup = setup;
      this.write = new Writer(setup);
      this.units = new Map(setup.metrics.map(({name, unit}) => [name, unit]));
    }

    // Returns what is shown of a row; of several repeats also the range of each metric's values.
    row(row, detail, repeats) {
      return [
        detail.message === null ? null : element("p", {class: "message"}, this.write.inline(detail.message)),
        ...(detail.turns === undefined
          ? this.exchange(detail) : [...this.conversation(detail), ...this.expected(detail.expected)]),
        this.scores(detail.scores, repeats.length > 1 ? this.ranges(repeats) : new Map()),
        ...this.response(detail.response),
        section("Timing", pairs([
          ["latency", seconds(row.latencyMs === null ? null : row.latencyMs / 1000)],
          ["started", detail.started_at],
          ["whole row", detail.duration_ms === null ? null : seconds(detail.duration_ms / 1000)],
          ["weight", detail.weight === 1 ? null : String(detail.weight)],
        ])),
      ].filter((part) => part !== null);
    }

    exchange(detail) {
      const [first, ...others] = detail.references;
      const ranges = detail.differences ?? [[], []];
      const answer = element("div", {}, element("h3", {}, "Answer"), this.write.block(detail.answer, ranges[0], "ins"));
      const sides = [answer];
      if (first !== undefined) {
        sides.push(element("div", {}, element("h3", {}, "Reference"), this.write.block(first, ranges[1], "del")));
      }
      return [
        section("Question", this.write.block(detail.question)),
        element("section", {class: "sides"}, ...sides),
        detail.differences === undefined ? null : element("p", {class: "soft below"}, detail.differences === null
          ? "The differences are not marked: the texts repeat themselves too much."
          : "Underlined words are not in the other text."),
        others.length ? section("Other references", ...others.map((text) => this.write.block(text))) : null,
        ...this.expected(detail.expected),
      ];
    }

    expected(parts) {
      return parts.map(([name, text]) => section(name[0].toUpperCase() + name.slice(1), this.write.block(text)));
    }

    conversation(detail) {
      return detail.turns.map((turn, index) => {
        const said = turn.status === null ? "not asked" : turn.status.replace("_", " ");
        const left = turn.left_out
          ? element("p", {class: "soft"}, "Answer and references of this turn are in the database alone.") : null;
        return element("section", {class: "turn"},
          element("h3", {}, `Turn ${index + 1} of ${detail.turns.length}`),
          element("p", {class: "soft"}, `${said}, ${seconds(turn.latency_ms === null ? null : turn.latency_ms / 1000)}`),
          left, ...this.exchange(turn).filter((part) => part !== null),
          Object.keys(turn.scores).length ? this.scores(turn.scores) : null, ...this.response(turn.response));
      });
    }

    ranges(repeats) {
      const found = new Map();
      for (const {name, unit} of this.setup.metrics) {
        const values = repeats.map((row) => row.value(name)).filter((value) => value !== null);
        const [low, high] = [Math.min(...values), Math.max(...values)].map((value) => valueText(unit, value));
        found.set(name, !values.length ? "-" : low === high ? low : `${low} to ${high}`);
      }
      return found;
    }

    scores(scores, ranges = new Map()) {
      const lines = Object.entries(scores).map(([name, score]) => {
        const kind = score.status === "error" ? "agent_error" : {true: "passed", false: "failed"}[score.passed] ?? "no_verdict";
        const said = {error: "metric error", skipped: "skipped"}[score.status] ??
          {true: "passed", false: "failed"}[score.passed] ?? "no verdict";
        return element("tr", {},
          element("th", {scope: "row", dir: "auto"}, ...this.write.parts(name)),
          element("td", {class: "number strong"}, valueText(this.units.get(name) ?? "", score.value)),
          ranges.size ? element("td", {class: "number"}, ranges.get(name) ?? "-") : null,
          element("td", {}, this.write.outcome(kind, said)),
          element("td", {class: "said"},
            score.message === null ? null : this.write.block(score.message),
            score.reasoning === null ? null : this.write.block(score.reasoning),
            score.detail === null ? null : folded("Detail", this.json(score.detail))));
      });
      return section("Scores", table("Scores", ["Metric", "#Value", ...(ranges.size ? ["#In all repeats"] : []), "Outcome", "Reason"], lines));
    }

    // JSON as Assay writes it, with a line for each value; a text that was cut has no end, which does not matter here.
    json(text) {
      let depth = 0;
      const indented = textOf(text).replace(/"(?:[^"\\]|\\.)*"|\{\}|\[\]|[{}[\],:]/g, (token) => {
        const line = () => `\n${" ".repeat(depth)}`;
        if (token === "{" || token === "[") {
          depth += 1;
          return token + line();
        }
        if (token === "}" || token === "]") {
          depth -= 1;
          return line() + token;
        }
        return {",": `,${line()}`, ":": ": "}[token] ?? token;
      });
      return this.code(Array.isArray(text) ? [indented, text[1]] : indented);
    }

    code(text) {
      const shown = this.write.block(text);
      shown.classList.add("code");
      return shown;
    }

    // What the agent returned beside its text.
    response(response) {
      const {error, attempts, sql, tool_calls: calls, sources, retrieved, usage, interrupts, ...others} = response;
      return [
        error ? section("Error", ...this.error(error)) : null,
        attempts ? section("Failed attempts", ...attempts.map((one, index) =>
          folded(`Attempt ${index + 1}, ${seconds(one.latency_ms / 1000)}`, ...this.error(one)))) : null,
        interrupts ? section("Interrupts", ...interrupts.map((one) => this.interrupt(one))) : null,
        sql ? section("SQL", this.code(sql)) : null,
        calls?.length ? section("Tool calls", ...calls.map((one) => this.call(one))) : null,
        sources ? section("Sources", this.sources("Sources", sources)) : null,
        retrieved ? section("Retrieved", this.sources("Retrieved", retrieved)) : null,
        usage ? section("Tokens", pairs(Object.entries(usage).map(([name, value]) => [name.replaceAll("_", " "), number(value)]))) : null,
        Object.keys(others).length
          ? section("Further fields of the answer", pairs(Object.entries(others).map(([name, text]) =>
              [name.replaceAll("_", " "), this.write.block(text)]))) : null,
      ].filter((part) => part !== null);
    }

    error(error) {
      const {message, traceback, ...others} = error;
      const facts = Object.entries(others).filter(([name]) => name !== "latency_ms");
      return [
        this.write.block(message ?? null),
        pairs(facts.map(([name, text]) => [name.replaceAll("_", " "), this.write.inline(text)])),
        traceback ? element("div", {}, element("h4", {}, "Traceback"), this.code(traceback)) : null,
      ].filter((part) => part !== null);
    }

    call(call) {
      const title = element("span", {}, this.write.inline(call.name ?? "tool"), call.is_error ? " failed" : "");
      return folded(title, pairs([
        ["id", call.id ? this.write.inline(call.id) : null],
        ["arguments", call.arguments_json ? this.code(call.arguments_json) : null],
        ["result", call.result_json ? this.code(call.result_json) : null],
        ["duration", call.duration_ms ? `${textOf(call.duration_ms)} ms` : null],
      ]) ?? "");
    }

    interrupt(interrupt) {
      const title = element("span", {}, `${interrupt.decision ?? "waits for"}: ${interrupt.kind} `,
        interrupt.tool ? this.write.inline(interrupt.tool) : "");
      return folded(title, pairs([
        ["message", interrupt.message ? this.write.block(interrupt.message) : null],
        ["arguments", interrupt.arguments_json ? this.code(interrupt.arguments_json) : null],
        ["id", interrupt.id ? this.write.inline(interrupt.id) : null],
      ]) ?? "");
    }

    sources(caption, sources) {
      const lines = sources.map((source) => element("tr", {},
        element("th", {scope: "row"}, this.write.inline(source.title ?? source.id ?? source.uri ?? "untitled")),
        element("td", {}, source.uri ? this.write.inline(source.uri) : null),
        element("td", {class: "number"}, source.score === undefined ? "-" : rounded(textOf(source.score))),
        element("td", {class: "said"},
          source.content ? this.write.block(source.content) : null,
          source.metadata ? folded("Metadata", this.json(source.metadata)) : null)));
      return table(caption, ["Title", "Address", "#Score", "Content"], lines);
    }
  }

  return {CaseView, Writer, element, valueText, seconds, number};
})();
