// The client against a real orchestrator with tokens and TLS, which tests/clients starts.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { test } from "node:test";

import { Code, ConnectError } from "@connectrpc/connect";

import { Patience } from "../dist/connection.js";
import { AgentHost } from "../dist/host.js";
import { Assay, DecisionOutcome, RunState, RunVerdict, reasonOf } from "../dist/index.js";

const { ASSAY_ADDRESS: address, ASSAY_TOKEN: token, ASSAY_CA: authority } = process.env;
const connection = { address, token, tls: { ca: readFileSync(authority, "utf-8") } };
const assay = new Assay(connection);
const spec = (name) => ({ name, metrics: [{ name: "exact_match" }], gates: ["pass_rate >= 0.5"] });
const casesOf = (count) =>
  Array.from({ length: count }, (_, n) => ({ caseId: `c${n}`, turns: [{ input: `${n}?`, references: [`${n}!`] }] }));
const right = (question) => question.input.replace("?", "!");

test("an agent of this process is evaluated, and its run is read and compared", async () => {
  const cases = casesOf(30);
  const run = await assay.evaluate(spec("right"), cases, right);
  assert.equal(run.state, RunState.COMPLETED);
  assert.equal(run.summary.verdict, RunVerdict.PASS);
  assert.equal(run.summary.passRate, 1);
  const rows = [];
  for await (const row of assay.rows(run.runId, { pageSize: 7 })) rows.push(row);
  assert.deepEqual(rows.map((row) => row.caseId), cases.map(({ caseId }) => caseId));
  assert.deepEqual(rows.map((row) => row.response.text), cases.map((_, n) => `${n}!`));

  const worse = await assay.evaluate(spec("worse"), cases, ({ input }) => (input.length > 2 ? "no" : right({ input })));
  assert.equal(worse.summary.verdict, RunVerdict.FAIL);
  const { comparison, decision, text } = await assay.compare([run.runId, worse.runId], { rules: { maxDrop: 0.1 } });
  assert.equal(comparison.primary, "exact_match");
  assert.equal(comparison.pairs[0].lostCaseCount, 20n);
  assert.deepEqual([decision.outcome, decision.exitStatus], [DecisionOutcome.REGRESSION, 1]);
  assert.equal(decision.drops[0].runId, worse.runId);
  assert.match(text.verdict, /^worse is worse than right on exact_match: -0\.67/);
});

test("an agent that throws fails its row and no other", async () => {
  const run = await assay.evaluate({ ...spec("throws"), maxAgentErrors: 1 }, casesOf(3), (question) => {
    if (question.caseId === "c1") throw new RangeError("no such case");
    return right(question);
  });
  const rows = [];
  for await (const row of assay.rows(run.runId)) rows.push(row);
  assert.deepEqual(rows.map((row) => row.passed), [true, false, true]);
  const { error } = rows[1].response;
  assert.deepEqual([error.type, error.message], ["RangeError", "no such case"]);
  assert.match(error.traceback, /client\.test\.mjs/);
});

test("a watch continues after the last event that was taken", async () => {
  const run = await assay.evaluate(spec("watched"), casesOf(5), right);
  const read = async (options) => {
    const events = [];
    for await (const event of assay.watch(run.runId, options)) events.push(event);
    return events;
  };
  const all = await read({});
  assert.deepEqual(all.map((event) => event.sequence), all.map((_, n) => BigInt(n + 1)));
  assert.deepEqual(await read({ afterSequence: 3n }), all.slice(3));
});

test("refusals have a reason that programs branch on", async () => {
  await assert.rejects(assay.getRun("no-such-run"), (error) => reasonOf(error) === "RUN_NOT_FOUND");
  const dataset = await assay.uploadDataset("few", casesOf(1));
  const wrong = { ...spec("wrong"), agent: { adapter: "nope" }, metrics: [{ name: "exact_mach" }] };
  await assert.rejects(assay.createRun(wrong, dataset.datasetId), /did you mean 'exact_match'/);
  const stranger = new Assay({ ...connection, token: token.replace(/.{4}$/, "0000") });
  await assert.rejects(stranger.getRun("any"), (error) => reasonOf(error) === "TOKEN_MALFORMED");
  assert.throws(() => new Assay({ address: "example.org:1", token }), /set tls/);
});

test("a run survives the death of its orchestrator, and no question is answered twice", async () => {
  const answered = [];
  const killed = createInterface({ input: process.stdin });
  const evaluating = assay.evaluate(spec("killed"), casesOf(40), async (question) => {
    answered.push(question.caseId);
    if (answered.length === 20) {
      console.error("kill the orchestrator");
      await once(killed, "line");
    }
    return right(question);
  }, { concurrency: 4 });
  const run = await evaluating.finally(() => killed.close());
  assert.equal(run.summary.passRate, 1);
  assert.deepEqual(answered.sort(), casesOf(40).map(({ caseId }) => caseId).sort());
});

test("a call that runs while the connection is lost answers the stream that asks again", async () => {
  const calls = [];
  const sent = [];
  let streams = 0;
  let answer;
  let arrived;
  const arrival = new Promise((resolve) => (arrived = resolve));
  const service = {
    async *host(outbox) {
      const stream = ++streams;
      void (async () => {
        for await (const { message } of outbox) {
          if (message.case === "responses") {
            sent.push([stream, message.value.responses[0].text]);
            arrived();
          }
        }
      })();
      yield { message: { case: "attached", value: {} } };
      yield { message: { case: "requests", value: { requests: [{ requestId: "r", idempotencyKey: "k" }] } } };
      if (stream === 1) throw new ConnectError("lost", Code.Unavailable);
      answer("late");
      await arrival;
      yield { message: { case: "detached", value: {} } };
    },
  };
  const agent = (question) => {
    calls.push(question.requestId);
    return new Promise((resolve) => (answer = resolve));
  };
  await new AgentHost(service, "run", agent, 1).serve(new Patience(60_000), new AbortController().signal);
  assert.deepEqual(calls, ["r"]);
  assert.deepEqual(sent, [[2, "late"]]);
});
