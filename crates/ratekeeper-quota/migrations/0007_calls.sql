-- The calls of tenants by hour, each once, whatever number of rules it matched.
CREATE TABLE quota_calls (
    hour BIGINT NOT NULL,
    domain TEXT NOT NULL,
    api_key TEXT NOT NULL,
    node TEXT NOT NULL,
    allowed BIGINT NOT NULL,
    denied BIGINT NOT NULL,
    PRIMARY KEY (hour, domain, api_key, node)
);

CREATE INDEX quota_calls_tenant ON quota_calls (domain, api_key, hour);

-- The names of tenants that have called, be they in the table of tenants or not.
CREATE TABLE quota_caller (
    domain TEXT NOT NULL,
    api_key TEXT NOT NULL,
    -- The value, or the last characters of a secret one.
    shown TEXT NOT NULL,
    -- The last hour in which it called.
    hour BIGINT NOT NULL,
    PRIMARY KEY (domain, api_key)
);
