/** A client of Assay: upload a dataset, run an agent over it, watch the run, read its rows, compare runs. */
import { randomUUID } from "node:crypto";

import { create, type DescMessage, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { createClient, type Client } from "@connectrpc/connect";

import { CalibrationService } from "./gen/assay/v1/calibration_pb.js";
import { type Case, CaseSchema } from "./gen/assay/v1/case_pb.js";
import { type CompareRunsRequestSchema, type CompareRunsResponse, ComparisonService } from "./gen/assay/v1/comparison_pb.js";
import { type Dataset, DatasetService, type UploadDatasetRequestSchema } from "./gen/assay/v1/dataset_pb.js";
import { HostService } from "./gen/assay/v1/host_pb.js";
import { type RowResult, type ListRowsRequestSchema, RowView } from "./gen/assay/v1/row_pb.js";
import { type Run, type RunEvent, RunService, RunState } from "./gen/assay/v1/run_pb.js";
import { ServerService } from "./gen/assay/v1/server_pb.js";
import { type RunSpecSchema } from "./gen/assay/v1/spec_pb.js";
import { type ConnectionOptions, Patience, reasonOf, transportOf } from "./connection.js";
import { type Agent, AgentHost } from "./host.js";

export * from "./gen/assay/agent/v1/agent_pb.js";
export * from "./gen/assay/v1/calibration_pb.js";
export * from "./gen/assay/v1/case_pb.js";
export * from "./gen/assay/v1/comparison_figures_pb.js";
export * from "./gen/assay/v1/comparison_pb.js";
export * from "./gen/assay/v1/dataset_pb.js";
export * from "./gen/assay/v1/metric_pb.js";
export * from "./gen/assay/v1/row_pb.js";
export * from "./gen/assay/v1/run_pb.js";
export * from "./gen/assay/v1/server_pb.js";
export * from "./gen/assay/v1/spec_pb.js";
export * from "./gen/assay/v1/summary_pb.js";
export { type ConnectionOptions, reasonOf } from "./connection.js";
export { type Agent, type Answer } from "./host.js";

/** The fields of a message, all optional. */
export type Fields<Schema extends DescMessage> = Omit<MessageInitShape<Schema>, "$typeName" | "$unknown">;

/** Cases of a dataset, in order. */
export type Cases = Iterable<Fields<typeof CaseSchema>> | AsyncIterable<Fields<typeof CaseSchema>>;

const ENDED = new Set([RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED]);
const BYTES_PER_MESSAGE = 1 << 20; // a message has at most 4 MiB

/** A connection to an orchestrator. Every call is repeated while the orchestrator is unreachable. */
export class Assay {
  /** The generated clients, for the methods that this class does not wrap. */
  readonly datasets: Client<typeof DatasetService>;
  readonly runs: Client<typeof RunService>;
  readonly comparisons: Client<typeof ComparisonService>;
  readonly calibrations: Client<typeof CalibrationService>;
  readonly hosts: Client<typeof HostService>;
  readonly servers: Client<typeof ServerService>;
  readonly #patienceMs: number;

  constructor(options: ConnectionOptions) {
    const transport = transportOf(options);
    this.datasets = createClient(DatasetService, transport);
    this.runs = createClient(RunService, transport);
    this.comparisons = createClient(ComparisonService, transport);
    this.calibrations = createClient(CalibrationService, transport);
    this.servers = createClient(ServerService, transport);
    this.hosts = createClient(HostService, transport);
    this.#patienceMs = options.patienceMs ?? 60_000;
  }

  /** Store a dataset; equal cases in the same order are stored once. Cases that can be read only once are sent once. */
  async uploadDataset(name: string, cases: Cases): Promise<Dataset> {
    const isRepeatable = Array.isArray(cases);
    const upload = async () => (await this.datasets.uploadDataset(parts(name, cases))).dataset!;
    return isRepeatable ? this.#repeated(upload) : upload();
  }

  /** Create a run. A repeated request id returns the same run. */
  async createRun(
    spec: Fields<typeof RunSpecSchema>, datasetId: string, requestId: string = randomUUID(),
  ): Promise<Run> {
    return this.#repeated(async () => (await this.runs.createRun({ spec, datasetId, requestId })).run!);
  }

  /** Return a run in its current state. */
  async getRun(runId: string): Promise<Run> {
    return this.#repeated(async () => (await this.runs.getRun({ runId })).run!);
  }

  /** Yield the events of a run until it ends or pauses, across lost connections, each once. */
  async *watch(runId: string, options: { afterSequence?: bigint; signal?: AbortSignal } = {}): AsyncGenerator<RunEvent> {
    const patience = new Patience(this.#patienceMs);
    const { signal } = options;
    let afterSequence = options.afterSequence ?? 0n;
    for (;;) {
      try {
        for await (const message of this.runs.watchRun({ runId, afterSequence }, { signal })) {
          patience.answered();
          for (const event of message.events) {
            afterSequence = event.sequence;
            yield event;
          }
          afterSequence = message.bookmarkSequence ?? afterSequence;
        }
        return;
      } catch (error) {
        if (reasonOf(error) !== "WATCH_TOO_SLOW") {
          await patience.wait(error, signal);
        }
      }
    }
  }

  /** Wait until a run ends, and return it with its summary. */
  async wait(runId: string, onEvent: (event: RunEvent) => void = () => {}): Promise<Run> {
    for await (const event of this.watch(runId)) {
      onEvent(event);
    }
    return this.getRun(runId);
  }

  /** Yield the rows of a run that meet the conditions, with their answers, in pages behind the scenes. */
  async *rows(
    runId: string, conditions: Omit<Fields<typeof ListRowsRequestSchema>, "runId" | "pageToken"> = {},
  ): AsyncGenerator<RowResult> {
    let pageToken = "";
    do {
      const page = await this.#repeated(() => this.runs.listRows({ view: RowView.FULL, ...conditions, runId, pageToken }));
      yield* page.rows;
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /** Compare runs over the same cases; the first is the baseline. The answer has figures, decision and sentences. */
  async compare(
    runIds: string[], more: Omit<Fields<typeof CompareRunsRequestSchema>, "runIds"> = {},
  ): Promise<CompareRunsResponse> {
    return this.#repeated(() => this.comparisons.compareRuns({ ...more, runIds }));
  }

  /** Answer the questions of a run until it asks no more or the signal aborts. */
  async host(runId: string, agent: Agent, options: { concurrency?: number; signal?: AbortSignal } = {}): Promise<void> {
    const host = new AgentHost(this.hosts, runId, agent, options.concurrency ?? 16);
    await host.serve(new Patience(this.#patienceMs), options.signal ?? new AbortController().signal);
  }

  /** Run an agent of this process over cases, and return the ended run with its summary. */
  async evaluate(
    spec: Omit<Fields<typeof RunSpecSchema>, "agent">, cases: Cases, agent: Agent,
    options: { concurrency?: number; onEvent?: (event: RunEvent) => void } = {},
  ): Promise<Run> {
    const concurrency = options.concurrency ?? 16;
    const dataset = await this.uploadDataset(spec.name ?? "dataset", cases);
    const hosted = { adapter: "hosted", hostedBy: "typescript", concurrency };
    const { runId } = await this.createRun({ ...spec, agent: hosted }, dataset.datasetId);
    const ended = new AbortController();
    const hosting = this.host(runId, agent, { concurrency, signal: ended.signal });
    const waiting = this.wait(runId, options.onEvent);
    try {
      await Promise.race([waiting, hosting]);
      return await waiting;
    } finally {
      ended.abort();
      await hosting.catch(() => {});
    }
  }

  /** Whether a run has ended, and will not ask again. */
  static hasEnded(run: Run): boolean {
    return ENDED.has(run.state);
  }

  async #repeated<T>(call: () => Promise<T>): Promise<T> {
    const patience = new Patience(this.#patienceMs);
    for (;;) {
      try {
        return await call();
      } catch (error) {
        await patience.wait(error);
      }
    }
  }
}

async function* parts(name: string, cases: Cases): AsyncGenerator<MessageInitShape<typeof UploadDatasetRequestSchema>> {
  yield { part: { case: "header", value: { name } } };
  let batch: Case[] = [];
  let size = 0;
  for await (const item of cases) {
    const message = create(CaseSchema, item);
    const bytes = toBinary(CaseSchema, message).length;
    if (batch.length > 0 && size + bytes > BYTES_PER_MESSAGE) {
      yield { part: { case: "cases", value: { cases: batch } } };
      batch = [];
      size = 0;
    }
    batch.push(message);
    size += bytes;
  }
  if (batch.length > 0) {
    yield { part: { case: "cases", value: { cases: batch } } };
  }
}
