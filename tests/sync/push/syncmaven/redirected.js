// Loaded before a connector (`node --require`, or NODE_OPTIONS): what it would call by https goes by http to the server
// that is named by the variable REDIRECTED_TO, or else by the last argument. The path begins with the host that was meant.
const http = require("http");
const https = require("https");
const server = new URL(process.env.REDIRECTED_TO || process.argv.at(-1));

const send = globalThis.fetch;
globalThis.fetch = (url, options) => send(String(url).replace(/^https:\/\//, `${server.origin}/`), options);

https.request = (options, answered) =>
  http.request(
    {
      method: options.method,
      headers: options.headers,
      hostname: server.hostname,
      port: server.port,
      path: `/${options.hostname || options.host}${options.path}`,
    },
    answered,
  );
