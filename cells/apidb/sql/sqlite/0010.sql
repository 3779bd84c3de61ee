-- Tokens of the URLs of consoles, as the SHA-256 of each, until they expire or their server is deleted.
CREATE TABLE console_tokens (
    hash TEXT NOT NULL PRIMARY KEY,
    instance_uuid TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX console_tokens_instance ON console_tokens (instance_uuid);
CREATE INDEX console_tokens_expiry ON console_tokens (expires_at);
