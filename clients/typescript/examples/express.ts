// An application of Express whose callers are limited by a Ratekeeper service:
//
//   ratekeeper serve --rules rules.yaml
//   node examples/express.ts http://127.0.0.1:8080
//
// with this rule:
//
//   domain: shop
//   descriptors:
//     - { key: customer, rate_limit: { name: per-minute, window: 1m, limit: 3 } }

import express, { type Request } from "express";
import { denyAll, Ratekeeper } from "ratekeeper";
import { rateLimit } from "ratekeeper/express";

const [endpoint = "http://127.0.0.1:8080", port = "0", timeoutMs = "1000"] = process.argv.slice(2);
const service = new Ratekeeper({ endpoints: endpoint, timeoutMs: Number(timeoutMs), fallback: denyAll });

const app = express();
app.use(
  rateLimit({
    service,
    question: (request: Request) => ({ domain: "shop", descriptors: [{ entries: { customer: request.get("x-customer") ?? "" } }] }),
  }),
);
app.get("/orders", (_request, answer) => { answer.json({ orders: [] }); });

const server = app.listen(Number(port), "127.0.0.1", () => {
  const address = server.address();
  console.log(`listening on http://127.0.0.1:${typeof address === "object" ? address?.port : port}`);
});
