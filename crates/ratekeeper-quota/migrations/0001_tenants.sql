-- Runs on SQLite and PostgreSQL alike. Times are microseconds since 1970 in UTC; 0 stands for
-- "always" where something begins, NULL for "never" where it ends.

-- One row. Every change locks it for its transaction and takes the next number, so that changes
-- commit in the order of their numbers, and each audit row is chained to the one before.
CREATE TABLE quota_version (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    version BIGINT NOT NULL,
    audit_hash TEXT NOT NULL,
    -- A fingerprint of the key that tenants' values are hashed under.
    tenant_key TEXT
);

INSERT INTO quota_version (id, version, audit_hash) VALUES (1, 0, '');

CREATE TABLE tenant (
    domain TEXT NOT NULL,
    -- The keyed hash of the value.
    api_key TEXT NOT NULL,
    -- The value, or the last characters of a secret one.
    shown TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    version BIGINT NOT NULL UNIQUE,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    -- A deleted tenant stays for a while, so that every node hears of it; for ever if it was reset,
    -- so that old usage stays forgotten.
    deleted_at BIGINT,
    PRIMARY KEY (domain, api_key)
);

CREATE TABLE tenant_plan (
    domain TEXT NOT NULL,
    api_key TEXT NOT NULL,
    tier TEXT NOT NULL,
    effective_at BIGINT NOT NULL,
    expires_at BIGINT,
    PRIMARY KEY (domain, api_key, effective_at),
    FOREIGN KEY (domain, api_key) REFERENCES tenant (domain, api_key)
);

CREATE INDEX tenant_plan_tier ON tenant_plan (tier);

CREATE TABLE quota_override (
    domain TEXT NOT NULL,
    api_key TEXT NOT NULL,
    -- The entries after the tenant's, each as key:value, as a JSON list.
    descriptor TEXT NOT NULL,
    requests_per_unit BIGINT NOT NULL,
    unit TEXT,
    time_window TEXT,
    burst BIGINT,
    algorithm TEXT,
    effective_at BIGINT NOT NULL,
    expires_at BIGINT,
    -- The place in the tenant's list.
    position BIGINT NOT NULL,
    PRIMARY KEY (domain, api_key, descriptor, effective_at),
    FOREIGN KEY (domain, api_key) REFERENCES tenant (domain, api_key)
);

CREATE TABLE quota_audit (
    version BIGINT PRIMARY KEY,
    changed_at BIGINT NOT NULL,
    editor TEXT NOT NULL,
    source TEXT NOT NULL,
    request_id TEXT NOT NULL,
    action TEXT NOT NULL,
    domain TEXT NOT NULL,
    subject TEXT NOT NULL,
    state_before TEXT,
    state_after TEXT,
    hash TEXT NOT NULL
);

CREATE TABLE quota_usage (
    minute BIGINT NOT NULL,
    domain TEXT NOT NULL,
    api_key TEXT NOT NULL,
    rule TEXT NOT NULL,
    node TEXT NOT NULL,
    allowed BIGINT NOT NULL,
    denied BIGINT NOT NULL,
    PRIMARY KEY (minute, domain, api_key, rule, node)
);

CREATE INDEX quota_usage_tenant ON quota_usage (domain, api_key, minute);
