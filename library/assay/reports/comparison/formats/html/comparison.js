// The cases of a comparison: which are listed, and the open one. All that is seen is in the URL's hash.
(() => {
  "use strict";

  const {element, number, Writer} = assayCase;
  const CASES_PER_PAGE = 100;
  const byId = (id) => document.getElementById(id);
  const setup = JSON.parse(byId("setup").textContent);
  const write = new Writer(setup);
  const sign = setup.primary.higher_is_better ? 1 : -1;
  const read = (kind) => [...document.querySelectorAll(`script.${kind}`)].flatMap((one) => JSON.parse(one.textContent));
  const cases = read("entries").map(([id, category, passed, primary, compared]) =>
    ({id, category, passed, primary, compared}));
  const texts = new Map(read("texts"));
  const plainTitle = document.title;
  let found = [];
  let shownState = null;
  let drawings = 0;

  const SHOWS = {
    all: (a, b) => `all`,
    flipped: (a, b) => `came out differently`,
    both: (a, b) => `both right`,
    a_only: (a, b) => `only ${a} right`,
    b_only: (a, b) => `only ${b} right`,
    neither: (a, b) => `neither right`,
    b_better: (a, b) => `${b} better`,
    a_better: (a, b) => `${a} better`,
    same: (a, b) => `same`,
  };
  const OF_TABLE = ["both", "a_only", "b_only", "neither"];

  // -- the state in the URL

  function readState() {
    const values = new URLSearchParams(location.hash.slice(1));
    const pair = Number(values.get("pair") ?? 0), page = Number(values.get("page") ?? 1), show = values.get("show");
    return {
      pair: Number.isInteger(pair) && pair >= 0 && pair < setup.labels.length - 1 ? pair : 0,
      show: Object.hasOwn(SHOWS, show ?? "") ? show : "flipped",
      page: Number.isInteger(page) && page > 0 ? page : 1,
      case: values.get("case"),
    };
  }

  function hashOf(changes) {
    const state = {...readState(), ...changes};
    const values = new URLSearchParams();
    if (state.case !== null) values.set("case", state.case);
    if (state.pair) values.set("pair", String(state.pair));
    values.set("show", state.show);
    if (state.page > 1) values.set("page", String(state.page));
    return `#${values}`;
  }

  // -- finding cases

  const difference = (column, pair) => {
    const [a, b] = [column[0], column[pair + 1]];
    return a === null || b === null ? null : b - a;
  };

  function matches(one, pair, show) {
    const table = one[setup.tables[pair] ?? "passed"];
    const [a, b] = [table[0], table[pair + 1]];
    const change = difference(one.primary, pair);
    switch (show) {
      case "both": return a === 1 && b === 1;
      case "a_only": return a === 1 && b === 0;
      case "b_only": return a === 0 && b === 1;
      case "neither": return a === 0 && b === 0;
      case "b_better": return change !== null && sign * change > 0;
      case "a_better": return change !== null && sign * change < 0;
      case "same": return change === 0;
      case "flipped": return Boolean(difference(one.passed, pair)) || Boolean(change);
      default: return true;
    }
  }

  // Verdicts that turned worse come first, then values by how much they fell, then ids, as in all other reports.
  function find({pair, show}) {
    const place = ({passed, primary}) => [difference(passed, pair) ?? 0, sign * (difference(primary, pair) ?? 0)];
    return cases.filter((one) => one.compared[pair] && matches(one, pair, show))
      .map((one) => ({one, order: place(one)}))
      .sort((x, y) => x.order[0] - y.order[0] || x.order[1] - y.order[1] || (x.one.id < y.one.id ? -1 : 1))
      .map(({one}) => one);
  }

  // -- the list

  const valueText = (value, decimals) => (value === null ? "–" : value.toFixed(decimals));

  function changeText(value, decimals) {
    if (value === null) return "–";
    const text = value.toFixed(decimals);
    return Number(text) > 0 ? `+${text}` : text;
  }

  function showChoices(state) {
    const {pair, show} = state;
    const [a, b] = [setup.labels[0], setup.labels[pair + 1]];
    const link = (name, changes, isHere) =>
      element("a", {href: hashOf({page: 1, case: null, ...changes}), "aria-current": isHere ? "true" : null}, name);
    const pairs = setup.labels.length === 2 ? [] : setup.labels.slice(1).map((label, place) =>
      link(`${label} against ${a}`, {pair: place}, place === pair));
    const shows = Object.keys(SHOWS).filter((name) => setup.tables[pair] !== null || !OF_TABLE.includes(name));
    byId("choices").hidden = cases.length === 0;
    byId("choices").replaceChildren(...pairs, ...shows.map((name) => link(SHOWS[name](a, b), {show: name}, name === show)));
  }

  function caseLine(one, pair) {
    const {decimals} = setup.primary;
    const text = texts.get(one.id);
    const name = text === undefined ? element("span", {}, write.inline(one.id))
      : element("a", {href: hashOf({case: one.id}), class: "case-link"}, write.inline(one.id));
    const preview = text === undefined ? null : element("span", {class: "preview", dir: "auto"}, ...write.parts(text.preview));
    return element("tr", {},
      element("th", {scope: "row", class: "case-cell"}, name, preview),
      element("td", {dir: "auto"}, ...write.parts(one.category)),
      ...[0, pair + 1].map((place) => element("td", {}, outcome(one.passed[place]))),
      ...[0, pair + 1].map((place) => element("td", {class: "number"}, valueText(one.primary[place], decimals))),
      element("td", {class: "number"}, changeText(difference(one.primary, pair), decimals)));
  }

  function outcome(passed) {
    if (passed === null) return element("span", {class: "outcome no_verdict"}, "no verdict");
    const said = {0: "failed", 1: "passed"}[passed] ?? `${(100 * passed).toFixed(0)}% passed`;
    return element("span", {class: `outcome ${passed === 1 ? "passed" : "failed"}`}, said);
  }

  function showList(state) {
    const [a, b] = [setup.labels[0], setup.labels[state.pair + 1]];
    const pageCount = Math.max(Math.ceil(found.length / CASES_PER_PAGE), 1);
    const page = Math.min(state.page, pageCount), first = (page - 1) * CASES_PER_PAGE;
    const primary = setup.primary.name;
    byId("case-box").hidden = cases.length === 0;
    byId("case-head").replaceChildren(...[
      ["Case", ""], ["Category", ""], [`${a} outcome`, ""], [`${b} outcome`, ""],
      [`${a} ${primary}`, "number"], [`${b} ${primary}`, "number"], [`${b} - ${a}`, "number"],
    ].map(([name, kind]) => element("th", {scope: "col", class: kind || null, dir: "auto"}, ...write.parts(name))));
    byId("case-lines").replaceChildren(...found.slice(first, first + CASES_PER_PAGE).map((one) => caseLine(one, state.pair)));
    const compared = cases.filter((one) => one.compared[state.pair]).length;
    byId("counter").textContent = cases.length === 0 ? ""
      : `${number(found.length)} of ${number(compared)} compared cases: ${SHOWS[state.show](a, b)}, the worst for ${b} first`;
    const pager = byId("pager");
    pager.hidden = pageCount === 1;
    const link = (name, target) => (target === page || target < 1 || target > pageCount
      ? element("span", {class: "soft"}, name) : element("a", {href: hashOf({page: target})}, name));
    pager.replaceChildren(link("First", 1), link("Previous", page - 1),
      element("span", {class: "here"}, `Page ${number(page)} of ${number(pageCount)}`),
      link("Next", page + 1), link("Last", pageCount));
  }

  // -- the open case

  function section(title, ...children) {
    return element("section", {}, element("h3", {}, title), ...children);
  }

  function answer(text, place, ranges, kind) {
    const one = text.answers[place];
    const heading = element("h3", {}, `${setup.labels[place]} `, write.inline(setup.titles[place]));
    if (one === null) return element("div", {}, heading, element("p", {class: "soft"}, "The run does not have the case."));
    return element("div", {}, heading, write.block(one.answer, ranges, kind),
      one.repeat > 1 ? element("p", {class: "soft"}, `Repeat ${one.repeat}.`) : null,
      one.message === null ? null : element("p", {class: "message"}, write.inline(one.message)));
  }

  function values(text, pair) {
    const [a, b] = [text.values[0], text.values[pair + 1]];
    const lines = setup.metrics.map(({name, decimals}, place) => element("tr", {},
      element("th", {scope: "row", dir: "auto"}, ...write.parts(name)),
      element("td", {class: "number"}, valueText(a[place], decimals)),
      element("td", {class: "number"}, valueText(b[place], decimals)),
      element("td", {class: "number"}, a[place] === null || b[place] === null ? "–" : changeText(b[place] - a[place], decimals))));
    const [labelA, labelB] = [setup.labels[0], setup.labels[pair + 1]];
    const heads = [["Metric", null], [labelA, "number"], [labelB, "number"], [`${labelB} - ${labelA}`, "number"]]
      .map(([name, kind]) => element("th", {scope: "col", class: kind}, name));
    return element("div", {class: "scroll", role: "group", "aria-label": "Values", tabindex: "0"}, element("table", {},
      element("caption", {class: "hidden-text"}, "Values"), element("thead", {}, element("tr", {}, ...heads)),
      element("tbody", {}, ...lines)));
  }

  function showCase(state) {
    const one = cases.find(({id}) => id === state.case), text = texts.get(state.case);
    const back = element("a", {href: hashOf({case: null}), id: "back"}, "All cases");
    if (one === undefined || text === undefined) {
      const said = element("p", {}, "This page does not have the texts of a case called ", write.inline(state.case), ".");
      byId("case").replaceChildren(back, element("h2", {id: "case-name", tabindex: "-1"}, "Unknown case"), said);
      return;
    }
    const place = found.indexOf(one);
    const carried = (places) => places.map((at) => found[at]).find((each) => each !== undefined && texts.has(each.id));
    const link = (name, target, id) => (target === undefined ? element("span", {class: "soft"}, name)
      : element("a", {href: hashOf({case: target.id}), id}, name));
    const after = found.map((_, at) => at).filter((at) => at > place), before = [...found.keys()].slice(0, Math.max(place, 0)).reverse();
    const other = text.answers[state.pair + 1];
    const ranges = other?.differences ?? [[], []];
    const note = other === null || other.differences === undefined ? null : element("p", {class: "soft below"}, other.differences === null
      ? "The differences are not marked: the texts repeat themselves too much." : "Underlined words are not in the other answer.");
    byId("case").replaceChildren(...[
      element("nav", {class: "pager", "aria-label": "Cases"}, back, link("Previous", carried(before), "previous"),
        element("span", {class: "here"}, place < 0 ? "not in this list" : `${number(place + 1)} of ${number(found.length)}`),
        link("Next", place < 0 ? undefined : carried(after), "next")),
      element("h2", {id: "case-name", tabindex: "-1"}, write.inline(one.id)),
      element("p", {class: "facts"}, `${setup.labels[0]} `, outcome(one.passed[0]), `${setup.labels[state.pair + 1]} `,
        outcome(one.passed[state.pair + 1]), one.category ? element("span", {class: "tag"}, write.inline(one.category)) : null),
      section("Question", write.block(text.question)),
      element("section", {class: "answers"}, answer(text, 0, ranges[0], "del"), answer(text, state.pair + 1, ranges[1], "ins")),
      note,
      text.references.length ? section("References", ...text.references.map((each) => write.block(each))) : null,
      section("Values", values(text, state.pair)),
    ].filter((part) => part !== null));
  }

  // -- rendering

  function render() {
    const state = readState(), before = shownState;
    const isOpen = state.case !== null;
    found = find(state);
    showChoices(state);
    showList(state);
    if (isOpen) showCase(state);
    byId("case").hidden = !isOpen;
    byId("summary").hidden = isOpen;
    byId("cases").hidden = isOpen;
    document.title = isOpen ? `${state.case} – ${plainTitle}` : plainTitle;
    if (isOpen && state.case !== before?.case) {
      scrollTo(0, 0);
      byId("case-name").focus({preventScroll: true});
    } else if (!isOpen && before !== null && (before.case !== null || before.page !== state.page)) {
      byId("cases").scrollIntoView();
      const links = [...document.querySelectorAll("#case-lines a.case-link")];
      (links.find((one) => caseOf(one) === before.case) ?? byId("cases")).focus({preventScroll: true});
    }
    shownState = state;
    document.documentElement.dataset.ready = String((drawings += 1));
  }

  const caseOf = (link) => new URLSearchParams(new URL(link.href).hash.slice(1)).get("case");

  // Counts in the summary lead to their cases.
  function linkCounts() {
    for (const named of document.querySelectorAll("[data-show]")) {
      const changes = {pair: Number(named.dataset.pair), show: named.dataset.show, page: 1, case: null};
      const link = element("a", {href: hashOf(changes)}, ...named.childNodes);
      link.addEventListener("click", () => byId("cases").scrollIntoView());
      named.replaceChildren(link);
    }
  }

  function takeKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("case").hidden) return;
    const target = {Escape: "back", ArrowLeft: "previous", ArrowRight: "next"}[event.key];
    if (target !== undefined) byId(target)?.click();
  }

  function start() {
    if (cases.length) linkCounts();
    // The hash holds the state of the page, so this link moves without it.
    document.querySelector("a.skip").addEventListener("click", (event) => {
      event.preventDefault();
      const target = byId("case").hidden ? byId("cases") : byId("case-name");
      target.scrollIntoView();
      target.focus();
    });
    document.addEventListener("keydown", takeKey);
    addEventListener("hashchange", render);
    render();
  }

  start();
})();
