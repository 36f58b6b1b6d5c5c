// A model behind an independent server of the providers' protocols: node aimock_agent.mjs PACKAGE_FOLDER
// It says its URL, and serves until its input ends. The question says what is answered: "text", "cut", "tools".
import { pathToFileURL } from "node:url";

const { LLMock } = await import(pathToFileURL(`${process.argv[2]}/dist/index.js`));
const mock = new LLMock({ port: 0, logLevel: "silent" });
const usage = { prompt_tokens: 1200, completion_tokens: 150, total_tokens: 1350, input_tokens: 1200, output_tokens: 150 };
const answers = {
  text: { content: "Paris is the capital of France. باريس", reasoning: "a city", usage },
  cut: { content: "Paris is", finishReason: "length", usage },
  tools: { toolCalls: [{ name: "search", arguments: '{"query": "Paris"}' }, { name: "open", arguments: "{}" }], usage },
};
mock.addFixture({ match: { predicate: () => true }, response: (request) => answers[request.messages.at(-1).content] });
await mock.start();
console.log(mock.url);
process.stdin.resume();
process.stdin.on("end", async () => {
  await mock.stop();
  process.exit(0);
});
