/**
 * A `fetch` that reads rate limits and paces itself ahead of them, and the calls of a Ratekeeper service.
 *
 * @module
 */

export { ServiceError, type DecidedPolicy, type Decision, type Descriptor, type IdentifierLimit } from "./answers.ts";
export type { LimitResult, Question } from "./answers.ts";
export { allowAll, denyAll, localLimits, type Fallback, type LocalLimit } from "./fallback.ts";
export { createFetch, defaultLane, type Fetch, type FetchEvent, type FetchOptions } from "./fetch.ts";
export { Gate, RateLimitError } from "./gate.ts";
export { readRateLimitInfo, type HeaderPairs, type LimitInfo, type RateLimitInfo } from "./info.ts";
export type { Lane, PacerOptions, Ticket } from "./pacer.ts";
export { Permit, Ratekeeper, type Acquired, type Reserved, type ServiceOptions } from "./service.ts";
