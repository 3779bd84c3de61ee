-- Tokens of the URLs of consoles, as the SHA-256 of each, until they expire or their server is deleted.
CREATE TABLE console_tokens (
    hash VARCHAR(64) NOT NULL,
    instance_uuid VARCHAR(36) NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (hash),
    KEY console_tokens_instance (instance_uuid),
    KEY console_tokens_expiry (expires_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
