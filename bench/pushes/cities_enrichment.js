// An enrichment that adds a city to each row, as cheaply as Node can.
const readline = require("readline");

const say = (type, payload) => process.stdout.write(JSON.stringify({ type, payload }) + "\n");

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const { type, payload } = JSON.parse(line);
  if (type === "describe") say("spec", { roles: ["enrichment"], connectionCredentials: { type: "object" } });
  if (type === "enrichment-request") say("enrichment-response", { row: { ...payload.row, city: `city ${payload.row.id % 97}` } });
});
