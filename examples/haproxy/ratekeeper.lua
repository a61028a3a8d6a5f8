-- Asks Ratekeeper if a request may pass.

local url = os.getenv("RATEKEEPER_AUTH")

-- The longest wait for an answer, in milliseconds. HAProxy's HTTP client tries up to four times.
local patience = 250

-- Ratekeeper's headers, and the variables that haproxy.cfg reads them from.
local limit_headers = {
    ["x-ratelimit-limit"] = "txn.limit_limit",
    ["x-ratelimit-remaining"] = "txn.limit_remaining",
    ["x-ratelimit-reset"] = "txn.limit_reset",
    ["ratelimit"] = "txn.limit_state",
    ["ratelimit-policy"] = "txn.limit_policy",
}

-- The request headers that `auth` in ratekeeper.yaml uses. No others are sent, so that a client cannot forge the
-- proxy's own.
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

    -- If Ratekeeper does not answer, requests pass. To refuse them instead, end the transaction here with
    -- txn:done(txn:reply{ status = 503 }), and remove the condition `if { nbsrv... }` in haproxy.cfg.
    if not ok or not answer or answer.status == 0 or answer.status >= 500 then
        return
    end

    if answer.status == 200 then
        for name, variable in pairs(limit_headers) do
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
    for name, _ in pairs(limit_headers) do
        if answer.headers[name] then
            reply:add_header(name, answer.headers[name][0])
        end
    end
    reply:set_body(answer.body or "")
    txn:done(reply)
end)
