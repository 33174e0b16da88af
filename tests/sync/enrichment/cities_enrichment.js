// An enrichment in plain Node: it adds a city to each row, and keeps it by the state server. Rows with an even id give
// none, and those whose id ends with a 5 give two. `run` is for the one on the kit, which makes its calls otherwise.
const readline = require("readline");

const say = (type, payload) => process.stdout.write(JSON.stringify({ type, payload }) + "\n");

async function plainCall(method, body) {
  const answer = await fetch(`${process.env.RPC_URL}/${method}`, { method: "POST", body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${method}: ${answer.status}`);
  return answer.json();
}

async function run(call) {
  let options = {};
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { type, payload } = JSON.parse(line);
    if (type === "describe") {
      say("spec", { roles: ["enrichment"], connectionCredentials: { type: "object" } });
    } else if (type === "enrichment-connect") {
      options = payload.options;
    } else if (type === "enrichment-request") {
      const { row } = payload;
      if (row.id % 2 === 0) continue;
      const key = ["city", String(row.id % 10)];
      await call("state.set", { key, value: { city: `${options.prefix}${row.id % 10}` } });
      const { city } = await call("state.get", { key });
      for (let count = row.id % 10 === 5 ? 2 : 1; count > 0; count--) say("enrichment-response", { row: { ...row, city } });
    }
  }
}

module.exports = { run };
if (require.main === module) run(plainCall);
