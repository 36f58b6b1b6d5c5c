// A judge behind an independent server of the providers' protocols: node aimock_judge.mjs PACKAGE_FOLDER
// It says its URL, and serves until its input ends. Answers say how it is to behave: "valid", "words", "denied", ...
import { pathToFileURL } from "node:url";

const { LLMock } = await import(pathToFileURL(`${process.argv[2]}/dist/index.js`));
const mock = new LLMock({ port: 0, logLevel: "silent" });
const failures = {
  denied: { error: { message: "Incorrect API key provided", type: "authentication_error" }, status: 401 },
  unknown: { error: { message: "no such model", type: "not_found_error" }, status: 404 },
  broken: { error: { message: "oh", type: "server_error" }, status: 500 },
};
const seen = new Set();

function reply(request) {
  const text = (message) =>
    typeof message.content === "string" ? message.content : message.content.map((part) => part.text ?? "").join("\n");
  const system = request.messages.filter((message) => message.role === "system").map(text).join("\n");
  const material = text(request.messages.at(-1));
  const wanted = /please be (\w+)/.exec(material)?.[1] ?? "valid";
  if (failures[wanted]) return failures[wanted];
  const whom = /please be throttled, (\w+)/.exec(material)?.[1];
  if (whom && !seen.has(whom)) {
    seen.add(whom);
    return { error: { message: "slow down", type: "rate_limit_error" }, status: 429, retryAfter: 1 };
  }
  if (wanted === "words") return { content: "I would give it a 5." };
  if (wanted === "cut") return { content: '{"verdict_id": "', finishReason: "length" };
  const verdict_id = /verdict_id of this call is (\w+)/.exec(system)?.[1];
  return {
    content: JSON.stringify({ verdict_id, reasoning: "It is right.", score: 4 }),
    usage: { prompt_tokens: 1200, completion_tokens: 150, total_tokens: 1350, input_tokens: 1200, output_tokens: 150 },
  };
}

mock.addFixture({ match: { predicate: () => true }, response: reply });
await mock.start();
console.log(mock.url);
process.stdin.resume();
process.stdin.on("end", async () => {
  await mock.stop();
  process.exit(0);
});
