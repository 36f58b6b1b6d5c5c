// The rows that the page carries: an entry of each at once, their texts block by block when they are wanted.
const assayRows = (() => {
  "use strict";

  const KEPT_BLOCKS = 4;
  const BLOCKS_AT_ONCE = 16;

  class Row {
    constructor(entry, place, setup, metricPlaces) {
      [this.caseId, this.repeat, this.outcome, this.category, this.tags, this.latencyMs, this.values, this.preview,
        this.status] = entry;
      this.outcome = setup.outcomes[this.outcome];
      this.category ??= "";
      this.place = place;
      this.setup = setup;
      this.metricPlaces = metricPlaces;
      this.questions = null; // known once texts were searched
      this.answers = null;
    }

    // What the outcome is called; an agent error that waits for a person by its status.
    get outcomeName() {
      return this.status === "interrupted" ? this.status : this.setup.outcome_names[this.outcome];
    }

    value(metric) {
      return this.values[this.metricPlaces.get(metric)] ?? null;
    }
  }

  // One case with all its repeats.
  class Case {
    constructor(row) {
      this.caseId = row.caseId;
      this.rows = [row];
    }

    get category() {
      return this.rows[0].category;
    }

    // The mean over the repeats that have a value.
    mean(valueOf) {
      const values = this.rows.map(valueOf).filter((value) => value !== null);
      return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
    }

    get passed() {
      return this.rows.filter((row) => row.outcome === "passed").length;
    }

    // The outcome that stands for several: the first there is of these.
    get outcome() {
      return ["failed", "agent_error", "undecided", "no_verdict", "passed"].find((one) => this.rows.some((row) => row.outcome === one));
    }
  }

  function readRows(setup) {
    const metricPlaces = new Map(setup.metrics.map(({name}, place) => [name, place]));
    const rows = [];
    for (const block of document.querySelectorAll("script.entries")) {
      for (const entry of JSON.parse(block.textContent)) rows.push(new Row(entry, rows.length, setup, metricPlaces));
      block.remove();
    }
    return rows;
  }

  function casesOf(rows) {
    const cases = [];
    for (const row of rows) {
      const last = cases.at(-1);
      if (last !== undefined && last.caseId === row.caseId) last.rows.push(row);
      else cases.push(new Case(row));
    }
    return cases;
  }

  // The texts of rows. The script runs before the browser has read them all.
  class Details {
    constructor(setup) {
      this.size = setup.details_per_block;
      this.kept = new Map();
      this.elements = new Promise((resolve) => {
        const find = () => resolve(document.querySelectorAll("script.details"));
        if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", find);
        else find();
      });
    }

    async of(row) {
      const number = Math.floor(row.place / this.size);
      if (!this.kept.has(number)) {
        this.kept.set(number, await this.read(number));
        if (this.kept.size > KEPT_BLOCKS) this.kept.delete(this.kept.keys().next().value);
      }
      return this.kept.get(number)[row.place % this.size];
    }

    async read(number) {
      const element = (await this.elements)[number];
      if (element.dataset.encoding !== "gzip") return JSON.parse(element.textContent);
      const stream = new Blob([bytesOf(atob(element.textContent))]).stream().pipeThrough(new DecompressionStream("gzip"));
      return JSON.parse(await new Response(stream).text());
    }

    // Gives every row its questions and answers, and says which share of the rows has them.
    async readTexts(rows, report) {
      const missing = Array.from({length: Math.ceil(rows.length / this.size)}, (_, number) => number)
        .filter((number) => rows[number * this.size].questions === null);
      for (let done = 0; done < missing.length; done += BLOCKS_AT_ONCE) {
        report(done / missing.length);
        await Promise.all(missing.slice(done, done + BLOCKS_AT_ONCE).map(async (number) => {
          const texts = await this.read(number);
          texts.forEach((detail, index) => takeTexts(rows[number * this.size + index], detail));
        }));
      }
    }
  }

  // A loop: Uint8Array.from takes ten times as long.
  function bytesOf(text) {
    const bytes = new Uint8Array(text.length);
    for (let place = 0; place < text.length; place += 1) bytes[place] = text.charCodeAt(place);
    return bytes;
  }

  function takeTexts(row, detail) {
    const parts = detail.turns ?? [detail];
    row.questions = parts.map(({question}) => textOf(question)).filter((text) => text !== null);
    row.answers = parts.map(({answer}) => textOf(answer)).filter((text) => text !== null);
  }

  // A text that was cut travels with its length.
  const textOf = (text) => (Array.isArray(text) ? text[0] : text);

  return {readRows, casesOf, Details, textOf};
})();
