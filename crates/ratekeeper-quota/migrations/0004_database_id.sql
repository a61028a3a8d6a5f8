-- A random name of the database, by which nodes see that they use the same one.
ALTER TABLE quota_version ADD COLUMN database_id TEXT;
