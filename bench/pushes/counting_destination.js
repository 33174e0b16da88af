// A destination on Syncmaven's own kit that takes rows and does nothing with them: what is left is the cost of its host.
const { stdProtocol } = require("@syncmaven/node-cdk");
const { z } = require("zod");

const people = {
  name: "people",
  rowType: z.object({ id: z.number(), email: z.string(), city: z.string().optional() }),
  streamOptions: z.object({ list: z.string().optional() }),
  createOutputStream: async () => ({ async handleRow() {}, async finish() {} }),
};
stdProtocol({ name: "people", credentialsType: z.object({ url: z.string() }), streams: [people], defaultStream: "people" });
