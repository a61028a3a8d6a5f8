-- How far the audit trail has been exported to each target, and the node that does it.
CREATE TABLE audit_export (
    -- The address without its credentials, and the name of the stream there.
    target TEXT PRIMARY KEY,
    -- The last row of the audit trail that the target has confirmed.
    version BIGINT NOT NULL,
    -- The node that exports, and the time, by the database's clock, until which no other may.
    holder TEXT NOT NULL,
    held_until BIGINT NOT NULL
);
