// Filters and orders of rows as users write them: docs/filters.md has the grammar, which the command reads likewise.
const assayFilter = (() => {
  "use strict";

  const OUTCOMES = ["passed", "failed", "agent_error", "no_verdict", "undecided"];
  const STATUSES = ["success", "out_of_scope", "error", "interrupted"];
  const LISTS = ["outcome", "category", "tag", "case", "repeat", "status"];
  const TEXTS = ["text", "question", "answer"];
  const KEYS = [...LISTS, ...TEXTS, "latency"];
  const TOLERANCE = 1e-9;
  const MAX_CHARS = 20000, MAX_VALUES = 200, MAX_TEXT_CHARS = 500, MAX_NAME_CHARS = 1000;
  const UNITS_MS = {ms: 1, s: 1000, m: 60000, h: 3600000};

  const BLANKS = /[ \t\r\n]*/y;
  const NAME = /[A-Za-z][A-Za-z0-9_]*/y;
  const OPERATOR = /<=|>=|==|!=|<|>|:|~|=/y;
  const QUOTED = /"(?:[^"\\]|\\[^])*"/y;
  const BARE = /[^ \t\r\n,"]+/y;
  const NUMBER = /^[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$/;
  const DURATION = /^([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)(ms|s|m|h)?$/;
  const REPEAT = /^[1-9][0-9]{0,8}$/;
  const PLAIN = /^[\p{L}\p{N}_./@+-]+$/u;

  const EXACT = {
    "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b,
    ">=": (a, b) => a >= b, "==": (a, b) => a === b, "!=": (a, b) => a !== b,
  };
  const TOLERANT = {
    "<": (a, b) => a < b - TOLERANCE, "<=": (a, b) => a <= b + TOLERANCE,
    ">": (a, b) => a > b + TOLERANCE, ">=": (a, b) => a >= b - TOLERANCE,
    "==": (a, b) => b - TOLERANCE <= a && a <= b + TOLERANCE, "!=": (a, b) => !(b - TOLERANCE <= a && a <= b + TOLERANCE),
  };

  const length = (text) => [...text].length;
  const start = (text) => [...text].slice(0, 60).join("");

  // What a filter is: of several values of one list any holds, and of everything else all.
  const everyRow = () => ({
    outcomes: [], categories: [], tags: [], cases: [], repeats: [], texts: [], metrics: [], latencies: [],
    statuses: [],
  });

  // Reads conditions from left to right; after a problem it continues at the next blank.
  class Reader {
    constructor(text) {
      this.text = text;
      this.at = 0;
      this.problems = [];
    }

    add(at, message) {
      this.problems.push({position: length(this.text.slice(0, at)) + 1, message});
    }

    take(pattern) {
      pattern.lastIndex = this.at;
      const found = pattern.exec(this.text);
      if (found === null) return null;
      this.at = pattern.lastIndex;
      return found[0];
    }

    skipBlanks() {
      this.take(BLANKS);
      return this.at;
    }

    conditions() {
      const found = [];
      let isDue = true, lastAnd = -1;
      while (this.skipBlanks() < this.text.length) {
        const at = this.at, name = this.take(NAME);
        if (name === "and") {
          if (isDue) this.add(at, "a condition is missing before 'and'");
          isDue = true;
          lastAnd = at;
          continue;
        }
        const condition = this.condition(at, name);
        if (condition !== null) found.push(condition);
        isDue = false;
        lastAnd = -1;
        this.endCondition(condition !== null);
      }
      if (lastAnd >= 0) this.add(lastAnd, "a condition is missing after 'and'");
      return found;
    }

    condition(at, name) {
      if (name === null) {
        this.add(at, `expected a condition such as failed or category:NAME, not '${this.text.slice(at, at + 20)}'`);
        return null;
      }
      const afterName = this.at;
      this.skipBlanks();
      const operator = this.take(OPERATOR);
      if (operator === null) {
        this.at = afterName;
        const words = this.list(() => this.word());
        return words === null ? null : {at, name: "", operator: "", values: [name, ...words]};
      }
      if (operator === "=") {
        this.add(this.at - 1, `write ${name}==NUMBER or ${name}:NAME, not ${name}=`);
        return null;
      }
      const first = this.value();
      const others = first === null ? null : this.list(() => this.value());
      return others === null ? null : {at, name, operator, values: [first, ...others]};
    }

    list(read) {
      const found = [];
      while (this.takeComma()) {
        const value = read();
        if (value === null) return null;
        found.push(value);
      }
      return found;
    }

    word() {
      this.skipBlanks();
      const word = this.take(NAME);
      if (word === null) this.add(this.at, "a word is missing after ','");
      return word;
    }

    value() {
      const before = this.text[this.at - 1];
      this.skipBlanks();
      if (this.text[this.at] === '"') {
        const value = this.take(QUOTED);
        if (value === null) {
          this.add(this.at, "the quotation mark is not closed");
          this.at = this.text.length;
          return null;
        }
        return value.slice(1, -1).replace(/\\([^])/g, "$1");
      }
      const bare = this.take(BARE);
      if (bare === null) this.add(this.at, `a value is missing after '${before}'`);
      return bare;
    }

    takeComma() {
      const before = this.at;
      if (this.text[this.skipBlanks()] === ",") {
        this.at += 1;
        return true;
      }
      this.at = before;
      return false;
    }

    endCondition(isWhole) {
      const end = this.at;
      while (this.at < this.text.length && !" \t\r\n".includes(this.text[this.at])) this.at += 1;
      if (isWhole && this.at > end) this.add(end, `expected a space, not '${this.text.slice(end, end + 20)}'`);
    }
  }

  // Puts conditions together to a filter.
  class Builder {
    constructor(reader) {
      this.reader = reader;
      this.lists = new Map();
      this.filter = everyRow();
    }

    wrong(condition, message) {
      this.reader.add(condition.at, message);
    }

    add(condition) {
      const {name, operator} = condition;
      if (operator === "") this.addList(condition, "outcome", wordProblem);
      else if (operator === ":") this.addNamedList(condition, name);
      else if (operator === "~") this.addText(condition, name);
      else this.addComparison(condition, name, operator);
    }

    addNamedList(condition, name) {
      const checks = {outcome: outcomeProblem, repeat: repeatProblem, status: statusProblem};
      if (LISTS.includes(name)) this.addList(condition, name, checks[name] ?? (() => ""));
      else if (TEXTS.includes(name)) this.wrong(condition, `write ${name}~TEXT: ${name} is searched for a text`);
      else if (name === "latency") this.wrong(condition, "write latency>2s or latency<=500ms: latency is compared");
      else this.wrong(condition, `${unknown("condition", name, KEYS)}; a metric is compared, as in ${start(name)}<0.5`);
    }

    addList(condition, name, check) {
      if (this.lists.has(name)) {
        this.wrong(condition, `${name} is given twice: write all values behind one, with commas, to accept any of them`);
        return;
      }
      const problems = condition.values.map(check).filter(Boolean);
      problems.forEach((problem) => this.wrong(condition, problem));
      if (!problems.length) this.lists.set(name, condition.values);
    }

    addText(condition, name) {
      if (!TEXTS.includes(name)) this.wrong(condition, `${unknown("text", name, TEXTS)}: only these are searched`);
      else if (condition.values.length > 1) {
        this.wrong(condition, `${name}~ takes one text: put one with a comma into quotation marks`);
      } else this.filter.texts.push({field: name, text: condition.values[0]});
    }

    addComparison(condition, name, operator) {
      const value = condition.values[0];
      if (condition.values.length > 1) this.wrong(condition, `${name}${operator} takes one number`);
      else if (LISTS.includes(name) || TEXTS.includes(name)) {
        this.wrong(condition, `${name} is not compared: write ${name}${LISTS.includes(name) ? ":" : "~"}VALUE`);
      } else if (name === "latency") this.addLatency(condition, operator, value);
      else if (value === "none" && (operator === "==" || operator === "!=")) {
        this.filter.metrics.push({metric: name, operator, value: null});
      } else if (NUMBER.test(value) && Number.isFinite(Number(value))) {
        this.filter.metrics.push({metric: name, operator, value: Number(value)});
      } else this.wrong(condition, `'${start(value)}' is no finite number, and only == and != compare with none`);
    }

    addLatency(condition, operator, value) {
      const found = DURATION.exec(value);
      const latencyMs = found === null ? NaN : Number(found[1]) * UNITS_MS[found[2] ?? "s"];
      if (value === "none" && (operator === "==" || operator === "!=")) this.filter.latencies.push({operator, latencyMs: null});
      else if (Number.isFinite(latencyMs) && latencyMs >= 0) this.filter.latencies.push({operator, latencyMs});
      else this.wrong(condition, `'${start(value)}' is no duration: write a number with ms, s, m or h, such as 500ms`);
    }

    result() {
      const of = (name) => this.lists.get(name) ?? [];
      return {
        ...this.filter, outcomes: of("outcome"), categories: of("category"), tags: of("tag"), cases: of("case"),
        repeats: of("repeat").map(Number), statuses: of("status"),
      };
    }
  }

  const unknown = (what, name, known) => `unknown ${what} '${start(name)}'; known: ${known.join(", ")}`;
  const outcomeProblem = (value) => (OUTCOMES.includes(value) ? "" : unknown("outcome", value, OUTCOMES));
  const statusProblem = (value) => (STATUSES.includes(value) ? "" : unknown("status", value, STATUSES));
  const repeatProblem = (value) => (REPEAT.test(value) ? "" : `'${start(value)}' is no repeat: write its number, from 1`);

  function wordProblem(word) {
    if (OUTCOMES.includes(word)) return "";
    if (STATUSES.includes(word)) return `${word} is a status: write status:${word}`;
    if (LISTS.includes(word)) return `${word} needs a value: ${word}:NAME`;
    if (TEXTS.includes(word)) return `${word} needs a text: ${word}~TEXT`;
    return `${unknown("word", word, OUTCOMES)}; a metric needs a comparison, as in judge_score<0.5`;
  }

  function limitProblems(filter) {
    const found = [];
    for (const name of ["outcomes", "categories", "tags", "cases", "repeats", "statuses"]) {
      const count = filter[name].length;
      if (count > MAX_VALUES) found.push(`${name} has ${count} values, more than ${MAX_VALUES}`);
    }
    const count = filter.texts.length + filter.metrics.length + filter.latencies.length;
    if (count > MAX_VALUES) {
      found.push(`filter has ${count} conditions on texts, metrics and latencies, more than ${MAX_VALUES}`);
    }
    for (const name of ["categories", "tags", "cases"]) {
      for (const value of filter[name]) {
        if (length(value) > MAX_NAME_CHARS) {
          found.push(`${name} has ${length(value)} characters, more than ${MAX_NAME_CHARS}`);
        }
      }
    }
    for (const {text} of filter.texts) {
      if (text === "" || length(text) > MAX_TEXT_CHARS) {
        found.push(`texts must have 1 to ${MAX_TEXT_CHARS} characters, not ${length(text)}`);
      }
    }
    return found.map((message) => ({position: 0, message}));
  }

  // Returns {filter, problems}: the filter only where there is no problem, each of which has a position, or 0.
  function parse(text, metrics = null) {
    const reader = new Reader(text);
    if (length(text) > MAX_CHARS) {
      reader.add(0, `the filter has ${length(text)} characters, more than ${MAX_CHARS}`);
      return {filter: null, problems: reader.problems};
    }
    const builder = new Builder(reader);
    reader.conditions().forEach((condition) => builder.add(condition));
    const filter = builder.result();
    let problems = reader.problems.sort((one, other) => one.position - other.position);
    if (!problems.length) problems = limitProblems(filter);
    if (!problems.length && metrics !== null) {
      problems = filter.metrics
        .filter(({metric}) => !metrics.includes(metric))
        .map(({metric}) => ({position: 0, message: unknown("metric", metric, metrics)}));
    }
    return {filter: problems.length ? null : filter, problems};
  }

  function quoted(value) {
    return PLAIN.test(value) ? value : `"${value.replace(/\\/g, "\\\\").replace(/"/g, '\\"')}"`;
  }

  // Returns a filter as the text from which `parse` makes it again.
  function format(filter) {
    const parts = filter.outcomes.length ? [filter.outcomes.join(",")] : [];
    if (filter.statuses.length) parts.push(`status:${filter.statuses.join(",")}`);
    for (const [name, values] of [["category", filter.categories], ["tag", filter.tags], ["case", filter.cases]]) {
      if (values.length) parts.push(`${name}:${values.map(quoted).join(",")}`);
    }
    if (filter.repeats.length) parts.push(`repeat:${filter.repeats.join(",")}`);
    filter.texts.forEach(({field, text}) => parts.push(`${field}~${quoted(text)}`));
    filter.metrics.forEach(({metric, operator, value}) => parts.push(`${metric}${operator}${value ?? "none"}`));
    filter.latencies.forEach(({operator, latencyMs}) => parts.push(`latency${operator}${latencyMs === null ? "none" : `${latencyMs}ms`}`));
    return parts.join(" ");
  }

  // Returns a function that says whether a row meets a filter.
  // A row has caseId, repeat, outcome, status, category, tags, latencyMs, value(metric), questions and answers.
  function matcher(filter) {
    const clean = (text) => text.replaceAll("\0", "\ufffd").toWellFormed();
    const [categories, tags, cases] = [filter.categories, filter.tags, filter.cases].map((list) => new Set(list.map(clean)));
    const outcomes = new Set(filter.outcomes), repeats = new Set(filter.repeats), statuses = new Set(filter.statuses);
    const texts = filter.texts.map(({field, text}) => ({field, pattern: pattern(clean(text))}));
    return (row) =>
      (!outcomes.size || outcomes.has(row.outcome)) &&
      (!statuses.size || statuses.has(row.status)) &&
      (!categories.size || categories.has(row.category)) &&
      (!tags.size || row.tags.some((tag) => tags.has(tag))) &&
      (!cases.size || cases.has(row.caseId)) &&
      (!repeats.size || repeats.has(row.repeat)) &&
      filter.latencies.every((one) => hasLatency(row.latencyMs, one)) &&
      filter.metrics.every((one) => hasValue(row.value(one.metric), one)) &&
      texts.every((one) => hasText(row, one));
  }

  function hasLatency(value, {operator, latencyMs: bound}) {
    if (bound === null) return (value === null) === (operator === "==");
    return value !== null && EXACT[operator](value, bound);
  }

  function hasValue(value, {operator, value: bound}) {
    if (bound === null) return (value === null) === (operator === "==");
    return value !== null && TOLERANT[operator](value, bound);
  }

  function hasText(row, {field, pattern}) {
    return (field !== "answer" && row.questions.some((text) => pattern.test(text))) ||
      (field !== "question" && row.answers.some((text) => pattern.test(text)));
  }

  // Each character stands for itself, and for its lower-case or upper-case form where that is one character.
  function pattern(text) {
    const variants = (char) => [...new Set([char, char.toLowerCase(), char.toUpperCase()])].filter((one) => length(one) === 1);
    const escaped = (char) => char.replace(/[\\\]^[-]/, "\\$&");
    return new RegExp([...text].map((char) => `[${variants(char).map(escaped).join("")}]`).join(""), "u");
  }

  // Returns {key, descending}; a key that is none of dataset, latency, case is a metric. Null for what is no order.
  function parseOrder(text) {
    const name = text.trim(), descending = name.startsWith("-"), key = descending ? name.slice(1) : name;
    if (key === "") return descending ? null : {key: "dataset", descending: false};
    return /^[A-Za-z][A-Za-z0-9_]*$/.test(key) ? {key, descending} : null;
  }

  // Returns items in an order: those without a value last, equal ones as they were.
  function sorted(items, valueOf, descending) {
    const keyed = items.map((item) => ({item, value: valueOf(item)}));
    const withValue = keyed.filter(({value}) => value !== null);
    const sign = descending ? -1 : 1;
    withValue.sort((one, other) => sign * compare(one.value, other.value));
    return [...withValue, ...keyed.filter(({value}) => value === null)].map(({item}) => item);
  }

  function compare(one, other) {
    if (typeof one === "number") return one - other;
    if (one === other) return 0;
    let at = 0;
    while (at < one.length && one[at] === other[at]) at += 1;
    // By code points: of two halves of a pair the order is that of their first halves.
    if (at > 0 && /[\ud800-\udbff]/.test(one[at - 1])) at -= 1;
    return (one.codePointAt(at) ?? -1) - (other.codePointAt(at) ?? -1);
  }

  return {everyRow, parse, format, matcher, parseOrder, sorted};
})();
