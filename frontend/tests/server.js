// A server on loopback: it answers as the test says, tells what it was asked, and pushes over a socket.

import { createServer } from "node:http";

import { WebSocketServer } from "ws";

/**
 * Start a server whose `answer({ method, path, headers, body })` gives `{ status, body, headers }`.
 *
 * A body that is no text is sent as JSON. `asked` has the requests in their order, `sockets` the open sockets with the
 * paths that they were opened for.
 */
export async function startServer(answer) {
  const asked = [];
  const sockets = [];
  const server = createServer(async (request, response) => {
    let text = "";
    for await (const part of request) text += part;
    const seen = { method: request.method, path: request.url, headers: request.headers, body: text && JSON.parse(text) };
    asked.push(seen);
    const { status = 200, body = "", headers = {} } = answer(seen);
    const isText = typeof body === "string";
    response.writeHead(status, { "Content-Type": isText ? "text/html" : "application/json", ...headers });
    response.end(isText ? body : JSON.stringify(body));
  });
  new WebSocketServer({ server }).on("connection", (socket, request) => {
    sockets.push({ path: request.url, send: (text) => socket.send(text), isOpen: () => socket.readyState === socket.OPEN });
  });
  await new Promise((done) => { server.listen(0, "127.0.0.1", done); });
  return {
    asked,
    sockets,
    url: `http://127.0.0.1:${server.address().port}/`,
    stop() {
      server.closeAllConnections();
      server.close();
    },
  };
}
