/** Hosting: this process answers the questions of its own run. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, type Client } from "@connectrpc/connect";

import { type AgentRequest, type AgentResponse, AgentErrorKind, AgentResponseSchema, AgentStatus,
} from "./gen/assay/agent/v1/agent_pb.js";
import { type HostService, type HostResponse, HostRequestSchema } from "./gen/assay/v1/host_pb.js";
import { Patience, reasonOf } from "./connection.js";

/** What an agent returns: a text, or a whole response. */
export type Answer = string | MessageInitShape<typeof AgentResponseSchema>;

/** An agent: answers a question, and stops when the signal aborts because nobody waits for the answer any longer. */
export type Agent = (question: AgentRequest, signal: AbortSignal) => Answer | Promise<Answer>;

type Outgoing = MessageInitShape<typeof HostRequestSchema>;

const LONGEST_MESSAGE = 4_000;
const TICK_MS = 1_000;
/** A timer this late means that the process was suspended, as a laptop with a closed lid is. */
const SUSPENSION_MS = 15_000;

/** A queue of messages that are sent in order until it is closed. */
class Outbox implements AsyncIterable<Outgoing> {
  #messages: Outgoing[] = [];
  #wake: () => void = () => {};
  #closed = false;

  put(message: Outgoing): void {
    this.#messages.push(message);
    this.#wake();
  }

  close(): void {
    this.#closed = true;
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncIterator<Outgoing> {
    while (!this.#closed) {
      const message = this.#messages.shift();
      if (message !== undefined) {
        yield message;
      } else {
        await new Promise<void>((resolve) => (this.#wake = resolve));
      }
    }
  }
}

/**
 * Answers the questions of a run until it asks no more, over as many streams as that takes.
 *
 * Calls continue while the connection is lost. Answers are kept until the orchestrator has stored them, so that a
 * question which is sent again is not answered twice.
 */
export class AgentHost {
  #kept = new Map<string, Map<string, AgentResponse>>();
  #calls = new Map<string, AbortController>();
  /** Requests of this stream without an answer. An answer to another stream's request waits until it is asked again. */
  #open = new Set<string>();
  #held: AgentRequest[] = [];
  #outbox = new Outbox();
  #suspensions = 0;
  #reconciled = 0;

  constructor(
    private readonly service: Client<typeof HostService>,
    private readonly runId: string,
    private readonly agent: Agent,
    private readonly concurrency: number,
  ) {}

  /** Host until the run has ended or the signal aborts; calls `attached` each time the orchestrator accepts the host. */
  async serve(patience: Patience, signal: AbortSignal, attached: () => void = () => {}): Promise<void> {
    while (!signal.aborted) {
      try {
        if (await this.#stream(patience, signal, attached)) {
          return;
        }
      } catch (error) {
        if (reasonOf(error) === "RUN_ENDED" || (signal.aborted && ConnectError.from(error).code === Code.Canceled)) {
          break;
        }
        await patience.wait(error, signal);
      }
    }
    for (const call of this.#calls.values()) {
      call.abort();
    }
  }

  /** Serve one stream; return whether the run asks no more. */
  async #stream(patience: Patience, signal: AbortSignal, attached: () => void): Promise<boolean> {
    const outbox = (this.#outbox = new Outbox());
    this.#open.clear();
    this.#held = [];
    this.#suspensions = this.#reconciled = 0;
    outbox.put({ message: { case: "attach", value: { runId: this.runId, concurrency: this.concurrency } } });
    let expected = Date.now() + TICK_MS;
    const clock = setInterval(() => {
      if (Date.now() - expected > SUSPENSION_MS) {
        this.#suspensions += 1;
        outbox.put({ message: { case: "suspended", value: { number: BigInt(this.#suspensions) } } });
      }
      expected = Date.now() + TICK_MS;
    }, TICK_MS);
    try {
      for await (const { message } of this.service.host(outbox, { signal })) {
        patience.answered();
        if (message.case === "attached") {
          attached();
        } else if (message.case === "detached") {
          return true;
        } else {
          this.#take(message);
        }
      }
      return false;
    } finally {
      clearInterval(clock);
      outbox.close();
    }
  }

  #take(message: HostResponse["message"]): void {
    switch (message.case) {
      case "requests":
        for (const request of message.value.requests) {
          if (this.#suspensions > this.#reconciled) {
            this.#held.push(request);
          } else {
            this.#asked(request);
          }
        }
        break;
      case "cancelled":
        for (const requestId of message.value.requestIds) {
          this.#calls.get(requestId)?.abort();
          this.#calls.delete(requestId);
          this.#open.delete(requestId);
          this.#held = this.#held.filter((request) => request.requestId !== requestId);
        }
        break;
      case "stored":
        message.value.idempotencyKeys.forEach((key) => this.#kept.delete(key));
        break;
      case "reconciled":
        this.#reconciled = Number(message.value.number);
        if (this.#reconciled === this.#suspensions) {
          this.#held.splice(0).forEach((request) => this.#asked(request));
        }
        break;
    }
  }

  #asked(request: AgentRequest): void {
    this.#open.add(request.requestId);
    const kept = this.#kept.get(request.idempotencyKey)?.get(request.requestId);
    if (kept !== undefined) {
      this.#send(kept);
    } else if (!this.#calls.has(request.requestId)) {
      void this.#answer(request);
    }
  }

  async #answer(request: AgentRequest): Promise<void> {
    const call = new AbortController();
    this.#calls.set(request.requestId, call);
    const begin = performance.now();
    const response = await this.#respond(request, call.signal);
    if (this.#calls.get(request.requestId) !== call) {
      return; // cancelled: the same request may have been asked again meanwhile
    }
    this.#calls.delete(request.requestId);
    response.requestId = request.requestId;
    response.latencyMs ??= performance.now() - begin;
    const answers = this.#kept.get(request.idempotencyKey) ?? new Map<string, AgentResponse>();
    this.#kept.set(request.idempotencyKey, answers.set(request.requestId, response));
    this.#send(response);
  }

  async #respond(request: AgentRequest, signal: AbortSignal): Promise<AgentResponse> {
    try {
      const answer = await this.agent(request, signal);
      const response = typeof answer === "string" ? { text: answer } : answer;
      return create(AgentResponseSchema, { status: AgentStatus.SUCCESS, ...response });
    } catch (problem) {
      const error = problem instanceof Error ? problem : new Error(String(problem));
      return create(AgentResponseSchema, {
        status: AgentStatus.ERROR,
        error: { kind: AgentErrorKind.RAISED, type: error.name, message: error.message.slice(0, LONGEST_MESSAGE),
                 traceback: (error.stack ?? "").slice(-2 * LONGEST_MESSAGE) },
      });
    }
  }

  #send(response: AgentResponse): void {
    if (!this.#open.delete(response.requestId)) {
      return;
    }
    this.#outbox.put({ message: { case: "responses", value: { responses: [response] } } });
  }
}
