// The list of cases and the open case. All that is seen is in the URL's hash, so that links and the back button work.
(() => {
  "use strict";

  const {element, valueText, seconds, number} = assayCase;
  const CASES_PER_PAGE = 100;
  const OWN_ORDERS = ["outcome", "category"]; // beside those of the grammar

  const byId = (id) => document.getElementById(id);
  const setup = JSON.parse(byId("setup").textContent);
  const metricNames = setup.metrics.map(({name}) => name);
  const columns = setup.metrics.filter((metric) => metric.in_list);
  const rows = assayRows.readRows(setup);
  const cases = assayRows.casesOf(rows);
  const details = new assayRows.Details(setup);
  const caseView = new assayCase.CaseView(setup);
  const plainTitle = document.title;

  // What is found under the present filter and order.
  let found = cases;
  let shownState = null;
  let rendering = 0;

  // -- the state in the URL

  function readState() {
    const values = new URLSearchParams(location.hash.slice(1));
    const page = Number(values.get("page") ?? 1);
    return {
      filter: values.get("filter") ?? "",
      order_by: values.get("order_by") ?? "",
      page: Number.isInteger(page) && page > 0 ? page : 1,
      case: values.get("case"),
      repeat: values.get("repeat"),
      keys: values.get("keys") === "off" ? "off" : "",
    };
  }

  function hashOf(changes) {
    const state = {...readState(), ...changes};
    const values = new URLSearchParams();
    if (state.case !== null) values.set("case", state.case);
    if (state.case !== null && state.repeat !== null) values.set("repeat", state.repeat);
    for (const name of ["filter", "order_by", "keys"]) if (state[name]) values.set(name, state[name]);
    if (state.page > 1) values.set("page", String(state.page));
    return `#${values}`;
  }

  function go(changes) {
    const hash = hashOf(changes);
    if (hash === (location.hash || "#")) render();
    else location.hash = hash;
  }

  // -- finding cases

  // Without an order that a reader chose, cases to look at come first, each group in dataset order.
  const worstFirst = ["failed", "agent_error", "undecided", "no_verdict", "passed"];

  // Returns the cases of which a row meets the filter, in their order, or null where another rendering has begun.
  async function find(state, own) {
    const {filter, problems} = assayFilter.parse(state.filter, metricNames);
    const order = assayFilter.parseOrder(state.order_by);
    if (filter === null) return {cases: [], matches: () => false, problems};
    if (filter.texts.length) {
      await details.readTexts(rows, (share) => {
        if (own === rendering) byId("counter").textContent = `searching ${Math.round(100 * share)} % …`;
      });
      if (own !== rendering) return null;
    }
    const matches = assayFilter.matcher(filter);
    const matched = cases.filter((one) => one.rows.some(matches));
    const valueOf = order === null ? null : orderValue(order.key);
    if (valueOf === null) {
      return {cases: [], matches, problems: [{position: 0, message: `'${state.order_by}' is no order of cases`}]};
    }
    const ordered = !state.order_by ? assayFilter.sorted(matched, (one) => worstFirst.indexOf(one.outcome), false)
      : order.key === "dataset" ? (order.descending ? matched.toReversed() : matched)
      : assayFilter.sorted(matched, valueOf, order.descending);
    const counts = new Map(setup.outcomes.map((outcome) => [outcome, 0]));
    for (const one of ordered) {
      for (const row of one.rows) if (matches(row)) counts.set(row.outcome, counts.get(row.outcome) + 1);
    }
    return {cases: ordered, counts, matches, problems: []};
  }

  // Returns what cases are sorted by; of several repeats the mean. Null for an unknown name.
  function orderValue(key) {
    const outcome = (one) => setup.outcomes.indexOf(one.outcome) - one.passed / (one.rows.length + 1);
    const known = {
      dataset: (one) => one.rows[0].place,
      case: (one) => one.caseId,
      outcome,
      category: (one) => one.category || null,
      latency: (one) => one.mean((row) => row.latencyMs),
    };
    if (Object.hasOwn(known, key)) return known[key];
    return metricNames.includes(key) ? (one) => one.mean((row) => row.value(key)) : null;
  }

  // -- the list

  function showHead(state) {
    const order = assayFilter.parseOrder(state.order_by) ?? {key: "dataset", descending: false};
    const head = [
      ["case", "Case", ""], ["outcome", "Outcome", ""], ["category", "Category", ""],
      ...columns.map(({name}) => [name, name, "number"]), ["latency", "Latency", "number"],
    ].map(([key, name, kind]) => {
      const isSorted = order.key === key;
      const button = element("button", {type: "button", class: "sort"}, caseView.write.inline(name));
      button.addEventListener("click", () => {
        const next = !isSorted ? key : order.descending ? "" : `-${key}`;
        go({order_by: next, page: 1});
      });
      const direction = order.descending ? "descending" : "ascending";
      return element("th", {scope: "col", class: kind || null, "aria-sort": isSorted ? direction : null}, button);
    });
    byId("case-head").replaceChildren(...head);
  }

  function caseLine(one) {
    const link = element("a", {href: hashOf({case: one.caseId, repeat: null}), class: "case-link"}, caseView.write.inline(one.caseId));
    const said = one.rows.length === 1 ? one.rows[0].outcomeName : `${one.passed} of ${one.rows.length} passed`;
    const line = element("tr", {},
      element("th", {scope: "row", class: "case-cell"}, link,
        element("span", {class: "preview", dir: "auto"}, ...caseView.write.parts(one.rows[0].preview))),
      element("td", {}, caseView.write.outcome(one.outcome, said)),
      element("td", {dir: "auto"}, ...caseView.write.parts(one.category)),
      ...columns.map(({name, unit}) => element("td", {class: "number"}, valueText(unit, one.mean((row) => row.value(name))))),
      element("td", {class: "number"}, latencyText(one)));
    line.addEventListener("click", (event) => {
      if (event.target.closest("a") === null && getSelection().isCollapsed) link.click();
    });
    return line;
  }

  function latencyText(one) {
    const mean = one.mean((row) => row.latencyMs);
    return seconds(mean === null ? null : mean / 1000);
  }

  function showList(state, result) {
    const pageCount = Math.max(Math.ceil(found.length / CASES_PER_PAGE), 1);
    const page = Math.min(state.page, pageCount);
    const first = (page - 1) * CASES_PER_PAGE;
    showHead(state);
    byId("case-lines").replaceChildren(...found.slice(first, first + CASES_PER_PAGE).map(caseLine));
    showPager(page, pageCount);
    const problems = result.problems.map(({position, message}) => (position ? `character ${position}: ${message}` : message));
    byId("filter-problem").textContent = problems.join("; ");
    byId("filter-expression").setAttribute("aria-invalid", String(problems.length > 0));
    byId("counter").textContent = problems.length ? "no cases: the filter cannot be read" : countText(state, result.counts);
  }

  function countText(state, counts) {
    const noun = cases.length === 1 ? "case" : "cases";
    const share = state.filter.trim() ? `${number(found.length)} of ${number(cases.length)} ${noun}` : `${number(cases.length)} ${noun}`;
    const said = [...counts].filter(([, count]) => count).map(([key, count]) => `${number(count)} ${setup.outcome_names[key]}`);
    if (!said.length) return share;
    return `${share}${rows.length === cases.length ? "" : "; rows"}: ${said.join(", ")}`;
  }

  function showPager(page, pageCount) {
    const pager = byId("pager");
    pager.hidden = pageCount === 1;
    const link = (name, target) => (target === page || target < 1 || target > pageCount
      ? element("span", {class: "soft"}, name) : element("a", {href: hashOf({page: target})}, name));
    pager.replaceChildren(link("First", 1), link("Previous", page - 1),
      element("span", {class: "here"}, `Page ${number(page)} of ${number(pageCount)}`),
      link("Next", page + 1), link("Last", pageCount));
  }

  // -- the controls: views of the one filter

  function fillChoices() {
    const fill = (id, values) => {
      const options = values.map(([value, name]) => element("option", {value}, name));
      byId(id).replaceChildren(element("option", {value: "any"}, "any"), ...options);
      byId(id).parentElement.hidden = values.length === 0;
    };
    const named = (names) => names.toSorted().map((name) => [`=${name}`, caseView.write.inline(name).textContent || "without one"]);
    fill("filter-outcome", setup.outcomes.map((outcome) => [`=${outcome}`, setup.outcome_names[outcome]]));
    fill("filter-category", named(setup.categories));
    fill("filter-tag", named(setup.tags));
  }

  function showControls(state) {
    const {filter} = assayFilter.parse(state.filter);
    const one = (values) => (values.length === 1 ? `=${values[0]}` : "any");
    const known = filter ?? assayFilter.everyRow();
    byId("filter-outcome").value = one(known.outcomes);
    byId("filter-category").value = one(known.categories);
    byId("filter-tag").value = one(known.tags);
    for (const id of ["filter-outcome", "filter-category", "filter-tag"]) {
      if (byId(id).selectedIndex < 0) byId(id).value = "any";
    }
    byId("filter-text").value = textIn(known);
    byId("filter-expression").value = state.filter;
    byId("keys").checked = state.keys !== "off";
  }

  function takeChoice(event) {
    const filter = assayFilter.parse(byId("filter-expression").value).filter ?? assayFilter.everyRow();
    const names = {"filter-outcome": "outcomes", "filter-category": "categories", "filter-tag": "tags"};
    const name = names[event.target.id];
    if (name === undefined) return;
    filter[name] = event.target.value === "any" ? [] : [event.target.value.slice(1)];
    go({filter: assayFilter.format(filter), page: 1});
  }

  // Takes both inputs: the expression, and in it the text where that was changed.
  function takeInputs() {
    const expression = byId("filter-expression").value.trim(), text = byId("filter-text").value;
    const {filter} = assayFilter.parse(expression);
    const before = assayFilter.parse(readState().filter).filter ?? assayFilter.everyRow();
    if (filter === null || text === textIn(before)) {
      go({filter: expression, page: 1});
      return;
    }
    filter.texts = [...filter.texts.filter(({field}) => field !== "text"), ...(text ? [{field: "text", text}] : [])];
    go({filter: assayFilter.format(filter), page: 1});
  }

  const textIn = (filter) => filter.texts.find(({field}) => field === "text")?.text ?? "";

  // -- the open case

  async function showCase(state, result, own) {
    const one = cases.find(({caseId}) => caseId === state.case);
    const article = byId("case");
    if (one === undefined) {
      const said = element("p", {}, "No case of this report is called ", caseView.write.inline(state.case), ".");
      article.replaceChildren(backLink(), element("h2", {id: "case-name", tabindex: "-1"}, "Unknown case"), said);
      return;
    }
    const row = chosenRow(one, state, result.matches);
    const detail = await details.of(row);
    const repeats = await Promise.all(one.rows.map((other) => details.of(other)));
    if (own !== rendering) return;
    const answers = new Set(repeats.map(({answer}) => assayRows.textOf(answer)).filter((text) => text !== null));
    const tags = [...(one.category ? [one.category] : []), ...row.tags];
    article.replaceChildren(
      caseNavigation(one),
      element("h2", {id: "case-name", tabindex: "-1"}, caseView.write.inline(one.caseId)),
      element("p", {class: "facts"}, caseView.write.outcome(row.outcome, row.outcomeName),
        ...tags.map((tag) => element("span", {class: "tag"}, caseView.write.inline(tag)))),
      ...(one.rows.length > 1 ? [repeatSwitch(one, row, answers.size)] : []),
      ...caseView.row(row, detail, one.rows));
  }

  // The repeat that the URL names, or else the first that meets the filter.
  function chosenRow(one, state, matches) {
    const named = one.rows.find(({repeat}) => String(repeat) === state.repeat);
    return named ?? one.rows.find(matches) ?? one.rows[0];
  }

  const backLink = () => element("a", {href: hashOf({case: null, repeat: null}), id: "back"}, "All cases");

  function caseNavigation(one) {
    const place = found.indexOf(one);
    const link = (name, target, id) => (target === undefined
      ? element("span", {class: "soft"}, name)
      : element("a", {href: hashOf({case: target.caseId, repeat: null, page: pageOf(target)}), id}, name));
    return element("nav", {class: "pager", "aria-label": "Cases"}, backLink(),
      link("Previous", place > 0 ? found[place - 1] : undefined, "previous"),
      element("span", {class: "here"}, place < 0 ? "not under this filter" : `${number(place + 1)} of ${number(found.length)}`),
      link("Next", place < 0 ? undefined : found[place + 1], "next"));
  }

  const pageOf = (one) => Math.floor(Math.max(found.indexOf(one), 0) / CASES_PER_PAGE) + 1;

  function repeatSwitch(one, row, answerCount) {
    const links = one.rows.map((other) => element("a", {
      href: hashOf({case: one.caseId, repeat: String(other.repeat)}), "aria-current": other === row ? "true" : null, class: "repeat",
    }, `Repeat ${other.repeat} `, caseView.write.outcome(other.outcome, other.outcomeName)));
    const said = `${one.passed} of ${one.rows.length} passed, ${answerCount} different ${answerCount === 1 ? "answer" : "answers"}`;
    return element("nav", {class: "repeats", "aria-label": "Repeats"}, element("span", {class: "strong"}, said), ...links);
  }

  // -- rendering

  async function render() {
    const own = (rendering += 1);
    const state = readState(), before = shownState;
    const result = await find(state, own);
    if (result === null) return;
    found = result.cases;
    showControls(state);
    showList(state, result);
    const isOpen = state.case !== null;
    if (isOpen) await showCase(state, result, own);
    if (own !== rendering) return;
    byId("case").hidden = !isOpen;
    byId("summary").hidden = isOpen;
    byId("cases").hidden = isOpen;
    document.title = isOpen ? `${state.case} – ${plainTitle}` : plainTitle;
    moveFocus(state, before);
    shownState = state;
    document.documentElement.dataset.ready = String(own);
  }

  function moveFocus(state, before) {
    if (state.case !== null && state.case !== before?.case) {
      scrollTo(0, 0);
      byId("case-name").focus({preventScroll: true});
    } else if (state.case === null && before !== null && before.case !== null) {
      (caseLinks().find((link) => caseOf(link) === before.case) ?? byId("cases")).focus();
    } else if (before !== null && state.page !== before.page && state.case === null) {
      byId("cases").scrollIntoView();
      caseLinks()[0]?.focus({preventScroll: true});
    }
  }

  const caseLinks = () => [...document.querySelectorAll("#case-lines a.case-link")];
  const caseOf = (link) => new URLSearchParams(new URL(link.href).hash.slice(1)).get("case");

  // -- keys

  function step(by) {
    const links = caseLinks();
    const place = links.indexOf(document.activeElement);
    const next = place < 0 ? (by > 0 ? 0 : links.length - 1) : place + by;
    if (links[next] !== undefined) links[next].focus();
    else {
      const names = {1: "Next", "-1": "Previous"};
      [...byId("pager").querySelectorAll("a")].find((link) => link.textContent === names[by])?.click();
    }
  }

  function takeKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isTyping = event.target.matches("input:not([type=checkbox]), select, textarea");
    const isOpen = !byId("case").hidden;
    if (event.key === "Escape") {
      if (isTyping) caseLinks()[0]?.focus();
      else if (isOpen) byId("back").click();
      return;
    }
    if (isTyping) return;
    const command = commandOf(event.key, isOpen, document.activeElement.matches("a.case-link"));
    if (command === null) return;
    event.preventDefault();
    command();
  }

  // Returns what a key does, or null. Arrows scroll the page where they do not move within the list.
  function commandOf(key, isOpen, isInList) {
    const letters = readState().keys !== "off";
    const open = (id) => () => byId(id)?.click();
    if (isOpen) {
      if ((letters && key === "j") || key === "ArrowRight") return open("next");
      if ((letters && key === "k") || key === "ArrowLeft") return open("previous");
      return null;
    }
    if ((letters && key === "j") || (isInList && key === "ArrowDown")) return () => step(1);
    if ((letters && key === "k") || (isInList && key === "ArrowUp")) return () => step(-1);
    return letters && key === "/" ? () => byId("filter-expression").focus() : null;
  }

  // -- names in the summary that lead to their cases

  function linkNames() {
    for (const named of document.querySelectorAll("[data-filter]")) {
      const kind = named.dataset.filter, value = setup[kind][Number(named.dataset.place)];
      const filter = {...assayFilter.everyRow(), [kind]: [value]};
      const link = element("a", {href: hashOf({filter: assayFilter.format(filter), page: 1, case: null})}, ...named.childNodes);
      link.addEventListener("click", () => byId("cases").scrollIntoView());
      named.replaceChildren(link);
    }
  }

  function start() {
    fillChoices();
    linkNames();
    byId("filter-form").hidden = false;
    byId("footer").hidden = false;
    byId("filter-form").addEventListener("change", takeChoice);
    byId("filter-form").addEventListener("submit", (event) => {
      event.preventDefault();
      takeInputs();
    });
    byId("filter-clear").addEventListener("click", () => go({filter: "", page: 1}));
    byId("keys").addEventListener("change", () => go({keys: byId("keys").checked ? "" : "off"}));
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
