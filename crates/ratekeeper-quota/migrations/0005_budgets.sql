-- Overrides that are budgets: 1 or 0, and the most hits that a bucket goes below zero; NULL for what the rules say.
ALTER TABLE quota_override ADD COLUMN post_paid BIGINT;

ALTER TABLE quota_override ADD COLUMN max_debt BIGINT;
