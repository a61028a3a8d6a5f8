-- Reads what an answer of an OpenAI-compatible API cost, while it streams through Envoy, and tells Envoy's rate limit
-- filter: as the dynamic metadata `tokens` and `micro_dollars` of `llm`. Nothing is buffered.

-- Dollars for a million tokens, which are millionths of a dollar for a token: of the prompt, of the answer.
local PRICES = { small = { 0.15, 0.60 }, large = { 2.50, 10.00 } }
-- For models that have no price here: the dearest.
local UNPRICED = PRICES.large
-- The most bytes that lie between the beginning of `usage` and the end of its counts.
local USAGE_BYTES_MAX = 512

function envoy_on_request(handle)
  local headers = handle:headers()
  -- An answer that is compressed cannot be read.
  headers:remove("accept-encoding")
  -- About four bytes a token, should the answer never say.
  local bytes = tonumber(headers:get("content-length") or "") or 0
  handle:streamInfo():dynamicMetadata():set("llm", "prompt_estimate", math.ceil(bytes / 4))
end

function envoy_on_response(handle)
  if handle:headers():get(":status") ~= "200" then
    return -- Costs nothing, and a denial by the rate limit filter ends here too.
  end
  local request = handle:streamInfo():dynamicMetadata():get("llm") or {}
  local price = PRICES[request.model] or UNPRICED
  local function tell(prompt, answer)
    -- Looked up each time: what Envoy hands out is valid until the next chunk.
    local metadata = handle:streamInfo():dynamicMetadata()
    metadata:set("llm", "tokens", prompt + answer)
    metadata:set("llm", "micro_dollars", math.ceil(prompt * price[1] + answer * price[2]))
  end

  -- Until the answer tells its usage, each event counts as a token: whoever hangs up early pays for what was sent.
  local prompt, answer, is_told, before = request.prompt_estimate or 0, 0, false, ""
  tell(prompt, answer)
  for chunk in handle:bodyChunks() do
    local bytes = chunk:length() > 0 and chunk:getBytes(0, chunk:length()) or ""
    -- Counts may be split between two chunks. Inside of texts quotes are escaped, so no answer can fake them.
    local text = before .. bytes
    -- The last ones count: some models tell a running total with each event.
    local prompt_told = text:match('^.*"prompt_tokens"%s*:%s*(%d+)%D')
    local answer_told = text:match('^.*"completion_tokens"%s*:%s*(%d+)%D')
    if prompt_told and answer_told then
      prompt, answer, is_told = tonumber(prompt_told), tonumber(answer_told), true
    elseif not is_told then
      local _, events = bytes:gsub("data: {", "")
      answer = answer + events
    end
    tell(prompt, answer)
    before = text:sub(-USAGE_BYTES_MAX)
  end
end
