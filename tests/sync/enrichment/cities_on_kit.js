// The same enrichment on Syncmaven's own kit, whose `rpc` makes the calls of the state server, with the secret as a
// bearer token and none in the address. The kit has no loop for enrichments: `stdProtocol` is for destinations.
const { rpc } = require("@syncmaven/node-cdk");
const { run } = require("./cities_enrichment.js");

const server = new URL(process.env.RPC_URL || "http://none").origin;

run((method, body) =>
  rpc(`${server}/${method}`, { method: "POST", headers: { Authorization: `Bearer ${process.env.RPC_TOKEN}` }, body }),
);
