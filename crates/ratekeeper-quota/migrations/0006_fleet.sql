-- What all nodes share beside tenants: the tokens of the admin API, and switches of rules. A change of either takes the next
-- number of quota_version, as a change of a tenant does.

-- One row: the numbers of the last changes.
CREATE TABLE fleet (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    tokens_version BIGINT NOT NULL,
    -- 1 from the first token on: nobody is admitted without one any more, even after the last was revoked.
    tokens_required BIGINT NOT NULL,
    switches_version BIGINT NOT NULL
);

INSERT INTO fleet (id, tokens_version, tokens_required, switches_version) VALUES (1, 0, 0, 0);

CREATE TABLE admin_token (
    -- Of the token, in hexadecimal digits.
    sha256 TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    -- A revoked token stays, so that the file of a node that starts later does not bring it back.
    revoked_at BIGINT
);

CREATE INDEX admin_token_name ON admin_token (name);

CREATE TABLE rule_switch (
    -- The id of the rule, shortened if it is very long.
    rule_key TEXT PRIMARY KEY,
    rule TEXT NOT NULL,
    position TEXT NOT NULL
);

-- The nodes that use the database, each by its own last report.
CREATE TABLE node_report (
    -- Random, for each start.
    instance TEXT PRIMARY KEY,
    node TEXT NOT NULL,
    admin TEXT NOT NULL,
    program TEXT NOT NULL,
    rules TEXT NOT NULL,
    quotas_version BIGINT NOT NULL,
    tokens_version BIGINT NOT NULL,
    switches_version BIGINT NOT NULL,
    local_tokens BIGINT NOT NULL,
    started_at BIGINT NOT NULL,
    -- By the database's clock.
    seen_at BIGINT NOT NULL
);
