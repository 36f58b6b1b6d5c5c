/** The connection to an orchestrator: address, TLS, token, and calls that are repeated while it is unreachable. */
import { Code, ConnectError, type Interceptor, type Transport } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";

import { ErrorInfoSchema } from "./gen/google/rpc/error_details_pb.js";

/** How a client reaches its orchestrator. */
export interface ConnectionOptions {
  /** "host:port" of the orchestrator. */
  address: string;
  /** An API token; it is sent only over TLS or to this machine. */
  token?: string;
  /** PEM texts; `{}` takes the authorities of Node.js. Without `tls` the connection is not encrypted. */
  tls?: { ca?: string; cert?: string; key?: string };
  /** How long a call is repeated while the orchestrator is unreachable, in milliseconds; default 60,000. */
  patienceMs?: number;
}

const LOOPBACK = /^(localhost|127(\.\d+){3}|\[::1\]):\d+$/;
const LONGEST_PAUSE_MS = 5_000;

/** Return the transport of a connection. */
export function transportOf(options: ConnectionOptions): Transport {
  const { address, token, tls } = options;
  if (token !== undefined && tls === undefined && !LOOPBACK.test(address)) {
    throw new Error(`the token would be sent to ${address} unencrypted: set tls`);
  }
  const authorize: Interceptor = (next) => (request) => {
    request.header.set("authorization", `Bearer ${token}`);
    return next(request);
  };
  return createGrpcTransport({
    baseUrl: `${tls === undefined ? "http" : "https"}://${address}`,
    nodeOptions: tls ?? {},
    interceptors: token === undefined ? [] : [authorize],
    pingIntervalMs: 30_000,
  });
}

/** Return the stable reason of an error, such as "RUN_NOT_FOUND"; empty for an error that is not Assay's. */
export function reasonOf(error: unknown): string {
  return ConnectError.from(error).findDetails(ErrorInfoSchema).find((info) => info.domain === "assay")?.reason ?? "";
}

const LOST = new Set([Code.Unavailable, Code.Aborted, Code.Canceled, Code.Internal]);

/** Whether the connection was lost: a broken stream has one of several codes, and never a reason of Assay's. */
function isLost(error: unknown): boolean {
  const { code } = ConnectError.from(error);
  return code === Code.Unavailable || (LOST.has(code) && reasonOf(error) === "");
}

/** Repeats calls while the orchestrator is unreachable, up to a limit since the last answer. */
export class Patience {
  #lastAnswer = Date.now();
  #pauseMs = 100;

  constructor(private readonly limitMs: number) {}

  /** Note that the orchestrator has answered. */
  answered(): void {
    this.#lastAnswer = Date.now();
    this.#pauseMs = 100;
  }

  /** Wait before the next attempt; throw the error if it cannot be repeated or the limit is reached. */
  async wait(error: unknown, signal?: AbortSignal): Promise<void> {
    if (signal?.aborted || !isLost(error) || Date.now() - this.#lastAnswer > this.limitMs) {
      throw error;
    }
    const pauseMs = this.#pauseMs * (0.5 + Math.random() / 2);
    this.#pauseMs = Math.min(this.#pauseMs * 2, LONGEST_PAUSE_MS);
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}
