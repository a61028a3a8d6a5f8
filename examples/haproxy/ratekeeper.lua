-- Asks Ratekeeper whether a request may pass.

local url = os.getenv("RATEKEEPER_AUTH")

-- Not longer than this is waited for an answer, in milliseconds. HAProxy's client tries up to four times.
local patience = 250

-- Ratekeeper's header, and the variable in which haproxy.cfg finds it.
local told = {
    ["x-ratelimit-limit"] = "txn.limit_limit",
    ["x-ratelimit-remaining"] = "txn.limit_remaining",
    ["x-ratelimit-reset"] = "txn.limit_reset",
    ["ratelimit"] = "txn.limit_state",
    ["ratelimit-policy"] = "txn.limit_policy",
}

-- The request's headers that descriptors are made from; `auth` in ratekeeper.yaml names them. No others are sent, so
-- that nothing a client writes is taken for this proxy's word.
local asked_for = { "x-api-key" }

core.register_action("ratekeeper", { "http-req" }, function(txn)
    local sent = {
        ["x-forwarded-for"] = { txn.f:src() },
        ["x-forwarded-method"] = { txn.f:method() },
        ["x-forwarded-uri"] = { txn.f:pathq() },
        ["x-forwarded-proto"] = { txn.f:ssl_fc() == 1 and "https" or "http" },
    }
    local host = txn.f:req_hdr("host")
    if host and host ~= "" then
        sent["x-forwarded-host"] = { host }
    end
    local headers = txn.http:req_get_headers()
    for _, name in ipairs(asked_for) do
        if headers[name] then
            local values = {}
            for _, value in pairs(headers[name]) do
                table.insert(values, value)
            end
            sent[name] = values
        end
    end

    local client = core.httpclient()
    local ok, answer = pcall(client.get, client, { url = url, headers = sent, timeout = patience })

    -- Without an answer requests pass. To refuse them instead, end the transaction here with
    -- txn:done(txn:reply{ status = 503 }), and ask in haproxy.cfg in any case.
    if not ok or not answer or answer.status == 0 or answer.status >= 500 then
        return
    end

    if answer.status == 200 then
        for name, variable in pairs(told) do
            if answer.headers[name] then
                txn:set_var(variable, answer.headers[name][0])
            end
        end
        return
    end

    local reply = txn:reply({ status = answer.status })
    for _, name in ipairs({ "content-type", "retry-after" }) do
        if answer.headers[name] then
            reply:add_header(name, answer.headers[name][0])
        end
    end
    for name, _ in pairs(told) do
        if answer.headers[name] then
            reply:add_header(name, answer.headers[name][0])
        end
    end
    reply:set_body(answer.body or "")
    txn:done(reply)
end)
