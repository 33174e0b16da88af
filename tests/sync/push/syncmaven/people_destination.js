// A destination on Syncmaven's own kit: it posts each row to a server, and counts them in its state. It halts before the
// row whose id is the credentials' haltsAt.
const { stdProtocol, RateLimitError } = require("@syncmaven/node-cdk");
const { z } = require("zod");

const people = {
  name: "people",
  rowType: z.object({ id: z.number(), email: z.string().email(), city: z.string().optional() }),
  streamOptions: z.object({ list: z.string().optional() }),
  createOutputStream: async (config, ctx) => {
    const key = [`syncId=${config.syncId}`, "type=count"];
    const before = config.fullRefresh ? {} : await ctx.store.get(key);
    let sent = 0;
    return {
      async handleRow(row) {
        if (row.id === config.credentials.haltsAt) {
          const halt = { type: "halt", payload: { status: "error", message: "the list is full" } };
          process.stdout.write(JSON.stringify(halt) + "\n", () => process.exit(1));
          await new Promise(() => {});
        }
        const answer = await fetch(`${config.credentials.url}/${config.options.list}`, {
          method: "POST",
          body: JSON.stringify(row),
        });
        if (answer.status === 429) throw new RateLimitError("slow down", { retryAfterMs: 50 });
        if (!answer.ok) throw new Error(`the server said ${answer.status}`);
        sent++;
      },
      async finish() {
        await ctx.store.set(key, { total: (before.total || 0) + sent });
        await ctx.store.set([`syncId=${config.syncId}`, "type=zero"], 0);
        const zero = await ctx.store.get([`syncId=${config.syncId}`, "type=zero"]);
        const listed = await ctx.store.list([`syncId=${config.syncId}`]);
        console.log("kept", { zero, size: await ctx.store.size([`syncId=${config.syncId}`]), listed: listed.length });
      },
    };
  },
};
stdProtocol({ name: "people", credentialsType: z.object({ url: z.string(), haltsAt: z.number().optional() }), streams: [people], defaultStream: "people" });
