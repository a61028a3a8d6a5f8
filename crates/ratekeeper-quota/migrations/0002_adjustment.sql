-- The steps by which a policy has raised the limit of the tenant's plan; NULL for an override that somebody set.
ALTER TABLE quota_override ADD COLUMN steps BIGINT;

CREATE INDEX quota_override_steps ON quota_override (domain, steps, api_key);

-- For the changes of one tenant.
CREATE INDEX quota_audit_subject ON quota_audit (domain, subject, version);

-- For the tenants that a policy in shadow mode has noted steps of.
CREATE INDEX quota_audit_action ON quota_audit (domain, action, subject);
