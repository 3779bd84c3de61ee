-- Tokens of the URLs of consoles, as the SHA-256 of each, until they expire or their server is deleted.
CREATE TABLE console_tokens (
    hash VARCHAR(64) COLLATE "C" NOT NULL,
    instance_uuid VARCHAR(36) COLLATE "C" NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (hash)
);
CREATE INDEX console_tokens_instance ON console_tokens (instance_uuid);
CREATE INDEX console_tokens_expiry ON console_tokens (expires_at);
